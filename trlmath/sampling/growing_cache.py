"""A key-value cache that grows in place.

transformers' DynamicCache copies the whole cache at each token; for small models on a CPU this copy
costs more than the model. This layer doubles its room instead and writes the new token into it.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer, [batch, heads, length, head size], with spare room behind `length`."""

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Start empty, with the dtype and device of the first states."""
        super().lazy_initialization(key_states, value_states)
        self._room_k, self._room_v = key_states[..., :0, :], value_states[..., :0, :]
        self._length = 0

    def update(self, key_states, value_states, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Append the new states and return views of all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self._length + key_states.shape[-2]
        if end > self._room_k.shape[-2]:
            room = max(end + 16, int(end * 1.5))
            self._room_k = _with_room(self._room_k, key_states, self._length, room)
            self._room_v = _with_room(self._room_v, value_states, self._length, room)
        self._room_k[..., self._length : end, :] = key_states
        self._room_v[..., self._length : end, :] = value_states
        self._length = end
        self.keys, self.values = self._room_k[..., :end, :], self._room_v[..., :end, :]
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row `repeats` times (one prompt, many completions)."""
        super().batch_repeat_interleave(repeats)
        self._room_k, self._room_v = self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep only the rows `indices` (completions that are not finished)."""
        super().batch_select_indices(indices)
        self._room_k, self._room_v = self.keys, self.values


def _with_room(old: torch.Tensor, like: torch.Tensor, length: int, room: int) -> torch.Tensor:
    new = like.new_empty((*like.shape[:-2], room, like.shape[-1]))
    if length:
        new[..., :length, :] = old[..., :length, :]
    return new


def make_cache(config) -> Cache:  # type: ignore[no-untyped-def]
    """A growing cache where every layer attends to everything, else transformers' own dynamic one."""
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ["full_attention"])
    if kinds == {"full_attention"}:
        return Cache(layer_class_to_replicate=GrowingLayer)
    return DynamicCache(config=config)
