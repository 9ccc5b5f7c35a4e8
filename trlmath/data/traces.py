"""From a dataset's row to a Problem: which column is what, prompts of their own, chat messages; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trlmath.data.prompts import Prompt
from trlmath.errors import DataError, nearest
from trlmath.types import Problem

FIELDS = ("question", "answer", "solution", "trace")
COLUMN_FIELDS = (*FIELDS, "prompt", "messages")

# Read when no column has the field's own name.
ALIASES = {"question": ("problem",), "answer": ("expected_answer",), "trace": ("reasoning_trace",)}
_ANSWERS = ("completion", "response")  # beside a column `prompt`

_TAG = re.compile(r"<\w+>\s*\Z")


def sources(available: Sequence[str], columns: Mapping[str, str], name: str) -> dict[str, str]:
    """Return field -> column of a dataset with the columns `available`, of which `columns` maps some.

    A row is one of three shapes: ``question`` (with the recipe's template), ``prompt`` (text taken as it
    is, or chat messages) or ``messages``; the last two only where there is no question or they are mapped.

    Raises:
        DataError: a field or column that does not exist, or no column for the question.
    """
    unknown = [field for field in columns if field not in COLUMN_FIELDS]
    if unknown:
        raise DataError(
            f"data.columns: a problem has no field {unknown[0]!r}.{nearest(unknown[0], COLUMN_FIELDS)} "
            f"Fields: {', '.join(COLUMN_FIELDS)}; every other column is kept under its own name."
        )
    found = {}
    for field in FIELDS:
        free = [c for c in (field, *ALIASES.get(field, ())) if c in available and c not in columns.values()]
        if free:
            found[field] = free[0]
    found |= columns
    if not {"question", "prompt", "messages"} & set(found):
        own = next((shape for shape in ("messages", "prompt") if shape in available), None)
        found[own or "question"] = own or "question"
    if "prompt" in found and "trace" not in found:
        answers = [column for column in _ANSWERS if column in available]
        found |= {"trace": answers[0]} if answers else {}
    for field, column in found.items():
        if column not in available:
            raise DataError(
                f"the dataset {name!r} has no column {column!r} for {field}.{nearest(column, available)} "
                f"Its columns: {', '.join(available)}. Map it in the recipe: "
                f"data.columns: {{{field}: <column>}}."
            )
    return found


def to_problem(row: Mapping[str, Any], source: Mapping[str, str], name: str, index: int) -> Problem:
    """Turn row number `index` of dataset `name` into a Problem. Raises DataError naming row and column."""
    metadata = {key: value for key, value in row.items() if key not in source.values()}
    given = {field: row.get(source[field]) for field in source}

    def text(field: str) -> str | None:
        return _text(given.get(field), name, source.get(field, field), index)

    prompt: str | tuple[Mapping[str, Any], ...] | None = None
    if "messages" in source or isinstance(given.get("prompt"), list):
        field = "messages" if "messages" in source else "prompt"
        messages = _messages(given[field], name, source[field], index)
        if field == "prompt":
            messages += _completion(given.get("trace"), name, source.get("trace", "trace"), index)
        prompt, trace = _split(messages)
        question = text("question") or _last_question(prompt)
    else:
        prompt, trace = text("prompt"), text("trace")
        question = text("question") if "question" in source else prompt
    if question is None or not question.strip():
        column = next(source[field] for field in ("question", "prompt", "messages") if field in source)
        raise DataError(f"the dataset {name!r} has no question in row {index} (column {column!r}).")
    return Problem(question, text("answer"), text("solution"), trace, metadata, prompt)


def prompt_text(problem: Problem, prompt: Prompt, tokenizer: Any) -> str:
    """The text a model is given for a problem: the row's own prompt, or the template with its question.

    Tokenised, it gives the tokens that `trlmath.data.masks` trains after.
    """
    if problem.prompt is None:
        return prompt.render(problem.question)
    if isinstance(problem.prompt, str):
        return problem.prompt
    text = tokenizer.apply_chat_template(list(problem.prompt), tokenize=False, add_generation_prompt=True)
    # Tokenising the text adds a beginning-of-text token of its own where the tokenizer has one.
    begin = tokenizer.bos_token
    if begin and tokenizer(text="")["input_ids"][:1] == [tokenizer.bos_token_id]:
        text = text.removeprefix(begin)
    return text


def without_repeated_tag(problems: Sequence[Problem], prompt: Prompt) -> tuple[list[Problem], int]:
    """Take away the tag that ends the prompt where the trace begins with it again; and count how often.

    The r1_zero prompt ends with ``<think>``, and published traces often begin with it.
    """
    changed, count = [], 0
    for problem in problems:
        given = prompt.render(problem.question) if problem.prompt is None else problem.prompt
        if problem.trace is not None and isinstance(given, str):
            trace = after_tag(given, problem.trace)
            count += trace != problem.trace
            problem = replace(problem, trace=trace)
        changed.append(problem)
    return changed, count


def after_tag(given: str, trace: str) -> str:
    """The trace without the tag at its beginning that `given` ends with; else the trace as it is."""
    tag = _TAG.search(given)
    bare = trace.lstrip()
    if tag is None or not bare.startswith(tag.group().strip()):
        return trace
    return bare.removeprefix(tag.group().strip())


def _messages(value: Any, name: str, column: str, index: int) -> list[dict[str, Any]]:
    where = f"the dataset {name!r}, column {column!r}, row {index}"
    if not isinstance(value, list):
        raise DataError(
            f"{where} holds a {type(value).__name__}; a list of messages is needed, such as "
            '[{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}].'
        )
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise DataError(f"{where} holds a message without a role: {ascii(message)[:120]}.")
        if not isinstance(message.get("content"), str):
            raise DataError(
                f"{where} holds a message of {message['role']!r} whose content is a "
                f"{type(message.get('content')).__name__}; text is needed."
            )
        _text(message["content"], name, column, index)
    return [dict(message) for message in value]


def _completion(value: Any, name: str, column: str, index: int) -> list[dict[str, Any]]:
    """The answer to a prompt of messages: messages too, or the text of one."""
    if isinstance(value, list):
        return _messages(value, name, column, index)
    text = _text(value, name, column, index)
    return [] if text is None else [{"role": "assistant", "content": text}]


def _split(messages: list[dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], str | None]:
    """The messages before the last answer, and that answer; what follows it cannot be trained on."""
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    if not answers:
        return tuple(messages), None
    return tuple(messages[: answers[-1]]), messages[answers[-1]]["content"]


def _last_question(prompt: Sequence[Mapping[str, Any]]) -> str | None:
    asked = [message["content"] for message in prompt if message["role"] == "user"]
    return asked[-1] if asked else None


def _text(value: Any, name: str, column: str, index: int) -> str | None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"the dataset {name!r} holds half a character (a lone surrogate, "
                f"{ascii(value[error.start])}) in column {column!r}, row {index}; no tokenizer reads it. "
                "Write the text anew as UTF-8."
            ) from error
        return value
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return None if value != value else str(value)  # pandas writes a missing number as NaN
    raise DataError(
        f"the dataset {name!r} holds a {type(value).__name__} in column {column!r}, row {index}; "
        "text or a number is needed."
    )
