"""Start a recipe script in a forked process: a real process, without importing torch and TRL again.

`prepare` imports what a run needs, once; `start` forks. The child's random states are its own, as those of a
process that was started afresh, and it writes the phase that it is in where its parent can read it.
"""

from __future__ import annotations

import mmap
import os
import random
import runpy
import signal
import socket
import sys
import time
import traceback
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PHASES = ("start", "between", "evaluate", "generate", "grade", "update", "save", "final")
WHOLE = ("evaluate", "save", "final")  # what happens inside one of these belongs to it

_shared = mmap.mmap(-1, 1)  # one byte that forked processes write and their parent reads, even after a kill


def phase():
    """The phase that the child last started is in, or was killed in."""
    return PHASES[_shared[0]]


@contextmanager
def _within(name):
    before = _shared[0]
    if PHASES[before] not in WHOLE:
        _shared[0] = PHASES.index(name)
    try:
        yield
    finally:
        _shared[0] = before


def _mark(owner, method, name):
    original = getattr(owner, method)

    @wraps(original)
    def marked(*args, **kwargs):
        if os.environ.get("RANK", "0") != "0":
            return original(*args, **kwargs)
        with _within(name):
            return original(*args, **kwargs)

    setattr(owner, method, marked)


def prepare():
    """Import the packages and let the methods of runs tell their phase; computes nothing."""
    os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    os.chdir(ROOT)
    from trlmath.cli.launch import quiet_libraries

    quiet_libraries()
    import trlmath.reports.console
    import trlmath.reports.page  # noqa: F401
    from trlmath.evaluation import run as evaluation_run
    from trlmath.sampling.transformers_engine import TransformersSampler
    from trlmath.training import expert_iteration_run, roll_out
    from trlmath.training.checkpointing import Checkpointed
    from trlmath.training.expert_iteration_run import ExpertIterationRun
    from trlmath.training.grpo import MathGRPOTrainer
    from trlmath.training.grpo_run import GrpoRun
    from trlmath.training.run_base import TrainingRun
    from trlmath.training.sft import MathSFTTrainer
    from trlmath.training.sft_run import SftRun

    for owner in (GrpoRun, SftRun, ExpertIterationRun):
        _mark(owner, "train", "between")
        _mark(owner, "evaluate", "evaluate")
    _mark(ExpertIterationRun, "iterations", "between")
    _mark(TrainingRun, "finish", "final")
    _mark(Checkpointed, "_save_checkpoint", "save")
    _mark(expert_iteration_run.ExpertIterationRun, "_keep", "save")
    _mark(TransformersSampler, "generate", "generate")
    _mark(MathGRPOTrainer, "_calculate_rewards", "grade")
    _mark(evaluation_run, "grade_groups", "grade")
    roll_out.grade_groups = evaluation_run.grade_groups
    _mark(MathGRPOTrainer, "training_step", "update")
    _mark(MathSFTTrainer, "training_step", "update")


def start(script, arguments, log, processes=1):
    """Fork `processes` processes that run recipes/<script>.py as `accelerate launch` does; their ids.

    Each is the leader of a process group of its own, with its output appended to `log`.
    """
    _shared[0] = 0
    port = _free_port() if processes > 1 else 0
    sys.stdout.flush()
    pids = []
    for rank in range(processes):
        pid = os.fork()
        if pid == 0:
            _child(script, arguments, log, rank, processes, port)
        pids.append(pid)
    return pids


def wait(pids, seconds=None):
    """Wait for the processes, at most so long; their exit statuses, None for one that still runs."""
    ends = time.monotonic() + (seconds if seconds is not None else 1e9)
    statuses = dict.fromkeys(pids)
    while None in statuses.values():
        for pid in [p for p, status in statuses.items() if status is None]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                statuses[pid] = os.waitstatus_to_exitcode(status)
        if time.monotonic() >= ends:
            break
        time.sleep(0.002)
    return list(statuses.values())


def kill(pids, alone):
    """SIGKILL to the processes: `alone`, as the kernel does when memory is out, or with all they started."""
    for pid in pids:
        (os.kill if alone else os.killpg)(pid, signal.SIGKILL)
    return wait(pids)


def _child(script, arguments, log, rank, processes, port):
    status = 1
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, out), (2, out)):
            os.dup2(source, target)
        if processes > 1:
            os.environ |= {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes),
                "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                "ACCELERATE_USE_CPU": "true",
            }  # fmt: skip
        _own_random_states()
        sys.argv = [f"recipes/{script}.py", *arguments]
        sys.path.insert(0, str(ROOT / "recipes"))
        runpy.run_path(f"recipes/{script}.py", run_name="__main__")
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - the child's last words
        traceback.print_exc()
    finally:
        import multiprocessing.util

        multiprocessing.util._exit_function()  # ends the grading workers, as the interpreter's end would
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _own_random_states():
    """What a fork has inherited would hide a draw that no seed governs."""
    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    torch.manual_seed(random.getrandbits(60))


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
