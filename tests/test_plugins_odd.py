"""Plugins as they come: two versions, another API, namespaces, missing dependencies, taken names, a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import add_distribution

from trlmath import __version__, plugins
from trlmath.cli import cli
from trlmath.errors import PluginError
from trlmath.hookspecs import API
from trlmath.plugins import VARIABLE, discover, load_alone, module_of, registry
from trlmath.targets import locate

SHOUT = """
    from trlmath import hookimpl

    def shout(completions):
        "Loud."
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
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def doctor():
    return CliRunner().invoke(cli, ["plugins", "doctor"])


def test_a_plugin_for_another_api_is_told_what_to_do(site):
    add_distribution(
        site,
        "trlmath-new",
        SHOUT.replace("    def shout", f"    trlmath_api = {API + 1}\n\n    def shout", 1),
    )
    add_distribution(
        site, "trlmath-old", SHOUT.replace("    def shout", "    trlmath_api = 0\n\n    def shout", 1)
    )
    add_distribution(
        site, "trlmath-fits", SHOUT.replace("    def shout", f"    trlmath_api = {API}\n\n    def shout", 1)
    )
    broken = {p.distribution: p.traceback for p in discover().broken}
    assert set(broken) == {"trlmath-new", "trlmath-old"}
    assert (
        f"declares trlmath_api = {API + 1}, and trlmath {__version__} has API {API}: upgrade trlmath"
        in broken["trlmath-new"]
    )
    assert "install a release of the plugin written for it" in broken["trlmath-old"]
    assert registry().resolve("reward", "shout").origin.distribution == "trlmath-fits"
    with pytest.raises(PluginError, match=r"trlmath-new 1\.0"):
        registry().resolve("reward", "whisper")


def test_of_two_versions_the_first_on_the_path_is_used_and_the_doctor_says_so(site, monkeypatch):
    add_distribution(site / "a", "trlmath-twice", SHOUT, version="2.0")
    add_distribution(site / "b", "trlmath-twice", SHOUT, version="1.0")
    monkeypatch.syspath_prepend(str(site / "b"))
    monkeypatch.syspath_prepend(str(site / "a"))
    assert registry().resolve("reward", "shout").origin.version == "2.0"
    result = doctor()
    assert result.exit_code == 1
    assert "trlmath-twice is installed in the versions 2.0 and 1.0; 2.0 is used." in result.output


def test_an_editable_install_is_found_where_its_source_lies(site):
    source = site / "src"
    add_distribution(source, "trlmath-edit", SHOUT)
    (source / "trlmath_edit-1.0.dist-info").rename(site / "trlmath_edit-1.0.dist-info")
    code = (
        f"import site; site.addsitedir({str(site)!r})\n"
        "from trlmath.plugins import registry\nprint(registry().resolve('reward', 'shout').origin)"
    )
    (site / "trlmath_edit.pth").write_text(str(source))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.stdout.strip() == f"trlmath-edit 1.0, {source / 'trlmath_edit.py'}:4", done.stderr


def test_a_plugin_in_a_namespace_package(site):
    for name in ("one", "two"):
        add_distribution(site, f"space-{name}", "", entry=f"space.{name}")
        (site / "space").mkdir(exist_ok=True)
        code = SHOUT.replace('"shout", shout', f'"{name}", shout').replace("\n    ", "\n")
        (site / "space" / f"{name}.py").write_text(code)
        record = site / f"space_{name}-1.0.dist-info" / "RECORD"
        record.write_text(f"space/{name}.py,,\n")
    found = registry()
    assert found.resolve("reward", "one").origin.distribution == "space-one"
    assert found.resolve("reward", "two").origin.distribution == "space-two"
    for name in ("one", "two"):  # named by module as well, though both distributions own `space`
        target = found.resolve("reward", f"space.{name}:shout").loaded
        assert locate(target).distribution == f"space-{name}"


def test_a_missing_dependency_is_named_with_what_to_do(site):
    add_distribution(site, "trlmath-needs", "import numpyy\n")
    result = doctor()
    assert result.exit_code == 1
    assert "trlmath-needs 1.0" in result.output
    assert "No module named 'numpyy'" in result.output
    assert "Install what has the module 'numpyy', or uninstall the plugin." in result.output
    assert "Traceback" in result.output


def test_declared_dependencies_that_are_not_met_are_told(site):
    add_distribution(site, "trlmath-needs", SHOUT)
    metadata = site / "trlmath_needs-1.0.dist-info" / "METADATA"
    needs = "Requires-Dist: pluggy<1\nRequires-Dist: a-package-that-nobody-has>=2\n"
    metadata.write_text(metadata.read_text() + needs + "Requires-Dist: not-this; extra == 'test'\n")
    output = doctor().output
    assert "needs pluggy<1, and pluggy " in output
    assert "pip install 'a-package-that-nobody-has>=2'" in output
    assert "not-this" not in output


def test_a_plugin_with_a_builtins_name_stops_every_run_and_says_how_to_go_on(site, monkeypatch):
    add_distribution(site, "trlmath-shadow", SHOUT.replace('"shout"', '"r1_zero"'))
    with pytest.raises(PluginError, match=r"'r1_zero': trlmath .*trlmath-shadow 1\.0"):
        registry()
    result = doctor()
    assert result.exit_code == 1
    assert "No run starts until this is solved." in result.output
    monkeypatch.setenv(VARIABLE, "")
    discover.cache_clear()
    assert registry().resolve("reward", "r1_zero").origin.distribution == "trlmath"
    assert doctor().exit_code == 0


def test_the_trace_shows_each_call_with_its_implementations(site, monkeypatch, capsys):
    add_distribution(
        site,
        "trlmath-watch",
        """
        from trlmath import hookimpl

        @hookimpl
        def evaluated(step):
            if step == 2:
                raise ValueError("disk full")
        """,
    )
    plugins.notify("evaluated", report=[1, 2, 3, 4, 5], step=1)
    assert capsys.readouterr().err == "", "nothing without the variable"
    monkeypatch.setenv("TRLMATH_TRACE_PLUGINS", "1")
    plugins.notify("evaluated", report=[1, 2, 3, 4, 5], step=1)
    plugins.notify("run_finished", run=None, summary={})
    plugins.notify("evaluated", report=[], step=2)
    first, second, third, told = capsys.readouterr().err.splitlines()
    assert first.startswith("[plugins] evaluated(step=1) of trlmath-watch 1.0 (entry point ")
    assert " returned None in " in first
    assert second == "[plugins] run_finished: no plugin implements it"
    assert "raised ValueError" in third
    assert told.startswith("plugin   the hook evaluated of plugin trlmath-watch 1.0")


def test_the_trace_shows_what_discovery_calls():
    done = subprocess.run(
        [sys.executable, "-c", "from trlmath.plugins import discover; discover()"],
        capture_output=True,
        text=True,
        env={**os.environ, "TRLMATH_TRACE_PLUGINS": "1", VARIABLE: ""},
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("[plugins] register_")]
    assert len(lines) == 5, done.stderr
    assert "register_datasets(register=<register>) of trlmath" in done.stderr


def test_a_plugin_is_loaded_alone_and_a_component_knows_its_module(site):
    add_distribution(site, "trlmath-shout", SHOUT)
    assert [c.name for c in load_alone("trlmath_shout").registry] == ["shout"]
    assert "ModuleNotFoundError" in load_alone("no_such_module_at_all").broken[0].traceback
    assert module_of(registry().resolve("reward", "shout")) == "trlmath_shout"
    assert module_of(registry().resolve("reward", "json:dumps")) is None


def test_list_and_show_tell_types_defaults_and_origin(site):
    add_distribution(site, "trlmath-shout", SHOUT)
    data = json.loads(CliRunner().invoke(cli, ["plugins", "list", "--json", "--kind", "reward"]).output)
    (shout,) = [c for c in data["components"] if c["name"] == "shout"]
    assert (shout["distribution"], shout["version"]) == ("trlmath-shout", "1.0")
    assert Path(shout["place"].rpartition(":")[0]) == site / "trlmath_shout.py"
    shown = CliRunner().invoke(cli, ["plugins", "show", "length", "--kind", "reward"]).output
    assert "option target: int  (required)" in shown
    assert "soft overlong punishment" in shown


LEAVES = """
    import sys

    class Built:
        "Leaves when it is built."
        def __init__(self):
            sys.exit(0)

    class Rows:
        "Leaves when it is read."
        def load(self, split):
            sys.exit(0)

    class Kept:
        "Leaves when it decides."
        moment = "example"
        def __call__(self, item):
            sys.exit(0)

    def advantage(rewards):
        "Leaves."
        sys.exit(0)
"""


def test_sys_exit_in_a_component_is_an_error_and_ends_no_run(tmp_path):
    torch = pytest.importorskip("torch")
    from trlmath.data.filtering import apply_filters, build_filters
    from trlmath.data.load import load_problems
    from trlmath.recipe.schema import Ref
    from trlmath.training.advantages import compute_advantages
    from trlmath.types import Problem

    (tmp_path / "at_once.py").write_text("import sys\nsys.exit(0)\n")
    file = tmp_path / "leaves.py"
    file.write_text(textwrap.dedent(LEAVES))
    leaving = "SystemExit: 0"
    with pytest.raises(PluginError, match=leaving):
        registry().resolve("reward", f"{tmp_path / 'at_once.py'}:x")
    with pytest.raises(PluginError, match=leaving):
        registry().resolve("reward", f"{file}:Built").build()
    with pytest.raises(PluginError, match="SystemExit in load"):
        load_problems(f"{file}:Rows", "train", {})
    kept = build_filters([Ref(name=f"{file}:Kept")])
    with pytest.raises(PluginError, match=leaving):
        apply_filters([Problem(question="1+1", answer="2")], kept, "example")
    component = registry().resolve("advantage", f"{file}:advantage").build()
    with pytest.raises(PluginError, match=leaving):
        compute_advantages(component, "leaves", torch.ones(1, 2))


HANGS = """
import time
import torch

def for_ever():
    while True:
        time.sleep(0.01)

class Item:
    moment = "example"
    def __call__(self, problem):
        return for_ever() if problem.question == "3" else __import__("trlmath").Keep()

class Whole:
    moment = "example"
    def select(self, items):
        for_ever()

class Kept:
    moment = "group"
    def __call__(self, group):
        return None
    def state_dict(self):
        for_ever()

def advantage(rewards):
    return for_ever()
"""


def test_what_hangs_is_ended_and_named_with_its_line_and_item(tmp_path):
    torch = pytest.importorskip("torch")
    from trlmath.data.filtering import apply_filters, build_filters
    from trlmath.recipe.schema import Ref
    from trlmath.training.advantages import compute_advantages
    from trlmath.types import Problem

    file = tmp_path / "hangs.py"
    file.write_text(HANGS)
    problems = [Problem(str(n), "1") for n in range(6)]
    late = rf"within 0\.2 s \(checks\.reward_timeout\)\. It was in {file}:7, for_ever"
    for name, item in (("Item", "The item: '3'"), ("Whole", "It had 6 items")):
        filters = build_filters([Ref(name=f"{file}:{name}")], 0.2)
        with pytest.raises(PluginError, match=rf"filter .*{late}.*{item}"):
            apply_filters(problems, filters, "example")
    (kept,) = build_filters([Ref(name=f"{file}:Kept")], 0.2)
    with pytest.raises(PluginError, match=rf"filter .*{late}.*asked for its state"):
        kept.state_dict()
    component = registry().resolve("advantage", f"{file}:advantage").build()
    with pytest.raises(PluginError, match=rf"advantage slow gave no answer for 2 groups {late}"):
        compute_advantages(component, "slow", torch.ones(2, 4), 0.2)
