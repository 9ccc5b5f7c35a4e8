"""A headless Chromium for tests, spoken to over two pipes in its own DevTools protocol; no package needed."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chrome():
    """The browser's path, or None: CHROME says where it is if it is not on the PATH."""
    return os.environ.get("CHROME") or next((found for name in NAMES if (found := shutil.which(name))), None)


class Chrome:
    """One page of one browser. `console`: its warnings and errors; `requests`: what it asked for."""

    def __init__(self, width=1280, height=900, dark=False, mobile=False):
        self.console, self.requests, self._number, self._buffer = [], [], 0, b""
        self._folder = tempfile.TemporaryDirectory()
        read_by_chrome, self._write = os.pipe()
        self._read, written_by_chrome = os.pipe()
        command = [find_chrome(), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
        command += [f"--user-data-dir={self._folder.name}", "--remote-debugging-pipe", "about:blank"]

        def connect():  # the browser reads commands from 3 and writes answers to 4
            low, high = os.dup(read_by_chrome), os.dup(written_by_chrome)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self._process = subprocess.Popen(
            command,
            preexec_fn=connect,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_by_chrome)
        os.close(written_by_chrome)
        self._session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    def open(self, path):
        """Load a file; returns the seconds until its load event."""
        started = time.perf_counter()
        self._loaded = False
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while not self._loaded:
            self._message(30)
        return time.perf_counter() - started

    def js(self, expression):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def call(self, method, **parameters):
        """Send one command and return its result; what happens meanwhile is noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message(30)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _message(self, seconds):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], seconds)
            piece = os.read(self._read, 1 << 16) if ready else b""
            assert piece, "the browser says nothing"
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        method, told = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.console.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.console.append(told["entry"]["text"])
        return message
