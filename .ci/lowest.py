"""Run the unit tests with the lowest version of every dependency that pyproject.toml allows.

    python3 .ci/lowest.py             make an environment in a temporary folder, test, remove it
    python3 .ci/lowest.py --list      print what would be installed
    python3 .ci/lowest.py ARGUMENTS   arguments for pytest instead of the unit tests

A lower bound is a promise: each one names a release, and exactly that one is installed, torch as its CPU
build. vLLM is left out: its version is pinned, and `make test` runs it.
"""

import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# what tests need beside the package
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "tensorboard", "ruff")
TOOLS += ("build", "hatchling", "editables")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TESTS = ["-m", "not slow and not vllm", "tests"]
TESTS += [f"--ignore=tests/{room}" for room in ("bench", "campaigns", "conformance", "integration")]


def lowest(requirement: str) -> str:
    """`numpy>=2.0,<3` as `numpy==2.0`. Raises ValueError where there is no lower bound."""
    found = re.match(r"\s*([\w.-]+(?:\[[\w,-]+\])?)\s*>=\s*([\w.]+)", requirement)
    if found is None:
        raise ValueError(f"{requirement!r} in pyproject.toml has no lower bound")
    return f"{found[1]}=={found[2]}"


def pins(project: dict) -> list[str]:
    """Every dependency of the package, and the tools of its tests, at its lower bound; torch first."""
    dev = [r for r in project["optional-dependencies"]["dev"] if re.match(r"[\w.-]+", r)[0] in TOOLS]
    return [lowest(requirement) for requirement in [*project["dependencies"], *dev]]


def install(python: Path, wanted: list[str]) -> None:
    """Install the pins, with a CPU build of torch, and the package itself without its dependencies."""
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    torch, others = wanted[0] + "+cpu", wanted[1:]
    for source in ([], ["--extra-index-url", CPU_INDEX]):
        if subprocess.run([*pip, torch, *source], capture_output=True).returncode == 0:
            break
    else:
        sys.exit(f"lowest: {torch} cannot be installed: is there a network?")
    subprocess.run([*pip, torch, *others], check=True)
    subprocess.run([*pip, "--no-deps", "-e", str(ROOT)], check=True)


def main() -> int:
    """Command line; returns pytest's exit status."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted, arguments = pins(project), sys.argv[1:]
    if arguments == ["--list"]:
        print("\n".join(wanted))
        return 0
    started = time.time()
    with tempfile.TemporaryDirectory(prefix="trlmath-lowest-") as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        install(python, wanted)
        print(f"lowest: installed in {time.time() - started:.0f} s: {' '.join(wanted)}", flush=True)
        command = [str(python), "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
        command += ["--max-worker-restart=0", *(arguments or TESTS)]
        status = subprocess.run(command, cwd=ROOT).returncode
    print(f"lowest: {time.time() - started:.0f} s in all", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
