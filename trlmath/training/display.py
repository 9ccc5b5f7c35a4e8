"""The names under which a run directory keeps what TRL and transformers log."""

from __future__ import annotations

from collections.abc import Mapping

from trlmath.evaluation.display import Display, Silent

__all__ = ["Display", "Silent", "grouped"]


def grouped(logs: Mapping[str, float]) -> dict[str, float]:
    """TRL's and transformers' metric names as the run directory's groups.

    ``reward`` becomes ``train/reward``, ``sampling/...`` becomes ``engine/...``; our own groups stay.
    """
    own = ("train/", "eval/", "eval_greedy/", "engine/", "time/", "memory/")
    renamed = {}
    for name, value in logs.items():
        # a plugin's part may be named by half a character, which no tracker can write
        name = name.encode("utf-8", "backslashreplace").decode()
        if name.startswith(own):
            renamed[name] = value
        elif name.startswith("sampling/"):
            renamed["engine/" + name.removeprefix("sampling/")] = value
        elif name == "step_time":
            renamed["time/step"] = value
        elif name not in ("epoch", "total_flos"):
            renamed[f"train/{name}"] = value
    return renamed
