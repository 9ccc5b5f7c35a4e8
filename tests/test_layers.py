"""The rooms of the package: imports go down only, and light modules stay light."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "trlmath"

# Lowest first. A module may import from its own level and from those below it.
LEVELS: list[set[str]] = [
    {"errors", "secrets", "types", "together", "launcher"},
    {"grading"},
    {
        *("hookspecs", "options", "targets", "components", "plugin_trace", "plugins", "plugin_doctor"),
        *("composition", "per_rollout", "containers", "time_limit", "reward_faults", "rewards"),
        "recipe",
    },
    {"runs"},
    {"data", "sampling"},
    {"evaluation"},
    {"training"},
    {"studies"},
    {"reports", "planning", "conformance", "scaffold"},
    {"pytest_plugin"},
    {"cli", "__main__"},
]
# Loaded by the plugin manager by name; offers what the levels up to data make.
PLUGIN_ROOM = "builtin"
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
MODULES = sorted(PACKAGE.rglob("*.py"))


def _room(path: Path) -> str:
    """The top-level name of a module under trlmath ('__init__' for the package itself)."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> list[tuple[int, str]]:
    """(line, dotted name) of every import in a file, imports inside functions included."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                package = ("trlmath", *path.relative_to(PACKAGE).parts[:-1])
                base = ".".join(package[: len(package) - node.level + 1])
                stem = f"{base}.{node.module}" if node.module else base
            else:
                stem = node.module or ""
            if stem == "trlmath":
                found += [(node.lineno, f"trlmath.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, stem))
    return found


def test_every_room_has_a_level():
    rooms = {_room(path) for path in MODULES} - {"__init__", PLUGIN_ROOM}
    assert rooms <= set(LEVEL_OF), f"give them a level in this test: {rooms - set(LEVEL_OF)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path):
    room = _room(path)
    if room == "__init__":
        return  # names the public objects of every room, lazily
    ceiling = LEVEL_OF["data"] if room == PLUGIN_ROOM else LEVEL_OF[room]
    wrong = []
    for line, name in _imports(path):
        parts = name.split(".")
        if parts[0] != "trlmath" or len(parts) == 1:
            continue
        target = parts[1]
        if target == room or target not in LEVEL_OF | {PLUGIN_ROOM: 0}:
            continue  # within the room, or a public name of the package itself
        if target == PLUGIN_ROOM or LEVEL_OF[target] > ceiling:
            wrong.append(f"line {line} imports {name}")
    assert not wrong, f"{path.relative_to(ROOT)} imports upwards: {wrong}"


def test_importing_trlmath_is_light():
    heavy = "torch transformers trl vllm datasets accelerate numpy sympy"
    code = f"import sys, trlmath; print(*[name for name in {heavy!r}.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_help_is_light_and_quick():
    code = (
        "import sys, atexit; atexit.register(lambda: print('HEAVY', *[name for name in "
        "'torch transformers trl vllm datasets'.split() if name in sys.modules]));"
        "from trlmath.cli import main; sys.argv = ['trlmath', '--help']; sys.exit(main())"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "HEAVY"
    # of the processor's time: a busy machine is not the command's fault
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 1.0, f"trlmath --help took {seconds:.2f} s"
