"""``trlmath regrade``: grade saved completions with another reward, without generating."""

from __future__ import annotations

from pathlib import Path

import click

from trlmath.cli.launch import quiet_libraries, readable_errors
from trlmath.errors import RecipeError, nearest


@click.command()
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--reward", required=True, help="A registered reward, module:attr or file.py:attr.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the reward.")
@click.option("--setting", help="Only this sampling setting.")
@click.option("--dataset", help="Where the golds are, for TRL's parquet, which has none.")
@click.option(
    "--split",
    type=click.Choice(["train", "eval"]),
    default="train",
    show_default=True,
    help="Which split of --dataset.",
)
@click.option(
    "--prompt", default="r1_zero", show_default=True, help="The prompt that --dataset was rendered with."
)
@click.option("--against", help="TRL's reward column to compare with, where there are several.")
@click.option("--show", default=5, show_default=True, help="Disagreements to print.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write the regraded rows to this JSON lines file."
)
def regrade(
    samples: Path,
    reward: str,
    options: tuple[str, ...],
    setting: str | None,
    dataset: str | None,
    split: str,
    prompt: str,
    against: str | None,
    show: int,
    out: Path | None,
) -> None:
    """Grade SAMPLES again and show where the two graders disagree, with both reasons.

    SAMPLES is a samples.jsonl, the folder of an evaluation, a run's rollouts/ or one parquet file of it, or
    TRL's completions/ (with --dataset and --prompt, since TRL saves no golds).

    \b
    trlmath regrade runs/mine/evaluation/samples.jsonl --reward r1_zero --option mode=reference
    trlmath regrade out/completions --reward r1_zero --dataset train.jsonl
    """
    quiet_libraries()
    with readable_errors():
        from trlmath.data.load import load_problems
        from trlmath.data.prompts import load_prompt
        from trlmath.evaluation import regrade as room
        from trlmath.evaluation.report import summarise
        from trlmath.evaluation.saved import read_saved
        from trlmath.evaluation.store import append_samples
        from trlmath.recipe.overrides import apply_overrides
        from trlmath.recipe.schema import RewardEntry
        from trlmath.reports.compared import print_regraded
        from trlmath.reports.console import ConsoleDisplay
        from trlmath.rewards import build_rewards

        if out and out.exists():
            raise RecipeError(f"{out} exists. Choose another --out, or remove it.")
        known = None
        if dataset:
            template = load_prompt(prompt)
            known = {template.render(p.question): p for p in load_problems(dataset, split)}  # type: ignore[arg-type]
        entry = RewardEntry(name=reward, options=apply_overrides({}, options))
        rows = read_saved(samples, known, against)
        there = list(dict.fromkeys(row.setting for row in rows))
        if not rows:
            raise RecipeError(f"{samples} holds no completion.")
        if setting not in (None, *there):
            raise RecipeError(
                f"--setting: {samples} has no setting {setting!r}.{nearest(str(setting), there)} "
                f"There: {', '.join(there)}."
            )
        rows = [row for row in rows if setting in (None, row.setting)]
        display = ConsoleDisplay()
        with display.bar("regrade", len(rows)) as advance:
            found = room.regrade(rows, build_rewards([entry])[0], advance)
        print_regraded(found, show)
        for name in dict.fromkeys(row.setting for row in found.new):
            display.evaluation(summarise(name, [row for row in found.new if row.setting == name]))
        if out:
            append_samples(out, found.new)
            display.note(f"written: {out}")
