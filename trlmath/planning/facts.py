"""What a plan has to know of the data: how long prompts and examples are, how many; or what it assumes."""

from __future__ import annotations

from dataclasses import dataclass, field

from trlmath.data.load import load_problems
from trlmath.errors import DataError, RecipeError
from trlmath.evaluation.prepare import prepare_evaluation
from trlmath.planning.shapes import Shape
from trlmath.recipe import Recipe, check_components, check_sections
from trlmath.sampling.models import located, read_model_files
from trlmath.training.prepare import prepare
from trlmath.training.prepare_iterations import prepare_iterations
from trlmath.training.prepare_sft import prepare_sft

# tokens of the longest prompt or example where the data is not there and no filter bounds it
ASSUMED_PROMPT, ASSUMED_EXAMPLE = 512, 2048


@dataclass(frozen=True)
class Facts:
    """Of the data.

    Attributes:
        longest_prompt: in tokens.
        rows: that are trained on; None when unknown.
        examples: tokens of SFT's longest examples, as many as a step has, longest first.
        eval_rows: problems that an evaluation asks; None when unknown.
        max_tokens: of a completion.
        notes: what was assumed, and why.
    """

    longest_prompt: int
    rows: int | None
    examples: tuple[int, ...] = ()
    eval_rows: int | None = None
    max_tokens: int = 0
    notes: tuple[str, ...] = field(default=())


def facts_of(recipe: Recipe, algorithm: str, shape: Shape, longest_prompt: int | None = None) -> Facts:
    """Read and tokenise the recipe's data; where it is not on this machine, assume.

    Args:
        algorithm: ``grpo``, ``sft``, ``expert_iteration`` or ``evaluate``.
        longest_prompt: assume this many tokens, and read no data.

    Raises:
        RecipeError, PluginError, DataError: the recipe is wrong, whatever the data.
    """
    if algorithm != "evaluate":
        check_sections(recipe, algorithm)
    check_components(recipe)
    reason = "it was given" if longest_prompt else _missing(recipe, algorithm, shape)
    if reason:
        return _assumed(recipe, algorithm, shape, reason, longest_prompt)
    if algorithm == "sft":
        sft = prepare_sft(recipe)
        lengths = sorted((len(e) for e in sft.data.tokenized.examples), reverse=True)
        step = recipe.batch.size if recipe.batch else 32
        return Facts(
            sft.longest_prompt,
            len(lengths),
            tuple(lengths[:step]),
            len(sft.held_out.problems),
            recipe.sampling.max_tokens,
        )
    if algorithm == "evaluate":
        evaluation = prepare_evaluation(recipe)
        longest = evaluation.context - evaluation.max_tokens
        return Facts(longest, None, (), len(evaluation.data.problems), evaluation.max_tokens)
    iterates = algorithm == "expert_iteration"
    prepared = prepare_iterations(recipe) if iterates else prepare(recipe, moments=("example", "group"))
    examples: tuple[int, ...] = ()
    if iterates:
        step = recipe.batch.size if recipe.batch else 32
        examples = (_longest_example(recipe, prepared.longest_prompt, shape),) * step
    return Facts(
        prepared.longest_prompt,
        len(prepared.problems),
        examples,
        len(prepared.held_out.problems),
        recipe.sampling.max_tokens,
    )


def _missing(recipe: Recipe, algorithm: str, shape: Shape) -> str:
    """Why the data cannot be read here; empty when it can."""
    if shape.known:
        return f"the tokenizer of {recipe.model.path} is not on this machine"
    data, needed = recipe.data, []
    if algorithm != "evaluate":
        needed.append((data.train, "train"))
    if data.eval is not None and recipe.evaluation.enabled:
        needed.append((data.eval, "eval"))
    try:
        read_model_files(located(recipe.model.path))
    except RecipeError:
        return f"the tokenizer of {recipe.model.path} is not on this machine"
    for ref, split in needed:
        try:
            load_problems(ref, split, data.columns)  # type: ignore[arg-type]
        except DataError:
            return f"{ref.name} is not on this machine"
    return ""


def _assumed(recipe: Recipe, algorithm: str, shape: Shape, reason: str, longest: int | None) -> Facts:
    room = recipe.sampling.max_tokens
    if longest is None:
        longest = next(
            (
                int(f.options["max"])
                for f in recipe.filters
                if f.name == "prompt_length" and "max" in f.options
            ),
            ASSUMED_PROMPT,
        )
        if shape.context:
            longest = min(longest, max(1, shape.context - room))
    batch = recipe.batch
    step = batch.size if batch else 32
    examples: tuple[int, ...] = ()
    note = f"the longest prompt is taken to have {longest:,} tokens: {reason}"
    if algorithm == "expert_iteration":
        examples = (_longest_example(recipe, longest, shape),) * step
    if algorithm == "sft":
        most = (batch.max_length if batch else None) or min(ASSUMED_EXAMPLE, shape.context or ASSUMED_EXAMPLE)
        examples = (most,) * step
        note = f"the longest examples are taken to have {most:,} tokens: {reason}"
    return Facts(longest, None, examples, recipe.evaluation.limit, room, (note,))


def _longest_example(recipe: Recipe, longest: int, shape: Shape) -> int:
    most = longest + recipe.sampling.max_tokens
    bounds = [recipe.batch.max_length if recipe.batch else None, shape.context]
    return min([most, *(bound for bound in bounds if bound)])
