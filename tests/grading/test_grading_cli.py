"""`trlmath grade`: one answer, one response, a file of pairs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trlmath.cli.grade import grade
from trlmath.errors import GradingError


def run(*arguments: str) -> Result:
    """Run the command; an exception of ours is raised, not swallowed."""
    result = CliRunner().invoke(grade, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_an_answer() -> None:
    assert run(r"\frac12", "0.5").output.startswith("equal  (rule rational")
    assert run("-5", "5").output.startswith("different")
    assert run("5", "").output.startswith("cannot be told")


def test_explain_and_json() -> None:
    shown = run("5 cm", "5", "--explain").output
    assert "structure" in shown
    assert "prediction  5 cm" in shown
    record = json.loads(run("5", "5", "--json").output)
    assert (record["equal"], record["rule"]) == (True, "exact_text")


def test_a_response() -> None:
    shown = run(" </think> <answer>5</answer>", "5", "--style", "r1_zero").output
    assert "category  both" in shown
    assert "format=1.0  answer=1.0  both=1.0" in shown
    record = json.loads(run("so 5", "5", "--style", "boxed", "--json", "--explain").output)
    assert (record["category"], record["answer_text"]) == ("answer_only", "so 5")
    assert record["verdict"]["equal"] is True
    assert (
        "stop_string_dropped"
        in run(" </think> <answer>6", "5", "--style", "r1_zero", "--finish-reason", "stop").output
    )


def test_a_file_of_pairs(tmp_path: Path) -> None:
    source, out = tmp_path / "pairs.jsonl", tmp_path / "out.jsonl"
    rows = [
        {"id": "a", "pred": "1/2", "gold": "0.5", "equal": True},
        {"id": "b", "pred": "5 or 6", "gold": "5", "equal": False},
        {"id": "c", "pred": "5", "gold": None, "equal": False},
        {"id": "d", "pred": None, "gold": "0", "equal": False},
        {"id": "e", "pred": "6", "gold": 6, "equal": False},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = run("--pairs", str(source), "--out", str(out), "--workers", "1").output
    assert "5 pairs: 2 equal, 2 different, 1 cannot be told" in shown
    assert "accuracy 80.00%, 1 false positives, 0 false negatives" in shown
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["id"] for record in records] == list("abcde")
    assert [record["equal"] for record in records] == [True, False, None, False, True]
    assert records[2]["reason"]
    assert all({"equal", "rule", "seconds"} <= record.keys() for record in records)


def test_compare_shows_where_math_verify_disagrees(tmp_path: Path) -> None:
    source = tmp_path / "pairs.jsonl"
    source.write_text(json.dumps({"id": "q", "pred": "-2 1/2", "gold": "-2.5"}) + "\n")
    shown = run("--pairs", str(source), "--compare", "math_verify").output
    assert "q ours=True" in shown
    assert "1 of 1 verdicts differ" in shown


def test_errors(tmp_path: Path) -> None:
    assert "give TEXT and GOLD" in run("5").output
    assert "either TEXT and GOLD, or --pairs" in run("5", "5", "--pairs", __file__).output
    source = tmp_path / "pairs.jsonl"
    source.write_text('{"pred": "5"}\n')
    with pytest.raises(GradingError, match="line 1: each line needs the keys"):
        run("--pairs", str(source))
    source.write_text("5,5\n")
    with pytest.raises(GradingError, match="line 1 is no JSON"):
        run("--pairs", str(source))
