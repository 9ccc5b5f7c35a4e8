"""The Sampler protocol: what trainers and evaluation ask of a generation engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from trlmath.sampling.settings import SamplingSettings
from trlmath.types import Group

if TYPE_CHECKING:
    import torch

TokenIds = Sequence[int]


class Sampler(Protocol):
    """A policy one can sample from and score with.

    Attributes:
        name: the engine, ``transformers`` or ``vllm``.
        weights_version: grows by one with every `load_weights`; 0 are the weights it was built with.
        shares_weights: True when the engine runs the trainer's own module, so that nothing needs loading.
        context: tokens that a prompt and its completion may take together; None: not known.
    """

    name: str
    weights_version: int
    shares_weights: bool
    context: int | None

    def generate(self, prompts: Sequence[TokenIds], settings: SamplingSettings, n: int = 1) -> list[Group]:
        """Draw `n` completions for each prompt (token ids); groups come back in the prompts' order.

        Raises:
            EngineError: when the engine fails, ends a completion by anything but its end or its length, or a
                prompt leaves no room for `max_tokens`.
        """
        ...

    def score(self, prompts: Sequence[TokenIds], completions: Sequence[TokenIds]) -> list[list[float]]:
        """Return log-probabilities (nats, temperature 1) of each completion token, one list a pair.

        Raises:
            EngineError: when the engine fails, there is not one completion a prompt, or a pair is longer than
                the context.
        """
        ...

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Replace the weights by `named_tensors` (Hugging Face parameter names)."""
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...
