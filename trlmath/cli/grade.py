"""`trlmath grade`: grade one answer or response and say why, or a file of pairs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from trlmath.cli.echo import echo, echo_json
from trlmath.errors import GradingError
from trlmath.grading import STYLES, grade_answer, grade_answers, grade_response
from trlmath.grading.verdict import Verdict


@click.command(context_settings={"ignore_unknown_options": True})  # so that -5 is an answer
@click.argument("text", required=False)
@click.argument("gold", required=False)
@click.option(
    "--style", type=click.Choice(list(STYLES)), help="Grade TEXT as a whole response of this style."
)
@click.option(
    "--mode",
    type=click.Choice(["strict", "reference"]),
    default="strict",
    show_default=True,
    help="How strictly r1_zero's format is read; reference: as CS336's own grader does.",
)
@click.option(
    "--finish-reason",
    type=click.Choice(["stop", "length"]),
    help="How generation of TEXT ended: by itself, or cut off at its length (then `truncated`).",
)
@click.option("--explain", is_flag=True, help="Show normal forms, and the rules tried with their time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--pairs", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="JSON lines to grade."
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where the verdicts go.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Processes for pairs that may take long; each has a time limit.  [default: 2]",
)
@click.option("--compare", type=click.Choice(["math_verify"]), help="Show where another grader disagrees.")
def grade(
    text: str | None,
    gold: str | None,
    style: str | None,
    mode: str,
    finish_reason: str | None,
    explain: bool,
    as_json: bool,
    pairs: Path | None,
    out: Path | None,
    workers: int | None,
    compare: str | None,
) -> None:
    """Grade TEXT (an answer, or with --style a whole response) against GOLD.

    With --pairs, each line of the file holds `pred` and `gold`; each line of --out holds `equal` (null when
    the gold is unreadable or a limit was hit, then with `reason`), `rule` and `seconds`, in the same order.
    """
    if pairs is not None:
        if text is not None:
            raise click.UsageError("give either TEXT and GOLD, or --pairs FILE.")
        _grade_file(pairs, out, workers, compare)
        return
    if text is None or gold is None:
        raise click.UsageError(
            "give TEXT and GOLD, or --pairs FILE. Example: trlmath grade '\\frac12' 0.5 --explain"
        )
    if style is not None:
        _grade_one_response(text, gold, style, mode, finish_reason, explain, as_json)
    else:
        _show_verdict(grade_answer(text, gold, explain=explain), as_json, explain)
    if compare and not as_json:
        echo(f"math-verify: {_math_verify(text, gold)}")


def _grade_one_response(
    text: str, gold: str, style: str, mode: str, finish: str | None, explain: bool, as_json: bool
) -> None:
    result = grade_response(text, gold, style, mode, finish_reason=finish)
    answer = text[slice(*result.span)] if result.span else None
    record: dict[str, Any] = {**dataclasses.asdict(result), "answer_text": answer}
    verdict = grade_answer(answer, gold, explain=True) if explain and answer is not None else None
    if as_json:
        if verdict is not None:
            record["verdict"] = dataclasses.asdict(verdict)
        echo_json(record)
        return
    echo(f"category  {result.category}")
    echo(f"reward    {'none: cannot be scored' if result.reward is None else result.reward}")
    echo("parts     " + "  ".join(f"{name}={value}" for name, value in result.parts.items()))
    echo(f"reason    {result.reason}")
    echo(f"span      {result.span}: {answer!r}" if result.span else "span      no answer found")
    if verdict is not None:
        _show_verdict(verdict, False, True)


def _show_verdict(verdict: Verdict, as_json: bool, explain: bool) -> None:
    if as_json:
        echo_json(dataclasses.asdict(verdict))
        return
    word = {True: "equal", False: "different", None: "cannot be told"}[verdict.equal]
    echo(f"{word}  (rule {verdict.rule}, {verdict.seconds * 1e3:.2f} ms): {verdict.reason}")
    if explain:
        echo(f"prediction  {verdict.prediction}")
        echo(f"gold        {verdict.gold}")
        for step in verdict.steps:
            echo(f"  {step.rule:<14} {step.outcome:<11} {step.seconds * 1e3:8.3f} ms")


def _read_pairs(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise GradingError(f"{path}, line {number} is no JSON: {error}.") from error
            if not isinstance(row, dict) or "pred" not in row or "gold" not in row:
                raise GradingError(f"{path}, line {number}: each line needs the keys `pred` and `gold`.")
            rows.append(row)
    return rows


def _grade_file(path: Path, out: Path | None, workers: int | None, compare: str | None) -> None:
    rows = _read_pairs(path)
    predictions = ["" if row["pred"] is None else str(row["pred"]) for row in rows]
    verdicts = grade_answers(predictions, [row["gold"] for row in rows], workers=workers)
    if out is not None:
        with out.open("w", encoding="utf-8") as lines:
            for row, verdict in zip(rows, verdicts, strict=True):
                lines.write(json.dumps(_record(row, verdict)) + "\n")
    echo(f"{len(rows)} pairs: " + _counts(verdicts))
    if rows and all("equal" in row for row in rows):
        echo(_confusion([row["equal"] for row in rows], [verdict.equal for verdict in verdicts]))
    if compare:
        _disagreements(rows, predictions, verdicts)


def _record(row: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    record: dict[str, Any] = {"id": row["id"]} if "id" in row else {}
    record |= {"equal": verdict.equal, "rule": verdict.rule, "seconds": round(verdict.seconds, 6)}
    if verdict.equal is None:
        record["reason"] = verdict.reason
    return record


def _counts(verdicts: list[Verdict]) -> str:
    yes = sum(verdict.equal is True for verdict in verdicts)
    no = sum(verdict.equal is False for verdict in verdicts)
    return f"{yes} equal, {no} different, {len(verdicts) - yes - no} cannot be told"


def _confusion(labels: list[bool], answers: list[bool | None]) -> str:
    """A table of labels against verdicts, and the accuracy (what cannot be told counts as different)."""
    cell = {(label, bool(answer)): 0 for label in (True, False) for answer in (True, False)}
    for label, answer in zip(labels, answers, strict=True):
        cell[bool(label), bool(answer)] += 1
    right = cell[True, True] + cell[False, False]
    return (
        f"{'':16}{'says equal':>12}{'does not':>12}\n"
        f"{'labelled equal':16}{cell[True, True]:12}{cell[True, False]:12}\n"
        f"{'labelled not':16}{cell[False, True]:12}{cell[False, False]:12}\n"
        f"accuracy {right / len(labels):.2%}, {cell[False, True]} false positives, "
        f"{cell[True, False]} false negatives"
    )


def _disagreements(rows: list[dict[str, Any]], predictions: list[str], verdicts: list[Verdict]) -> None:
    different = 0
    for row, prediction, verdict in zip(rows, predictions, verdicts, strict=True):
        other = _math_verify(prediction, str(row["gold"]))
        if other != verdict.equal:
            different += 1
            name = row.get("id", "")
            echo(f"{name} ours={verdict.equal} ({verdict.rule}) math-verify={other}  ", nl=False)
            echo(f"{prediction[:80]!r} | {str(row['gold'])[:80]!r}")
    echo(f"{different} of {len(rows)} verdicts differ from math-verify's.")


def _math_verify(prediction: str, gold: str) -> bool | None:
    """math-verify's verdict with both sides boxed and its own time limits; None when it raises."""
    from math_verify import parse, verify

    try:
        return bool(verify(parse(f"\\boxed{{{gold}}}"), parse(f"\\boxed{{{prediction}}}")))
    except (ValueError, TypeError, RecursionError, TimeoutError, ArithmeticError):
        return None
