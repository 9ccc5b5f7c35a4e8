"""A real vLLM server: given weights, found stale, killed or stopped in every phase, restarted, used again.

The model it serves is odd in all the ways real ones are: tied embeddings, more embedding rows than tokens, no
pad token.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pyarrow.parquet
import pytest
import servers
import torch
from hostile import check_cuts, check_nothing_leaks, hostile_copy, loaded
from launching import metrics
from servers import STALE, AtPhase, Proxy, bridge, generate_for, line_of
from tiny import ODD, save_tiny_model

import trlmath
from trlmath.errors import EngineError
from trlmath.recipe import parse_recipe
from trlmath.sampling.server_engine import ServerSampler
from trlmath.sampling.server_process import ServerProcess
from trlmath.sampling.settings import SamplingSettings
from trlmath.sampling.transformers_engine import TransformersSampler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here"),
]

PROMPTS = [[5, 6, 7], [40, 41], [9] * 20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("served"), **ODD)


@pytest.fixture(scope="module")
def process(folder, tmp_path_factory):
    """A server of that model, with a generation config that disagrees with every request."""
    served = hostile_copy(folder, tmp_path_factory.mktemp("hostile"))
    server = ServerProcess(str(served), 256, "float32", log=tmp_path_factory.mktemp("log") / "server.log")
    server.wait(280)
    yield server
    server.stop()


@pytest.fixture
def proxy(process):
    between = Proxy(process.port)
    yield between
    between.stop()


@pytest.fixture
def sampler(process, open_sampler):
    return open_sampler(process.url)


def test_weights_arrive_and_rollouts_come_from_them(sampler, policy):
    made = bridge(sampler, policy)
    made.sync_weights()
    assert made.difference < 1e-5
    settings = SamplingSettings(temperature=0.7, max_tokens=12, seed=1)
    groups = sampler.generate(PROMPTS, settings, n=2)
    assert [g.prompt_ids for g in groups] == [tuple(p) for p in PROMPTS]
    ids = [[r.token_ids for r in g.rollouts] for g in groups]
    assert [[r.token_ids for r in g.rollouts] for g in sampler.generate(PROMPTS, settings, n=2)] == ids
    rollout = groups[0].rollouts[0]
    # at temperature 0.7 too: of the distribution drawn from
    logits = policy.model(torch.tensor([[*PROMPTS[0], *rollout.token_ids]])).logits[0] / 0.7
    rows = logits.log_softmax(-1)[len(PROMPTS[0]) - 1 : -1]
    theirs = rows[range(len(rollout.token_ids)), list(rollout.token_ids)]
    torch.testing.assert_close(torch.tensor(rollout.logprobs), theirs, atol=1e-3, rtol=0)


def test_tokens_that_the_tokenizer_does_not_know_are_drawn_and_scored_alike(sampler, policy):
    bridge(sampler, policy).sync_weights()
    settings = SamplingSettings(max_tokens=40, seed=3)
    drawn = [r for g in sampler.generate(PROMPTS, settings, n=4) for r in g.rollouts]
    prompts = [p for p in PROMPTS for _ in range(4)]
    assert max(max(r.token_ids) for r in drawn) >= len(policy.tokenizer), "none was drawn: no test"
    completions = [list(r.token_ids) for r in drawn]
    for ours, theirs, rollout in zip(
        policy.score(prompts, completions), sampler.score(prompts, completions), drawn, strict=True
    ):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=1e-4, rtol=0)
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(rollout.logprobs), atol=1e-4, rtol=0)
        told = policy.tokenizer.decode(rollout.token_ids, skip_special_tokens=True)
        assert rollout.text.rstrip("\ufffd") == told.rstrip("\ufffd")


def test_a_models_generation_config_does_not_leak_in(sampler, folder):
    sampler.load_weights(loaded(folder)[0].named_parameters())
    check_nothing_leaks(sampler, folder)
    check_cuts(sampler, folder)


def test_a_policy_behind_a_url_samples_and_scores_as_the_model(sampler, folder, process):
    model, tokenizer = loaded(folder)
    sampler.load_weights(model.named_parameters())
    texts = ["What is 1 + 1?", "x"]
    with trlmath.Policy(str(folder), url=process.url, context=96) as policy:
        groups = policy.sample(texts, SamplingSettings(max_tokens=12, seed=0), n=2)
        scores = policy.score(texts, [g.rollouts[0] for g in groups])
    assert [g.prompt for g in groups] == texts
    for group, score in zip(groups, scores, strict=True):
        rollout, start = group.rollouts[0], len(group.prompt_ids)
        with torch.no_grad():
            logits = model(torch.tensor([[*group.prompt_ids, *rollout.token_ids]])).logits[0, start - 1 : -1]
        own = logits.log_softmax(-1)[range(len(rollout.token_ids)), list(rollout.token_ids)]
        for told in (score.logprobs, rollout.logprobs):
            torch.testing.assert_close(torch.tensor(told), own, atol=1e-4, rtol=0)
        assert score.entropy_kind == "estimate"
    # without a context the server's own, and a pair may fill it
    with trlmath.Policy(str(folder), url=process.url) as policy:
        assert policy.sampler.context == 256
        prompt = tokenizer(text=texts[0])["input_ids"]
        full = [5 + i % 50 for i in range(256 - len(prompt))]
        scores = policy.score(texts[:1] * 2, [full, full[:3]])
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *full]])).logits[0, len(prompt) - 1 : -1]
    own = logits.log_softmax(-1)[range(len(full)), full]
    torch.testing.assert_close(torch.tensor(scores[0].logprobs), own, atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.tensor(scores[1].logprobs), own[:3], atol=1e-4, rtol=0)


def test_min_tokens_and_stop_mean_what_they_mean_in_process(sampler, process, folder):
    model, tokenizer = loaded(folder)
    sampler.load_weights(model.named_parameters())
    served = Path(process.command[process.command.index("--model") + 1])
    ends = json.loads((served / "generation_config.json").read_text())["eos_token_id"]
    own = TransformersSampler(model, tokenizer, ends)
    free = own.generate(PROMPTS, SamplingSettings(temperature=0, max_tokens=30))[0].rollouts[0].text
    for floor in (0, 4, 12):
        stop = (free[2:5], free[0], "e")
        settings = SamplingSettings(temperature=0, max_tokens=30, min_tokens=floor, stop=stop)
        ours, theirs = (
            [
                (r.text, r.token_ids, r.finish_reason)
                for g in engine.generate(PROMPTS, settings)
                for r in g.rollouts
            ]
            for engine in (own, sampler)
        )
        assert ours == theirs


def test_half_loaded_weights_stop_the_run(sampler, policy):
    bridge(sampler, policy).sync_weights()
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)
    with pytest.raises(EngineError, match="only a part of the run's weights: .* were given none"):
        bridge(sampler, policy, skip=("mlp", "layernorm")).sync_weights()


def lying(monkeypatch):
    """Servers that say that they have loaded what they have not."""
    from trlmath.sampling.server_http import Connection

    real = Connection.rpc

    def rpc(self, method, timeout=None, **arguments):
        if method == "trlmath_load_weights":
            return real(self, "trlmath_set_version", timeout, version=arguments["version"])
        return real(self, method, timeout, **arguments)

    monkeypatch.setattr(Connection, "rpc", rpc)


def test_a_load_that_never_happened_stops_the_run(sampler, policy, monkeypatch):
    made = bridge(sampler, policy)
    made.sync_weights()
    lying(monkeypatch)
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(1 + 1e-4)
    with pytest.raises(EngineError, match=f"{STALE}.* to the bit"):
        made.sync_weights()
    assert made.difference < 1e-3, "what the bound alone lets pass"
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(2.0)
    with pytest.raises(EngineError, match=f"{STALE}.* differ by"):
        made.sync_weights()


def test_old_prefixes_are_dropped_also_while_somebody_asks(sampler, policy, process):
    """Whose request holds them: it waits, and is read again with the new weights."""
    bridge(sampler, policy).sync_weights()
    prompt = list(range(5, 105))
    other, settings = (
        ServerSampler(process.url, 256, timeout=60),
        SamplingSettings(max_tokens=150, min_tokens=150),
    )
    asking = threading.Thread(target=other.generate, args=([prompt], settings, 64))
    asking.start()
    answers, ask = [], sampler.connections[0].ask

    def watched(path, *rest, **more):
        answer = ask(path, *rest, **more)
        answers.extend([answer["success"]] if path.startswith("/reset_prefix_cache") else [])
        return answer

    while ask("/reset_prefix_cache", {})["success"]:
        time.sleep(0.02)
    sampler.connections[0].ask = watched
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.3)
    bridge(sampler, policy).sync_weights()
    assert answers == [False, True], "nobody was asking: no test"
    (group,) = sampler.generate([prompt], SamplingSettings(max_tokens=8, seed=0), n=4)
    asking.join()
    scores = policy.score([prompt] * 4, [r.token_ids for r in group.rollouts])
    for own, rollout in zip(scores, group.rollouts, strict=True):
        torch.testing.assert_close(torch.tensor(own), torch.tensor(rollout.logprobs), atol=1e-3, rtol=0)


def test_a_restarted_server_gets_its_weights_again_and_is_proven_again(sampler, policy, folder, monkeypatch):
    made = bridge(sampler, policy)
    made.sync_weights()
    connection, version = sampler.connections[0], sampler._weights.version

    def restart():  # what is there after it: the weights that it was started with
        connection.rpc("trlmath_load_weights", folder=str(folder), version="")

    restart()
    made.difference = None
    sampler.generate(PROMPTS, SamplingSettings(max_tokens=2))
    assert sampler._weights.renewed == 1
    assert made.difference < 1e-5, "proven"
    restart()
    lying(monkeypatch)
    with pytest.raises(EngineError, match=STALE):
        sampler.generate(PROMPTS, SamplingSettings(max_tokens=2))
    monkeypatch.undo()
    assert sampler._weights.version == version

    # another run's weights in the middle of a phase
    body = sampler._body
    made.sync_weights()

    def meanwhile(*arguments):
        connection.rpc("trlmath_set_version", version="1 of run 0badcafe")
        return body(*arguments)

    sampler._body = meanwhile
    with pytest.raises(EngineError, match="0badcafe.* while rollouts were drawn from it"):
        sampler.generate(PROMPTS, SamplingSettings(max_tokens=2))


LORA = {"r": 4, "target_modules": "all-linear"}


def test_an_adapter_arrives_merged_and_fresh(folder, process, tmp_path, monkeypatch):
    run = servers.train(folder, tmp_path / "run", process.url, lora=LORA)
    rows = [row for row in metrics(run.directory) if "train/loss" in row]
    assert len(rows) == 3
    assert all(row["engine/freshness"] < 1e-5 for row in rows)
    lying(monkeypatch)
    with pytest.raises(EngineError, match=STALE):
        servers.train(folder, tmp_path / "stale", process.url, lora=LORA)
    assert not (tmp_path / "stale" / "metrics.jsonl").exists(), "nothing was learnt from old rollouts"


def questions(directory):
    """Of every rollout, in order."""
    files = sorted((directory / "rollouts").glob("*.parquet"))
    return [pyarrow.parquet.read_table(file)["question"].to_pylist() for file in files]


@pytest.fixture(scope="module")
def asked(folder, tmp_path_factory):
    """What a run asks that nothing happens to, and that has no server."""
    return questions(servers.train(folder, tmp_path_factory.mktemp("unbroken") / "run").directory)


# after so many requests: in the second step, and before any other of its phase, which would wait for longer
PHASES = {"check": 4, "generate": 5, "load": 2, "score": 2}


@pytest.mark.parametrize("phase", PHASES)
def test_a_server_that_hangs_in_a_phase_ends_the_run_in_time_and_serves_the_next(
    folder, process, tmp_path, phase, monkeypatch, asked
):
    def stop():
        os.killpg(process.process.pid, signal.SIGSTOP)

    at = AtPhase(monkeypatch, phase, stop, after=PHASES[phase], seconds=3)
    try:
        with pytest.raises(EngineError, match="took longer than 3 s. It hangs"):
            servers.train(folder, tmp_path / "run", process.url, request_timeout=77)
        assert time.monotonic() - at.struck_at < 30
        assert at.allowed == 77
    finally:
        os.killpg(process.process.pid, signal.SIGCONT)
    monkeypatch.undo()
    goes_on(folder, tmp_path / "run", process.url, asked)


@pytest.mark.parametrize("phase", PHASES)
def test_a_server_that_is_gone_in_a_phase_ends_the_run_in_time(
    folder, proxy, tmp_path, phase, monkeypatch, asked
):
    at = AtPhase(monkeypatch, phase, proxy.send, after=PHASES[phase])
    with pytest.raises(EngineError, match="no vLLM server answers at .*the same command"):
        servers.train(folder, tmp_path / "run", proxy.url)
    assert 3.5 < time.monotonic() - at.struck_at < 30, "asked three times"
    proxy.start()
    goes_on(folder, tmp_path / "run", proxy.url, asked)


def goes_on(folder, directory, url, asked):
    """The run ended with an error after its first step; the same command finishes it, asking the same."""
    told = json.loads((directory / "manifest.json").read_text())
    assert (told["status"], told["step"]) == ("failed", 1)
    assert "the server at" in told["error"] or "no vLLM server answers" in told["error"]
    run = servers.train(folder, directory, url)
    rows = [row for row in metrics(directory) if "train/loss" in row]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["engine/freshness"] < 1e-5 for row in rows)
    assert run.trainer.sampler.weights_version == 3, "counted on, not anew"
    assert questions(directory) == asked


def test_one_of_two_servers_dies(folder, process, policy, open_sampler, tmp_path):
    """Both are updated, both are asked; the own one's death is told with its log, the other is left alone."""
    from trlmath.sampling.serving import open_server

    recipe = parse_recipe({"model": {"path": str(folder)}, "sampling": {"mode": "server"}})
    own = open_server(recipe, str(folder), 256, "float32", log=tmp_path / "server.log", train=True)
    root = own._weights.transport.files.root
    both = open_sampler(process.url, own.url)
    made = bridge(both, policy)
    made.sync_weights()
    assert made.difference < 1e-5, "the larger of both"
    asked = [0, 0]
    for place, connection in enumerate(both.connections):
        once = connection._once

        def counting(path, *rest, _once=once, _place=place):
            asked[_place] += path == "/v1/completions"
            return _once(path, *rest)

        connection._once = counting
    assert len(both.generate(PROMPTS * 2, SamplingSettings(max_tokens=2))) == 6
    assert asked == [3, 3]

    (pid,) = (
        c.pid for c in psutil.Process().children() if f"--port {own.url.rsplit(':', 1)[1]} " in line_of(c)
    )
    threading.Timer(0.5, os.killpg, (pid, signal.SIGKILL)).start()
    started = time.monotonic()
    with pytest.raises(EngineError, match=f"no vLLM server answers at {own.url}/"):
        generate_for(both, PROMPTS, seconds=60)
    with pytest.raises(EngineError, match="This run started it, and it ended with status -9.*server.log"):
        own.generate(PROMPTS, SamplingSettings(max_tokens=2))
    assert time.monotonic() - started < 60
    own.close()
    assert not root.exists()
    assert len(open_sampler(process.url).generate(PROMPTS, SamplingSettings(max_tokens=4))) == 3
