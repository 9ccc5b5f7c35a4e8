"""Policy: a model one can sample from and score with, the same on every engine.

The small public face of the engines: CS336's LanguageModelAsPolicy and RolloutWorker, batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from trlmath.errors import EngineError
from trlmath.recipe import parse_recipe
from trlmath.sampling.build import build_sampler
from trlmath.sampling.choose import engine_of
from trlmath.sampling.devices import own_device
from trlmath.sampling.models import count_parameters, located, read_model_files
from trlmath.sampling.room import check_pairs
from trlmath.sampling.settings import SamplingSettings
from trlmath.types import Group, Rollout


@dataclass(frozen=True, slots=True)
class Scores:
    """What the policy says of one completion of T tokens.

    Attributes:
        logprobs: [T] log-probabilities in nats, at temperature 1, of each token given those before it.
        entropies: [T] entropies in nats of the distribution each token stands in.
        entropy_kind: ``exact``: of the whole distribution; ``estimate``: -log p of the token itself, whose
            mean over tokens sampled at temperature 1 is an unbiased estimate of the mean entropy.
    """

    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
    entropy_kind: Literal["exact", "estimate"]


class Policy:
    """A model behind an engine. A context manager: leaving it frees the engine.

    Args:
        model: ``nano``, a model or adapter directory, or a Hub id.
        engine: ``auto``, ``vllm`` or ``transformers``.
        dtype: of the weights, e.g. ``bfloat16``.
        context: tokens a prompt and its completion may take together; None: the model's own, or the server's.
        url: a running vLLM server of this model, instead of an engine here.
        seed: of the engine.
        **engine_options: of the engine, as in a recipe's ``sampling.engine_options``.

    Raises:
        RecipeError: there is no such model.
        EngineError: the engine cannot start, or does not answer.
    """

    def __init__(
        self,
        model: str = "nano",
        engine: str = "auto",
        dtype: str = "float32",
        context: int | None = None,
        url: str | None = None,
        seed: int = 0,
        **engine_options: Any,
    ) -> None:
        sampling: dict[str, Any] = {"engine": engine, "engine_options": engine_options}
        if url is not None:
            sampling |= {"mode": "server", "url": url}
        recipe = parse_recipe(
            {"model": {"path": model, "dtype": dtype}, "sampling": sampling, "run": {"seed": seed}}
        )
        files = read_model_files(located(model))
        self.tokenizer = files.tokenizer
        self.engine, _ = engine_of(recipe, count_parameters(files.config))
        room = context or (files.context if url is None else None)
        if room is None and url is None:
            raise EngineError(f"the config of {model!r} tells no context; give context, in tokens.")
        self._held = ExitStack()
        self.sampler = build_sampler(recipe, files, self.engine, room, self._held, device=own_device())

    def sample(
        self, prompts: Sequence[str], settings: SamplingSettings | None = None, n: int = 1
    ) -> list[Group]:
        """Draw `n` completions for each prompt; groups come back in the prompts' order.

        Raises:
            EngineError: the engine fails, or a prompt leaves no room for a completion.
        """
        if not prompts:
            return []
        ids = self.tokenizer(text=list(prompts))["input_ids"]
        groups = self.sampler.generate(ids, settings or SamplingSettings(), n=n)
        return [
            Group(text, g.prompt_ids, g.rollouts, g.problem) for text, g in zip(prompts, groups, strict=True)
        ]

    def score(
        self, prompts: Sequence[str], completions: Sequence[str | Rollout | Sequence[int]]
    ) -> list[Scores]:
        """Score one completion for each prompt; float32 log-probabilities equal the trainer's to 1e-4.

        In batches: several pairs a forward (transformers, bounded by their tokens; vLLM as it schedules
        them), several requests at a time (a server). The transformers engine takes log-probabilities and
        entropies from the same forwards.

        Args:
            completions: rollouts (their own tokens count), token ids, or text (tokenised by itself); as many
                as there are prompts.

        Raises:
            EngineError: the engine fails, the two lengths differ, or a pair is longer than the context.
        """
        ids = [list(p) for p in self.tokenizer(text=list(prompts))["input_ids"]] if prompts else []
        rows = [self._tokens(completion) for completion in completions]
        check_pairs(ids, rows, self.sampler.context)
        filled = [i for i, row in enumerate(rows) if row]
        asked = ([ids[i] for i in filled], [rows[i] for i in filled])
        exact = getattr(self.sampler, "score_with_entropies", None)
        if exact:
            logprobs, entropies = exact(*asked)
        else:
            logprobs = self.sampler.score(*asked)
            entropies = [[-logp for logp in row] for row in logprobs]
        empty = Scores((), (), "exact" if exact else "estimate")
        scores = [empty] * len(rows)
        for i, logps, nats in zip(filled, logprobs, entropies, strict=True):
            scores[i] = Scores(tuple(logps), tuple(nats), empty.entropy_kind)
        return scores

    def _tokens(self, completion: str | Rollout | Sequence[int]) -> list[int]:
        if isinstance(completion, Rollout):
            return list(completion.token_ids)
        if isinstance(completion, str):
            return list(self.tokenizer(text=completion, add_special_tokens=False)["input_ids"])
        return list(completion)

    def close(self) -> None:
        """Free the engine."""
        self._held.close()

    def __enter__(self) -> Policy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
