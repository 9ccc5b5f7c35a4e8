"""Weights on their way to servers: files written whole or not at all, versions that cannot go unnoticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from trlmath.errors import EngineError
from trlmath.sampling import server_weights, weight_files
from trlmath.sampling.server_weights import FilesTransport, ServerWeights
from trlmath.sampling.vllm_load import not_whole
from trlmath.sampling.weight_files import WeightFiles


class RecordingConnection:
    """A server that remembers which version it was given."""

    def __init__(self, url="http://a", version=""):
        self.url, self.version, self.calls = url, version, []
        self.held = 0  # how often its prefix cache cannot be emptied
        self.left = {}  # what it leaves out of the weights

    def rpc(self, method, timeout=None, **arguments):
        self.calls.append(method)
        if method == "trlmath_set_version":
            self.version = arguments["version"]
        if method == "trlmath_load_weights":
            self.loaded = {k: v for f in Path(arguments["folder"]).iterdir() for k, v in load_file(f).items()}
            self.version = arguments["version"]
        return [{"version": self.version, **self.left}]

    def ask(self, path, body=None, timeout=None, tries=1):
        self.calls.append(path)
        self.held -= 1
        return {"success": self.held < 0}


def tensors():
    yield "a", torch.arange(6.0).view(2, 3)
    yield "b", torch.ones(3)


def test_files_hold_every_tensor_in_the_engines_dtype_whatever_the_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(weight_files, "SHARD_BYTES", 8)
    files = WeightFiles(tmp_path / "w", torch.bfloat16)
    folder = files.write(tensors(), 3)
    assert len(list(folder.iterdir())) == 2
    found = {k: v for f in folder.iterdir() for k, v in load_file(f).items()}
    assert torch.equal(found["a"], torch.arange(6.0).view(2, 3).bfloat16())
    again = files.write(tensors(), 4)
    files.keep_only(again)
    assert [p.name for p in files.root.glob("v*")] == ["v00000004"]


def test_a_write_that_fails_leaves_the_version_before(tmp_path):
    files = WeightFiles(tmp_path / "w")
    folder = files.write(tensors(), 1)

    def broken():
        yield "a", torch.ones(2)
        raise RuntimeError("a shard is gone")

    with pytest.raises(EngineError, match=r"could not be written .*: a shard is gone. They need 0.0 MB"):
        files.write(broken(), 2)
    assert [p.name for p in files.root.glob("*v*")] == [folder.name]


NO_ROOM = """
import sys, torch
from pathlib import Path
from trlmath.errors import EngineError
from trlmath.sampling.server_weights import FilesTransport, ServerWeights
from trlmath.sampling.weight_files import WeightFiles

files, walked = WeightFiles(Path(sys.argv[1])), []
def tensors():
    for name in "abc":
        walked.append(name)
        yield name, torch.ones(100_000)
try:
    ServerWeights(FilesTransport([], files)).send(tensors())
except EngineError as error:
    print(error)
print(walked, list(files.root.glob(".v*")), list(files.root.glob("v*")))
"""


def test_no_room_for_the_weights_names_the_place_and_what_they_need(tmp_path):
    from small_disk import on_small_disk

    disk = tmp_path / "disk"
    ((told, status),) = on_small_disk(disk, "500k", [sys.executable, "-c", NO_ROOM, disk])
    assert status == 0, told
    assert f"could not be written to {disk}/trlmath-weights-" in told
    assert "No space left" in told
    assert "need 1.2 MB beside the version before, and 0.5 MB are free" in told
    assert "sampling.weights_dir" in told
    # the walk is at its end, as that of the other processes is; nothing is left of the files
    assert told.splitlines()[-1] == "['a', 'b', 'c'] [] []"


def test_a_directory_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="sampling.weights_dir: .*cannot be written"):
        WeightFiles(tmp_path / "file" / "w")


def test_our_own_directory_goes_and_a_named_one_stays(tmp_path):
    own, named = WeightFiles(), WeightFiles(tmp_path / "w")
    assert own.root.exists()
    own.close()
    named.close()
    assert not own.root.exists()
    assert list((tmp_path / "w").iterdir()) == []


def test_two_runs_may_share_a_directory(tmp_path):
    one, other = WeightFiles(tmp_path), WeightFiles(tmp_path)
    first, second = one.write(tensors(), 1), other.write(tensors(), 1)
    assert first != second
    assert first.exists()
    other.close()
    assert first.exists()


def test_what_a_killed_run_left_is_removed_and_what_a_running_one_holds_is_not(tmp_path):
    code = (
        "import sys, time, pathlib, trlmath.sampling.weight_files as w\n"
        "files = w.WeightFiles(pathlib.Path(sys.argv[1]))\nprint(files.root, flush=True)\ntime.sleep(600)"
    )
    run = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    left = Path(run.stdout.readline().strip())
    an_hour_ago = time.time() - 3600
    os.utime(left, (an_hour_ago, an_hour_ago))
    WeightFiles(tmp_path).close()
    assert left.exists(), "its run is alive"
    run.send_signal(signal.SIGKILL)
    run.wait()
    WeightFiles(tmp_path).close()
    assert not left.exists()


def test_every_server_gets_every_version_and_drops_its_cached_prefixes(tmp_path):
    both = [RecordingConnection("http://a"), RecordingConnection("http://b")]
    weights = ServerWeights(FilesTransport(both, WeightFiles(tmp_path)))
    weights.send(tensors())
    weights.send(tensors())
    for connection in both:
        assert connection.version == weights.version
        assert connection.version.startswith("2 of run ")
        assert set(connection.loaded) == {"a", "b"}
        assert connection.calls == ["trlmath_load_weights", "/reset_prefix_cache"] * 2
    assert weights.check(both) is False


def test_a_prefix_cache_that_others_hold_is_asked_for_again_and_then_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(server_weights, "DROP_SECONDS", 0.1)
    server = RecordingConnection()
    weights = ServerWeights(FilesTransport([server], WeightFiles(tmp_path)))
    server.held = 1
    weights.send(tensors())
    assert server.calls[1:] == ["/reset_prefix_cache", "/reset_prefix_cache?reset_running_requests=true"]
    server.held = 99
    with pytest.raises(EngineError, match="http://a keeps cached prefixes .*Nobody else may ask"):
        weights.send(tensors())


def test_a_server_that_takes_a_part_of_the_weights_ends_the_run(tmp_path):
    server = RecordingConnection()
    weights = ServerWeights(FilesTransport([server], WeightFiles(tmp_path)))
    server.left = {"refused": ["a"], "missing": ["c", "d"]}
    with pytest.raises(
        EngineError, match=r"part of .*1 tensors sent were not taken \(a\) and 2 .*none \(c, d\)"
    ):
        weights.send(tensors())
    # cut over two workers, each takes what is its own
    assert not_whole([{"refused": ["a"], "missing": []}, {"refused": ["b"], "missing": []}]) == ""


def test_a_restarted_server_gets_its_weights_again(tmp_path):
    server = RecordingConnection()
    weights = ServerWeights(FilesTransport([server], WeightFiles(tmp_path)))
    weights.send(tensors())
    server.version, server.loaded = "", {}
    assert weights.check([server]) is True
    assert (server.version, weights.renewed) == (weights.version, 1)
    assert set(server.loaded) == {"a", "b"}


def test_a_server_with_other_weights_that_cannot_be_renewed_stops_the_run(monkeypatch):
    monkeypatch.setattr(server_weights, "RENEWAL_SECONDS", 0.0)
    follower = ServerWeights(None, writer=False)
    follower.send(tensors())
    other = RecordingConnection(version="1 of run 0badcafe")  # counted alike, and yet another run's
    with pytest.raises(EngineError, match=r"other weights \(1 of run 0badcafe\) than .*another run uses it"):
        follower.check([other])
    with pytest.raises(EngineError, match="while rollouts were drawn"):
        follower.check_unchanged([other])
    with pytest.raises(EngineError, match=r"\(those it was started with\)"):
        follower.check([RecordingConnection()])


class RecordingClient:
    """TRL's client without NCCL: remembers in which order it was called."""

    broken = ""
    made = ()

    def __init__(self, base_url, group_port):
        self.base_url, self.group_port, self.calls = base_url, group_port, []
        self.session = SimpleNamespace(headers={})
        self._get(f"{base_url}/v1/models")
        RecordingClient.made += (self,)

    def _get(self, url):
        if "401" in self.broken:
            raise Exception(self.broken)  # as TRL does
        self.calls.append(("get", dict(self.session.headers)))

    def init_communicator(self, device):
        self.calls.append(("init", str(device)))

    @contextmanager
    def weight_update(self):
        self.calls.append("begin")
        yield
        self.calls.append("end")

    def update_named_param(self, name, tensor):
        if "reset" in self.broken:
            raise ConnectionResetError(self.broken)
        self.calls.append(name)

    def close_communicator(self):
        self.calls.append("close")


@pytest.fixture
def nccl(monkeypatch):
    """Servers a and b, both with a key, and what makes a transport to them."""
    from trl.generation import vllm_client

    monkeypatch.setattr(vllm_client, "VLLMClient", RecordingClient)
    monkeypatch.setattr(RecordingClient, "made", ())
    both = [RecordingConnection("http://a"), RecordingConnection("http://b")]
    for connection in both:
        connection.headers = {"Authorization": "Bearer ours"}
    return both, lambda: server_weights.NcclTransport(both, torch.device("cuda"))


def test_weights_go_to_every_server_by_nccl(nccl):
    both, make = nccl
    transport = make()
    weights = ServerWeights(transport)
    weights.send(tensors())
    one, two = RecordingClient.made
    assert one.calls == two.calls
    assert one.calls == [("get", both[0].headers), ("init", "cuda"), "begin", "a", "b", "end"]
    assert one.group_port != two.group_port, "chosen free: another run's may be on this host"
    assert weights.check(both) is False
    assert both[1].calls[:2] == ["trlmath_set_version", "/reset_prefix_cache"]
    both[0].version = ""
    with pytest.raises(EngineError, match="other weights"):  # its process group is gone with it
        weights.check(both)
    weights.close()
    assert one.calls[-1] == "close"


@pytest.mark.parametrize("broken", ["Request failed: 401", "connection reset by peer"])
def test_a_failure_of_nccl_is_told_on_every_process(nccl, monkeypatch, broken):
    monkeypatch.setattr(RecordingClient, "broken", broken)
    shared = []
    with pytest.raises(EngineError, match=f"by NCCL: {broken}.*sampling.transport=files"):
        ServerWeights(nccl[1](), share=lambda told: shared.append(told) or told).send(tensors())
    assert broken.startswith("Request") or broken in shared[-1]


def test_a_failure_of_the_writer_is_everyones(tmp_path):
    told = ServerWeights(None, writer=False, share=lambda mine: "the disk is full")
    with pytest.raises(EngineError, match="the disk is full"):
        told.send(tensors())
