"""Weights as files: the transport between trainer and server that works on CPUs and across machines."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from trlmath.errors import EngineError, RecipeError
from trlmath.runs.lock import RunLock

SHARD_BYTES = 2 << 30
_PREFIX = "trlmath-weights-"
_NEW = 60.0  # seconds


class WeightFiles:
    """Writes each version of the weights as safetensors into a folder of its own, beside and renamed.

    Args:
        base: a directory that the trainer and every server see, which several runs may share; None takes
            /dev/shm (memory), or the temporary directory where there is none.
        dtype: to store floating-point tensors in; the engine's, so that no byte travels for nothing.

    Attributes:
        root: this run's own directory in `base`; `close` removes it, and one that was left by a run that
            was killed is removed by the next.

    Raises:
        EngineError: `base` cannot be written.
    """

    def __init__(self, base: Path | None = None, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype
        memory = Path("/dev/shm")
        where = base or (memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir()))
        try:
            where.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(where)
            self.root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=where)).resolve()
            self._lock = RunLock(self.root)
            if base is not None:
                self.root.chmod(0o755)  # a server on another host may be another user's
        except OSError as error:
            raise EngineError(
                f"sampling.weights_dir: {where} cannot be written: {error}. Name a directory that the "
                "trainer and the server both see."
            ) from error

    def write(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> Path:
        """Write all tensors and return their folder; readers see all of them or none.

        Raises:
            EngineError: the disk is full or not writable; the version before is still there.
        """
        from safetensors.torch import save_file

        folder, beside = self.root / f"v{version:08d}", self.root / f".v{version:08d}.{os.getpid()}"
        shutil.rmtree(beside, ignore_errors=True)
        shard: dict[str, torch.Tensor] = {}
        size = number = 0
        try:
            beside.mkdir()
            for name, tensor in named_tensors:
                tensor = tensor.detach()
                wanted = self.dtype if self.dtype and tensor.is_floating_point() else tensor.dtype
                # a copy: the walk may hand out views that are gone, or shared, at the next name
                shard[name] = tensor.to("cpu", wanted, copy=True).contiguous()
                size += shard[name].nbytes
                if size >= SHARD_BYTES:
                    save_file(shard, beside / f"weights-{number:05d}.safetensors")
                    shard, size, number = {}, 0, number + 1
            if shard:
                save_file(shard, beside / f"weights-{number:05d}.safetensors")
            shutil.rmtree(folder, ignore_errors=True)
            beside.rename(folder)
        except (OSError, RuntimeError) as error:
            shutil.rmtree(beside, ignore_errors=True)
            free = shutil.disk_usage(self.root).free / 1e9
            raise EngineError(
                f"the weights could not be written to {self.root} ({free:.1f} GB free): {error}. Name a "
                "directory with room for the whole model: sampling.weights_dir."
            ) from error
        return folder

    def keep_only(self, folder: Path) -> None:
        """Remove the versions before `folder`."""
        for other in self.root.glob("v[0-9]*"):
            if other.name < folder.name:
                shutil.rmtree(other, ignore_errors=True)

    def close(self) -> None:
        """Remove this run's directory."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._lock.release()


def _remove_abandoned(base: Path) -> None:
    """Remove what killed runs have left in `base`: it may be memory. Running ones hold a lock on theirs."""
    for folder in base.glob(f"{_PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < _NEW:
                continue  # its run may be about to lock it
            lock = RunLock(folder)
        except (RecipeError, OSError):
            continue  # somebody holds it, it is not ours, or it is gone by now
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()
