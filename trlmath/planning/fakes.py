"""A micro-batch's memory by running the real update on fake tensors: shapes only, nothing is computed.

Every tensor that the forward, the loss's head and the backward make is counted while it lives, recomputed
and temporary ones included. Layers are alike: one and two of them are run, the rest is a straight line.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import trl.kernels.chunked_logprob as kernels
import trl.trainer.utils as trl_utils
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from trlmath.planning.shapes import Shape, build
from trlmath.training import shared_prompts

PAGE = 4096 // 4  # float32 numbers of a page of memory


@dataclass(frozen=True)
class Work:
    """One forward (and backward) of a process.

    Attributes:
        prompts: tokens of each row's prompt; for SFT 0.
        completions: tokens of each row behind its prompt.
        keys: equal numbers for rows of one prompt.
        how: ``shared`` (prompts shared, rows end to end), ``padded``, or ``flash`` (no mask at all).
        outputs: what the head computes.
        checkpointing: gradient checkpointing.
        autocast: computes in bfloat16 whatever the weights' dtype.
        gpu: the head's kernels are fused, and what is reserved is held.
    """

    prompts: tuple[int, ...]
    completions: tuple[int, ...]
    keys: tuple[int, ...]
    how: str
    outputs: tuple[str, ...]
    checkpointing: bool = False
    autocast: bool = False
    gpu: bool = False

    @property
    def tokens(self) -> int:
        """Of the forward, padding included."""
        if self.how == "shared":
            distinct = dict(zip(self.keys, self.prompts, strict=True))
            return sum(distinct.values()) + sum(self.completions)
        return len(self.keys) * (max(self.prompts) + max(self.completions))


class Counting(TorchDispatchMode):
    """Counts the bytes of all tensors that are made within, and the most that lived at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live, self.peak = 0, 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # what an operation is given is not made by it, also where it hands it on
        for given in tree_iter((args, kwargs)):
            if isinstance(given, torch.Tensor):
                self._known.setdefault(_address(given), weakref.ref(given.untyped_storage()))
        made = func(*args, **(kwargs or {}))
        for tensor in tree_iter(made):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor)
        return made

    def _count(self, tensor: torch.Tensor) -> None:
        storage, address = tensor.untyped_storage(), _address(tensor)
        known = self._known.get(address)
        if known is not None and known() is storage:
            return
        size = storage.nbytes()

        def freed(_: Any) -> None:
            self.live -= size

        self._known[address] = weakref.ref(storage, freed)
        self.live += size
        self.peak = max(self.peak, self.live)


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def activations(shape: Shape, work: Work, backward: bool = True) -> int:
    """Most bytes that a micro-batch's own tensors hold at once, beside weights and gradients."""
    one, two = (_peak(shape, work, layers, backward) for layers in (1, 2))
    return one + (two - one) * (shape.text.num_hidden_layers - 1)


def _peak(shape: Shape, work: Work, layers: int, backward: bool) -> int:
    config = deepcopy(shape.config)
    text = config.get_text_config()
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    model: Any = build(config, shape.lora, shape.dtype).train()
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    with _as_on(work.gpu, text.vocab_size), FakeTensorMode():
        _fill(model)
        if work.checkpointing:
            bare.gradient_checkpointing_enable({"use_reentrant": False})
        if work.how == "shared":
            shared_prompts.install(bare)
        trl_utils.add_fused_lm_head(bare, outputs=work.outputs)
        for parameter in model.parameters():
            if parameter.requires_grad and backward:
                parameter.grad = torch.zeros_like(parameter)
        with Counting() as counting, torch.set_grad_enabled(backward):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=work.autocast):
                loss = _forward(model, work)
            if backward:
                torch.autograd.backward(loss)
    return counting.peak


def _forward(model: nn.Module, work: Work) -> torch.Tensor:
    rows, prompt, completion = len(work.keys), max(work.prompts), max(work.completions)
    ids = torch.zeros(rows, prompt + completion, dtype=torch.long)
    if work.how == "shared":
        packed = shared_prompts.pack(work.keys, work.prompts, work.completions, prompt, ids.device)
        return shared_prompts.score_packed(model, packed, ids, completion)[0].sum()
    # given whole, as no fake tensor can say whether its values leave something to mask
    mask = None
    if work.how == "padded":
        mask = torch.ones(rows, 1, ids.size(1), ids.size(1), dtype=torch.bool)
    output: Any = model(input_ids=ids, attention_mask=mask, labels=ids, fused_lm_head=True)
    return output.log_probs.sum()


def _fill(model: nn.Module) -> None:
    """Put fake tensors of this machine's memory in the place of meta ones; what is tied stays tied."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, own in module._parameters.items():
            if own is None:
                continue
            fake = torch.empty(own.shape, dtype=own.dtype)
            made.setdefault(id(own), nn.Parameter(fake, requires_grad=own.requires_grad))
            module._parameters[name] = made[id(own)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


@contextmanager
def _as_on(gpu: bool, vocabulary: int) -> Iterator[None]:
    """TRL's head as on the device: a GPU has fused kernels; on a CPU only pages that are touched count."""
    if gpu:
        with (
            patch.object(kernels, "_forward_tile", _nothing),
            patch.object(kernels, "_backward_tile", _nothing),
        ):
            yield
        return
    whole: int = trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE
    touched = min(whole, -(-vocabulary // PAGE) * PAGE)
    with patch.object(trl_utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", touched):
        yield


def _nothing(*_: Any, **__: Any) -> None:
    """In the place of a kernel that works in place."""
