"""SFT: `accelerate launch recipes/sft.py [--config FILE.yaml] [--dry-run] [dotted.key=value ...]`.

Without --config it trains the embedded nano model on the embedded traces (recipes/nano/sft.yaml).
docs/sft.md says what SFT does; the trainer itself is trlmath/training/sft.py.
"""

from trlmath.cli.launch import launch
from trlmath.recipe import Recipe


def check(recipe: Recipe) -> None:
    from trlmath.recipe import check_components, check_trainer

    check_trainer(recipe, "sft")
    check_components(recipe)


def run(recipe: Recipe) -> None:
    from trlmath.reports.console import ConsoleDisplay
    from trlmath.training.sft_run import SftRun

    with SftRun(recipe, ConsoleDisplay()) as sft:
        before = sft.evaluate("before")
        sft.train()
        after = sft.evaluate("after")
        sft.finish(before, after)


if __name__ == "__main__":
    launch("sft", run, check)
