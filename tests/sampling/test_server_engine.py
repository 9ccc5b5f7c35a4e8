"""The server engine against a made-up server: what is asked, what is read, and every way it can fail."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trlmath.errors import EngineError
from trlmath.sampling import SamplingSettings
from trlmath.sampling.server_engine import ServerSampler


@pytest.fixture
def server():
    """A server whose answers a test can change; `asked` keeps what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._send(200, {"data": [{"id": "m", "max_model_len": 64}]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            http.asked.append((self.path, body))
            if self.path == "/tokenize":
                return self._send(200, {"tokens": [1, 2]})
            if http.fail:
                return self._send(500, {"error": "out of memory"})
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
            return self._send(200, {"choices": choices})

        def _send(self, status, value):
            text = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            return

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.asked, http.fail, http.finish = [], False, "stop"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    http.url = f"http://127.0.0.1:{http.server_port}"
    yield http
    http.shutdown()
    http.server_close()


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
    hot = sampler.generate([[1]], SamplingSettings(temperature=0.7))[0].rollouts[0]
    nucleus = sampler.generate([[1]], SamplingSettings(top_p=0.9))[0].rollouts[0]
    assert hot.logprobs is None
    assert nucleus.logprobs is None
    assert sampler.generate([[1]], SamplingSettings(temperature=0))[0].rollouts[0].logprobs is not None


def test_what_can_be_wrong(server):
    with pytest.raises(EngineError, match="serves m, not 'other'"):
        ServerSampler(server.url, 60, model="other")
    with pytest.raises(EngineError, match="context of 64 .* need 65"):
        ServerSampler(server.url, 65)
    sampler = ServerSampler(server.url, 60)
    sampler.check_tokenizer("x", [1, 2])
    with pytest.raises(EngineError, match="another tokenizer"):
        sampler.check_tokenizer("x", [1, 3])
    server.finish = "abort"
    with pytest.raises(EngineError, match="'abort'"):
        sampler.generate([[1]], SamplingSettings())
    server.fail = True
    with pytest.raises(EngineError, match="answered 500: .*out of memory"):
        sampler.generate([[1]], SamplingSettings())
    with pytest.raises(EngineError, match="not trained"):
        sampler.load_weights([])
    with pytest.raises(EngineError, match="no vLLM server answers"):
        ServerSampler("http://127.0.0.1:9", 60)
