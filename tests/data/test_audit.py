"""`trlmath data check`: bad golds, duplicates, overlap by 13 words, lengths; a table and a JSON file."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from trlmath.cli import cli
from trlmath.data.audit import audit
from trlmath.data.overlap import exact_overlap, ngram_overlap, repeated
from trlmath.types import Problem

LONG = "Natalia sold clips to 48 of her friends in April and then half as many in May, how many in all?"


def test_duplicates_are_blind_to_case_and_space():
    assert repeated(["A b", "c", "a  B\n", "C ", "d"]) == [[0, 2], [1, 3]]
    assert exact_overlap(["x Y", "z"], ["X y"]) == [0]


def test_thirteen_words_in_a_row():
    changed = "In spring " + LONG.lower() + " Say it."
    assert ngram_overlap([changed, "What is 2+2?"], ["something else entirely", LONG]) == {0: 1}
    assert ngram_overlap([LONG.replace("48", "50").replace("in May", "in June")], [LONG]) == {}
    # shorter questions count only as a whole
    assert ngram_overlap(["What is 2 + 2?", "What is 2 + 3?"], ["what is 2 + 2?"]) == {0: 0}
    assert ngram_overlap([""], [""]) == {}


def test_an_audit():
    problems = [
        Problem("1+1?", "2"),
        Problem("1 + 1?", ""),
        Problem("a", None),
        Problem("b", "{{{"),
        Problem("c", "\\frac{1}{"),
        Problem("1+1?", "3", "one two three"),
        Problem("1+1?", "2"),
    ]
    found = audit(
        problems,
        held_out=[Problem("B", "1")],
        count_tokens=lambda texts: [len(t.split()) for t in texts],
        render=lambda q: f"Q {q}",
        max_prompt=2,
    )
    assert found.missing == (1, 2)
    assert [b.index for b in found.unreadable] == [3]
    assert found.unequal == ()
    assert [b.index for b in found.text_only] == [4]
    assert found.ungradable == 3
    assert found.duplicates == ((0, 5, 6),)
    assert found.conflicting == ((0, 5, 6),)
    assert found.overlap_exact == (3,)
    assert found.lengths["prompt, tokens"]["max"] == 4
    assert found.lengths["solution, tokens"]["p50"] == 3
    assert found.too_long == (1,)
    json.dumps(found.to_dict())


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_the_command(tmp_path):
    train = write(
        tmp_path / "train.jsonl", [{"problem": LONG, "answer": "72"}, {"problem": "½?", "answer": None}]
    )
    test = write(tmp_path / "test.jsonl", [{"problem": LONG.upper(), "answer": "72"}])
    out = tmp_path / "check.json"
    arguments = ["data", "check", train, "--against", test, "--column", "question=problem", "--out", str(out)]
    done = CliRunner().invoke(cli, [*arguments, "--tokenizer", "nano", "--max-prompt", "110"])
    assert done.exit_code == 0, done.output
    told = json.loads(out.read_text())
    assert (told["rows"], told["missing"], told["overlap_exact"]) == (2, [1], [0])
    assert told["overlap_ngram"] == {"0": 0}
    assert 0 in told["too_long"]
    assert told["lengths"]["prompt, tokens"]["max"] > 110
    assert "gradable_gold" in done.output


@pytest.mark.parametrize(
    ("more", "wanted"), [(["--column", "question"], "FIELD=COLUMN"), (["--max-prompt", "9"], "--tokenizer")]
)
def test_the_commands_mistakes(tmp_path, more, wanted):
    train = write(tmp_path / "train.jsonl", [{"question": "1?", "answer": "1"}])
    done = CliRunner().invoke(cli, ["data", "check", train, *more])
    assert done.exit_code == 1
    assert wanted in done.output


def test_a_registered_dataset_is_held_against_its_own_eval_split(tmp_path):
    out = tmp_path / "check.json"
    done = CliRunner().invoke(cli, ["data", "check", "nano", "--out", str(out)])
    assert done.exit_code == 0, done.output
    told = json.loads(out.read_text())
    assert told["against"] == "nano"
    assert told["overlap_exact"] == []
    assert told["unreadable"] == []
