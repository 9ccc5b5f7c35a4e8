"""One vLLM server over HTTP: deadlines, bounded retries, and its own words in errors."""

from __future__ import annotations

import io
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any

from trlmath.errors import EngineError

# seconds before each further try; a server that is restarting or full for a moment is met again
RETRY_AFTER = (1.0, 3.0)
_BUSY = (429, 503)
MOST_BYTES = 1 << 30
"""Of one answer: a server that sends on for ever must not fill the memory."""
# what cuts an answer off: the socket's errors, an answer that ends too early, words that are no JSON
_CUT = (OSError, HTTPException, ValueError)


class Connection:
    """Asks one server.

    Args:
        url: e.g. ``http://localhost:8000``, with or without ``/v1``.
        timeout: seconds one request may take, from connecting to the answer's last byte.
        api_key: sent as a bearer token.
        explain: what is known of a server of our own that no longer answers, for the error; "" if nothing.
    """

    def __init__(
        self,
        url: str,
        timeout: float = 600.0,
        api_key: str | None = None,
        explain: Callable[[], str] = lambda: "",
    ) -> None:
        if "@" in urllib.parse.urlsplit(url).netloc:
            raise EngineError(
                "a server's URL holds a name or a password (user:password@), which a run would write down. "
                "Put the key in the environment variable VLLM_API_KEY and leave them out of the URL."
            )
        self.url, self.timeout = url.rstrip("/").removesuffix("/v1"), timeout
        self._key, self._explain = api_key, explain

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries: the key, where there is one."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def ask(
        self, path: str, body: Mapping[str, Any] | None = None, timeout: float | None = None, tries: int = 1
    ) -> Any:
        """Return the JSON answer of GET `path`, or of POST when there is a `body`.

        Args:
            timeout: seconds, where that is less than the connection's own.
            tries: above 1, asks again when nothing answers or the server is busy; only for what may be
                asked twice.

        Raises:
            EngineError: no answer in time, an error status (with the server's words), or no JSON.
        """
        for pause in (*RETRY_AFTER[: tries - 1], None):
            try:
                return self._once(path, body, min(self.timeout, timeout or self.timeout))
            except _Again as again:
                if pause is None:
                    raise again.error from again.error.__cause__
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def rpc(self, method: str, timeout: float | None = None, **arguments: str) -> list[Any]:
        """Call `method` on every worker and return their results.

        Raises:
            EngineError: as `ask`; a server without that method, or without the door to it, is told apart.
        """
        try:
            answer = self.ask("/collective_rpc", {"method": method, "kwargs": arguments}, timeout, tries=3)
        except EngineError as error:
            if " answered 404" in str(error) or "has no attribute" in str(error):
                raise EngineError(
                    f"the server at {self.url} cannot be given weights: it was not started for training. "
                    "Start it with `trlmath serve RECIPE`."
                ) from error
            raise
        return (answer or {}).get("results", [])

    def _once(self, path: str, body: Mapping[str, Any] | None, timeout: float) -> Any:
        headers = {"Content-Type": "application/json", **self.headers}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with _opener.open(request, timeout=timeout) as response:
                text = response.read(MOST_BYTES + 1)
                if response.length and len(text) <= MOST_BYTES:  # told only where all is read at once
                    raise IncompleteRead(text, response.length)
                if len(text) > MOST_BYTES:
                    raise EngineError(
                        f"the server at {self.url}{path} answered with more than {MOST_BYTES >> 20} MiB."
                    )
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            failure = EngineError(
                f"the server at {self.url}{path} answered {error.code}: {_words(error)}{self._explain()}"
            )
            failure.__cause__ = error
            raise (_Again(failure) if error.code in _BUSY else failure) from error
        except TimeoutError as error:
            raise self._late(path, timeout) from error
        except RecursionError as error:
            raise EngineError(
                f"the server at {self.url}{path} answered with JSON that is nested too deeply."
            ) from error
        except _CUT as error:
            if isinstance(getattr(error, "reason", None), TimeoutError):
                raise self._late(path, timeout) from error
            failure = EngineError(
                f"no vLLM server answers at {self.url}{path}: {error}.{self._explain() or _START_ONE}"
            )
            failure.__cause__ = error
            raise _Again(failure) from error

    def _late(self, path: str, timeout: float) -> EngineError:
        return EngineError(
            f"the server at {self.url}{path} took longer than {timeout:.0f} s. It hangs, or has more to do "
            f"than it can: raise sampling.request_timeout, or start more servers.{self._explain()}"
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A server asked for weights or completions has no reason to send us, and our key, elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None  # the answer is then told as the error it is


class _Until(io.RawIOBase):
    """A socket's bytes until a time: urllib's own timeout begins anew with each piece that comes."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, end: float) -> None:
        self._raw, self._sock, self._end = raw, sock, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the whole answer did not come in time")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)  # type: ignore[attr-defined,no-any-return]

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, end: float, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Until(self.fp.detach(), sock, end))


class _Plain(HTTPConnection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _answer_in_time(self)


class _Secure(HTTPSConnection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _answer_in_time(self)


def _answer_in_time(connection: HTTPConnection) -> None:
    """Let `timeout` be that of the request from its start to the answer's last byte."""
    end = time.monotonic() + float(connection.timeout or 0)
    connection.response_class = partial(_Response, end=end)  # type: ignore[assignment]


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_Plain, req)  # type: ignore[arg-type]


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_Secure, req)  # type: ignore[arg-type]


_opener = urllib.request.build_opener(_NoRedirect, _Http, _Https)

_START_ONE = (
    " Start one with `trlmath serve RECIPE` (or `python -m vllm.entrypoints.openai.api_server --model DIR`), "
    "or correct sampling.url (--server). A run goes on with the same command."
)


def _words(error: urllib.error.HTTPError) -> str:
    """What an answer with an error status says."""
    try:
        return error.read().decode("utf-8", "replace")[:400]
    except _CUT as cut:
        return f"(the rest of its answer did not come: {cut})"


class _Again(Exception):
    """An error after which it makes sense to ask again."""

    def __init__(self, error: EngineError) -> None:
        super().__init__(str(error))
        self.error = error
