"""The transformers engine: decodes with the trainer's own module, so its weights are never stale.

Each prompt is read once for all its completions, and finished completions leave the batch, which is
what makes it quick at small scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from trlmath.errors import EngineError
from trlmath.sampling.growing_cache import make_cache
from trlmath.sampling.settings import SamplingSettings
from trlmath.sampling.stopping import cut_after_stop, tail_tokens
from trlmath.types import Group, Rollout


class TransformersSampler:
    """Samples from a transformers module in this process.

    Args:
        model: a causal language model; unwrapped (no DDP around it).
        tokenizer: its tokenizer.
        eos_token_ids: tokens that end a completion; default: the tokenizer's.
        open_model: context manager that yields the module to use, for sharded models that must be
            gathered first; default: `model` itself.
        max_rows: completions decoded at once.
    """

    name = "transformers"
    shares_weights = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        eos_token_ids: Sequence[int] | None = None,
        open_model: Callable[[], AbstractContextManager[Any]] | None = None,
        max_rows: int = 256,
    ) -> None:
        self.model, self.tokenizer, self.max_rows = model, tokenizer, max_rows
        self.eos_token_ids = list(eos_token_ids or [tokenizer.eos_token_id])
        self.weights_version = 0
        self._open_model = open_model or self._own_model

    @contextmanager
    def _own_model(self):  # type: ignore[no-untyped-def]
        yield self.model

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[Sequence[int]], settings: SamplingSettings, n: int = 1
    ) -> list[Group]:
        """See `Sampler.generate`."""
        groups: list[Group] = []
        at_once = max(1, self.max_rows // n)
        with self._open_model() as model, _eval_mode(model):
            _check_room(model, prompts, settings)
            generator = torch.Generator(device=model.device)
            generator.manual_seed(_fresh_seed() if settings.seed is None else settings.seed)
            for start in range(0, len(prompts), at_once):
                chunk = [list(p) for p in prompts[start : start + at_once]]
                rows = self._decode(model, chunk, settings, n, generator)
                for i, prompt in enumerate(chunk):
                    groups.append(Group("", tuple(prompt), tuple(rows[i * n : (i + 1) * n])))
        return groups

    def _decode(
        self,
        model: Any,
        prompts: list[list[int]],
        settings: SamplingSettings,
        n: int,
        generator: torch.Generator,
    ) -> list[Rollout]:
        device = model.device
        width = max(map(len, prompts))
        pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else 0
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        cache = make_cache(model.config)
        out = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache.batch_repeat_interleave(n)
        logits = out.logits[:, -1].repeat_interleave(n, 0)
        lengths = mask.sum(-1).repeat_interleave(n)
        # Without left padding no mask is needed, and attention takes its quick road.
        padded: torch.Tensor | None = mask.repeat_interleave(n, 0) if int(mask.min()) == 0 else None

        rows = [_Row() for _ in range(len(prompts) * n)]
        live = list(range(len(rows)))
        draw = _drawer(settings, generator)
        tail = tail_tokens(settings.stop)
        eos = torch.tensor(self.eos_token_ids, device=device)
        for step in range(settings.max_tokens):
            if step < settings.min_tokens:
                logits[:, eos] = -torch.inf
            tokens, logps = draw(logits.float())
            for row, token, logp in zip(live, tokens.tolist(), logps.tolist(), strict=True):
                rows[row].ids.append(token)
                rows[row].logps.append(logp)
            going = self._going(rows, live, settings, tail, step)
            if not going or step + 1 == settings.max_tokens:
                break
            if len(going) < len(live):
                keep = torch.tensor(going, device=device)
                live = [live[i] for i in going]
                cache.batch_select_indices(keep)
                tokens, lengths = tokens[keep], lengths[keep]
                padded = None if padded is None else padded[keep]
            if padded is not None:
                padded = torch.cat([padded, padded.new_ones(len(live), 1)], -1)
            out = model(
                input_ids=tokens[:, None],
                attention_mask=padded,
                position_ids=(lengths + step)[:, None],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            logits = out.logits[:, -1]
        return [self._rollout(row, settings) for row in rows]

    def _going(
        self, rows: list[_Row], live: list[int], settings: SamplingSettings, tail: int, step: int
    ) -> list[int]:
        """Positions in `live` of the completions that go on; marks the others as finished."""
        if settings.stop and step >= settings.min_tokens:
            tails = self.tokenizer.batch_decode([rows[r].ids[-tail:] for r in live], skip_special_tokens=True)
        else:
            tails = [""] * len(live)
        going = []
        for i, (row, text) in enumerate(zip(live, tails, strict=True)):
            if rows[row].ids[-1] in self.eos_token_ids or any(s in text for s in settings.stop):
                rows[row].finished = True
            else:
                going.append(i)
        return going

    def _rollout(self, row: _Row, settings: SamplingSettings) -> Rollout:
        text = self.tokenizer.decode(row.ids, skip_special_tokens=True)
        if row.finished:
            text, _ = cut_after_stop(text, settings.stop)
        return Rollout(text, tuple(row.ids), tuple(row.logps), "stop" if row.finished else "length")

    @torch.no_grad()
    def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """See `Sampler.score`."""
        return [
            logps.gather(-1, ids[:, None]).squeeze(-1).tolist()
            for logps, ids in self._distributions(prompts, completions)
        ]

    @torch.no_grad()
    def entropies(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """Exact entropies (nats, temperature 1) of the distribution that each completion token stands in."""
        return [
            (-(logps.exp() * logps).nan_to_num(0.0).sum(-1)).tolist()
            for logps, _ in self._distributions(prompts, completions)
        ]

    def _distributions(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """(log-probabilities [tokens, vocabulary], token ids [tokens]) of each completion."""
        with self._open_model() as model, _eval_mode(model):
            for prompt, completion in zip(prompts, completions, strict=True):
                ids = torch.tensor([[*prompt, *completion]], device=model.device)
                logits = model(input_ids=ids, logits_to_keep=len(completion) + 1).logits[0, :-1].float()
                yield logits.log_softmax(-1), ids[0, len(prompt) :]

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy weights into the module; the trainer never needs this, since it shares the module."""
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in named_tensors:
                if name not in own:
                    raise EngineError(f"load_weights got {name!r}, which the model does not have.")
                own[name].copy_(tensor)
        self.weights_version += 1

    def close(self) -> None:
        """Nothing is held beyond the module."""


class _Row:
    """A completion being written."""

    __slots__ = ("finished", "ids", "logps")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.logps: list[float] = []
        self.finished = False


def _drawer(settings: SamplingSettings, generator: torch.Generator) -> Callable:
    """Build the function logits [rows, vocabulary] -> (tokens [rows], log-probabilities [rows])."""

    def greedy(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best = logits.log_softmax(-1).max(-1)
        return best.indices, best.values

    if settings.temperature == 0:
        return greedy

    warpers = LogitsProcessorList([TemperatureLogitsWarper(settings.temperature)])
    # vLLM's order, so that combinations mean the same on both engines
    if settings.min_p > 0:
        warpers.append(MinPLogitsWarper(settings.min_p))
    if settings.top_k > 0:
        warpers.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1:
        warpers.append(TopPLogitsWarper(settings.top_p))

    def sample(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logp = warpers(None, logits).log_softmax(-1)
        # Gumbel-max draws from softmax(logp); one exponential variate a token is quicker than multinomial
        noise = torch.empty_like(logp).exponential_(generator=generator)
        tokens = (logp.exp() / noise).argmax(-1)
        return tokens, logp.gather(-1, tokens[:, None]).squeeze(-1)

    return sample


@contextmanager
def _eval_mode(model: Any):  # type: ignore[no-untyped-def]
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _check_room(model: Any, prompts: Sequence[Sequence[int]], settings: SamplingSettings) -> None:
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max((len(p) for p in prompts), default=0)
    if any(len(p) == 0 for p in prompts):
        raise EngineError("A prompt has no tokens; every prompt needs at least one.")
    if context and longest + settings.max_tokens > context:
        raise EngineError(
            f"The longest prompt has {longest} tokens and sampling.max_tokens is {settings.max_tokens}: "
            f"together more than the model's context of {context}. Lower sampling.max_tokens to at most "
            f"{max(context - longest, 0)}, or add the filter prompt_length."
        )


def _fresh_seed() -> int:
    # from torch's global generator, which the trainer seeds and checkpoints
    return int(torch.randint(0, 2**62, (1,)).item())
