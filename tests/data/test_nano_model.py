"""The embedded base model: small, loadable, with a tokenizer that takes any text."""

import json
import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trlmath.data.nano import MODEL_DIR, NanoDataset
from trlmath.data.nano.corpus import PREAMBLE
from trlmath.data.nano.measure import complete, interval, judge, measure, value


@pytest.fixture(scope="module")
def tokenizer():
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(MODEL_DIR)


@pytest.fixture(scope="module")
def model():
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(MODEL_DIR).eval()


def test_folder_fits_in_five_megabytes():
    assert sum(f.stat().st_size for f in MODEL_DIR.iterdir()) <= 5_000_000


def test_config():
    config = json.loads((MODEL_DIR / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert config["max_position_embeddings"] >= 512
    assert config["tie_word_embeddings"] is True
    assert config["dtype"] == "float32"


def test_model_has_one_to_two_million_parameters(model, tokenizer):
    assert 1_000_000 <= model.num_parameters() <= 2_000_000
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.eos_token_id == model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.config.pad_token_id == tokenizer.pad_token_id != tokenizer.eos_token_id


def test_digits_are_tokens_of_their_own(tokenizer):
    assert tokenizer.eos_token == "<|endoftext|>"
    assert [tokenizer.decode([i]) for i in tokenizer("1024 - 3.75")["input_ids"]] == list("1024") + [
        " -",
        " ",
        "3",
        ".",
        "7",
        "5",
    ]
    digits = [t for t in tokenizer.get_vocab() if re.search(r"\d", t)]
    assert sorted(digits) == list("0123456789")


def test_r1_zero_prompt_is_about_a_hundred_tokens(tokenizer):
    lengths = [
        len(tokenizer(f"{PREAMBLE} {p.question}\nAssistant: <think>")["input_ids"])
        for p in NanoDataset().load("eval")
    ]
    assert min(lengths) >= 100
    assert max(lengths) <= 130


@settings(deadline=None, max_examples=200)
@given(text=st.text(max_size=80))
def test_any_text_round_trips(tokenizer, text):
    """Exactly for NFC text; Qwen2's tokenizer normalises the rest to it."""
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == unicodedata.normalize("NFC", text)


def test_base_writes_worked_solutions(model, tokenizer):
    questions = ["Compute 30 + 12.", "What is 3 * 4?", "Solve 2x + 1 = 7 for x."]
    completions = complete(model, tokenizer, questions, temperature=0.0, max_new_tokens=96)
    assert all("=" in c for c in completions)
    assert completions == complete(model, tokenizer, questions, temperature=0.0, max_new_tokens=96)


def test_base_is_in_its_band_on_a_sample():
    """Wide bounds on few problems; the measured rates are in the folder's README."""
    report = measure(MODEL_DIR, limit=96, temperature=1.0)
    assert 0.20 <= report["rates"]["format"] <= 0.65
    assert 0.05 <= report["rates"]["both"] <= 0.40
    assert report["mean_tokens"] < 60


@pytest.mark.parametrize(
    ("completion", "want"),
    [
        (" 1+1=2 </think> <answer> 2 </answer>", (True, True)),
        (" 1+1=3 </think> <answer> 3 </answer>", (True, False)),
        (" 1+1=2 </think> The answer is 2.", (False, True)),
        (" 1+1=2 <answer> 2 </answer>", (False, True)),
        (" a </think> b </think> <answer> 2 </answer>", (False, True)),
        (" nothing", (False, False)),
    ],
)
def test_judge(completion, want):
    assert judge(completion, "2") == want


def test_value_and_interval():
    assert value(r"so \boxed{-\frac{3}{4}}") == value("-0.75") == value("-6/8")
    assert value("x=1/0") is None
    low, high = interval(50, 100)
    assert (round(low, 3), round(high, 3)) == (0.404, 0.596)
