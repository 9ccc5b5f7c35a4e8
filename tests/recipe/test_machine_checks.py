"""Trainer arguments that cannot work here, or would do nothing, are told before any weight loads."""

from __future__ import annotations

import importlib.util

import huggingface_hub
import pytest
import torch

from trlmath.errors import RecipeError
from trlmath.recipe import check_trainer, parse_recipe
from trlmath.recipe.owned import IDLE_BY, OWNED_BY


def check(**trainer):
    check_trainer(parse_recipe({"trainer": trainer}))


def offline():
    raise ConnectionError("no route to the Hub\nand a long story")


@pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is not None, reason="liger-kernel is installed")
def test_a_missing_package():
    with pytest.raises(
        RecipeError, match="trainer.use_liger_kernel: the package liger-kernel is not installed"
    ):
        check(use_liger_kernel=True)
    check(use_liger_kernel=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_half_precision_without_a_gpu():
    with pytest.raises(RecipeError, match="trainer.fp16: needs a GPU"):
        check(fp16=True)


def test_the_hub_is_asked_before_training(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "whoami", offline)
    with pytest.raises(RecipeError, match="trainer.push_to_hub: .*no route to the Hub Log in") as caught:
        check(push_to_hub=True)
    assert "long story" not in str(caught.value)
    monkeypatch.setattr(huggingface_hub, "whoami", lambda: {"name": "me"})
    check(push_to_hub=True)


def test_everything_that_cannot_work_is_told_at_once(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "whoami", offline)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RecipeError) as caught:
        check(push_to_hub=True, use_liger_kernel=True)
    assert str(caught.value).count("trainer.") == 2


@pytest.mark.parametrize("name", [n for n in IDLE_BY["grpo"] if n not in OWNED_BY["grpo"]])
def test_an_argument_without_effect_is_refused(name):
    with pytest.raises(RecipeError, match=f"trainer.{name}: has no effect"):
        check(**{name: "x"})


def test_idle_arguments_exist():
    import dataclasses

    from trl import GRPOConfig

    assert set(IDLE_BY["grpo"]) <= {field.name for field in dataclasses.fields(GRPOConfig)}
