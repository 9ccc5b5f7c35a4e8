"""Weights from the trainer to running vLLM servers, over a named transport: files, or NCCL on GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import torch

from trlmath.errors import EngineError
from trlmath.sampling.server_http import Connection
from trlmath.sampling.weight_files import WeightFiles

# how long the other processes wait for the writer to give a restarted server its weights again
RENEWAL_SECONDS = 60.0

Named = Iterable[tuple[str, torch.Tensor]]


class Transport(Protocol):
    """How weights reach the servers."""

    def send(self, named_tensors: Named, version: int) -> None:
        """Bring every tensor to every server; afterwards they serve `version`. Raises EngineError."""
        ...

    def renew(self, connection: Connection) -> bool:
        """Give a restarted server the last version again; False when this transport cannot."""
        ...

    def close(self) -> None:
        """Remove what lies around."""
        ...


class FilesTransport:
    """Through a directory both sides see: safetensors written beside, renamed, and loaded by name."""

    def __init__(self, connections: Sequence[Connection], files: WeightFiles) -> None:
        self.connections, self.files = connections, files
        self._last: tuple[Path, int] | None = None

    def send(self, named_tensors: Named, version: int) -> None:
        """See `Transport.send`."""
        folder = self.files.write(named_tensors, version)
        with ThreadPoolExecutor(len(self.connections)) as pool:
            list(pool.map(lambda connection: _load(connection, folder, version), self.connections))
        self.files.keep_only(folder)
        self._last = (folder, version)

    def renew(self, connection: Connection) -> bool:
        """See `Transport.renew`."""
        if self._last is None:
            return False
        _load(connection, *self._last)
        return True

    def close(self) -> None:
        """See `Transport.close`."""
        self.files.close()


class NcclTransport:
    """TRL's way: the trainer and the servers' workers form an NCCL group. CUDA on both sides.

    The servers must be started with ``weight_transfer_config: {backend: nccl}``, as `trlmath serve` does
    for a recipe with ``sampling.transport: nccl``.
    """

    def __init__(self, connections: Sequence[Connection], device: torch.device) -> None:
        from trl.generation.vllm_client import VLLMClient

        self.connections = connections
        self._clients = [VLLMClient(base_url=c.url, group_port=51216 + i) for i, c in enumerate(connections)]
        for client in self._clients:
            client.init_communicator(device)

    def send(self, named_tensors: Named, version: int) -> None:
        """See `Transport.send`."""
        with ExitStack() as stack:
            for client in self._clients:
                stack.enter_context(client.weight_update())
            for name, tensor in named_tensors:
                for client in self._clients:
                    client.update_named_param(name, tensor)
        for connection in self.connections:
            connection.rpc("trlmath_set_version", version=str(version))
            connection.ask("/reset_prefix_cache", {}, tries=3)

    def renew(self, connection: Connection) -> bool:
        """See `Transport.renew`."""
        return False  # its process group is gone with it

    def close(self) -> None:
        """See `Transport.close`."""
        for client in self._clients:
            client.close_communicator()


class ServerWeights:
    """Keeps every server on one version, from one process of the run, with all processes agreeing.

    Args:
        transport: used by the `writer` only; None elsewhere.
        writer: whether this process sends.
        share: gives every process what the writer passes to it; it also makes them wait for the writer.
    """

    def __init__(
        self,
        transport: Transport | None,
        writer: bool = True,
        share: Callable[[str | None], str | None] = lambda told: told,
    ) -> None:
        self.transport, self.writer, self._share = transport, writer, share
        self.version = 0
        self.renewed = 0

    def send(self, named_tensors: Named) -> int:
        """Send from the writer; the others walk along, as gathering sharded tensors needs all.

        Returns:
            the version all servers now serve.

        Raises:
            EngineError: on every process, when the writer could not send.
        """
        failure = None
        if self.writer and self.transport is not None:
            try:
                self.transport.send(named_tensors, self.version + 1)
            except EngineError as error:
                failure = str(error)
        else:
            for _ in named_tensors:
                pass
        failure = self._share(failure)
        if failure is not None:
            raise EngineError(failure)
        self.version += 1
        return self.version

    def check(self, connections: Sequence[Connection]) -> None:
        """Make sure that every server serves the version last sent; a restarted one is given it again.

        Raises:
            EngineError: a server serves other weights and cannot be given the right ones.
        """
        if self.version == 0:
            return
        for connection in connections:
            served = _served(connection)
            if served == {self.version}:
                continue
            if self.transport is not None and self.transport.renew(connection):
                self.renewed += 1
                continue
            if not self.writer and self._renewed_by_writer(connection):
                continue
            raise EngineError(
                f"the server at {connection.url} serves version {sorted(served)} of the weights and not "
                f"{self.version}: it was restarted, or another run uses it. Rollouts would come from an old "
                "policy. Start the run again (run.resume=auto); it sends its weights anew."
            )

    def _renewed_by_writer(self, connection: Connection) -> bool:
        deadline = time.monotonic() + RENEWAL_SECONDS
        while time.monotonic() < deadline:
            if _served(connection) == {self.version}:
                return True
            time.sleep(1.0)
        return False

    def close(self) -> None:
        """Remove what the transport holds."""
        if self.transport is not None:
            self.transport.close()


def _served(connection: Connection) -> set[int]:
    return {int(told["version"]) for told in connection.rpc("trlmath_weights_version", 60.0)}


def _load(connection: Connection, folder: Path, version: int) -> None:
    connection.rpc("trlmath_load_weights", folder=str(folder), version=str(version))
    connection.ask("/reset_prefix_cache", {}, tries=3)
