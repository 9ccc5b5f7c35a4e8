"""A run as it looks in a terminal: the live view, no noise of libraries, and the same told in console.log."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

import pytest
from launching import ROOT, environment

SMALL = ["trainer.max_steps=3", "rollout.prompts_per_step=4", "rollout.group_size=4", "evaluation.limit=8"]
WIDTH = 80


def in_a_terminal(*arguments, seconds=200):
    """Run the GRPO script on a terminal of its own; return its exit status and all that it wrote."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "recipes/grpo.py", *arguments], environment())
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    written, deadline = b"", time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), written.decode(errors="replace")


@pytest.mark.slow
def test_the_live_view_of_a_real_run(tmp_path):
    directory = tmp_path / "run"
    status, text = in_a_terminal(*SMALL, f"run.dir={directory}", "run.show_every=2")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert status == 0, plain
    assert "Warning" not in plain
    assert "no spread" in plain
    assert re.search(r" tok/s   memory \d\.\d GiB   step \d+\.\d s", plain)
    assert "rollout  step 1: " in plain
    assert "rollout  step 3: " in plain
    assert "rollout  step 2: " not in plain
    view = [
        line for line in plain.splitlines() if re.match(r"\s*(train .*elapsed|reward  |[\d,]+ tok/s)", line)
    ]
    assert view
    assert max(map(len, view)) <= WIDTH
    log = (directory / "console.log").read_text()
    assert "\x1b" not in log
    for told in ("train  3/3  reward", "rollout  step 3: ", "held-out problems", "report   "):
        assert told in log
    assert (directory / "report.html").exists()


@pytest.mark.slow
def test_how_a_run_failed_is_in_its_log(tmp_path):
    directory = tmp_path / "run"
    (tmp_path / "bad.py").write_text("def reward(completions, **_):\n    raise ValueError('no \\x1b luck')\n")
    overrides = [
        f"rewards=[{tmp_path / 'bad.py'}:reward]",
        "evaluation.enabled=false",
        f"run.dir={directory}",
    ]
    status, text = in_a_terminal(*SMALL[:3], *overrides)
    assert status == 1, text
    assert "failed: PluginError" in (directory / "console.log").read_text()
    assert "\x1b" not in (directory / "console.log").read_text()
    page = (directory / "report.html").read_text()
    assert "no \\x1b luck" in page, "the page says why the run ended"
