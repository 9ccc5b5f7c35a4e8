"""A real terminal: what data, models and plugins wrote is shown by commands, and never obeyed."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_files import make_run

from trlmath.cli import cli  # noqa: F401  (imported here, the commands' own processes find it compiled)

ROOT = Path(__file__).resolve().parents[2]
# colour, the clipboard (OSC 52), a link (OSC 8), the title, the 8-bit forms of both, a bell, a carriage
# return over what stands there, a device control string, right-to-left marks, rich's markup
HOSTILE = (
    "\x1b[31mred\x1b[2J \x1b]52;c;cHduZWQ=\x07 \x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\ \x1b]0;title\x07 "
    "\x9b31m \x9d52;c;eA==\x9c \x07 over\rwritten \x1bP+q\x1b\\ "
    "\u202egnp.exe\u202c \u2066x\u2069 [red]m[/red] [/]"
)
# what rich itself sends: colours, and moving about while something is live
OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[ABCDK]|\r\n|\r(?=\x1b|$)")
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def in_a_terminal(*arguments, cwd, timeout=120):
    """Run ``trlmath`` in a pseudo-terminal of 100 columns; return what reached it."""
    leader, follower = pty.openpty()
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLUMNS": "100",
        "LINES": "40",
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "trlmath", *arguments],
        stdin=follower, stdout=follower, stderr=follower, cwd=cwd, env=environment, close_fds=True,
    )  # fmt: skip
    os.close(follower)
    held, deadline = b"", time.monotonic() + timeout
    while time.monotonic() < deadline:
        ready, _, _ = select.select([leader], [], [], 1.0)
        try:
            piece = os.read(leader, 1 << 16) if ready else b""
        except OSError:  # the other end is closed
            break
        if ready and not piece:
            break
        held += piece
    process.wait(timeout=10)
    os.close(leader)
    return held.decode("utf-8")


def assert_harmless(shown):
    rest = OWN.sub("", shown)
    found = FORBIDDEN.search(rest)
    context = rest[max(0, found.start() - 60) : found.end() + 30] if found else ""
    assert not found, f"{found[0]!r} reached the terminal: {context!r}"


def test_the_check_itself():
    assert_harmless("\x1b[1mbold\x1b[0m\r\nplain\r\n")
    for text in ("\x1b]52;c;x\x07", "\x9b31m", "\u202e", "a\rb", "\x07"):
        with pytest.raises(AssertionError):
            assert_harmless(f"shown {text} here")


@pytest.mark.slow
def test_runs_and_their_comparison(tmp_path):
    one = make_run(tmp_path / "one", steps=2, hostile=HOSTILE, text=HOSTILE)
    two = make_run(tmp_path / "two", steps=2, seed=1, hostile=HOSTILE, text=HOSTILE)
    manifest = json.loads((one / "manifest.json").read_text())
    (one / "manifest.json").write_text(json.dumps({**manifest, "status": "failed", "error": HOSTILE}))
    for arguments in (
        ("show", str(one)),
        ("diff", str(one), str(two)),
        ("list", "--json", str(tmp_path)),
    ):
        shown = in_a_terminal("runs", *arguments, cwd=tmp_path)
        assert "Traceback" not in shown
        assert_harmless(shown)
    assert "\\x1b]52" in in_a_terminal("runs", "show", str(one), cwd=tmp_path)


@pytest.mark.slow
def test_answers_errors_and_data(tmp_path):
    hostile = HOSTILE.replace("\x00", "")
    rows = [
        {"question": f"{i} {hostile}", "answer": hostile, "trace": f"{hostile} </think>"} for i in range(3)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "bad.yaml").write_text(json.dumps({hostile: 1, "model": {hostile: 2}}))
    for arguments in (
        ("grade", hostile, "42", "--explain"),
        ("grade", f"</think> <answer>{hostile}</answer>", "42", "--style", "r1_zero", "--json"),
        ("plan", "bad.yaml"),
        ("data", "inspect", "nano/sft", "-n", "1", "data.train=rows.jsonl", "batch.max_length=1024"),
        ("data", "check", "rows.jsonl"),
        ("plugins", "show", hostile),
        ("evaluate", "--model", hostile),
    ):
        shown = in_a_terminal(*arguments, cwd=tmp_path)
        assert shown
        assert_harmless(shown)


def test_a_traceback_is_shown_like_any_other_text(tmp_path):
    code = "from trlmath.cli.echo import guard_tracebacks; guard_tracebacks(); raise KeyError(S())"
    code = f"class S(str):\n    __repr__ = lambda self: {HOSTILE!r}\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "\\x1b]52" in done.stderr
    assert_harmless(done.stderr.replace("\n", "\r\n"))


def test_commands_print_through_one_door():
    """`click.echo` and `print` know nothing of control characters: commands use `trlmath.cli.echo`."""
    found = []
    for path in (ROOT / "trlmath" / "cli").glob("*.py"):
        if path.name == "echo.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "click.echo",
                "print",
                "click.secho",
            ):
                whole = ast.unparse(node)
                if not (path.name == "doctor.py" and "visible(" in whole or "said" in whole):
                    found.append(f"{path.name}:{node.lineno}: {whole}")
    for path in (ROOT / "trlmath").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"(?<![A-Za-z])Console\(", text) and path.name != "plain.py":
            found.append(f"{path.name}: a rich Console instead of PlainConsole")
    assert not found, "\n".join(found)
