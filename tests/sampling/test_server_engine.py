"""The server engine against a made-up server: what is asked, what is read, and every way it can fail."""

from __future__ import annotations

import json
import threading

import pytest
from made_up_server import send_json, serving

from trlmath.errors import EngineError
from trlmath.sampling import SamplingSettings
from trlmath.sampling.server_engine import ServerSampler


@pytest.fixture
def server():
    """A server whose answers a test can change; `asked` keeps what it was asked."""

    def answer(handler, text):
        if text is None:
            return send_json(handler, {"data": [{"id": "m", "max_model_len": 64}]})
        body = json.loads(text)
        http.asked.append((handler.path, body))
        if handler.path == "/tokenize":
            return send_json(handler, {"tokens": [1, 2]})
        if "prompt_logprobs" in body:
            return send_json(handler, http.score(body))
        if http.fail:
            return send_json(handler, {"error": "out of memory"}, 500)
        choices = [
            {
                "index": i,
                "text": f"t{body['prompt'][0]}",
                "token_ids": [7, 8],
                "finish_reason": http.finish,
                "logprobs": {"token_logprobs": [-0.5, -1.0]},
            }
            for i in reversed(range(body["n"]))
        ]
        return send_json(handler, {"choices": choices})

    with serving(answer) as http:
        http.asked, http.fail, http.finish = [], False, "stop"
        yield http


def test_groups_come_back_in_order_and_every_setting_is_sent(server):
    settings = SamplingSettings(temperature=1.0, max_tokens=9, min_tokens=2, stop=("</answer>",), seed=5)
    groups = ServerSampler(server.url + "/v1/", 60).generate([[1, 2], [3]], settings, n=2)
    assert [[r.text for r in g.rollouts] for g in groups] == [["t1", "t1"], ["t3", "t3"]]
    assert groups[0].rollouts[0].token_ids == (7, 8)
    assert groups[0].rollouts[0].logprobs == (-0.5, -1.0)
    bodies = sorted((body for _, body in server.asked), key=lambda body: body["seed"])
    assert [body["seed"] for body in bodies] == [5, 7]
    first = bodies[0]
    assert (first["model"], first["prompt"], first["n"], first["stop"]) == ("m", [1, 2], 2, ["</answer>"])
    assert (first["include_stop_str_in_output"], first["return_token_ids"]) == (True, True)
    assert (first["min_tokens"], first["max_tokens"], first["repetition_penalty"]) == (2, 9, 1.0)


def test_no_log_probabilities_of_another_distribution(server):
    sampler = ServerSampler(server.url, 60)
    hot = sampler.generate([[1]], SamplingSettings(temperature=0.7, max_tokens=9))[0].rollouts[0]
    nucleus = sampler.generate([[1]], SamplingSettings(top_p=0.9, max_tokens=9))[0].rollouts[0]
    assert hot.logprobs is None
    assert nucleus.logprobs is None
    assert (
        sampler.generate([[1]], SamplingSettings(temperature=0, max_tokens=9))[0].rollouts[0].logprobs
        is not None
    )


def test_pairs_are_scored_several_at_a_time_up_to_the_whole_context(server):
    """Each request waits for another: one after the other, none would be answered."""
    together = threading.Barrier(2)

    def score(body):
        together.wait(10)
        told = [{str(token): {"logprob": -token}} for token in body["prompt"]]
        choice = {"prompt_logprobs": [None, *told[1:]]}
        if "logprob_token_ids" in body:
            assert len(body["prompt"]) == 63
            choice["logprobs"] = {"top_logprobs": [{"token_id:9": -9.5, "token_id:1": -1}]}
        return {"choices": [choice]}

    server.score = score
    sampler = ServerSampler(server.url, None)
    assert sampler.score([[1, 2], [3], [4]], [[5, 6], [7], []]) == [[-5, -6], [-7], []]
    full = [1] * 61
    assert sampler.score([full, full], [[2, 3, 9], [2, 3]]) == [[-2, -3, -9.5], [-2, -3]]
    with pytest.raises(EngineError, match="65 tokens together, more than the engine's context of 64"):
        sampler.score([full], [[1] * 4])
    with pytest.raises(EngineError, match="2 prompts and 1 completions"):
        sampler.score([[1], [2]], [[3]])


def test_what_can_be_wrong(server):
    with pytest.raises(EngineError, match="serves m, not 'other'"):
        ServerSampler(server.url, 60, model="other")
    with pytest.raises(EngineError, match="context of 64 .* need 65"):
        ServerSampler(server.url, 65)
    sampler = ServerSampler(server.url, 60)
    sampler.check_tokenizer("x", [1, 2])
    with pytest.raises(EngineError, match="another tokenizer"):
        sampler.check_tokenizer("x", [1, 3])
    for other in ("abort", "error", "repetition", None):
        server.finish = other
        with pytest.raises(EngineError, match=f"ended a completion by {other!r}"):
            sampler.generate([[1]], SamplingSettings(max_tokens=9))
    with pytest.raises(EngineError, match=r"sampling.max_tokens is 60.*context of 60"):
        sampler.generate([[1]], SamplingSettings(max_tokens=60))
    assert ServerSampler(server.url, None).context == 64  # the server's own
    server.fail = True
    with pytest.raises(EngineError, match="answered 500: .*out of memory"):
        sampler.generate([[1]], SamplingSettings(max_tokens=9))
    with pytest.raises(EngineError, match="not trained"):
        sampler.load_weights([])
    with pytest.raises(EngineError, match="no vLLM server answers"):
        ServerSampler("http://127.0.0.1:9", 60)
