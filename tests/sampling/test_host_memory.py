"""What is free in a container: its limit less what is used there, the file cache aside."""

from __future__ import annotations

import psutil
import pytest

from trlmath.planning.machine import machine
from trlmath.sampling import host_memory as module
from trlmath.sampling.host_memory import GIB, host_memory
from trlmath.sampling.memory_share import free_memory

USED = {
    "memory.max": str(GIB),
    "memory.current": str(GIB // 2),
    "memory.stat": f"anon 5\ninactive_file {GIB // 8}\nactive_file 7\n",
}
FORMER = {
    "memory/memory.limit_in_bytes": str(GIB),
    "memory/memory.usage_in_bytes": str(GIB // 2),
    "memory/memory.stat": f"inactive_file 3\ntotal_inactive_file {GIB // 8}\n",
}


@pytest.fixture
def container(tmp_path, monkeypatch):
    """Writes the files of a control group."""
    monkeypatch.setattr(module, "CGROUP", tmp_path)

    def write(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text + "\n")

    return write


@pytest.mark.parametrize("files", [USED, FORMER], ids=["version 2", "version 1"])
def test_a_containers_limit_counts_for_plans_and_engines(container, files, monkeypatch):
    container(files)
    free = GIB // 2 + GIB // 8
    assert host_memory() == (free, GIB)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert free_memory(on_cpu=True) == (free // 2, GIB)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert machine().memory == GIB


def test_a_container_that_is_full_has_nothing_free(container):
    container(USED | {"memory.current": str(2 * GIB)})
    assert host_memory() == (0, GIB)


@pytest.mark.parametrize(
    "files",
    [{}, USED | {"memory.max": "max"}, FORMER | {"memory/memory.limit_in_bytes": "9223372036854771712"}],
    ids=["no container", "version 2", "version 1"],
)
def test_without_a_limit_it_is_the_machines(container, files):
    container(files)
    free, total = host_memory()
    assert total == psutil.virtual_memory().total
    assert 0 < free <= total
