"""``trlmath data check`` and ``inspect``: look a dataset, or what SFT makes of it, over before training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from trlmath.cli.echo import echo
from trlmath.cli.launch import quiet_libraries, readable_errors
from trlmath.errors import RecipeError


@click.group()
def data() -> None:
    """Look at datasets."""


@data.command(short_help="Find bad golds, duplicates, overlap and long prompts.")
@click.argument("dataset")
@click.option(
    "--split",
    type=click.Choice(["train", "eval"]),
    default="train",
    show_default=True,
    help="Which split of a registered dataset or Hub id.",
)
@click.option("--column", "columns", multiple=True, metavar="FIELD=COLUMN", help="E.g. question=problem.")
@click.option(
    "--against", help="Held-out dataset that must not overlap; a registered one: its own eval split."
)
@click.option("--tokenizer", help="nano, a model folder or Hub id: lengths in its tokens.")
@click.option("--prompt", default="r1_zero", show_default=True, help="Rendered before counting tokens.")
@click.option(
    "--max-prompt", type=click.IntRange(min=1), help="Tokens.  [default: the tokenizer model's context]"
)
@click.option("--out", type=click.Path(path_type=Path), help="Write every row found to this JSON file.")
@click.option("--show", default=3, show_default=True, help="Examples of each finding to print.")
def check(
    dataset: str,
    split: str,
    columns: tuple[str, ...],
    against: str | None,
    tokenizer: str | None,
    prompt: str,
    max_prompt: int | None,
    out: Path | None,
    show: int,
) -> None:
    """Find golds the grader cannot read, duplicates, overlap with held-out data, and long prompts in DATASET.

    \b
    trlmath data check train.jsonl --against test.jsonl --tokenizer Qwen/Qwen2.5-Math-1.5B --out check.json
    """
    quiet_libraries()
    with readable_errors():
        from trlmath.data.audit import audit
        from trlmath.data.load import load_problems
        from trlmath.data.prompts import load_prompt
        from trlmath.plugins import registry
        from trlmath.reports.data_tables import print_audit

        mapping = dict(pair(column) for column in columns)
        problems = load_problems(dataset, split, mapping)  # type: ignore[arg-type]
        if against is None and split == "train" and dataset in registry().names("dataset"):
            against = dataset
        held_out = None if against is None else load_problems(against, "eval", mapping)
        count = None
        if tokenizer is not None:
            from trlmath.sampling.models import located, read_model_directory

            read, context = read_model_directory(located(tokenizer))
            max_prompt = max_prompt or context

            def count(texts: Sequence[str]) -> list[int]:
                return [len(ids) for ids in read(text=list(texts))["input_ids"]]
        elif max_prompt is not None:
            raise RecipeError("--max-prompt counts tokens: give --tokenizer too.")
        found = audit(problems, held_out, count, load_prompt(prompt).render, max_prompt)
        print_audit(found, problems, dataset, against, show)
        if out:
            out.parent.mkdir(parents=True, exist_ok=True)
            told = {"dataset": dataset, "split": split, "against": against, **found.to_dict()}
            out.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            echo(f"written: {out}")


@data.command(short_help="Print rows as SFT trains on them.")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY.SUBKEY=VALUE]...")
@click.option("-n", "count", type=click.IntRange(min=1), default=3, show_default=True, help="Rows to print.")
@click.option(
    "--longest", type=click.IntRange(min=2), help="Characters of a prompt or trace.  [default: all]"
)
def inspect(recipe: str, overrides: tuple[str, ...], count: int, longest: int | None) -> None:
    """Print rows as SFT trains on them: RECIPE's prompt, the tokens trained on, and padding.

    RECIPE is a YAML file or a shipped name. Nothing is trained and no weight is loaded.

    \b
    trlmath data inspect nano/sft -n 3 data.train_size=128
    """
    quiet_libraries()
    with readable_errors():
        from trlmath.data.examples import default_cache
        from trlmath.data.prompts import load_prompt
        from trlmath.data.sft import read_traces
        from trlmath.data.shown import show_examples, summary
        from trlmath.recipe import check_components, check_sections, load_recipe
        from trlmath.reports.plain import PlainConsole
        from trlmath.reports.trace_rows import print_rows
        from trlmath.sampling.models import located, read_model_directory

        loaded = load_recipe(recipe, list(overrides))
        check_sections(loaded, "sft")
        check_components(loaded)
        prompt = load_prompt(loaded.data.prompt.name, loaded.data.prompt.options)
        path = located(loaded.model.path)
        tokenizer, context = read_model_directory(path)
        found = read_traces(loaded, prompt, tokenizer, context, default_cache())
        print_rows(PlainConsole(), show_examples(found, tokenizer, count, longest))
        for line in summary(found):
            echo(line)


def pair(text: str) -> tuple[str, str]:
    """Split ``FIELD=COLUMN``. Raises RecipeError."""
    field, equals, column = text.partition("=")
    if not equals or not field or not column:
        raise RecipeError(f"--column {text!r} is not of the form FIELD=COLUMN, e.g. question=problem.")
    return field, column
