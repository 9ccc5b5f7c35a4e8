"""Weights from the trainer to running vLLM servers, over a named transport: files, or NCCL on GPUs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch

from trlmath.errors import EngineError
from trlmath.sampling.server_http import Connection
from trlmath.sampling.server_process import free_port
from trlmath.sampling.vllm_load import not_whole
from trlmath.sampling.weight_files import WeightFiles

# how long the other processes wait for the writer to give a restarted server its weights again
RENEWAL_SECONDS = 60.0
# how long a server is asked to drop what it has cached of the old weights
DROP_SECONDS = 30.0

Named = Iterable[tuple[str, torch.Tensor]]


class Transport(Protocol):
    """How weights reach the servers."""

    def send(self, named_tensors: Named, number: int, version: str) -> None:
        """Bring every tensor to every server; afterwards they serve `version`, the run's `number`-th.

        Raises EngineError.
        """
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
        self._last: tuple[Path, str] | None = None

    def send(self, named_tensors: Named, number: int, version: str) -> None:
        """See `Transport.send`."""
        folder = self.files.write(named_tensors, number)
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
    for a recipe with ``sampling.transport: nccl``. TRL's client knows no deadlines but NCCL's own.

    Raises:
        EngineError: a server cannot be reached, or cannot take weights this way.
    """

    def __init__(self, connections: Sequence[Connection], device: torch.device) -> None:
        self.connections, self._clients = connections, list[Any]()
        for connection in connections:
            with _as_engine_error(connection.url):
                self._clients.append(_client(connection))
                self._clients[-1].init_communicator(device)

    def send(self, named_tensors: Named, number: int, version: str) -> None:
        """See `Transport.send`."""
        with _as_engine_error(", ".join(c.url for c in self.connections)), ExitStack() as stack:
            for client in self._clients:
                stack.enter_context(client.weight_update())
            for name, tensor in named_tensors:
                for client in self._clients:
                    client.update_named_param(name, tensor)
        for connection in self.connections:
            connection.rpc("trlmath_set_version", version=version)
            _drop_prefixes(connection)

    def renew(self, connection: Connection) -> bool:
        """See `Transport.renew`."""
        return False  # its process group is gone with it

    def close(self) -> None:
        """See `Transport.close`."""
        for client in self._clients:
            client.close_communicator()


def _client(connection: Connection) -> Any:
    """TRL's client of this server, with our key, and on a port that another run on this host has not."""
    from trl.generation.vllm_client import VLLMClient

    class Client(VLLMClient):  # type: ignore[misc]
        def _get(self, url: str, **kwargs: Any) -> Any:
            self.session.headers.update(connection.headers)  # the first request comes from its constructor
            return super()._get(url, **kwargs)

    return Client(base_url=connection.url, group_port=free_port())


@contextmanager
def _as_engine_error(where: str) -> Iterator[None]:
    """What TRL's client raises, plain exceptions among it, as an error that every process is told."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(
            f"the server at {where} cannot be given weights by NCCL: {error}. Start it with `trlmath serve "
            "RECIPE sampling.transport=nccl` on GPUs of its own, or use sampling.transport=files."
        ) from error


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
        self.sent = self.renewed = 0
        # two runs that share a server count alike: a version says whose it is
        self._run = share(uuid.uuid4().hex[:8])

    @property
    def version(self) -> str:
        """What every server should serve: the name of the weights last sent; "" before the first."""
        return f"{self.sent} of run {self._run}" if self.sent else ""

    def send(self, named_tensors: Named) -> None:
        """Send from the writer; the others walk along, as gathering sharded tensors needs all.

        Raises:
            EngineError: on every process, when the writer could not send.
        """
        failure, walk = None, iter(named_tensors)
        self.sent += 1
        if self.writer and self.transport is not None:
            try:
                self.transport.send(walk, self.sent, self.version)
            except EngineError as error:
                failure = str(error)
        # what the writer has not walked after a failure, too: the others would wait for it at the next tensor
        for _ in walk:
            pass
        failure = self._share(failure)
        if failure is not None:
            raise EngineError(failure)

    def check(self, connections: Sequence[Connection]) -> bool:
        """Make sure that every server serves the version last sent; a restarted one is given it again.

        Returns:
            whether one was.

        Raises:
            EngineError: a server serves other weights and cannot be given the right ones.
        """
        before = self.renewed
        for connection in connections if self.sent else ():
            served = _served(connection)
            if served == {self.version}:
                continue
            if self.transport is not None and self.transport.renew(connection):
                self.renewed += 1
                continue
            if not self.writer and self._renewed_by_writer(connection):
                self.renewed += 1
                continue
            raise EngineError(self._other(connection, served, "Rollouts would come from an old policy."))
        return self.renewed > before

    def check_unchanged(self, connections: Sequence[Connection]) -> None:
        """Raise EngineError when a server no longer serves the version that `check` made sure of."""
        for connection in connections if self.sent else ():
            served = _served(connection)
            if served != {self.version}:
                raise EngineError(
                    self._other(connection, served, "That happened while rollouts were drawn from it.")
                )

    def _other(self, connection: Connection, served: set[str], consequence: str) -> str:
        told = " and ".join(sorted(name or "those it was started with" for name in served))
        return (
            f"the server at {connection.url} has other weights ({told}) than this run has sent "
            f"({self.version}): it was restarted, or another run uses it. {consequence} Give each run "
            "servers of its own and start it again with the same command; it sends its weights anew."
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


def served_versions(connections: Iterable[Connection]) -> set[str]:
    """What the servers' weights are called; "" are those that one was started with. Raises EngineError."""
    return set().union(*(_served(connection) for connection in connections))


def _served(connection: Connection) -> set[str]:
    return {str(told["version"]) for told in connection.rpc("trlmath_weights_version", 60.0)}


def _load(connection: Connection, folder: Path, version: str) -> None:
    told = connection.rpc("trlmath_load_weights", folder=str(folder), version=version)
    wrong = not_whole(told)
    if wrong:
        raise EngineError(
            f"the server at {connection.url} has only a part of the run's weights: {wrong}. Does it serve "
            "the model of model.path?"
        )
    _drop_prefixes(connection)


def _drop_prefixes(connection: Connection) -> None:
    """Empty a server's prefix cache, which holds keys and values of the old weights. Raises EngineError."""
    deadline, forced = time.monotonic() + DROP_SECONDS, ""
    while True:
        # it answers false while requests hold blocks; asked so, it puts them back and reads them again
        answer = connection.ask(f"/reset_prefix_cache{forced}", {}, tries=3)
        if (answer or {}).get("success", False):
            return
        if time.monotonic() > deadline:
            raise EngineError(
                f"the server at {connection.url} keeps cached prefixes of the old weights, as other requests "
                f"are running there, also after {DROP_SECONDS:.0f} s: rollouts would come from an old policy "
                "in part. Nobody else may ask a server that is trained with: another run, an evaluation "
                "(--server), a chat. Give each servers of its own, and start the run again with the same "
                "command."
            )
        if forced:
            time.sleep(1.0)
        forced = "?reset_running_requests=true"
