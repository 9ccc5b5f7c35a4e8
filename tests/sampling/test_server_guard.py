"""The guard of a server: whatever it guards ends with who started it, even what will not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from trlmath.sampling import server_guard

STUBBORN = (
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); print('up', flush=True);"
    "time.sleep(600)"
)
# starts the guard as ServerProcess does, and waits
STARTER = (
    "import os, subprocess, sys; subprocess.Popen([sys.executable, '-P', sys.argv[1], str(os.getpid()),"
    "sys.executable, '-c', sys.argv[2]], start_new_session=True).wait()"
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_ignores_signals_ends_with_its_starter(tmp_path, number):
    guard = tmp_path / "guard.py"  # the same, less patient
    guard.write_text(Path(server_guard.__file__).read_text().replace("GRACE = 15.0", "GRACE = 0.5"))
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(guard), STUBBORN], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout.readline() == "up\n"
    family = psutil.Process(starter.pid).children(recursive=True)
    assert len(family) == 3
    starter.send_signal(number)
    _, left = psutil.wait_procs(family, timeout=20)
    assert not left
    starter.wait()


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_the_status_is_the_servers(code, status):
    command = [sys.executable, "-P", server_guard.__file__, str(os.getpid()), sys.executable, "-c", code]
    assert subprocess.run(command, start_new_session=True).returncode == status


def test_one_whose_starter_is_gone_already_starts_nothing(tmp_path):
    code = f"open({str(tmp_path / 'started')!r}, 'w')"
    command = [sys.executable, "-P", server_guard.__file__, "1", sys.executable, "-c", code]
    started = time.monotonic()
    assert subprocess.run(command, start_new_session=True).returncode == -signal.SIGKILL
    assert time.monotonic() - started < 10
    assert not (tmp_path / "started").exists()
