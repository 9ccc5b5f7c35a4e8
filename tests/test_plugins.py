"""Discovery: provenance, isolation of broken plugins, duplicate names, TRLMATH_PLUGINS."""

from __future__ import annotations

import sys

import pytest
from fakes import add_distribution

from trlmath import plugins
from trlmath.errors import PluginError
from trlmath.plugins import VARIABLE, discover, registry

SHOUT = """
    from trlmath import hookimpl

    def shout(completions):
        return [float(text.isupper()) for text in completions]

    @hookimpl
    def register_rewards(register):
        register("shout", shout)
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on sys.path to put fake distributions into; discovery starts afresh before and after."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    before = set(sys.modules)
    discover.cache_clear()
    yield tmp_path
    discover.cache_clear()
    for name in set(sys.modules) - before:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def test_builtins_load_and_nothing_is_broken(site, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    found = discover()
    assert found.broken == []
    assert [p.distribution for p in found.working] == ["trlmath"]


def test_every_builtin_that_the_docs_promise_is_there(site, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    promised = {
        "reward": {
            "r1_zero",
            "boxed",
            "accuracy",
            "format",
            "length",
            "accuracy_reward",
            "think_format_reward",
        },
        "advantage": {"group", "batch", "rloo", "none"},
        "filter": {"prompt_length", "gradable_gold", "duplicate", "zero_spread"},
        "prompt": {"r1_zero", "question_only"},
        "dataset": {"nano"},
    }
    for kind, names in promised.items():
        assert names <= set(registry().names(kind)), kind


def test_a_component_knows_its_distribution_version_and_line(site):
    add_distribution(site, "trlmath-shout", SHOUT, version="2.3")
    origin = registry().resolve("reward", "shout").origin
    assert (origin.distribution, origin.version) == ("trlmath-shout", "2.3")
    assert origin.place == f"{site / 'trlmath_shout.py'}:4"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import a_package_that_nobody_has", "ModuleNotFoundError"),
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def f(:", "SyntaxError"),
        (SHOUT.replace("register_rewards", "register_reward"), "Did you mean 'register_rewards'?"),
        (SHOUT.replace("(register):", "(register, trainer):"), "trainer"),
        (SHOUT.replace('"shout", shout', '"no spaces, please", shout'), "cannot be a reward's name"),
        (SHOUT.replace('"shout", shout', '"shout", "no_colon"'), "module:attr"),
        (SHOUT + "        raise KeyError('half way')\n", "KeyError: 'half way'"),
    ],
)
def test_a_broken_plugin_is_isolated_with_its_traceback(site, code, expected):
    add_distribution(site, "trlmath-bad", code)
    add_distribution(site, "trlmath-shout2", SHOUT.replace("shout", "shout2"))
    found = discover()
    assert [(p.distribution, p.version) for p in found.broken] == [("trlmath-bad", "1.0")]
    assert expected in found.broken[0].traceback
    assert "shout" not in found.registry.names("reward"), "what a broken plugin registered must be gone"
    assert "shout2" in found.registry.names("reward")
    assert "r1_zero" in found.registry.names("reward")


def test_an_unknown_name_mentions_the_broken_plugin_that_may_have_it(site):
    add_distribution(site, "trlmath-bad", "1/0")
    with pytest.raises(PluginError) as caught:
        registry().resolve("reward", "shouting")
    assert "trlmath-bad 1.0" in str(caught.value)
    assert "trlmath plugins list" in str(caught.value)


def test_an_unknown_name_suggests_the_nearest_and_lists_what_there_is(site):
    with pytest.raises(PluginError, match="Did you mean 'r1_zero'") as caught:
        registry().resolve("reward", "r1_zeor")
    assert "boxed" in str(caught.value)


def test_a_name_of_another_kind_says_so(site):
    with pytest.raises(PluginError, match="There is a filter of that name"):
        registry().resolve("reward", "zero_spread")


def test_two_distributions_with_one_name_are_an_error_naming_both(site):
    add_distribution(site, "trlmath-one", SHOUT)
    add_distribution(site, "trlmath-two", SHOUT)
    with pytest.raises(PluginError, match="'shout'") as caught:
        registry()
    assert "trlmath-one 1.0" in str(caught.value)
    assert "trlmath-two 1.0" in str(caught.value)


def test_a_plugin_cannot_replace_a_builtin(site):
    add_distribution(site, "trlmath-one", SHOUT.replace('"shout"', '"r1_zero"'))
    with pytest.raises(PluginError, match="'r1_zero'") as caught:
        registry()
    assert "trlmath-one" in str(caught.value)


def test_one_name_in_two_kinds_is_no_conflict(site):
    add_distribution(site, "trlmath-one", SHOUT.replace('"shout"', '"zero_spread"'))
    assert registry().resolve("reward", "zero_spread").kind == "reward"


def test_a_name_twice_in_one_plugin_breaks_that_plugin(site):
    add_distribution(site, "trlmath-one", SHOUT + '        register("shout", shout)\n')
    assert "two plugins offer" in discover().broken[0].traceback


def test_the_variable_chooses_distributions(site, monkeypatch):
    add_distribution(site, "trlmath-one", SHOUT.replace("shout", "one"))
    add_distribution(site, "trlmath_two", SHOUT.replace("shout", "two"))

    def names(value):
        monkeypatch.setenv(VARIABLE, value)
        discover.cache_clear()
        return {"one", "two"} & set(registry().names("reward"))

    assert names("") == set()
    assert names("trlmath-one") == {"one"}
    assert names("TRLMATH.Two , trlmath-one") == {"one", "two"}
    monkeypatch.delenv(VARIABLE)
    discover.cache_clear()
    assert {"one", "two"} <= set(registry().names("reward"))


def test_the_variable_with_an_unknown_distribution_is_an_error(site, monkeypatch):
    add_distribution(site, "trlmath-one", SHOUT)
    monkeypatch.setenv(VARIABLE, "trlmath-on")
    with pytest.raises(PluginError, match="Did you mean 'trlmath-one'"):
        discover()


def test_conflicts_do_not_stop_a_run_that_leaves_one_out(site, monkeypatch):
    add_distribution(site, "trlmath-one", SHOUT)
    add_distribution(site, "trlmath-two", SHOUT)
    monkeypatch.setenv(VARIABLE, "trlmath-two")
    assert registry().resolve("reward", "shout").origin.distribution == "trlmath-two"


@pytest.mark.parametrize(
    ("body", "told"),
    [("raise ValueError('disk full')", "ValueError: disk full"), ("raise SystemExit(0)", "SystemExit: 0")],
)
def test_a_failing_observer_is_told_once_and_the_others_go_on(site, capsys, body, told):
    for name in ("trlmath-after", "trlmath-before"):
        add_distribution(
            site,
            name,
            """
            from trlmath import hookimpl

            @hookimpl
            def evaluated(step):
                return step
            """,
        )
    add_distribution(
        site,
        "trlmath-bad",
        f"""
        from trlmath import hookimpl

        @hookimpl
        def evaluated(report):
            {body}

        @hookimpl
        def checkpoint_saved(step):
            return "its other hooks go on"
        """,
    )
    for step in (1, 2, 3):
        assert plugins.notify("evaluated", report={}, step=step) == [step, step]
    (line,) = capsys.readouterr().err.splitlines()
    assert "the hook evaluated of plugin trlmath-bad 1.0" in line
    assert told in line
    assert "It is not called again in this run" in line
    assert plugins.notify("checkpoint_saved", path=None, step=3) == ["its other hooks go on"]
    plugins.notify("run_started", run=None)  # another run begins
    plugins.notify("evaluated", report={}, step=1)
    assert told in capsys.readouterr().err


def test_wrapping_other_plugins_is_refused(site):
    add_distribution(
        site,
        "trlmath-wrap",
        """
        from trlmath import hookimpl

        @hookimpl(wrapper=True)
        def classify(rollout, grade):
            yield
            return "mine"
        """,
    )
    assert "wrapper" in discover().broken[0].traceback


BUSY = """
import time
from trlmath import hookimpl

@hookimpl
def rollouts_scored(batch):
    batch[0].problem.metadata["seen"] = batch[0].rollouts[0].grade.parts["both"] = 1.0
    del batch[1:]
    time.sleep(1e6)

@hookimpl
def classify(rollout, grade):
    time.sleep(1e6)
"""


def test_a_hook_that_hangs_is_ended_and_what_it_did_to_its_input_nobody_sees(site, capsys):
    from trlmath import Grade, Group, Problem, Rollout

    add_distribution(
        site,
        "trlmath-after",
        """
        from trlmath import hookimpl

        @hookimpl
        def rollouts_scored(batch):
            return [(dict(g.problem.metadata), dict(g.rollouts[0].grade.parts)) for g in batch]
        """,
    )
    add_distribution(site, "trlmath-busy", BUSY)
    plugins.discover().limit = 0.2
    rollout = Rollout("text", (1,), (0.0,), "stop", Grade(0.0, {"both": 0.0}))
    groups = [Group("p", (1,), (rollout,), Problem("q", "1", metadata={"level": 2})) for _ in range(2)]
    unseen = [({"level": 2}, {"both": 0.0})] * 2
    for _ in range(2):
        assert plugins.notify("rollouts_scored", batch=groups) == [unseen]
    assert [(g.problem.metadata, g.rollouts[0].grade.parts) for g in groups] == unseen
    (line,) = capsys.readouterr().err.splitlines()
    assert "rollouts_scored of plugin trlmath-busy" in line
    assert "gave no answer within 0.2 s (checks.reward_timeout). It was in " in line
    assert "It is not called again in this run" in line
    with pytest.raises(PluginError, match=r"hook classify .*no answer within 0\.2 s"):
        plugins.decide("classify", rollout=rollout, grade=rollout.grade)
