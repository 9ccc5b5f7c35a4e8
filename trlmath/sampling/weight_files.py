"""Weights as files: the transport between trainer and server that works on CPUs and across machines."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

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
        self.dtype, self._bytes = dtype, 0
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
        folder, beside = self.root / f"v{version:08d}", self.root / f".v{version:08d}.{os.getpid()}"
        shutil.rmtree(beside, ignore_errors=True)
        self._bytes = 0
        walk = iter(named_tensors)
        try:
            beside.mkdir()
            self._write_shards(walk, beside)
            shutil.rmtree(folder, ignore_errors=True)
            beside.rename(folder)
        except (OSError, RuntimeError, SafetensorError) as error:
            shutil.rmtree(beside, ignore_errors=True)
            # to its end, for the size of all; and other processes gather each sharded tensor together with us
            for _, tensor in walk:
                self._bytes += self._size(tensor)
            free = shutil.disk_usage(self.root).free
            raise EngineError(
                f"the weights could not be written to {self.root}: {error}. They need {_mb(self._bytes)} "
                f"beside the version before, and {_mb(free)} are free. Name a directory with room for both, "
                "which trainer and server see: sampling.weights_dir."
            ) from error
        return folder

    def _write_shards(self, walk: Iterable[tuple[str, torch.Tensor]], beside: Path) -> None:
        shard: dict[str, torch.Tensor] = {}
        size = number = 0
        for name, tensor in walk:
            self._bytes += self._size(tensor)
            size += self._size(tensor)
            # a copy: the walk may hand out views that are gone, or shared, at the next name
            shard[name] = tensor.detach().to("cpu", self._stored(tensor), copy=True).contiguous()
            if size >= SHARD_BYTES:
                save_file(shard, beside / f"weights-{number:05d}.safetensors")
                shard, size, number = {}, 0, number + 1
        if shard:
            save_file(shard, beside / f"weights-{number:05d}.safetensors")

    def _stored(self, tensor: torch.Tensor) -> torch.dtype:
        return self.dtype if self.dtype and tensor.is_floating_point() else tensor.dtype

    def _size(self, tensor: torch.Tensor) -> int:
        return tensor.numel() * self._stored(tensor).itemsize

    def keep_only(self, folder: Path) -> None:
        """Remove the versions before `folder`."""
        for other in self.root.glob("v[0-9]*"):
            if other.name < folder.name:
                shutil.rmtree(other, ignore_errors=True)

    def close(self) -> None:
        """Remove this run's directory."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._lock.release()


def _mb(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


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
