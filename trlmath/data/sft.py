"""From a recipe to the examples that SFT trains on: read, filter, tokenise, draw the subset, count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trlmath.data.examples import Tokenized, tokenize_traces
from trlmath.data.filtering import LedgerEntry, NamedFilter, build_filters, check_moments, filter_problems
from trlmath.data.load import load_problems
from trlmath.data.prompts import Prompt
from trlmath.data.subset import subset
from trlmath.data.traces import without_repeated_tag
from trlmath.errors import RecipeError
from trlmath.recipe.schema import BatchSection, Recipe
from trlmath.types import Problem


@dataclass(frozen=True)
class TraceData:
    """What SFT trains on.

    Attributes:
        problems: the rows that passed the filters; ``Example.row`` is an index of them.
        tokenized: the examples that are trained on, after `data.train_size`.
        ledger: everything dropped, by filters and by tokenising; `index` is the row's in the dataset.
        numbers: of each problem, the number of its row in the dataset.
        rows_read: rows before the filters.
        filters: as built, for the manifest.
        notes: lines for the person watching, about what was changed or looks wrong.
    """

    problems: list[Problem]
    numbers: list[int]
    tokenized: Tokenized
    ledger: list[LedgerEntry]
    rows_read: int
    filters: list[NamedFilter]
    notes: list[str]

    @property
    def trained(self) -> list[Problem]:
        """The problems with an example, each once."""
        return [self.problems[row] for row in sorted({e.row for e in self.tokenized.examples})]

    def counts(self) -> dict[str, int]:
        """Drops by ``filter: reason``, most frequent first."""
        return dict(Counter(f"{e.filter}: {e.reason}" for e in self.ledger).most_common())


def read_traces(
    recipe: Recipe, prompt: Prompt, tokenizer: Any, context: int | None, cache: Path | None = None
) -> TraceData:
    """Read what `recipe` trains on.

    Args:
        context: the model's, in tokens; the limit where `batch.max_length` gives none.
        cache: see `tokenize_traces`.

    Raises:
        RecipeError, PluginError, DataError: saying what is wrong and what to do.
    """
    batch = recipe.batch or BatchSection()
    if batch.max_length is not None and context is not None and batch.max_length > context:
        raise RecipeError(
            f"batch.max_length: got {batch.max_length}; allowed: at most the context of "
            f"{recipe.model.path!r}, {context} tokens."
        )
    filters = build_filters(recipe.filters, recipe.checks.reward_timeout, tokenizer=tokenizer, prompt=prompt)
    check_moments(filters, ("example", "trace"))
    name = recipe.data.train.name
    rows = load_problems(recipe.data.train, "train", recipe.data.columns)
    rows, repeated = without_repeated_tag(rows, prompt)
    filtered = filter_problems(rows, filters, name, moments=("example", "trace"))
    tokenized = tokenize_traces(
        filtered.kept,
        prompt,
        tokenizer,
        max_length=batch.max_length or context,
        over_long=batch.over_long,
        cache=cache,
    )
    ledger = [*filtered.dropped, *(replace(e, index=filtered.indices[e.index]) for e in tokenized.dropped)]
    whole = sorted({example.row for example in tokenized.examples})
    chosen = {whole[at] for at in subset([filtered.kept[row] for row in whole], recipe.data.train_size, name)}
    examples = [example for example in tokenized.examples if example.row in chosen]
    return TraceData(
        problems=filtered.kept,
        numbers=filtered.indices,
        tokenized=replace(tokenized, examples=examples),
        ledger=ledger,
        rows_read=len(rows),
        filters=filters,
        notes=_notes(filtered.kept, prompt, tokenized, repeated),
    )


def _notes(problems: list[Problem], prompt: Prompt, tokenized: Tokenized, repeated: int) -> list[str]:
    notes = []
    if repeated:
        notes.append(f"{repeated} traces began with the tag that ends the prompt: trained without it")
    if tokenized.joined:
        notes.append(
            f"{tokenized.joined} rows would have other tokens if prompt and trace were tokenised together: "
            "trained apart, as generation sees the prompt alone"
        )
    if tokenized.cut:
        notes.append(f"{tokenized.cut} traces are cut at their end, without an end-of-text")
    own = sum(p.prompt is not None and p.prompt != prompt.render(p.question) for p in problems)
    if own:
        notes.append(
            f"{own} rows bring a prompt of their own: data.prompt ({prompt.name}) is what evaluation gives"
        )
    return notes
