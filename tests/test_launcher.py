"""A run whose launcher ends is asked to stop, once; real processes, under a script named as accelerate is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from trlmath import launcher

# what accelerate's launcher of one process does: start, wait, and pass nothing on
LAUNCHER = """
import subprocess, sys
subprocess.Popen([sys.executable, *sys.argv[1:]]).wait()
"""
RUN = """
import os, sys, time
from pathlib import Path
from trlmath.cli.launch import launch
from trlmath.training.stopping import stopping_at_step_end

def run(recipe):
    with stopping_at_step_end(lambda line: print(line, flush=True)) as request:
        there.with_name(f"there-{os.environ.get('RANK', 0)}").touch()
        for _ in range(200):
            time.sleep(0.05)
            if request.asked:
                # the step goes on; a second request would end it
                time.sleep(float(os.environ.get("STEP", 1.5)))
                print("saved", flush=True)
                raise KeyboardInterrupt

there = Path(sys.argv.pop(1))
launch("grpo", run, run)
"""
SCENES = {
    "sigterm to the launcher": ("accelerate", signal.SIGTERM, False),
    "sigkill to the launcher": ("torchrun", signal.SIGKILL, False),
    "sigterm to both": ("accelerate", signal.SIGTERM, True),
    "ctrl-c": ("accelerate", signal.SIGINT, True),
    "a shell that ends": ("shell", signal.SIGKILL, False),
}


def test_the_end_of_a_launcher_is_one_request_to_stop(tmp_path):
    (tmp_path / "run.py").write_text(RUN)
    started = {}
    for number, (scene, (name, *_)) in enumerate(SCENES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_text(LAUNCHER)
        started[scene] = folder, start(str(folder / name), str(tmp_path / "run.py"), str(folder / "there"))
    told = {}
    for folder, _ in started.values():
        wait_for(folder / "there-0")
    for scene, (_, process) in started.items():
        _, number, everybody = SCENES[scene]
        (os.killpg if everybody else os.kill)(process.pid, number)
    for scene, (_, process) in started.items():
        if scene == "a shell that ends":
            (child,) = [p for p in psutil.process_iter() if _is_of(p, process.pid)]
            assert child.is_running(), "a run outlives the shell that started it"
            child.kill()
        told[scene] = process.communicate(timeout=30)[0]
    for scene, output in told.items():
        if scene != "a shell that ends":
            assert output.count("stopping after this step") == 1, f"{scene}: {output}"
            assert "saved" in output, f"{scene}: {output}"
            assert "interrupted: what was written so far" in output, f"{scene}: {output}"
    assert "saved" not in told["a shell that ends"]


@pytest.mark.slow
def test_torchs_launcher_kills_a_longer_step_unless_it_is_given_the_time(tmp_path):
    (tmp_path / "run.py").write_text(RUN)
    scenes = {"short": ("1", signal.SIGTERM), "long": ("60", signal.SIGTERM), "gone": ("1", signal.SIGKILL)}
    started = {}
    for scene, (limit, _) in scenes.items():
        words = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0"]
        (tmp_path / scene).mkdir()
        words += [str(tmp_path / "run.py"), str(tmp_path / scene / "there")]
        started[scene] = start(*words, STEP="4", TORCH_ELASTIC_SHUTDOWN_TIMEOUT=limit)
    for scene in scenes:
        wait_for(tmp_path / scene / "there-0")
        wait_for(tmp_path / scene / "there-1")
    for scene, process in started.items():
        process.send_signal(scenes[scene][1])
    told = {scene: process.communicate(timeout=60)[0] for scene, process in started.items()}
    assert {
        scene: output.count("stopping after this step") for scene, output in told.items()
    } == dict.fromkeys(scenes, 2)
    saved = {scene: output.count("saved\n") for scene, output in told.items()}
    assert saved == {"short": 0, "long": 2, "gone": 2}, told


def start(*words, **environment):
    """Start Python in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # where Ctrl-C is ignored, as in a background job, the default is put back
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for(file):
    until = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < until, file
        time.sleep(0.02)


def _is_of(process, group):
    try:
        return os.getpgid(process.pid) == group and process.pid != group
    except ProcessLookupError:
        return False


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("/x/bin/python /x/bin/accelerate launch recipes/grpo.py", True),
        ("python -m accelerate.commands.launch --cpu recipes/grpo.py", True),
        ("python /x/accelerate/commands/launch.py recipes/grpo.py", True),
        ("/x/bin/python3.11 /x/bin/torchrun --nproc_per_node 2 recipes/grpo.py", True),
        ("python -u -m torch.distributed.run recipes/grpo.py", True),
        ("bash", False),
        ("python -m trlmath study nano/study", False),
        ("/lib/systemd/systemd --user", False),
        ("", False),
    ],
)
def test_which_parents_are_launchers(words, known):
    assert launcher.is_launcher(words.split()) is known


def test_a_launcher_that_started_one_process_of_several_is_told(monkeypatch):
    class Parent:
        def environ(self):
            return {}

    monkeypatch.setattr(launcher, "_launcher", Parent)
    for name in ("WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    assert launcher.left_out() == ""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert "recipes/accelerate/ddp.yaml" in launcher.left_out()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launcher.left_out() == ""


def test_the_answer_to_a_signal_names_the_launchers_limit():
    assert launcher.limit_of_a_stop({}) == ""
    assert "after 30 s" in launcher.limit_of_a_stop({"TORCHELASTIC_RUN_ID": "none"})
    assert (
        launcher.limit_of_a_stop({"TORCHELASTIC_RUN_ID": "1", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "300"}) == ""
    )
