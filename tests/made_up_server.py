"""A made-up HTTP server in a thread, for tests of what asks one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler, bytes | None], None]) -> Iterator[Any]:
    """Yields a server whose `url` answers by `answer(handler, body)`; the body is None for GET."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer(self, None)

        def do_POST(self):
            answer(self, self.rfile.read(int(self.headers["Content-Length"] or 0)))

        def log_message(self, *_):
            return

    http: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    http.url = f"http://127.0.0.1:{http.server_port}"
    try:
        yield http
    finally:
        http.shutdown()
        http.server_close()


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    """Answer so; who has given up waiting is let go."""
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    try:
        handler.wfile.write(body)
    except OSError:
        return


def send_json(handler: BaseHTTPRequestHandler, value: Any, status: int = 200) -> None:
    """Answer with JSON."""
    send(handler, json.dumps(value).encode(), status)
