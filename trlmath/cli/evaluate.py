"""``trlmath evaluate`` and ``trlmath evaluate diff``: how good a model is, and which of two is better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from trlmath.cli.echo import echo
from trlmath.cli.launch import quiet_libraries, readable_errors
from trlmath.errors import RecipeError

# an evaluation has its own sampling settings; training's would be silently ignored
NOT_HERE = {
    "sampling.temperature": "--temperature, or evaluation.settings.0.temperature",
    "sampling.top_p": "evaluation.settings.0.top_p",
    "sampling.top_k": "evaluation.settings (there is no top_k)",
    "sampling.min_p": "evaluation.settings (there is no min_p)",
}


class EvaluateGroup(click.Group):
    """Measures a model unless the first word names a command: ``run`` is never written, nor shown."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` in front where no command is named."""
        if not args or args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


class AsGroup(click.Context):
    """Goes by the name of the group: people write `trlmath evaluate --model ...`."""

    @property
    def command_path(self) -> str:
        """The words in front of the options."""
        return self.parent.command_path if self.parent else super().command_path


class Measure(click.Command):
    """What `trlmath evaluate` does; its help is the group's: no word ``run``, and the commands listed."""

    context_class = AsGroup

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands of the group."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.short_help or "") for name, found in others(evaluate).items()])


def others(group: click.Group) -> dict[str, click.Command]:
    """The commands that a person names."""
    return {name: found for name, found in group.commands.items() if name != "run"}


@click.group(cls=EvaluateGroup)
def evaluate() -> None:
    """Measure a model on a dataset."""


@evaluate.command("run", cls=Measure)
@click.option("--model", help="nano, a folder (a checkpoint, a LoRA adapter) or a Hub id.")
@click.option("--dataset", help="A registered dataset, a file (.jsonl .json .csv .parquet) or a Hub id.")
@click.option("--prompt", help="A registered prompt or a template file.  [default: r1_zero]")
@click.option("-n", "n", type=click.IntRange(min=1), help="Completions a problem.  [default: 1]")
@click.option("--temperature", type=click.FloatRange(min=0), help="0 is greedy.  [default: 1]")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Of a completion.  [default: 1024 if it fits]")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many problems.  [default: all]")
@click.option("--reward", help="The reward that grades.  [default: r1_zero]")
@click.option(
    "--engine",
    type=click.Choice(["auto", "vllm", "transformers"]),
    help="What generates; auto takes the faster one for this machine and says so.  [default: auto]",
)
@click.option(
    "--server",
    metavar="URL",
    help="Generate with this running vLLM server; --model names the model it serves.",
)
@click.option("--by", help="Dataset fields to break the rates down by: level,subject.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder; the same one goes on.  [default: runs/...]"
)
@click.option(
    "--config", help="A recipe: a YAML file or a shipped name; options and overrides come after it."
)
@click.argument("overrides", nargs=-1, metavar="[KEY.SUBKEY=VALUE]...")
def run(config: str | None, overrides: tuple[str, ...], **options: Any) -> None:
    """Measure a model on a dataset: rates, pass@k, lengths, and what goes wrong.

    Writes samples.jsonl and report.json. An interrupted evaluation goes on with the same command.
    `trlmath evaluate diff A B` compares two, on the same problems.

    \b
    trlmath evaluate --model nano --dataset nano
    trlmath evaluate --model Qwen/Qwen2.5-Math-1.5B --dataset test.jsonl --prompt r1_zero -n 4 --by level
    """
    quiet_libraries()
    with readable_errors():
        recipe, fit = recipe_of(config, list(overrides), **options)
        from trlmath.evaluation.evaluation_run import EvaluationRun
        from trlmath.reports.console import ConsoleDisplay

        with EvaluationRun(recipe, ConsoleDisplay(), fit=fit) as evaluation:
            evaluation.run()


def recipe_of(config: str | None, overrides: list[str], **options: Any) -> tuple[Any, bool]:
    """Return the recipe that options ask for, and whether max_tokens is left to the context.

    Raises:
        RecipeError: neither a config nor model and dataset, or a key that does not count here.
    """
    from trlmath.recipe import load_recipe, parse_recipe
    from trlmath.recipe.overrides import apply_overrides
    from trlmath.recipe.schema import Recipe

    keys = [override.partition("=")[0].strip().removeprefix("--") for override in overrides]
    for key in keys:
        if key in NOT_HERE:
            raise RecipeError(
                f"{key} is for training's rollouts and does not count here: use {NOT_HERE[key]}."
            )
    given = _as_overrides(options, bare=config is None)
    if config is not None:
        return load_recipe(config, [*given, *overrides]), False
    for name, key in (("model", "model.path"), ("dataset", "data.eval")):
        if options.get(name) is None and key not in keys:
            raise RecipeError(
                f"--{name} is missing. Give it, or a recipe with --config: `--config nano/evaluate`."
            )
    defaults = Recipe().to_dict()
    recipe = parse_recipe(apply_overrides({}, [*given, *overrides], defaults), "the command line")
    return recipe, options.get("max_tokens") is None and "sampling.max_tokens" not in keys


def _as_overrides(options: dict[str, Any], bare: bool) -> list[str]:
    names = {
        "model": "model.path",
        "dataset": "data.eval",
        "prompt": "data.prompt",
        "max_tokens": "sampling.max_tokens",
        "limit": "evaluation.limit",
        "engine": "sampling.engine",
        "server": "sampling.url",
        "out": "run.dir",
    }
    values = {names[name]: value for name, value in options.items() if name in names and value is not None}
    if options.get("server"):
        values["sampling.mode"] = "server"
    if options.get("by"):
        values["evaluation.by"] = [field.strip() for field in options["by"].split(",") if field.strip()]
    if options.get("reward"):
        values["rewards"] = [options["reward"]]
    n, temperature = options.get("n"), options.get("temperature")
    if bare or n is not None or temperature is not None:
        temperature = 1.0 if temperature is None else temperature
        name = "greedy" if temperature == 0 else "sampled"
        values["evaluation.settings"] = [{"name": name, "temperature": temperature, "n": n or 1}]
    if bare and options.get("limit") is None:
        values["evaluation.limit"] = None
    # JSON is YAML, and keeps text such as `1e-6` or `no` text
    return [f"{key}={json.dumps(value, default=str)}" for key, value in values.items()]


@evaluate.command(short_help="Compare two evaluations on the same problems.")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--setting", help="The sampling setting to compare, where a file holds several.")
@click.option("--second-setting", help="The second one's, where it differs: before/greedy, after/greedy.")
@click.option(
    "--part", default="both", show_default=True, help="The part of the reward: format, answer, both."
)
@click.option("--show", default=5, show_default=True, help="Flipped problems to print each way.")
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON to this file.")
def diff(
    first: Path,
    second: Path,
    setting: str | None,
    second_setting: str | None,
    part: str,
    show: int,
    out: Path | None,
) -> None:
    """Compare two evaluations (folders, or samples.jsonl) over the problems that both hold."""
    with readable_errors():
        from trlmath.evaluation.diff import compare, load_side
        from trlmath.reports.compared import print_difference

        sides = load_side(first, setting), load_side(second, second_setting or setting)
        difference = compare(*sides, part)
        print_difference(difference, str(first), str(second), show)
        if out:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(
                json.dumps(difference.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
            echo(f"written: {out}")
