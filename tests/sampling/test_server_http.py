"""Connections to a server: what is asked again, what is not, and what an error says."""

from __future__ import annotations

import json
import threading
import time

import pytest
from made_up_server import send, serving

from trlmath.errors import EngineError
from trlmath.sampling import server_http
from trlmath.sampling.server_http import Connection


@pytest.fixture
def server(monkeypatch):
    """Answers with what `plan` says, one entry a request: a status, or seconds to wait."""
    monkeypatch.setattr(server_http, "RETRY_AFTER", (0.01, 0.02))

    def answer(handler, _):
        http.asked += 1
        http.headers = dict(handler.headers)
        what = http.plan.pop(0) if http.plan else 200
        if isinstance(what, float):
            http.gone.wait(what)
            what = 200
        text = json.dumps({"results": [{"version": 2}], "error": "no room"}).encode()
        length = len(text) + 9 * (what < 0)  # below 0: cut off
        send(handler, text, abs(what), **{"Content-Length": str(length)})

    with serving(answer) as http:
        http.asked, http.plan, http.gone = 0, [], threading.Event()
        yield http
        http.gone.set()


def test_a_busy_server_is_asked_again_and_a_failing_one_is_not(server):
    server.plan = [503, 429]
    assert Connection(server.url).ask("/x", {}, tries=3)["results"]
    assert server.asked == 3
    server.plan = [503]
    with pytest.raises(EngineError, match="answered 503: .*no room"):
        Connection(server.url).ask("/x", {})
    server.asked, server.plan = 0, [500]
    with pytest.raises(EngineError, match="answered 500: .*no room"):
        Connection(server.url).ask("/x", {}, tries=3)
    assert server.asked == 1


def test_an_answer_that_is_cut_off_is_asked_for_again(server):
    server.plan = [-200, 200]
    assert Connection(server.url).ask("/x", {}, tries=3)["results"]
    server.plan = [-200]
    with pytest.raises(EngineError, match="no vLLM server answers at .*more expected"):
        Connection(server.url).ask("/x", {})
    server.plan = [-500]
    with pytest.raises(EngineError, match="answered 500: .the rest of its answer did not come"):
        Connection(server.url).ask("/x", {}, tries=3)


def test_what_is_known_of_a_server_of_our_own_is_told(server):
    dead = Connection("http://127.0.0.1:9", explain=lambda: " It ended with status -9.")
    with pytest.raises(EngineError, match=r"refused>?\. It ended with status -9\.$"):
        dead.ask("/x")
    server.plan = [500]
    with pytest.raises(EngineError, match="no room.* It ended with"):
        Connection(server.url, explain=lambda: " It ended with status 1.").ask("/x", {})


def test_a_hanging_server_has_a_deadline(server):
    server.plan = [5.0]
    started = time.monotonic()
    with pytest.raises(EngineError, match="took longer than 0 s. It hangs"):
        Connection(server.url, timeout=0.3).ask("/x", {}, timeout=60, tries=3)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("part", ["head", "body", "error"])
def test_a_server_that_trickles_is_late_too(part):
    gone = threading.Event()

    def answer(handler, _):
        handler.send_response(500 if part == "error" else 200)
        if part == "head":
            handler.flush_headers()
        else:
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
        try:
            while not gone.wait(0.05):  # less than the timeout, each time
                handler.wfile.write(b"X: y\r\n" if part == "head" else b" ")
        except OSError:
            return

    with serving(answer) as http:
        started = time.monotonic()
        words = "answered 500: .the rest" if part == "error" else "took longer than 1 s. It hangs"
        with pytest.raises(EngineError, match=words):
            Connection(http.url, timeout=0.6).ask("/x", {})
        assert 0.5 < time.monotonic() - started < 3
        gone.set()


def test_nothing_there_says_what_to_start():
    with pytest.raises(EngineError, match="no vLLM server answers at .*trlmath serve"):
        Connection("http://127.0.0.1:9").ask("/x")


def test_the_key_travels_as_a_header(server):
    Connection(server.url, api_key="secret").ask("/x", {})
    assert server.headers["Authorization"] == "Bearer secret"


def test_a_server_without_our_methods_is_told_apart(server):
    server.plan = [404]
    with pytest.raises(EngineError, match="not started for training. Start it with `trlmath serve"):
        Connection(server.url).rpc("trlmath_weights_version")
    assert Connection(server.url + "/v1").rpc("trlmath_weights_version") == [{"version": 2}]
