"""Evaluate: `accelerate launch recipes/evaluate.py [--config FILE.yaml] [--dry-run] [dotted.key=value ...]`.

Without --config it measures the embedded nano model (recipes/nano/evaluate.yaml). `trlmath evaluate` does
the same in one process; docs/evaluation.md says what the numbers mean.
"""

from trlmath.cli.launch import launch
from trlmath.recipe import Recipe


def check(recipe: Recipe) -> None:
    from trlmath.evaluation.prepare import prepare_evaluation

    prepare_evaluation(recipe)


def run(recipe: Recipe) -> None:
    from trlmath.evaluation.evaluation_run import EvaluationRun
    from trlmath.reports.console import ConsoleDisplay

    with EvaluationRun(recipe, ConsoleDisplay()) as evaluation:
        evaluation.run()


if __name__ == "__main__":
    launch("evaluate", run, check)
