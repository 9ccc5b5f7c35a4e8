"""GRPO: `accelerate launch recipes/grpo.py [--config FILE.yaml] [--dry-run] [dotted.key=value ...]`.

Without --config it trains the embedded nano model (recipes/nano/grpo.yaml). docs/recipes.md says what
a recipe can say; the trainer itself is trlmath/training/grpo.py.
"""

from trlmath.cli.launch import launch
from trlmath.recipe import Recipe


def check(recipe: Recipe) -> None:
    from trlmath.recipe import check_components, check_trainer

    check_trainer(recipe)
    check_components(recipe)


def run(recipe: Recipe) -> None:
    from trlmath.reports.console import ConsoleDisplay
    from trlmath.training.grpo_run import GrpoRun

    with GrpoRun(recipe, ConsoleDisplay()) as grpo:
        before = grpo.evaluate("before")
        grpo.train()
        after = grpo.evaluate("after")
        grpo.finish(before, after)


if __name__ == "__main__":
    launch("grpo", run, check)
