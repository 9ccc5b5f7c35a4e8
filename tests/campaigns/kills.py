"""Kill runs at random moments, let the same command go on, and compare with an unbroken run, by bytes.

``python tests/campaigns/kills.py --kills 200 [--recipe grpo|sft|expert_iteration] [--processes 1|2]
[--seed 0] [--dir DIR]`` prints a line a story (one run directory, killed until it ends), where the kills
fell, and last ``identical N of M``; it exits with 1 if any differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaigns import forked

COMMON = ["evaluation.limit=4", "evaluation.chunk=2", "sampling.max_tokens=32", "run.report=false"]
SAMPLED = "evaluation.settings=[{name: sampled}]"
GRPO = [
    *COMMON, "trainer.max_steps=5", "run.checkpoint_every=2", "evaluation.every=3", "run.keep_best=eval/both",
    "rollout.prompts_per_step=2", "rollout.group_size=4", "filters=[zero_spread]",
]  # fmt: skip
SFT = [
    *COMMON, SAMPLED, "trainer.max_steps=7", "run.checkpoint_every=2", "evaluation.every=4",
    "data.train_size=64", "batch.size=8", "early_stop.patience=9", "averaging.kind=last", "averaging.last=3",
]  # fmt: skip
EXPERT = [
    *COMMON, "expert_iteration.iterations=2", "expert_iteration.problems_per_iteration=16",
    "expert_iteration.epochs=1", "expert_iteration.optimizer=carried", "rollout.prompts_per_step=4",
    "batch.size=8", SAMPLED,
]  # fmt: skip
# what is killed: name -> (script, overrides)
SUBJECTS = {
    "grpo": ("grpo", GRPO),
    "grpo, 2 updates": (
        "grpo",
        [*GRPO, SAMPLED, "data.train_size=8", "rollout.updates_per_rollout=2", "evaluation.every=2"],
    ),
    "sft": ("sft", SFT),
    "expert_iteration": ("expert_iteration", EXPERT),
}
AIMED = 0.25  # share of kills that wait for a phase first: uniform ones seldom meet a short one
NOT_COMPARED = ("training_args.bin",)  # names its own directory


@dataclass
class Tally:
    """What was tried and found."""

    kills: Counter = field(default_factory=Counter)  # (subject, "random" or "aimed", phase) -> kills
    stories: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def random(self):
        return sum(n for (_, how, _), n in self.kills.items() if how == "random")


def outcome(directory):
    """What a run has computed: name -> rows or hash; times, memory and messages apart."""
    told = {"status": _status(directory)}
    told["files"] = sorted(
        str(p.relative_to(directory))
        for p in directory.rglob("*")
        if p.is_file()
        and p.name not in ("console.log", ".lock")
        # trackers name files by the time; what is kept between phases may outlive a kill after the end
        and not str(p.relative_to(directory)).startswith(("tensorboard/", "state/"))
    )
    for name in ("metrics.jsonl", "evaluation/reports.jsonl"):
        rows = [json.loads(line) for line in (directory / name).read_text().splitlines()]
        told[name] = [
            {k: v for k, v in row.items() if not k.startswith(("time/", "memory/", "tokens_per_second"))}
            for row in rows
        ]
    for pattern in ("evaluation/samples.jsonl", "filters.jsonl", "traces.jsonl", "rollouts/*",
                    "checkpoints/final/*"):  # fmt: skip
        for path in directory.glob(pattern):
            if path.name not in NOT_COMPARED:
                told[str(path.relative_to(directory))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return told


def _status(directory):
    manifest = directory / "manifest.json"
    return json.loads(manifest.read_text())["status"] if manifest.exists() else None


def differences(whole, broken):
    """What differs between two outcomes, as sentences."""
    found = []
    for name in sorted({*whole, *broken}):
        one, two = whole.get(name), broken.get(name)
        if one != two:
            if isinstance(one, list) and isinstance(two, list):
                lost, more = [r for r in one if r not in two], [r for r in two if r not in one]
                found.append(f"{name}: lost {lost[:3]}, more {more[:3]}; {len(one)} and {len(two)}")
            else:
                found.append(f"{name}: {one} and {two}")
    return found


def unbroken(name, directory, processes=1, more=()):
    """Run a subject to its end; (seconds that takes, its outcome)."""
    script, arguments = SUBJECTS[name]
    log, started = directory.with_suffix(".log"), time.monotonic()
    statuses = forked.wait(forked.start(script, [*arguments, *more, f"run.dir={directory}"], log, processes))
    assert set(statuses) == {0}, log.read_text()[-3000:]
    return time.monotonic() - started, outcome(directory)


def story(name, directory, life, draw, tally, most, processes=1):
    """Kill the run in `directory` at most `most` times, continuing it each time; its statuses at the end."""
    script, arguments = SUBJECTS[name]
    log, killed = directory.with_suffix(".log"), []
    while True:
        pids = forked.start(script, [*arguments, f"run.dir={directory}"], log, processes)
        if len(killed) >= most:
            return killed, forked.wait(pids)
        how = "aimed" if draw.random() < AIMED else "random"
        statuses = _until(pids, how, life, draw)
        if None not in statuses:
            return killed, statuses
        where = forked.phase()
        forked.kill(pids, alone=draw.random() < 0.5)
        if _status(directory) == "finished":  # it was about to leave: no kill
            return killed, [0]
        killed.append(where)
        tally.kills[name, how, where] += 1


def _until(pids, how, life, draw):
    """Wait for the moment of the kill: any, uniform over a run's life, or within a phase that is rare."""
    moment = draw.uniform(0, life)
    if how == "random":
        return forked.wait(pids, moment)
    wanted, after = draw.choice(("grade", "save", "final", "between")), draw.uniform(0, 0.06)
    begun, earliest = time.monotonic(), draw.uniform(0, life / 2)
    while None in (statuses := forked.wait(pids, 0)):
        if forked.phase() == wanted and time.monotonic() - begun > earliest:
            return forked.wait(pids, after)
    return statuses


def compare(name, directory, whole, statuses):
    """Sentences on how a killed run differs from the unbroken one."""
    if any(statuses):
        return [f"ended with {statuses}: {directory.with_suffix('.log').read_text()[-1500:]}"]
    return differences(whole, outcome(directory))


def campaign(names, kills, seed, folder, processes=1, most=6, each=False, say=print):
    """Kill until `kills` random moments were met, the subjects in turn, `each` at least once; the tally."""
    draw, tally, wholes = random.Random(seed), Tally(), {}
    while tally.random < kills or (each and tally.stories < len(names)):
        name = names[tally.stories % len(names)]
        plain = name.replace(", ", "-").replace(" ", "-")
        if name not in wholes:
            wholes[name] = unbroken(name, folder / f"{plain}-whole", processes)
            say(f"{name}: unbroken in {wholes[name][0]:.1f} s")
        life, whole = wholes[name]
        directory = folder / f"{plain}-{tally.stories}"
        killed, statuses = story(name, directory, life, draw, tally, most, processes)
        wrong = compare(name, directory, whole, statuses)
        tally.stories += 1
        tally.differences += [f"{directory.name} ({', '.join(killed)}): {line}" for line in wrong]
        say(
            f"{directory.name}: killed in {', '.join(killed) or 'nothing'}: {'; '.join(wrong) or 'identical'}"
        )
        if not wrong:
            shutil.rmtree(directory)
            directory.with_suffix(".log").unlink()
    return tally


def table(tally):
    """Kills by subject and phase, as lines."""
    subjects = list(dict.fromkeys(name for name, _, _ in tally.kills))
    head = f"{'kills':<24}" + "".join(f"{p:>10}" for p in (*forked.PHASES, "all"))
    lines = [head]
    for how in ("random", "aimed"):
        for name in subjects:
            counts = [tally.kills[name, how, phase] for phase in forked.PHASES]
            told = "".join(f"{n:>10}" for n in (*counts, sum(counts)))
            lines.append(f"{f'{name}, {how}':<32}"[:32] + told[8:])
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--recipe", choices=("grpo", "sft", "expert_iteration"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", action="store_true", help="every recipe at least once, however few kills")
    parser.add_argument("--dir", type=Path, help="where the runs go; those that differ stay")
    given = parser.parse_args()
    names = [name for name, (script, _) in SUBJECTS.items() if given.recipe in (None, script)]
    folder = given.dir or Path(tempfile.mkdtemp(prefix="kills-"))
    folder.mkdir(parents=True, exist_ok=True)
    forked.prepare()
    tally = campaign(
        names, given.kills, given.seed, folder.resolve(), given.processes, each=given.each,
        say=lambda line: print(time.strftime("%H:%M:%S"), line, flush=True),
    )  # fmt: skip
    print("\n".join([*table(tally), *tally.differences]))
    bad = len({line.split(" (")[0] for line in tally.differences})
    print(f"identical {tally.stories - bad} of {tally.stories}, after {tally.random} kills at random moments")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
