"""Command lines, launchers, logs, and real processes that are stopped as Ctrl-C would."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from trlmath.errors import RecipeError
from trlmath.studies import children
from trlmath.studies.children import Child, check_launcher, command_line, stop, tail

SCRIPT = Path("/x/grpo.py")


def line(launcher):
    check_launcher(launcher)
    return command_line(launcher, SCRIPT, ["--config", "a b.yaml", "k={}"], "sft", Path("runs/sft"), 1)


def test_without_a_launcher_this_python_runs_the_script():
    assert line(None) == [sys.executable, "/x/grpo.py", "--config", "a b.yaml", "k={}"]


def test_a_launcher_is_split_like_a_shell_and_filled_in():
    found = line("srun 'a job' --name={name}-{slot} accelerate launch {script} {arguments} > {dir}")
    assert found == [
        *("srun", "a job", "--name=sft-1", "accelerate", "launch", "/x/grpo.py"),
        *("--config", "a b.yaml", "k={}", ">", "runs/sft"),
    ]
    assert line("env CUDA_VISIBLE_DEVICES={slot} {command}")[:3] == [
        "env",
        "CUDA_VISIBLE_DEVICES=1",
        sys.executable,
    ]


@pytest.mark.parametrize(
    ("launcher", "piece"),
    [
        ("srun {comand}", "Did you mean 'command'"),
        ("srun {script}", "does not start the run"),
        ("srun x{command}", "a word of its own"),
        ("srun 'open {command}", "cannot be split"),
    ],
)
def test_mistakes_in_a_launcher(launcher, piece):
    with pytest.raises(RecipeError, match=piece):
        check_launcher(launcher)


def wait_for(path, text):
    until = time.monotonic() + 20
    while text not in (path.read_text() if path.exists() else ""):
        assert time.monotonic() < until, path
        time.sleep(0.02)


def python(code, log):
    return Child([sys.executable, "-c", code], log, threads=1)


def test_output_and_status_and_threads(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7")
    log = tmp_path / "logs" / "a.log"
    child = python(
        "import os, sys; e = os.environ; print(e['OMP_NUM_THREADS'], e['TORCH_ELASTIC_SHUTDOWN_TIMEOUT']);"
        "print('e', file=sys.stderr); sys.exit(3)",
        log,
    )
    while child.poll() is None:
        time.sleep(0.02)
    assert child.poll() == 3
    assert tail(log, 2) == ["1 7", "e"]
    assert log.read_text().startswith("$ ")


def test_a_command_that_is_not_there(tmp_path):
    with pytest.raises(RecipeError, match="cannot start 'no-such-command-x'"):
        Child(["no-such-command-x"], tmp_path / "a.log", 1)


def test_stop_interrupts_and_the_run_may_say_goodbye(tmp_path, monkeypatch):
    code = """
import os, time
try:
    print("u" + "p!", flush=True); time.sleep(60)
except KeyboardInterrupt:
    print("goodbye", os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"], flush=True)
"""
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    monkeypatch.delenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", raising=False)
    running = [python(code, log) for log in logs]
    for log in logs:
        wait_for(log, "up!")
    stop(running)
    assert [child.poll() for child in running] == [0, 0]
    assert [tail(log, 1) for log in logs] == [["goodbye 120"], ["goodbye 120"]]


def test_stop_waits_for_a_run_whose_launcher_has_ended(tmp_path):
    code = r"""
import subprocess, sys
run = "import time\ntry:\n  print('u' + 'p!', flush=True); time.sleep(60)\n"
run += "except KeyboardInterrupt:\n  time.sleep(0.7); print('sa' + 'ved', flush=True)"
subprocess.Popen([sys.executable, "-c", run])
try: import time; time.sleep(60)
except KeyboardInterrupt: sys.exit(1)
"""
    log = tmp_path / "a.log"
    running = python(code, log)
    wait_for(log, "up!")
    stop([running])
    assert running.poll() == 1
    assert tail(log, 1) == ["saved"]


def test_stop_ends_what_will_not_listen_and_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr(children, "PATIENCE", (0.2, 0.2))
    code = """
import signal, subprocess, sys, time
for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)
p = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("chi" + "ld", p.pid, "u" + "p!", flush=True); time.sleep(60)
"""
    log = tmp_path / "a.log"
    running = python(code, log)
    wait_for(log, "up!")
    grandchild = int(log.read_text().split("child ")[-1].split()[0])
    stop([running])
    assert running.poll() == -9
    until = time.monotonic() + 10
    while (
        Path(f"/proc/{grandchild}").exists()
        and "Z" not in Path(f"/proc/{grandchild}/stat").read_text().split(")")[1]
    ):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_tail_hides_what_steers_a_terminal(tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n\n10%\r20%\r30%\n\x1b[2Jred\xff\n")
    assert tail(log, 5) == ["one", "30%", "[2Jred\ufffd"]
    assert tail(log, 1) == ["[2Jred\ufffd"]
    assert tail(tmp_path / "none.log", 5) == []
