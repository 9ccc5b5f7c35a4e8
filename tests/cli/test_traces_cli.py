"""trlmath traces make on the command line: a model in process, and what is refused."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from trlmath.cli import cli


@pytest.fixture
def make(tmp_path):
    def make(*more, teacher="nano", out="t"):
        given = ["--dataset", "nano", "--teacher", teacher, "--limit", "3", "--out", str(tmp_path / out)]
        return CliRunner().invoke(cli, ["traces", "make", *given, *more])

    return make


def test_a_model_in_process_and_the_same_command_again(make, tmp_path):
    command = ("--n", "2", "--max-tokens", "60", "--temperature", "0", "--engine", "transformers")
    first = make(*command)
    assert first.exit_code == 0, first.output
    assert "6 completions of 3 problems" in first.output
    rows = [json.loads(line) for line in (tmp_path / "t" / "traces.jsonl").read_text().splitlines()]
    assert {row["lineage"]["temperature"] for row in rows} == {0.0}
    assert all(row["family"] for row in rows)
    before = (tmp_path / "t" / "samples.jsonl").read_bytes()
    assert make(*command).exit_code == 0
    assert (tmp_path / "t" / "samples.jsonl").read_bytes() == before
    other = make(*command, "--seed", "1")
    assert other.exit_code == 1
    assert "holds other traces: settings was" in other.output


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--model", "m"), "--model belongs to a server, and --teacher 'nano' is none"),
        (("--max-tokens", "1020"), "over the context of 'nano', 1024. Give at most"),
        (("--chat",), "the teacher's tokenizer has no chat template"),
        (("--reward", "r1_zer"), "Did you mean 'r1_zero'"),
        (("--column", "question"), "not of the form FIELD=COLUMN"),
    ],
)
def test_mistakes_are_told_before_anything_is_asked(make, tmp_path, more, message):
    done = make(*more)
    assert done.exit_code == 1
    assert message in done.output
    assert not (tmp_path / "t" / "samples.jsonl").exists()


def test_a_key_that_is_not_there_and_a_server_that_does_not_answer(make, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    done = make("--api-key-env", "NO_SUCH_KEY", teacher="http://127.0.0.1:9")
    assert "no variable 'NO_SUCH_KEY'" in done.output
    monkeypatch.setattr("trlmath.sampling.server_http.RETRY_AFTER", (0.01, 0.01))
    assert "no vLLM server answers at http://127.0.0.1:9" in make(teacher="http://127.0.0.1:9").output
