"""`trlmath traces make` against a real vLLM server: killed, gone on, and read by SFT."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from trlmath.cli import cli
from trlmath.data.nano import MODEL_DIR
from trlmath.data.prompts import load_prompt
from trlmath.data.sft import read_traces
from trlmath.evaluation.store import read_samples
from trlmath.recipe import parse_recipe
from trlmath.sampling.models import read_model_directory
from trlmath.sampling.server_process import ServerProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here"),
]

PROBLEMS, N = 200, 2


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    process = ServerProcess(str(MODEL_DIR), 512, "float32", log=tmp_path_factory.mktemp("log") / "server.log")
    process.wait(280)
    yield process
    process.stop()


def command(url, out):
    options = {"dataset": "nano", "teacher": url, "n": N, "limit": PROBLEMS, "max-tokens": 80, "out": out}
    return ["traces", "make", *(f"--{name}={value}" for name, value in options.items())]


def kill_after_the_first_chunk(arguments, samples: Path):
    process = subprocess.Popen(
        [sys.executable, "-m", "trlmath", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 200
    while not samples.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(30)


def test_traces_of_a_served_teacher(server, tmp_path):
    out = tmp_path / "teacher"
    kill_after_the_first_chunk(command(server.url, out), out / "samples.jsonl")
    assert not (out / "traces.jsonl").exists()
    before = read_samples(out / "samples.jsonl")
    assert 0 < len(before) < PROBLEMS * N

    done = CliRunner().invoke(cli, command(server.url, out))
    assert done.exit_code == 0, done.output
    samples = read_samples(out / "samples.jsonl")
    assert sorted((s.problem, s.sample) for s in samples) == [
        (p, k) for p in range(PROBLEMS) for k in range(N)
    ]
    kept = {(s.problem, s.sample): s for s in samples}
    assert all(kept[s.problem, s.sample] == s for s in before)

    rows = [json.loads(line) for line in (out / "traces.jsonl").read_text().splitlines()]
    assert {row["lineage"]["finish_reason"] for row in rows} == {"stop"}
    assert rows[0]["lineage"]["teacher"] == {"model": str(MODEL_DIR), "url": server.url, "chat": False}
    formatted = [row for row in rows if row["grade"]["parts"]["format"]]
    assert len(formatted) > PROBLEMS * N * 0.25  # a base model: about half keep the format
    assert all(row["trace"].endswith("</answer>") for row in formatted)
    right = [row for row in rows if row["grade"]["parts"]["answer"]]
    assert len(right) > PROBLEMS * N * 0.25

    recipe = parse_recipe(
        {
            "data": {"train": str(out / "traces.jsonl")},
            "filters": [{"name": "correct_answer", "options": {"part": "both"}}],
        }
    )
    tokenizer, context = read_model_directory(str(MODEL_DIR))
    found = read_traces(recipe, load_prompt("r1_zero"), tokenizer, context)
    assert len(found.tokenized.examples) == sum(bool(row["grade"]["parts"]["both"]) for row in rows)
    assert tokenizer.decode(found.tokenized.examples[0].response_ids).endswith("</answer><|endoftext|>")
