"""Which tokens of a row are given and which are trained: plain prompts and chat templates; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jinja2 import TemplateError

from trlmath.data.prompts import Prompt
from trlmath.errors import DataError
from trlmath.types import Problem

OverLong = Literal["drop", "cut"]
NO_TRACE = "no trace"
NO_ANSWER = "no message of the assistant"
EMPTY = "empty trace"
INNER_END = "end-of-text inside the trace"
NO_MARKS = "the chat template marks no token of the answer"
NO_CONTEXT = "the conversation begins with its answer"
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True, slots=True)
class Encoded:
    """One row, or one answer of a conversation.

    Attributes:
        row: which of the problems given.
        prompt_ids: the tokens the model is given, at generation as in training.
        response_ids: the tokens trained on.
        reason: why it cannot be trained on; empty when it can.
        joined: tokenising prompt and trace together gives other tokens.
        cut: the response lost its end.
    """

    row: int
    prompt_ids: list[int]
    response_ids: list[int]
    reason: str = ""
    joined: bool = False
    cut: bool = False


def encode(
    problems: Sequence[Problem], prompt: Prompt, tokenizer: Any, max_length: int | None, over_long: OverLong
) -> list[Encoded]:
    """Tokenise rows, in order; `row` counts from 0 within `problems`.

    Prompt and trace are tokenised apart, because at generation the prompt is tokenised alone.

    Raises:
        DataError: a conversation without a chat template, or with one that rewrites its past.
    """
    plain = [i for i, p in enumerate(problems) if p.trace is not None and not isinstance(p.prompt, tuple)]
    texts = [_text(problems[i], prompt) for i in plain]
    traces = [problems[i].trace or "" for i in plain]
    heads = _ids(tokenizer, texts)
    tails = _ids(tokenizer, traces, add_special_tokens=False)
    wholes = _ids(tokenizer, [text + trace for text, trace in zip(texts, traces, strict=True)])
    encoded: list[Encoded] = []
    for i, trace, head, tail, whole in zip(plain, traces, heads, tails, wholes, strict=True):
        if not trace.strip():
            encoded.append(Encoded(i, head, [], EMPTY))
            continue
        end = tokenizer.eos_token_id
        response = tail if tail[-1:] == [end] else [*tail, end]
        encoded.append(
            _fit(Encoded(i, head, response, joined=whole != head + tail), end, max_length, over_long)
        )
    for i, problem in enumerate(problems):
        if problem.trace is None:
            encoded.append(Encoded(i, [], [], NO_ANSWER if isinstance(problem.prompt, tuple) else NO_TRACE))
        elif isinstance(problem.prompt, tuple):
            answers = _conversation(i, problem.prompt, problem.trace, tokenizer)
            encoded += (_fit(one, tokenizer.eos_token_id, max_length, over_long) for one in answers)
    return sorted(encoded, key=lambda one: one.row)


def _text(problem: Problem, prompt: Prompt) -> str:
    return problem.prompt if isinstance(problem.prompt, str) else prompt.render(problem.question)


def _ids(tokenizer: Any, texts: list[str], **more: Any) -> list[list[int]]:
    return [list(ids) for ids in tokenizer(text=texts, **more)["input_ids"]] if texts else []


def _fit(one: Encoded, end: int, max_length: int | None, over_long: OverLong) -> Encoded:
    """Cut or refuse what does not fit; a response that is cut ends without an end-of-text."""
    row, head, response = one.row, one.prompt_ids, one.response_ids
    if one.reason:
        return one
    if end in response[:-1]:
        return Encoded(row, head, response, INNER_END)
    if max_length is None or len(head) + len(response) <= max_length:
        return one
    if len(head) >= max_length:
        return Encoded(row, head, response, f"prompt alone fills {max_length} tokens: every label masked")
    if over_long == "drop":
        return Encoded(row, head, response, f"over {max_length} tokens")
    return Encoded(row, head, response[: max_length - len(head)], joined=one.joined, cut=True)


def _conversation(
    row: int, prompt: Sequence[Mapping[str, Any]], trace: str, tokenizer: Any
) -> Iterator[Encoded]:
    """Every answer of a conversation, each after the messages before it, as at generation."""
    if not getattr(tokenizer, "chat_template", None):
        raise DataError(
            "the dataset holds chat messages, and the model's tokenizer has no chat template. Use the chat "
            "version of the model, set chat_template in its tokenizer_config.json, or give the dataset "
            "columns for question and trace."
        )
    marked = bool(_GENERATION.search(str(tokenizer.chat_template)))
    messages = [*prompt, {"role": "assistant", "content": trace}]
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        if not message["content"].strip():
            yield Encoded(row, [], [], EMPTY)
        elif i == 0:
            yield Encoded(row, [], [], NO_CONTEXT)
        else:
            yield _answer(row, messages[: i + 1], tokenizer, marked)


def _answer(row: int, messages: list[Mapping[str, Any]], tokenizer: Any, marked: bool) -> Encoded:
    """The last message of a conversation: its tokens are those after the prompt for generating it."""
    head = list(_chat(tokenizer, messages[:-1], row, add_generation_prompt=True)["input_ids"])
    told = _chat(tokenizer, messages, row, return_assistant_tokens_mask=marked)
    whole = list(told["input_ids"])
    if whole[: len(head)] != head:
        raise DataError(
            f"the chat template changes what stands before an answer once the answer is there (row {row}): "
            "at generation the model would see other tokens than in training. Use a template whose prompt "
            "(add_generation_prompt) is the beginning of the whole conversation, or columns for question and "
            "trace."
        )
    rest, end = whole[len(head) :], tokenizer.eos_token_id
    if marked:
        trained = [at for at, mark in enumerate(told["assistant_masks"][len(head) :]) if mark]
        if not trained:
            return Encoded(row, head, [], NO_MARKS)
        stop = trained[-1] + 1
        # The model must learn to stop, whether or not the template marks the token for it.
        return Encoded(row, head, rest[: stop + 1] if rest[stop : stop + 1] == [end] else rest[:stop])
    # What a template writes after the end of the turn is never generated.
    ends = [at for at, token in enumerate(rest) if token == end]
    return Encoded(row, head, rest[: ends[-1] + 1] if ends else [*rest, end])


def _chat(tokenizer: Any, messages: Sequence[Mapping[str, Any]], row: int, **more: Any) -> Mapping[str, Any]:
    try:
        return tokenizer.apply_chat_template(list(messages), tokenize=True, return_dict=True, **more)
    except (TemplateError, ValueError, TypeError) as error:
        raise DataError(f"the chat template refuses the messages of row {row}: {error}") from error
