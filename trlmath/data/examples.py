"""Traces to token ids with a mask, once: tokenised, checked, counted and kept on disk by content."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trlmath.data.filtering import LedgerEntry
from trlmath.data.masks import NO_ANSWER, NO_TRACE, OverLong, encode
from trlmath.data.prompts import Prompt
from trlmath.errors import DataError, nearest
from trlmath.types import Problem

FORMAT = 2
"""Raised whenever `masks.encode` gives other tokens for the same input."""

_BATCH = 512


@dataclass(frozen=True, slots=True)
class Example:
    """One training example.

    Attributes:
        prompt_ids: given, not trained on: the tokens that generation is given.
        response_ids: trained on; the end-of-text token is the last, unless the response was cut.
        row: index of its Problem. A conversation with several answers has several examples.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    row: int

    def __len__(self) -> int:
        """Tokens of prompt and response."""
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True)
class Tokenized:
    """What can be trained on, and what cannot.

    Attributes:
        examples: in the order of the problems.
        dropped: the others, each with its reason; `index` is the problem's.
        joined: examples whose tokens would be others if prompt and trace were tokenised together. They
            are trained apart, as generation is given the prompt alone.
        cut: examples whose response lost its end (and has no end-of-text).
    """

    examples: list[Example]
    dropped: list[LedgerEntry]
    joined: int = 0
    cut: int = 0

    @property
    def supervised(self) -> int:
        """Tokens trained on in one pass."""
        return sum(len(example.response_ids) for example in self.examples)

    def counts(self) -> dict[str, int]:
        """Drops by reason, most frequent first."""
        return dict(Counter(entry.reason for entry in self.dropped).most_common())


def tokenize_traces(
    problems: Sequence[Problem],
    prompt: Prompt,
    tokenizer: Any,
    *,
    max_length: int | None = None,
    over_long: OverLong = "drop",
    cache: Path | None = None,
) -> Tokenized:
    """Turn problems with traces into examples.

    Args:
        problems: each with ``trace``; those with ``prompt`` use it instead of the template.
        prompt: the recipe's template.
        tokenizer: the model's.
        max_length: most tokens of prompt and response together; None: no limit.
        over_long: a longer trace is dropped, or cut at its end.
        cache: folder that keeps the tokens by a hash of rows, prompt, tokenizer and settings, as Arrow files
            of the library datasets (see `default_cache`); None: nothing is kept.

    Raises:
        DataError: nothing is left to train on, or a chat template does not fit the messages.
    """
    if not problems:
        raise DataError("there is no row to train on.")
    table = _table(problems, prompt, tokenizer, max_length, over_long, cache)
    examples, dropped, joined, cut = [], [], 0, 0
    columns = (table[name] for name in ("row", "prompt_ids", "response_ids", "reason", "joined", "cut"))
    for row, prompt_ids, response_ids, reason, other, shortened in zip(*columns, strict=True):
        if reason:
            dropped.append(LedgerEntry("trace", "tokenize", reason, row, problems[row].question))
            continue
        examples.append(Example(tuple(prompt_ids), tuple(response_ids), row))
        joined, cut = joined + other, cut + shortened
    if not examples:
        raise DataError(_nothing_left(problems, dropped))
    return Tokenized(examples, dropped, joined, cut)


def default_cache() -> Path:
    """Folder for tokens: in the cache of datasets, which HF_HOME and XDG_CACHE_HOME move."""
    from datasets import config

    return Path(config.HF_DATASETS_CACHE) / "trlmath"


def content_hash(
    problems: Sequence[Problem], prompt: Prompt, tokenizer: Any, max_length: int | None, over_long: OverLong
) -> str:
    """Hash of everything that the tokens depend on."""
    import tokenizers
    import transformers

    digest = hashlib.sha256()
    versions = [FORMAT, transformers.__version__, tokenizers.__version__]
    for part in (versions, prompt.template, _tokenizer_state(tokenizer), max_length, over_long):
        digest.update(json.dumps(part, default=str).encode() + b"\n")
    for problem in problems:
        row = [problem.question, problem.prompt, problem.trace]
        digest.update(json.dumps(row, default=dict).encode() + b"\n")
    return digest.hexdigest()[:32]


def _tokenizer_state(tokenizer: Any) -> list[Any]:
    state = [type(tokenizer).__name__, tokenizer.eos_token, getattr(tokenizer, "chat_template", None)]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return [*state, sorted(tokenizer.get_vocab().items()), tokenizer.init_kwargs]
    told = json.loads(backend.to_str())
    # Left over from the last call, not a property of the tokenizer.
    return [*state, {key: told[key] for key in told if key not in ("truncation", "padding")}]


def _table(
    problems: Sequence[Problem],
    prompt: Prompt,
    tokenizer: Any,
    max_length: int | None,
    over_long: OverLong,
    cache: Path | None,
) -> Any:
    """The encoded rows as a table of datasets, read from `cache` when they are there."""
    from datasets import Dataset, Features, Value
    from datasets import Sequence as Ids
    from pyarrow import ArrowException

    def batch(numbers: list[int]) -> dict[str, list[Any]]:
        found = encode([problems[i] for i in numbers], prompt, tokenizer, max_length, over_long)
        return {
            "row": [numbers[one.row] for one in found],
            "prompt_ids": [one.prompt_ids for one in found],
            "response_ids": [one.response_ids for one in found],
            "reason": [one.reason for one in found],
            "joined": [one.joined for one in found],
            "cut": [one.cut for one in found],
        }

    features = Features(
        row=Value("int64"),
        prompt_ids=Ids(Value("int32")),
        response_ids=Ids(Value("int32")),
        reason=Value("string"),
        joined=Value("bool"),
        cut=Value("bool"),
    )
    name = content_hash(problems, prompt, tokenizer, max_length, over_long)
    rows = Dataset.from_dict({"number": list(range(len(problems)))})
    file = None if cache is None else cache / f"{name}.arrow"
    try:
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
        # A fast tokenizer tokenises a batch on all cores by itself: processes would only copy the data.
        table = rows.map(
            batch,
            input_columns=["number"],
            batched=True,
            batch_size=_BATCH,
            remove_columns=["number"],
            features=features,
            cache_file_name=None if file is None else str(file),
            load_from_cache_file=True,
            new_fingerprint=name,
            num_proc=None,
        )
        return table.with_format(None)[:]
    except (OSError, ArrowException) as error:
        raise DataError(
            f"the cache of tokens {file} cannot be used: {error}. Delete it, or set HF_HOME to a folder that "
            "can be written."
        ) from error


def _nothing_left(problems: Sequence[Problem], dropped: Sequence[LedgerEntry]) -> str:
    counts = Counter(entry.reason for entry in dropped)
    told = "; ".join(f"{reason} ({count})" for reason, count in counts.most_common())
    text = f"none of the {len(problems)} rows can be trained on: {told}."
    likely = counts.most_common(1)[0][0]
    if likely == NO_TRACE:
        columns = sorted({key for problem in problems for key in problem.metadata})
        return (
            f"{text} Map the column that holds the worked answer: data.columns: {{trace: <column>}}."
            f"{nearest('trace', columns)} Other columns: {', '.join(columns) or 'none'}."
        )
    if "every label masked" in likely:
        return f"{text} Raise batch.max_length, or use a model with more context."
    if likely.startswith("over "):
        return f"{text} Raise batch.max_length, or set batch.over_long: cut."
    first = next(entry for entry in dropped if entry.reason == likely)
    told = f"{text} The first is row {first.index}, whose question is {ascii(first.question)[:120]}."
    if likely == NO_ANSWER:
        return f"{told} What is trained on is each message of the role 'assistant'."
    return told
