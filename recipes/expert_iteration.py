"""Expert iteration: `accelerate launch recipes/expert_iteration.py [--config FILE.yaml] [key=value ...]`.

Without --config it trains the embedded nano model (recipes/nano/expert_iteration.yaml). A killed run goes on
with the same command and its run.dir. docs/expert-iteration.md explains; docs/recipes.md names every key.
"""

from trlmath.cli.launch import launch
from trlmath.recipe import Recipe


def check(recipe: Recipe) -> None:
    from trlmath.recipe import check_components, check_trainer

    check_trainer(recipe, "expert_iteration")
    check_components(recipe)


def run(recipe: Recipe) -> None:
    from trlmath.reports.console import ConsoleDisplay
    from trlmath.training.expert_iteration_run import ExpertIterationRun

    with ExpertIterationRun(recipe, ConsoleDisplay()) as expert:
        expert.evaluate("before")
        for iteration in expert.iterations():
            traces = expert.sample(iteration)  # G graded rollouts for each of the next questions
            selection = expert.select(iteration, traces)
            expert.sft(iteration, selection)
            expert.evaluate(iteration)
        expert.finish()


if __name__ == "__main__":
    launch("expert_iteration", run, check)
