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
from trlmath.sampling.room import check_pairs, check_room, model_context, smaller
from trlmath.sampling.settings import SamplingSettings
from trlmath.sampling.stopping import cut_after_stop, tail_tokens, whole
from trlmath.types import Group, Rollout

# of one forward that scores: numbers [tokens, vocabulary] (512 MiB of them), and tokens read
MOST_LOGITS = 1 << 27
MOST_TOKENS = 1 << 14


class TransformersSampler:
    """Samples from a transformers module in this process.

    Args:
        model: a causal language model; unwrapped (no DDP around it).
        tokenizer: its tokenizer.
        eos_token_ids: tokens that end a completion; default: the tokenizer's.
        open_model: context manager that yields the module to use, for sharded models that must be
            gathered first; default: `model` itself.
        max_rows: completions decoded at once.
        context: tokens a prompt and its completion may take together; default: the model's own.
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
        context: int | None = None,
    ) -> None:
        self.model, self.tokenizer, self.max_rows = model, tokenizer, max_rows
        self.eos_token_ids = list(eos_token_ids or [tokenizer.eos_token_id])
        self.weights_version = 0
        self.context = smaller(context, model_context(model.config))
        self._open_model = open_model or self._own_model

    @contextmanager
    def _own_model(self):  # type: ignore[no-untyped-def]
        yield self.model

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[Sequence[int]], settings: SamplingSettings, n: int = 1
    ) -> list[Group]:
        """See `Sampler.generate`."""
        check_room(prompts, settings, self.context)
        groups: list[Group] = []
        at_once = max(1, self.max_rows // n)
        with self._open_model() as model, _eval_mode(model):
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
        cache, logits = read_prompts(model, ids, mask, n)
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
        going = []
        stopped = self._stopped(rows, live, settings, tail) if step >= settings.min_tokens else set()
        for i, row in enumerate(live):
            if row in stopped or rows[row].ids[-1] in self.eos_token_ids:
                rows[row].finished = True
            else:
                going.append(i)
        return going

    def _stopped(self, rows: list[_Row], live: list[int], settings: SamplingSettings, tail: int) -> set[int]:
        """The rows whose last token has completed a stop string."""
        if not settings.stop:
            return set()
        written = len(rows[live[0]].ids)
        start, floor = max(0, written - tail), settings.min_tokens
        tails = self._texts([rows[r].ids[start:] for r in live])
        # what is read again of the first min_tokens tokens ends nothing
        held = self._texts([rows[r].ids[start:floor] for r in live]) if start < floor else [""] * len(live)
        return {
            row
            for row, text, before in zip(live, tails, held, strict=True)
            if cut_after_stop(whole(text), settings.stop, len(whole(before)))[1]
        }

    def _texts(self, ids: list[list[int]]) -> list[str]:
        return self.tokenizer.batch_decode(ids, skip_special_tokens=True)

    def _rollout(self, row: _Row, settings: SamplingSettings) -> Rollout:
        floor = settings.min_tokens
        text, held = map(whole, self._texts([row.ids, row.ids[:floor]]))
        if row.finished:
            text, _ = cut_after_stop(text, settings.stop, len(held))
        return Rollout(text, tuple(row.ids), tuple(row.logps), "stop" if row.finished else "length")

    @torch.no_grad()
    def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """See `Sampler.score`."""
        check_pairs(prompts, completions, self.context)
        scores: list[list[float]] = [[] for _ in prompts]
        for i, logps, ids in self._distributions(prompts, completions):
            scores[i] = _of_tokens(logps, ids)
        return scores

    @torch.no_grad()
    def score_with_entropies(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> tuple[list[list[float]], list[list[float]]]:
        """As `score`, and from the same forwards the entropy that each completion token stands in.

        Entropies are exact, in nats, of the distribution at temperature 1.
        """
        check_pairs(prompts, completions, self.context)
        scores: list[list[float]] = [[] for _ in prompts]
        entropies: list[list[float]] = [[] for _ in prompts]
        for i, logps, ids in self._distributions(prompts, completions):
            scores[i] = _of_tokens(logps, ids)
            entropies[i] = (-(logps.exp() * logps).nan_to_num(0.0).sum(-1)).tolist()
        return scores, entropies

    def _distributions(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """(number, log-probabilities [tokens, vocabulary], token ids [tokens]) of each pair, longest first.

        Padding is on the right, where no token sees it, and so no mask is needed.
        """
        with self._open_model() as model, _eval_mode(model):
            vocabulary = model.config.get_text_config().vocab_size
            for numbers in _batches(prompts, completions, vocabulary, self.max_rows):
                rows = [[*prompts[i], *completions[i]] for i in numbers]
                width = len(rows[0])
                start = min(len(prompts[i]) for i in numbers) - 1
                ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=model.device)
                logits = model(input_ids=ids, logits_to_keep=width - start).logits
                for place, i in enumerate(numbers):
                    first, count = len(prompts[i]), len(completions[i])
                    kept = logits[place, first - 1 - start : first - 1 - start + count]
                    yield i, kept.float().log_softmax(-1), ids[place, first : first + count]

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


def read_prompts(model: Any, ids: torch.Tensor, mask: torch.Tensor, n: int) -> tuple[Any, torch.Tensor]:
    """Read prompts [rows, width], padded on the left.

    Returns:
        (the cache for `n` completions of each, logits [rows x n, vocabulary] of their first token).
    """
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
    return cache, out.logits[:, -1].repeat_interleave(n, 0)


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


def _of_tokens(logps: torch.Tensor, ids: torch.Tensor) -> list[float]:
    return logps.gather(-1, ids[:, None]).squeeze(-1).tolist()


def _batches(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], vocabulary: int, most_rows: int
) -> Iterator[list[int]]:
    """Numbers of the pairs that are read together, the longest first, so that little is padding."""
    length = [len(p) + len(c) for p, c in zip(prompts, completions, strict=True)]
    batch: list[int] = []
    for i in sorted(range(len(length)), key=lambda i: (-length[i], -len(prompts[i]))):
        if batch:
            width, rows = length[batch[0]], len(batch) + 1
            kept = width - min(len(prompts[j]) for j in (*batch, i)) + 1
            logits = rows * kept * vocabulary
            if rows > most_rows or rows * width > MOST_TOKENS or logits > MOST_LOGITS:
                yield batch
                batch = []
        batch.append(i)
    if batch:
        yield batch


def _fresh_seed() -> int:
    # from torch's global generator, which the trainer seeds and checkpoints
    return int(torch.randint(0, 2**62, (1,)).item())
