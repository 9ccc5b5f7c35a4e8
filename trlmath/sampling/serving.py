"""The vLLM server a recipe asks for: the one that runs already, or one started for it and stopped after."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from trlmath.errors import EngineError, RecipeError
from trlmath.recipe import Recipe
from trlmath.sampling.engine_options import OWN_SERVER, RUNNING, check_engine_options
from trlmath.sampling.server_engine import ServerSampler
from trlmath.sampling.server_http import Connection
from trlmath.sampling.server_process import ServerProcess
from trlmath.sampling.server_weights import FilesTransport, NcclTransport, ServerWeights, Transport
from trlmath.sampling.weight_files import WeightFiles

# gives every process what the first one passes to it
Share = Callable[[Any], Any]
API_KEY = "VLLM_API_KEY"


def start_server(
    recipe: Recipe,
    model: str,
    context: int | None,
    dtype: str,
    host: str = "127.0.0.1",
    port: int = 0,
    log: Path | None = None,
) -> ServerProcess:
    """Start the server that `recipe` needs; it is not ready yet (`ServerProcess.wait`).

    Args:
        context: tokens a prompt and its completion may take together.
        log: file for its output; None shows it.

    Raises:
        EngineError: vLLM is missing.
        RecipeError: its server has no such option, or not with that value.
    """
    options = dict(recipe.sampling.engine_options)
    check_engine_options(OWN_SERVER, options)
    if recipe.sampling.transport == "nccl":
        options["weight_transfer_config"] = {"backend": "nccl"}
    key = os.environ.get(API_KEY)
    return ServerProcess(model, context, dtype, host, port, recipe.sampling.devices, key, options, log)


def check_servers(recipe: Recipe) -> None:
    """Raise EngineError when a server that should be running does not answer; before a weight is loaded."""
    url = recipe.sampling.url
    if recipe.sampling.mode == "server" and url is not None:
        for one in [url] if isinstance(url, str) else url:
            Connection(one, 10.0, os.environ.get(API_KEY)).ask("/v1/models", tries=3)


def open_server(
    recipe: Recipe,
    model: str,
    context: int | None,
    dtype: str,
    log: Path | None = None,
    train: bool = False,
    main: bool = True,
    share: Share = lambda value: value,
    device: torch.device | None = None,
) -> ServerSampler:
    """Return the sampler of the recipe's servers; its `close` stops what was started for it.

    Args:
        model: the directory or id that a server of our own serves.
        train: the sampler will be given weights.
        main: the first process starts and updates the servers; the others only ask.
        share: from the first process to all.
        device: the trainer's, for the transport nccl.

    Raises:
        EngineError: on every process, when a server cannot be started or asked.
    """
    sampling, key = recipe.sampling, os.environ.get(API_KEY)
    with ExitStack() as held:
        process: ServerProcess | None = None
        if sampling.url is None:
            process, url = _own_server(recipe, model, context, dtype, held, log, main, share)
            urls, client = [url], {}
        else:
            urls = [sampling.url] if isinstance(sampling.url, str) else sampling.url
            client = check_engine_options(RUNNING, sampling.engine_options)
        explain = process.explain if process else _nothing
        sampler = ServerSampler(
            urls, context, timeout=sampling.request_timeout, api_key=key, explain=explain, **client
        )
        if train:
            weights = ServerWeights(None, writer=main, share=share)
            held.callback(weights.close)
            weights.transport = _on_main(main, share, lambda: _transport(recipe, sampler, dtype, device))
            sampler.take_weights_from(weights)
        sampler.on_close(held.pop_all().close)
    return sampler


def _nothing() -> str:
    return ""


def _own_server(
    recipe: Recipe,
    model: str,
    context: int | None,
    dtype: str,
    held: ExitStack,
    log: Path | None,
    main: bool,
    share: Share,
) -> tuple[ServerProcess | None, str]:
    """The server (on the first process) and its address."""

    def start() -> ServerProcess:
        process = start_server(recipe, model, context, dtype, log=log)
        held.callback(process.stop)
        process.wait(recipe.sampling.start_timeout)
        return process

    process: ServerProcess | None = _on_main(main, share, start)
    return process, share(process.url if process else None)


def _on_main(main: bool, share: Share, work: Callable[[], Any]) -> Any:
    """Do `work` on the first process; its EngineError is raised on all. None on the others."""
    result = failure = None
    if main:
        try:
            result = work()
        except EngineError as error:
            failure = str(error)
    failure = share(failure)
    if failure is not None:
        raise EngineError(failure)
    return result


def _transport(recipe: Recipe, sampler: ServerSampler, dtype: str, device: torch.device | None) -> Transport:
    sampling = recipe.sampling
    for connection in sampler.connections:  # before a weight is written: can it be given any?
        connection.rpc("trlmath_weights_version", 60.0)
    if sampling.transport == "nccl":
        if device is None or device.type != "cuda":
            raise RecipeError(
                "sampling.transport: 'nccl' moves weights between GPUs, and there is none here. Use 'files'."
            )
        return NcclTransport(sampler.connections, device)
    base = Path(sampling.weights_dir).expanduser() if sampling.weights_dir else None
    stored = getattr(torch, dtype, None)
    return FilesTransport(sampler.connections, WeightFiles(base, stored))
