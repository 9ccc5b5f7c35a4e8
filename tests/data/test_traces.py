"""Shapes of rows with traces: question, prompt, chat messages; known column names; the repeated tag."""

from __future__ import annotations

import json

import pytest

from trlmath import Problem, Prompt
from trlmath.data.load import load_problems
from trlmath.data.prompts import load_prompt
from trlmath.data.traces import prompt_text, without_repeated_tag
from trlmath.errors import DataError

USER = {"role": "user", "content": "2+2?"}
ANSWER = {"role": "assistant", "content": "4"}


@pytest.fixture
def load(tmp_path):
    def load(*rows, **more):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return load_problems(str(path), **more)

    return load


def test_the_published_sft_layout_needs_no_mapping(load):
    row = {
        "problem": "What is 6*7?",
        "reasoning_trace": "<think>6*7=42</think> <answer>42</answer>",
        "extracted_answer": "42",
        "expected_answer": "42",
    }
    (problem,) = load(row)
    assert (problem.question, problem.answer, problem.trace) == ("What is 6*7?", "42", row["reasoning_trace"])
    assert problem.metadata == {"extracted_answer": "42"}
    assert problem.prompt is None


def test_a_fields_own_name_goes_before_other_known_names(load):
    (problem,) = load({"question": "q", "problem": "p", "answer": "1", "expected_answer": "2", "trace": "t"})
    assert (problem.question, problem.answer) == ("q", "1")
    assert problem.metadata == {"problem": "p", "expected_answer": "2"}
    (mapped,) = load({"problem": "p", "question": "q"}, columns={"question": "problem"})
    assert (mapped.question, mapped.metadata) == ("p", {"question": "q"})


@pytest.mark.parametrize("column", ["trace", "response", "completion"])
def test_a_prompt_is_taken_as_it_is(load, column):
    (problem,) = load({"prompt": "User: 2+2?\nAssistant:", column: " 4", "answer": "4"})
    assert problem.prompt == problem.question == "User: 2+2?\nAssistant:"
    assert (problem.trace, problem.answer) == (" 4", "4")
    assert prompt_text(problem, load_prompt("r1_zero"), None) == problem.prompt


def test_beside_a_question_a_prompt_counts_only_when_mapped(load):
    row = {"question": "q", "prompt": "P: q", "trace": "t"}
    (problem,) = load(row)
    assert (problem.prompt, problem.metadata) == (None, {"prompt": "P: q"})
    (problem,) = load(row, columns={"prompt": "prompt"})
    assert (problem.prompt, problem.question) == ("P: q", "q")


def test_chat_messages_are_split_at_the_last_answer(load):
    again = {"role": "user", "content": "3+3?"}
    six = {"role": "assistant", "content": "6"}
    (problem,) = load({"messages": [USER, ANSWER, again, six], "answer": "6"})
    assert problem.prompt == (USER, ANSWER, again)
    assert (problem.question, problem.trace, problem.answer) == ("3+3?", "6", "6")
    (open_end,) = load({"messages": [USER]})
    assert (open_end.prompt, open_end.trace) == ((USER,), None)


def test_prompt_and_completion_may_be_messages(load):
    (problem,) = load({"prompt": [USER], "completion": [ANSWER]})
    assert (problem.prompt, problem.trace, problem.question) == ((USER,), "4", "2+2?")
    (text,) = load({"prompt": [USER], "completion": "4"})
    assert (text.prompt, text.trace) == ((USER,), "4")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": "hello"}, "column 'messages', row 0 holds a str; a list of messages is needed"),
        ({"messages": [{"content": "x"}]}, "a message without a role"),
        ({"messages": [{"role": "user", "content": [1]}]}, "'user' whose content is a list; text is needed"),
        ({"messages": [{"role": "system", "content": "s"}]}, "no question in row 0 .column 'messages'"),
        ({"prompt": " ", "trace": "t"}, "no question in row 0 .column 'prompt'"),
        ({"anything": "x"}, "no column 'question' for question"),
    ],
)
def test_a_row_that_fits_no_shape_says_where(load, row, message):
    with pytest.raises(DataError, match=message):
        load(row)


def test_held_out_data_need_not_have_the_columns_of_traces(load):
    row = {"question": "q", "answer": "1"}
    (problem,) = load(row, split="eval", columns={"trace": "my_trace"})
    assert problem == Problem("q", "1")
    with pytest.raises(DataError, match="no column 'my_trace' for trace"):
        load(row, columns={"trace": "my_trace"})
    with pytest.raises(DataError, match="no column 'gold' for answer"):
        load(row, split="eval", columns={"answer": "gold"})


def test_the_tag_that_ends_the_prompt_is_not_trained_twice():
    prompt = load_prompt("r1_zero")
    given = [
        Problem("q", trace="\n<think>\nso</think>"),
        Problem("q", trace=" so </think>"),
        Problem("q", trace=None),
        Problem("q", trace="<think> own prompt", prompt="no tag"),
        Problem("q", trace="<think>x", prompt="Assistant: <think>\n"),
    ]
    changed, count = without_repeated_tag(given, prompt)
    assert [p.trace for p in changed] == ["\nso</think>", " so </think>", None, "<think> own prompt", "x"]
    assert count == 2
    assert without_repeated_tag(given[:2], Prompt("p", "{question} "))[1] == 0


def test_parquet_holds_messages_too(tmp_path):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"messages": [[USER, ANSWER]]}), tmp_path / "rows.parquet")
    (problem,) = load_problems(str(tmp_path / "rows.parquet"))
    assert (problem.prompt, problem.trace) == ((USER,), "4")
