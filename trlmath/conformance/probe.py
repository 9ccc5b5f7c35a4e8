"""What a clean process sees: its `main` loads components and watches them work.

Reads one JSON object on standard input, ``{"module": ..., "subjects": [{kind, name, options, chat}]}``,
and writes one JSON object as the last line of standard output.
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

from trlmath.components import Registry
from trlmath.conformance.subject import Subject, subjects_of_plugin
from trlmath.plugins import VARIABLE, load_alone

# seconds that loading may take, and then each component
PATIENCE = 60.0
_START = "from trlmath.conformance.probe import main; main()"
HEAVY = ("torch", "transformers", "trl", "vllm")
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind", "socket.sendto")
_WRITES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "shutil.rmtree",
)


def ask(subjects: Sequence[Subject]) -> None:
    """Fill `probe` of each subject; all must be of one module, or of none.

    A component that ends its process, or never answers, gets ``{"dead": why}``: it is not safe to call here.
    """
    done = _run(subjects)
    try:
        answers = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        if len(subjects) > 1:  # one of them: which?
            for subject in subjects:
                ask([subject])
            return
        why = f"it ended its process with status {done.returncode} and without an answer"
        if "Timeout (" in done.stderr:
            why = f"no answer within {PATIENCE:g} s"
        answers = [{"dead": f"{why}: {done.stderr.strip()[-1500:]}".rstrip(": ")}]
    for subject, answer in zip(subjects, answers, strict=True):
        subject.probe = answer


def _run(subjects: Sequence[Subject]) -> subprocess.CompletedProcess[str]:
    question = {
        "module": subjects[0].module,
        "patience": PATIENCE,
        "subjects": [
            {
                "kind": s.component.kind,
                "name": s.component.name,
                "options": dict(s.given),
                "chat": s.chat,
            }
            for s in subjects
        ],
    }
    environment = {**os.environ, VARIABLE: "", "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        [sys.executable, "-c", _START],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        check=False,
    )


class Watch:
    """Notes network use and writes while `on`; an audit hook cannot be taken out again."""

    def __init__(self) -> None:
        self.on, self.network, self.writes = False, list[str](), list[str]()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in _NETWORK and not _local(arguments):
            self.network.append(f"{event} {arguments[1:]!a}"[:200])
        elif event in _WRITES:
            self.writes.append(f"{event} {arguments[0]!a}"[:200])
        elif event == "open" and _is_write(arguments):
            self.writes.append(f"open {arguments[0]!a} for writing"[:200])


def _local(arguments: tuple[Any, ...]) -> bool:
    """A path as address is a Unix socket: processes of one machine talking."""
    return len(arguments) > 1 and isinstance(arguments[1], (str, bytes)) and str(arguments[1]).startswith("/")


def _is_write(arguments: tuple[Any, ...]) -> bool:
    path, mode, flags = (*arguments, None, None, None)[:3]
    if not isinstance(path, (str, bytes)) or str(path).startswith("/dev/"):
        return False
    asked = isinstance(mode, str) and any(letter in mode for letter in "wax+")
    return asked or bool(isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def answer(question: dict[str, Any]) -> list[dict[str, Any]]:
    """Load what is asked for and answer for each subject."""
    watch, module, patience = Watch(), question["module"], question["patience"]
    # ends the process, and says in its standard error where it hung
    faulthandler.dump_traceback_later(patience, exit=True)
    facts: dict[str, Any] = {}
    offered: list[Subject] = []
    if module:
        present, started = set(sys.modules), time.process_time()
        load_alone(module)
        facts["load_seconds"] = time.process_time() - started
        facts["heavy"] = [name for name in HEAVY if name in sys.modules and name not in present]
        offered = subjects_of_plugin(module)
        facts["kinds"] = sorted({s.component.kind for s in offered})
    answers = []
    for asked in question["subjects"]:
        watch.network, watch.writes = [], []
        faulthandler.dump_traceback_later(patience, exit=True)
        try:
            subject = _find(asked, offered, module)
            if asked["kind"] == "advantage":
                import torch  # noqa: F401  (what its import does is not the component's doing)
            watch.on = True
            fingerprint = subject.fingerprint()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (reported to the process that asked)
            answers.append({"error": f"{type(error).__name__}: {error}"})
        else:
            answers.append(facts | {"answer": fingerprint, "network": watch.network, "writes": watch.writes})
        finally:
            watch.on = False
    faulthandler.cancel_dump_traceback_later()
    return answers


def _find(asked: dict[str, Any], offered: list[Subject], module: str | None) -> Subject:
    kind, name = asked["kind"], asked["name"]
    if module is None:
        component = Registry().resolve(kind, name)
    else:
        component = next(s.component for s in offered if (s.component.kind, s.component.name) == (kind, name))
    return Subject(component, given=asked["options"], module=module, chat=asked["chat"])


def main() -> None:
    """Answer the question on standard input; what a component prints goes to standard error."""
    with redirect_stdout(sys.stderr):
        answers = json.dumps(answer(json.load(sys.stdin)))
    print(answers)
