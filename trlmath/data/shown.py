"""Rows as text with what is given, trained and padded, for people to look at; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trlmath.data.sft import TraceData
from trlmath.errors import visible


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One example.

    Attributes:
        number: of the row in the dataset, as in the ledger of drops.
        given: text of the prompt's tokens, not trained on.
        trained: text of the trained tokens, special ones written out.
        given_tokens, trained_tokens, padding_tokens: how many of each; padding is at the end.
        padding: the text of one padding token.
        ends: the last trained token is the end-of-text.
    """

    number: int
    given: str
    trained: str
    given_tokens: int
    trained_tokens: int
    padding_tokens: int
    padding: str
    ends: bool


def show_examples(data: TraceData, tokenizer: Any, count: int, longest: int | None = None) -> list[ShownRow]:
    """Return the first examples as text, padded to the longest of them.

    Control characters are escaped, so that no data steers the terminal.

    Args:
        count: how many.
        longest: most characters of prompt and of response; what lies in the middle of a longer one is left
            out. None: everything.
    """
    examples = data.tokenized.examples[:count]
    width = max((len(example) for example in examples), default=0)

    def text(ids: Sequence[int]) -> str:
        decoded = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return visible(_shortened(decoded, longest))

    return [
        ShownRow(
            data.numbers[example.row],
            text(example.prompt_ids),
            text(example.response_ids),
            len(example.prompt_ids),
            len(example.response_ids),
            width - len(example),
            visible(tokenizer.pad_token or ""),
            example.response_ids[-1:] == (tokenizer.eos_token_id,),
        )
        for example in examples
    ]


def summary(data: TraceData) -> list[str]:
    """Lines about all rows: how much is trained, what was dropped and why, what looks wrong."""
    examples, supervised = data.tokenized.examples, data.tokenized.supervised
    total = sum(map(len, examples))
    lines = [
        f"{len(examples)} examples of {data.rows_read} rows; {supervised:,} of {total:,} tokens are trained "
        f"({100 * supervised / total:.0f} %)"
    ]
    if data.ledger:
        reasons = "; ".join(f"{what} ({count})" for what, count in data.counts().items())
        lines.append(f"{len(data.ledger)} dropped: {reasons}")
    return [visible(line) for line in [*lines, *data.notes]]


def _shortened(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    end = longest // 2
    return f"{text[: longest - end]} [... {len(text) - longest} characters ...] {text[len(text) - end :]}"
