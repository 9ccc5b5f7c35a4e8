"""Fixtures of the sampling tests: a tiny random model, loaded once."""

from __future__ import annotations

import pytest
from tiny import save_tiny_model


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory):
    """A tiny model directory."""
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny(tiny_dir):
    """(model, tokenizer) of the tiny model."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return (
        AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32").eval(),
        AutoTokenizer.from_pretrained(tiny_dir),
    )
