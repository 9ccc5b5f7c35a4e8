"""SIGTERM at a random moment of training: the step in progress is finished and kept; a second ends at once.

``python tests/campaigns/signals.py [--processes 1|2] [--seed 0] [--recipe NAME]`` prints a line
a recipe, and exits with 1 if one lost a step, did not end with status 130, or ended unlike an unbroken run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaigns import forked
from campaigns.kills import SUBJECTS, differences, outcome, unbroken

NAMES = ("grpo", "grpo, 2 updates", "sft")
AT_ONCE = 3.0  # seconds that a process may take to end after the second signal


def steps_logged(directory):
    """The last training step in metrics.jsonl."""
    file = directory / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return max((row["step"] for row in rows if "train/loss" in row), default=0)


def stopped(name, directory, draw, processes, twice=False):
    """Start, send SIGTERM in training once or twice; (exit statuses, steps before, seconds to the end)."""
    script, arguments = SUBJECTS[name]
    arguments = [*arguments, "run.checkpoint_every=50", f"run.dir={directory}"]
    pids = forked.start(script, arguments, directory.with_suffix(".log"), processes)
    while steps_logged(directory) < 1 or forked.phase() not in ("update", "generate", "grade"):
        assert None in forked.wait(pids, 0), directory.with_suffix(".log").read_text()[-2000:]
    time.sleep(draw.uniform(0, 0.2))
    before, sent = steps_logged(directory), time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    if twice:
        time.sleep(0.05)
        sent = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
    statuses = forked.wait(pids, 60)
    assert None not in statuses, "still running a minute after the signal"
    return statuses, before, time.monotonic() - sent


def tried(name, folder, draw, processes=1):
    """What went otherwise than it should for one recipe, as sentences."""
    plain = name.replace(", ", "-").replace(" ", "-")
    wrong, directory = [], folder / plain
    statuses, before, seconds = stopped(name, directory, draw, processes)
    saved = sorted(int(p.name.split("-")[1]) for p in (directory / "checkpoints").glob("checkpoint-*"))
    if set(statuses) != {130}:
        wrong.append(f"the first signal ended it with {statuses}")
    if not saved or saved[-1] < before or saved[-1] != steps_logged(directory):
        wrong.append(f"{before} steps were done, {steps_logged(directory)} logged, and {saved} saved")
    script, arguments = SUBJECTS[name]
    arguments = [*arguments, "run.checkpoint_every=50", f"run.dir={directory}"]
    log = directory.with_suffix(".log")
    ended = forked.wait(forked.start(script, arguments, log, processes))
    whole = unbroken(name, folder / f"{plain}-whole", processes, ["run.checkpoint_every=50"])[1]
    found = outcome(directory) | {"files": whole["files"]}  # the checkpoint of the stop is one more
    wrong += [f"going on ended with {ended}"] if any(ended) else differences(whole, found)
    again, _, late = stopped(name, folder / f"{plain}-twice", draw, processes, twice=True)
    if 0 in again or late > AT_ONCE:
        wrong.append(f"the second signal ended it after {late:.1f} s with {again}")
    print(
        f"{name}, {processes} processes: stopped after step {saved[-1:]}, {seconds:.1f} s after the signal; "
        f"a second one {late:.1f} s: {'; '.join(wrong) or 'nothing lost, and identical'}",
        flush=True,
    )
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recipe", choices=NAMES)
    parser.add_argument("--dir", type=Path)
    given = parser.parse_args()
    folder = given.dir or Path(tempfile.mkdtemp(prefix="signals-"))
    folder.mkdir(parents=True, exist_ok=True)
    forked.prepare()
    draw = random.Random(given.seed)
    names = [given.recipe] if given.recipe else NAMES
    wrong = [line for name in names for line in tried(name, folder.resolve(), draw, given.processes)]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
