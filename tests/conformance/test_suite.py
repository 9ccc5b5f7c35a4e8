"""The conformance suite: every property has a component that breaks it, and the counterexample is small."""

from __future__ import annotations

import builtins
import random
import sys
import time
from dataclasses import dataclass
from typing import ClassVar

import pytest
from conformance_reports import broken, report_of

from trlmath import PluginError
from trlmath.components import KINDS
from trlmath.conformance import Subject, check_subjects
from trlmath.conformance.core import PROPERTIES, for_all, hypothesis


def sound(completions, answer):
    """1 when the answer stands at the end."""
    return [float(f" {a} " in f" {c} ") for c, a in zip(completions, answer, strict=True)]


def test_a_sound_reward_passes():
    results = report_of("reward", sound)
    assert {r.status for r in results.values()} == {"pass", "skip"}
    assert results["gold wins"].status == "pass"


def of_each(function):
    """A reward of one completion at a time, as the suite takes it."""

    def reward(completions):
        """Made for a test."""
        return [function(text) for text in completions]

    return reward


def raises_on(marker):
    def score(text):
        if marker in text:
            raise ValueError(f"found {marker!a}")
        return 0.0

    return of_each(score)


def first_only(completions):
    """Scores the first."""
    return [float(i == 0) for i, _ in enumerate(completions)]


def relative(completions):
    """Scores by rank."""
    longest = max(map(len, completions), default=0)
    return [float(len(c) == longest) for c in completions]


def one_short(completions):
    """Forgets one."""
    return [0.0] * max(len(completions) - 1, 0)


def changes(completions):
    """Changes its argument."""
    completions[0] = "mine"
    return [0.0] * len(completions)


def backwards(completions, answer):
    """Rewards the wrong."""
    return [1.0 - score for score in sound(completions, answer)]


def chance(completions):
    """Draws lots."""
    return [random.SystemRandom().random() for _ in completions]


def undocumented(completions):
    return [0.0] * len(completions)


@dataclass
class Untold:
    """Has an option."""

    strength: int = 1

    def __call__(self, completions):
        return [0.0] * len(completions)


@pytest.mark.parametrize(
    ("reward", "name", "counterexample"),
    [
        (one_short, "length", "0 values for 1 completions"),
        (first_only, "order", "['', ''] gives"),
        (relative, "batch of one", "alone gets"),
        (raises_on("\x00"), "any text", "'\\x00'"),
        (raises_on("{"), "any text", "found '{'"),
        (changes, "inputs untouched", "'completions'"),
        (backwards, "gold wins", "gold '2'"),
        (chance, "deterministic", "then"),
        (undocumented, "documented", "no docstring"),
        (Untold, "documented", "strength"),
        (of_each(lambda text: 1.0), "picklable", "pickle"),
        (of_each(lambda text: float("nan") if len(text) > 1000 else 0.0), "any text", "returned nan"),
    ],
)
def test_each_property_of_rewards_can_fail(reward, name, counterexample):
    found = broken("reward", reward)
    assert name in found, found
    assert counterexample in found[name]


def test_a_counterexample_is_the_smallest():
    def check(text):
        assert "7" not in text, text

    strategies = hypothesis().strategies
    with pytest.raises(AssertionError) as caught:
        for_all(strategies.text(alphabet="0123456789abc", max_size=30), check, examples=200)
    assert str(caught.value).splitlines()[0] == "7"


def test_a_slow_reward_is_stopped():
    def slow(completions):
        """Sleeps."""
        time.sleep(0.5 if any(len(c) > 1000 for c in completions) else 0)
        return [0.0] * len(completions)

    assert "no answer within 0.2 s" in broken("reward", slow, seconds=0.2)["any text"]


def test_a_reward_that_works_on_the_main_thread_only():
    import threading

    def picky(completions):
        """Looks at its thread."""
        assert threading.current_thread() is threading.main_thread()
        return [0.0] * len(completions)

    assert "any thread" in broken("reward", picky)


class Base:
    conformance: ClassVar = {"centred": True}

    def __call__(self, rewards):
        """A centred one that is right."""
        known = rewards.nan_to_num(nan=0.0)
        scorable = ~rewards.isnan()
        mean = known.sum(1, keepdim=True) / scorable.sum(1, keepdim=True).clamp(min=1)
        varied = rewards.nan_to_num(nan=9e9).amin(1, True) != rewards.nan_to_num(nan=-9e9).amax(1, True)
        return (known - mean).where(scorable & varied, known * 0)


class Transposed(Base):
    def __call__(self, rewards):
        return super().__call__(rewards).T


class Doubles(Base):
    def __call__(self, rewards):
        return super().__call__(rewards).double()


class Raw(Base):
    def __call__(self, rewards):
        return rewards.nan_to_num(nan=0.0)


class NoNan(Base):
    def __call__(self, rewards):
        return super().__call__(rewards) + rewards.isnan()


class Divides(Base):
    def __call__(self, rewards):
        return super().__call__(rewards) / rewards.nan_to_num(nan=1.0).std(1, keepdim=True)


class FirstWins(Base):
    def __call__(self, rewards):
        result = super().__call__(rewards).clone()
        result[:, 0] += result.abs().sum(1)
        return result


class Whole(Base):
    def __call__(self, rewards):
        found = super().__call__(rewards)
        return found / (1 + found.abs().max())


class Writes(Base):
    def __call__(self, rewards):
        rewards.nan_to_num_(nan=0.0)
        return rewards * 0


@pytest.mark.parametrize(
    ("advantage", "name"),
    [
        (Transposed, "shape"),
        (Doubles, "shape"),
        (Raw, "constant groups"),
        (NoNan, "NaN is 0"),
        (Divides, "finite"),
        (FirstWins, "equivariant"),
        (Whole, "independent groups"),
        (Raw, "centred"),
        (Writes, "inputs untouched"),
    ],
)
def test_each_property_of_advantages_can_fail(advantage, name):
    found = broken("advantage", advantage)
    assert name in found, found
    assert name not in broken("advantage", Base)


WILD = """
import os, socket
{top}

def wild(completions):
    "{doc}"
    {body}
    return [{value}] * len(completions)
"""


@pytest.mark.parametrize(
    ("parts", "name", "counterexample"),
    [
        ({"body": "open('left.txt', 'w').close()"}, "no writes", "left.txt"),
        ({"body": "os.makedirs('left', exist_ok=True)"}, "no writes", "left"),
        (
            {"body": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"},
            *("no network", "socket.connect"),
        ),
        ({"value": "hash('x') % 1000 / 7"}, "clean process", "in a process of its own"),
        ({"body": "assert not os.environ.get('TRLMATH_PLUGINS') == ''"}, "clean process", "AssertionError"),
    ],
)
def test_what_a_clean_process_sees(tmp_path, monkeypatch, parts, name, counterexample):
    monkeypatch.chdir(tmp_path)
    code = WILD.format(**{"top": "", "doc": "Wild.", "body": "pass", "value": "0.0"} | parts)
    (tmp_path / "wild.py").write_text(code)
    from trlmath.components import resolve

    component = resolve("reward", f"{tmp_path}/wild.py:wild")
    (report,) = check_subjects([Subject(component)])
    (found,) = [r for r in report.failures if r.property == name]
    assert counterexample in found.detail


BUSY = "import time\nstart = time.process_time()\nwhile time.process_time() < start + 1.2: pass"


@pytest.mark.parametrize(
    ("top", "expected"),
    [("import transformers", "imports "), (BUSY, "of processor time")],
)
def test_a_slow_import_is_found(tmp_path, monkeypatch, top, expected):
    from trlmath.conformance import subjects_of_plugin

    code = f"{top}\nfrom trlmath import Prompt, hookimpl\n\n@hookimpl\ndef register_prompts(register):\n"
    code += "    register('heavy', Prompt('heavy', '{question}', doc='Asks.'))\n"
    (tmp_path / "heavy_plugin.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "heavy_plugin", None)
    del sys.modules["heavy_plugin"]
    (report,) = check_subjects(subjects_of_plugin("heavy_plugin"))
    (found,) = report.failures
    assert found.property == "quick import"
    assert expected in found.detail


def test_a_waiver_is_told_and_must_name_a_property():
    class Waived(Raw):
        conformance: ClassVar = {"waive": {"constant groups": "on purpose"}}

    result = report_of("advantage", Waived)["constant groups"]
    assert (result.status, result.detail) == ("waived", "its author says: on purpose")
    Waived.conformance = {"waive": {"constant group": "typo"}}
    with pytest.raises(PluginError, match="Did you mean 'constant groups'"):
        report_of("advantage", Waived)
    Waived.conformance = {"option": {}}
    with pytest.raises(PluginError, match="Did you mean 'options'"):
        report_of("advantage", Waived)


def test_what_cannot_be_tried_says_how():
    @dataclass
    class Needs:
        """Takes `target`."""

        target: int

        def __call__(self, completions, numbers):
            return [0.0] * len(completions)

    assert "-o target=VALUE" in broken("reward", Needs)["tried"]
    assert "'columns': {'numbers': ...}" in broken("reward", Needs, given={"target": 1})["tried"]
    Needs.conformance = {"columns": {"numbers": [1]}}
    assert "tried" not in broken("reward", Needs, given={"target": 1})


def test_without_hypothesis_it_says_how_to_get_it(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name == "hypothesis":
            raise ModuleNotFoundError(name=name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PluginError, match=r"pip install 'trlmath\[check\]'"):
        check_subjects([])


def test_every_kind_has_properties_and_every_property_a_claim():
    for kind in KINDS:
        names = [p.name for p in PROPERTIES if kind in p.kinds]
        assert len(names) >= 9, kind
        assert len(names) == len(set(names))
    assert all(p.claim and not p.claim.endswith(".") for p in PROPERTIES)
