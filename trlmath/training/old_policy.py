"""Rows that the old policy is not asked about: nothing of the loss needs their log-probabilities."""

from __future__ import annotations

from typing import Any

import torch


def settle(output: dict[str, Any], scored: torch.Tensor, logged: dict[str, list[Any]], gather: Any) -> None:
    """Finish a generation batch in which only some rows were scored.

    TRL leaves tokens without a log-probability (NaN) out of its correction. Here they become plain numbers,
    since not even a masked token may meet the loss as NaN, and what TRL logs of the correction is of scored
    rows alone.

    Args:
        output: TRL's generation batch of this process, changed in place.
        scored: [rows], whether a row was scored.
        logged: the trainer's metrics; the last value of each of TRL's ``sampling/`` is replaced.
        gather: the accelerator's, called alike on every process.
    """
    old = output["old_per_token_logps"].masked_fill(~scored.unsqueeze(1), 0.0)
    output["old_per_token_logps"] = old
    ratio = output.get("importance_sampling_ratio")
    if ratio is None:
        return
    mask = output["completion_mask"].bool() & scored.unsqueeze(1)
    difference = (old - output["sampling_per_token_logps"]).abs()[mask]
    ratios = ratio[mask] if ratio.shape == mask.shape else ratio[scored].flatten()
    found = {
        "sampling_logp_difference/mean": difference.nanmean(),
        "sampling_logp_difference/max": _extreme(difference, "max"),
        "importance_sampling_ratio/min": _extreme(ratios, "min"),
        "importance_sampling_ratio/mean": ratios.nanmean(),
        "importance_sampling_ratio/max": _extreme(ratios, "max"),
    }
    every = gather(torch.stack(list(found.values()))).view(-1, len(found))
    for name, values in zip(found, every.unbind(1), strict=True):
        how = name.rpartition("/")[2]
        value = values.nanmean() if how == "mean" else _extreme(values, how)
        logged[f"sampling/{name}"][-1] = value.item()


def _extreme(values: torch.Tensor, how: str) -> torch.Tensor:
    """The smallest or largest of the values that are numbers; NaN where none is."""
    values = values[~values.isnan()]
    return getattr(values, how)() if values.numel() else values.new_tensor(float("nan"))
