"""Every hook: one test here, one heading in docs/plugins.md, and a test that both exist."""

from __future__ import annotations

import inspect
import re
import sys
from itertools import count
from pathlib import Path

import pluggy
import pytest

from trlmath import Drop, Grade, Group, Keep, Problem, Prompt, Rollout, hookimpl, hookspecs, plugins
from trlmath.hookspecs import RunView

DOCS = Path(__file__).resolve().parent.parent / "docs" / "plugins.md"
HOOKS = sorted(
    name for name, value in vars(hookspecs).items() if callable(value) and hasattr(value, "trlmath_spec")
)
ROLLOUT = Rollout("2</answer>", (1, 2), grade=Grade(1.0))
GROUP = Group("What is 1+1?", (5,), (ROLLOUT,))


@pytest.fixture
def plug(monkeypatch):
    """Return a function that makes an object the one plugin there is, with real validation and discovery."""
    monkeypatch.setenv(plugins.VARIABLE, "")
    plugins.discover.cache_clear()
    number = count()

    def add(plugin):
        found = plugins.discover()
        name = f"trlmath-fake{next(number)}"
        plugins._load(found, plugins.Plugin("fake", "fake", name, "1.0"), lambda: plugin)
        assert [p.traceback for p in found.broken] == []
        return found.registry

    yield add
    plugins.discover.cache_clear()


class Watcher:
    """Implements every observer with all its arguments, and remembers what it was given."""

    def __init__(self):
        self.seen = []

    @hookimpl
    def run_started(self, run):
        self.seen.append({"run": run})

    @hookimpl
    def rows_filtered(self, ledger):
        self.seen.append({"ledger": ledger})

    @hookimpl
    def rollouts_scored(self, batch, step):
        self.seen.append({"batch": batch, "step": step})

    @hookimpl
    def evaluated(self, report, step):
        self.seen.append({"report": report, "step": step})

    @hookimpl
    def checkpoint_saved(self, path, step):
        self.seen.append({"path": path, "step": step})

    @hookimpl
    def run_finished(self, run, summary):
        self.seen.append({"run": run, "summary": summary})


def seen_by(plug, hook, **arguments):
    """Call an observer hook and return what a plugin that implements it was given."""
    watcher = Watcher()
    plug(watcher)
    assert plugins.notify(hook, **arguments) == []
    return watcher.seen


def test_hook_register_rewards(plug):
    class Plugin:
        @hookimpl
        def register_rewards(self, register):
            register("plain", lambda completions: [1.0 for _ in completions])

    reward = plug(Plugin()).resolve("reward", "plain").build()
    assert reward(completions=["a", "b"]) == [1.0, 1.0]


def test_hook_register_advantages(plug):
    def half(rewards):
        return rewards / 2

    class Plugin:
        @hookimpl
        def register_advantages(self, register):
            register("half", half)

    assert plug(Plugin()).resolve("advantage", "half").build()(4) == 2


def test_hook_register_filters(plug):
    class Short:
        moment = "example"

        def __init__(self, most: int = 3) -> None:
            self.most = most

        def __call__(self, item):
            return Keep() if len(item.question) <= self.most else Drop("long")

    class Plugin:
        @hookimpl
        def register_filters(self, register):
            register("short", Short)

    short = plug(Plugin()).resolve("filter", "short").build({"most": "5"})
    assert short(Problem("12345")) == Keep()
    assert short(Problem("123456")) == Drop("long")


def test_hook_register_prompts(plug):
    class Plugin:
        @hookimpl
        def register_prompts(self, register):
            register("qa", Prompt("qa", "Q: {question} A:"))

    assert plug(Plugin()).resolve("prompt", "qa").build().render("1?") == "Q: 1? A:"


def test_hook_register_datasets(plug):
    class Two:
        def load(self, split):
            return [Problem(f"{split} 1", "1"), Problem(f"{split} 2", "2")]

    class Plugin:
        @hookimpl
        def register_datasets(self, register):
            register("two", Two)

    assert [p.answer for p in plug(Plugin()).resolve("dataset", "two").build().load("train")] == ["1", "2"]


def test_hook_run_started(plug, tmp_path):
    from trlmath import Recipe

    run = RunView(tmp_path, Recipe())
    assert seen_by(plug, "run_started", run=run) == [{"run": run}]
    assert not hasattr(run, "trainer")


def test_hook_rows_filtered(plug):
    assert seen_by(plug, "rows_filtered", ledger=["entry"]) == [{"ledger": ["entry"]}]


def test_hook_rollouts_scored(plug):
    assert seen_by(plug, "rollouts_scored", batch=[GROUP], step=3) == [{"batch": [GROUP], "step": 3}]


def test_hook_evaluated(plug):
    assert seen_by(plug, "evaluated", report="r", step=0) == [{"report": "r", "step": 0}]


def test_hook_checkpoint_saved(plug, tmp_path):
    assert seen_by(plug, "checkpoint_saved", path=tmp_path, step=9) == [{"path": tmp_path, "step": 9}]


def test_hook_run_finished(plug, tmp_path):
    assert seen_by(plug, "run_finished", run="run", summary={"both": 1}) == [
        {"run": "run", "summary": {"both": 1}}
    ]


def test_hook_report_sections(plug):
    class Plugin:
        @hookimpl
        def report_sections(self, run):
            return [("Title", f"about {run}")]

    plug(Plugin())
    assert plugins.notify("report_sections", run="me") == [[("Title", "about me")]]


def test_hook_classify(plug):
    class First:
        @hookimpl
        def classify(self, rollout, grade):
            return "loop" if "2" in rollout.text else None

    class Second:
        @hookimpl
        def classify(self, grade):
            return "right" if grade.reward else None

    plug(First())
    plug(Second())
    assert plugins.decide("classify", rollout=ROLLOUT, grade=Grade(1.0)) == "right"
    assert plugins.decide("classify", rollout=ROLLOUT, grade=Grade(0.0)) == "loop"
    assert plugins.decide("classify", rollout=Rollout("3", (1,)), grade=Grade(0.0)) is None


def test_an_implementation_names_only_the_arguments_it_wants(plug):
    class Plugin:
        @hookimpl
        def rollouts_scored(self, step):
            return step

    plug(Plugin())
    assert plugins.notify("rollouts_scored", batch=[], step=7) == [7]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_test_a_docstring_and_a_heading_with_its_arguments(hook):
    assert hasattr(sys.modules[__name__], f"test_hook_{hook}"), f"write test_hook_{hook}"
    spec = getattr(hookspecs, hook)
    assert inspect.getdoc(spec)
    arguments = ", ".join(inspect.signature(spec).parameters)
    assert f"### `{hook}({arguments})`" in DOCS.read_text(encoding="utf-8").splitlines()


def test_the_docs_have_no_heading_for_a_hook_that_is_not_there():
    headings = re.findall(r"^### `(\w+)\(", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(headings) == HOOKS


def test_the_hooks_are_those_of_the_design():
    manager = pluggy.PluginManager("trlmath")
    manager.add_hookspecs(hookspecs)
    offer = ["advantages", "datasets", "filters", "prompts", "rewards"]
    observe = ["checkpoint_saved", "evaluated", "report_sections", "rollouts_scored", "rows_filtered"]
    observe += ["run_finished", "run_started"]
    assert sorted([*(f"register_{kind}" for kind in offer), *observe, "classify"]) == HOOKS
    assert manager.hook.classify.spec.opts["firstresult"]
