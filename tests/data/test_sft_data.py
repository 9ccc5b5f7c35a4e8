"""From a recipe to examples: filters, tokenising, the subset and the ledger together; rows as shown."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from tiny import save_tiny_model
from transformers import AutoTokenizer

from trlmath.data.filtering import build_filters, check_moments
from trlmath.data.prompts import load_prompt
from trlmath.data.sft import read_traces
from trlmath.data.shown import show_examples, summary
from trlmath.errors import DataError, RecipeError
from trlmath.recipe.schema import Recipe, Ref
from trlmath.reports.trace_rows import print_rows

PROMPT = load_prompt("r1_zero")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(save_tiny_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def write(tmp_path):
    def write(rows, **sections):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = {"train": str(path), "eval": None} | sections.pop("data", {})
        return Recipe.model_validate({"data": data, "evaluation": {"enabled": False}, **sections})

    return write


def row(number, stated=None, opening="<think>"):
    answer = str(stated if stated is not None else number)
    return {
        "problem": f"What is {number}?",
        "reasoning_trace": f"{opening} it is {answer} </think> <answer> {answer} </answer>",
        "extracted_answer": answer,
        "expected_answer": str(number),
    }


ROWS = [*map(row, range(6)), row(6, 7), row(7, 8), {"problem": "none?", "expected_answer": "1"}]


def test_the_published_layout_filtered(write, tokenizer):
    recipe = write(ROWS, filters=["correct_answer"])
    found = read_traces(recipe, PROMPT, tokenizer, 2048)
    assert len(found.tokenized.examples) == 6
    assert (found.rows_read, len(found.problems)) == (9, 6)
    assert [(e.index, e.filter, e.reason) for e in found.ledger] == [
        (6, "correct_answer", "wrong answer: format_only"),
        (7, "correct_answer", "wrong answer: format_only"),
        (8, "correct_answer", "no trace"),
    ]
    first = found.tokenized.examples[0]
    assert tokenizer.decode(first.prompt_ids).endswith("Assistant: <think>")
    assert tokenizer.decode(first.response_ids) == " it is 0 </think> <answer> 0 </answer><|endoftext|>"
    assert found.notes == ["8 traces began with the tag that ends the prompt: trained without it"]


def test_without_filters_only_what_cannot_be_trained_goes(write, tokenizer):
    found = read_traces(write(ROWS), PROMPT, tokenizer, 2048)
    assert len(found.tokenized.examples) == 8
    assert [(e.index, e.filter, e.reason) for e in found.ledger] == [(8, "tokenize", "no trace")]
    assert found.counts() == {"tokenize: no trace": 1}


def test_the_ledger_counts_rows_of_the_dataset(write, tokenizer):
    rows = [row(0, 9), row(1), row(2, opening="<think>" + "x" * 800), row(3)]
    context = len(tokenizer(text=PROMPT.render("What is 0?"))["input_ids"]) + 300
    found = read_traces(write(rows, filters=["correct_answer"]), PROMPT, tokenizer, context)
    assert [(e.index, e.filter) for e in found.ledger] == [(0, "correct_answer"), (2, "tokenize")]
    assert [p.question for p in found.trained] == ["What is 1?", "What is 3?"]
    assert [r.number for r in show_examples(found, tokenizer, 9)] == [1, 3]


def test_train_size_counts_what_can_be_trained(write, tokenizer):
    sets = []
    for size in (2, 4, None):
        recipe = write(ROWS, data={"train_size": size}, filters=["correct_answer"])
        sets.append({p.question for p in read_traces(recipe, PROMPT, tokenizer, 2048).trained})
    assert [len(s) for s in sets] == [2, 4, 6]
    assert sets[0] < sets[1] < sets[2]
    with pytest.raises(DataError, match="asks for 7 rows, and .* leaves 6"):
        read_traces(write(ROWS, data={"train_size": 7}, filters=["correct_answer"]), PROMPT, tokenizer, 2048)


def test_mistakes(write, tokenizer):
    with pytest.raises(RecipeError, match="batch.max_length: got 4096; allowed: at most .* 2048 tokens"):
        read_traces(write(ROWS, batch={"max_length": 4096}), PROMPT, tokenizer, 2048)
    with pytest.raises(RecipeError, match="'zero_spread' decides about each group"):
        read_traces(write(ROWS, filters=["zero_spread"]), PROMPT, tokenizer, 2048)
    with pytest.raises(RecipeError, match="each trace.*asked are filters about each example and each group"):
        check_moments(build_filters([Ref(name="correct_answer")]), ("example", "group"))
    with pytest.raises(DataError, match=r"drop all 2 rows .*correct_answer: wrong answer: format_only \(2\)"):
        read_traces(write([row(1, 2), row(2, 3)], filters=["correct_answer"]), PROMPT, tokenizer, 2048)


def test_rows_that_bring_their_own_prompt_are_told(write, tokenizer):
    found = read_traces(write([{"prompt": "2+2=", "response": "4"}]), PROMPT, tokenizer, 2048)
    assert found.notes == [
        "1 rows bring a prompt of their own: data.prompt (r1_zero) is what evaluation gives"
    ]


def printed(rows, **options):
    file = io.StringIO()
    print_rows(Console(file=file, width=60, highlight=False, **options), rows)
    return file.getvalue()


def test_the_three_kinds_are_told_apart_with_and_without_colour(write, tokenizer):
    found = read_traces(write([row(1), row(234)]), PROMPT, tokenizer, 2048)
    rows = show_examples(found, tokenizer, 2)
    assert [r.padding_tokens for r in rows] == [6, 0]  # two digits more in each of three places
    plain = printed(rows)
    starts = [line.split()[0] for line in plain.splitlines() if not line.startswith(" ")]
    assert starts == ["row", "given", "trained", "padding", "row", "given", "trained"]
    assert "6 x <|pad|>" in plain
    coloured = printed(rows, force_terminal=True, color_system="standard")
    assert {"\x1b[36m", "\x1b[1;32m", "\x1b[90m"} <= {
        coloured[i : coloured.index("m", i) + 1] for i, c in enumerate(coloured) if c == "\x1b"
    }


def test_hostile_text_neither_steers_the_terminal_nor_poses_as_another_kind(write, tokenizer):
    trace = "[red]\x1b[2J\rtrained 99 fake\ntrained  1 fake\u202e"
    found = read_traces(write([{"question": "q", "trace": trace}]), PROMPT, tokenizer, 2048)
    plain = printed(show_examples(found, tokenizer, 1))
    assert "\x1b" not in plain
    assert "\r" not in plain
    assert "\u202e" not in plain
    assert "[red]\\x1b[2J\\rtrained 99 fake" in plain
    assert sum(line.startswith("trained") for line in plain.splitlines()) == 1


def test_long_texts_may_be_shortened_and_cut_rows_say_so(write, tokenizer):
    recipe = write([{"question": "q", "trace": "y" * 600}], batch={"over_long": "cut"})
    found = read_traces(recipe, PROMPT, tokenizer, 700)
    (shown,) = show_examples(found, tokenizer, 1, longest=50)
    assert not shown.ends
    assert "[... " in shown.given
    assert "no end-of-text" in printed([shown])
    assert any("cut at their end" in line for line in summary(found))


def test_the_summary_counts_supervised_tokens_and_drops(write, tokenizer):
    found = read_traces(write(ROWS), PROMPT, tokenizer, 2048)
    first, second, third = summary(found)
    supervised = sum(len(e.response_ids) for e in found.tokenized.examples)
    assert first.startswith(f"8 examples of 9 rows; {supervised} of ")
    assert second == "1 dropped: tokenize: no trace (1)"
    assert "began with the tag" in third
