"""The registry: what a target may be, and what building it checks."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass, field

import pytest

from trlmath.components import Component, Registry
from trlmath.errors import PluginError, RecipeError
from trlmath.targets import Origin, import_target, is_path, locate

HERE = Origin("trlmath-x", "1.0", "x.py:1")


def reward(target, kind="reward"):
    return Component(kind, "it", target, HERE)


@dataclass
class Typed:
    target: int
    rate: float = 0.5
    tags: list[str] = field(default_factory=list)


def plain(completions, answer):
    return [1.0]


def everything(**kwargs):
    return [1.0]


def factory(scale: float = 1.0):
    def made(completions):
        return [scale for _ in completions]

    return made


def test_a_class_is_built_with_converted_options():
    built = reward(Typed).build({"target": "3", "rate": "1e-6", "tags": ["a"]})
    assert built == Typed(3, 1e-6, ["a"])


def test_a_plain_function_is_the_component():
    assert reward(plain).build() is plain
    assert reward(everything).build() is everything
    with pytest.raises(RecipeError, match="takes no options"):
        reward(plain).build({"scale": 1})


def test_a_function_that_names_no_reward_argument_is_a_factory():
    assert reward(factory).build({"scale": 2})(completions=["a"]) == [2.0]
    assert reward(factory).build()(completions=["a"]) == [1.0]


def test_a_ready_object_is_the_component():
    ready = Typed(1)
    assert reward(ready).build() is ready
    assert reward(ready).options == {}


def test_a_function_with_a_moment_is_a_filter_and_not_a_factory():
    def keep(row):
        return True

    keep.moment = "example"
    assert reward(keep, "filter").build() is keep


def test_a_lazy_target_is_imported_only_when_used():
    lazy = reward("wave:open")
    sys.modules.pop("wave", None)
    assert str(lazy.origin)
    assert "wave" not in sys.modules
    assert lazy.loaded is sys.modules["wave"].open
    assert lazy.doc == (lazy.loaded.__doc__ or "")


def test_options_are_listed_with_type_and_default():
    assert [str(option) for option in reward(Typed).options.values()] == [
        "target: int",
        "rate: float = 0.5",
        "tags: list[str] = ...",
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"target": 1, "rat": 2}, "no option 'rat'. Did you mean 'rate'?"),
        ({}, "option target: int is required"),
        ({"target": "many"}, "option 'target' is 'many'"),
        ({"target": 1, "rate": float("nan")}, "finite"),
        ({"target": 1.5}, "option 'target' is 1.5"),
        ({"target": True}, "option 'target' is True"),
    ],
)
def test_wrong_options_name_the_option_and_the_origin(options, expected):
    with pytest.raises(RecipeError) as caught:
        reward(Typed).build(options)
    assert expected in str(caught.value)
    assert "trlmath-x 1.0" in str(caught.value)


def test_a_factory_that_refuses_or_breaks_is_named():
    def refuses(scale: int = 0):
        raise ValueError("scale must be even")

    def breaks(scale: int = 0):
        raise KeyError("oops")

    with pytest.raises(RecipeError, match="scale must be even"):
        reward(refuses).build({"scale": 1})
    with pytest.raises(PluginError, match="KeyError"):
        reward(breaks).build()


def test_option_names_that_pydantic_reserves_work():
    def made(model_config: int, copy: str, json: bool = False):
        return (model_config, copy, json)

    assert reward(made).build({"model_config": 1, "copy": "x", "json": True}) == (1, "x", True)


def test_a_registry_refuses_a_second_component_of_a_name():
    registry = Registry()
    registry.add(reward(plain))
    with pytest.raises(PluginError, match="two plugins offer"):
        registry.add(reward(everything))


def test_module_and_file_targets_resolve_without_registration(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        textwrap.dedent(
            """
            from dataclasses import dataclass

            @dataclass
            class Mine:
                n: int = 1
                def __call__(self, completions):
                    return [float(self.n)] * len(completions)
            """
        )
    )
    monkeypatch.chdir(tmp_path)
    component = Registry().resolve("reward", "mine.py:Mine")
    assert component.build({"n": 4})(completions=["x"]) == [4.0]
    assert component.origin.place == f"{tmp_path / 'mine.py'}:4"
    assert Registry().resolve("reward", f"{tmp_path}/mine.py:Mine").loaded is component.loaded
    located = Registry().resolve("reward", "pluggy:PluginManager").origin
    assert located.distribution == "pluggy"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("no_such_module_here:x", "module 'no_such_module_here' cannot be imported"),
        ("json:dmups", "no attribute 'dmups'. Did you mean 'dumps'?"),
        ("no_file.py:x", "there is no file"),
        ("json:", "not of the form"),
    ],
)
def test_a_wrong_target_says_which_half_is_wrong(target, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PluginError) as caught:
        import_target(target)
    assert expected in str(caught.value)


def test_a_file_that_raises_is_named_and_can_be_mended(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("1/0")
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        import_target(f"{file}:x")
    file.write_text("x = 3")
    assert import_target(f"{file}:x") == 3


def test_two_files_of_one_name_stay_apart(tmp_path):
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "same.py").write_text(f"x = {number}")
    assert [import_target(f"{tmp_path}/{n}/same.py:x") for n in (1, 2)] == [1, 2]


def test_names_and_paths_are_told_apart():
    assert is_path("a.b:c")
    assert is_path("x.py:c")
    assert not is_path("r1_zero")
    assert locate(len).place == "builtins"


def test_what_a_docstring_says_of_an_option():
    from trlmath.options import told_of_option

    sentences = (
        "Drops what is long.\n\n`most`: at most so many; `least` is 0.5 times\n    that. Kim, arXiv:1."
    )
    assert told_of_option(sentences, "most") == "`most`: at most so many;"
    assert told_of_option(sentences, "least") == "`least` is 0.5 times that."
    assert told_of_option(sentences, "rate") == ""
    google = "Makes rows.\n\nArgs:\n    seed: which are drawn,\n        and how.\n    size: how many.\n"
    assert told_of_option(google, "seed") == "which are drawn, and how."
    assert told_of_option(google, "size") == "how many."
