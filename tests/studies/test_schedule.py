"""The order of starting: so many at once, sources first, the lost skipped, and an end that stops the rest."""

from __future__ import annotations

import pytest

from trlmath.studies.schedule import run_all


class Recorder:
    """Children that end after so many polls, and a record of what happened."""

    def __init__(self, lengths, statuses=()):
        self.lengths, self.statuses = dict(lengths), dict(statuses)
        self.said, self.stopped, self.most, self.now, self.slots = [], [], 0, set(), {}

    def start(self, name, slot):
        self.now.add(name)
        self.most = max(self.most, len(self.now))
        self.slots[name] = slot
        recorder = self

        class Child:
            def poll(self):
                recorder.lengths[name] -= 1
                if recorder.lengths[name] > 0:
                    return None
                recorder.now.discard(name)
                return recorder.statuses.get(name, 0)

        child = Child()
        child.name = name
        return child

    def started(self, name):
        self.said.append(f"+{name}")

    def ended(self, name, status):
        self.said.append(f"-{name} {status}")

    def skipped(self, name, because):
        self.said.append(f"skip {name} {because}")

    def waiting(self):
        pass

    def stop(self, children):
        self.stopped = [child.name for child in children]

    def go(self, names, sources=None, done=(), jobs=1, wait=lambda seconds: None):
        run_all(names, sources or {}, done, self.start, self.stop, self, jobs, wait)
        return self.said


def test_one_after_another():
    recorder = Recorder({"a": 3, "b": 1})
    assert recorder.go(["a", "b"]) == ["+a", "-a 0", "+b", "-b 0"]
    assert recorder.most == 1


def test_two_at_once_and_a_freed_slot_is_taken_again():
    recorder = Recorder({"a": 3, "b": 1, "c": 1})
    assert recorder.go(["a", "b", "c"], jobs=2) == ["+a", "+b", "-b 0", "+c", "-c 0", "-a 0"]
    assert recorder.most == 2
    assert recorder.slots == {"a": 0, "b": 1, "c": 1}


def test_a_run_waits_for_its_source_while_others_go_on():
    recorder = Recorder({"a": 3, "b": 1, "c": 1})
    said = recorder.go(["a", "b", "c"], {"b": "a"}, jobs=2)
    assert said.index("+b") > said.index("-a 0")
    assert said.index("+c") < said.index("-a 0")


def test_what_depends_on_a_failed_run_is_skipped_all_the_way_down():
    recorder = Recorder({"a": 1, "d": 1}, {"a": 1})
    said = recorder.go(["a", "b", "c", "d"], {"b": "a", "c": "b"})
    assert said == ["+a", "-a 1", "skip b a", "skip c b", "+d", "-d 0"]


def test_what_is_done_is_not_repeated_and_counts_as_a_source():
    assert Recorder({"b": 1}).go(["a", "b"], {"b": "a"}, done=["a"]) == ["+b", "-b 0"]


def test_an_interrupt_stops_what_runs():
    recorder = Recorder({"a": 99, "b": 99})

    def interrupt(seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorder.go(["a", "b", "c"], jobs=2, wait=interrupt)
    assert recorder.stopped == ["a", "b"]
