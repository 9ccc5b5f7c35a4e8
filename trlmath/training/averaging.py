"""Weight averaging: what is evaluated and saved is the mean over steps, what is trained is not touched."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel
from transformers import TrainerCallback

from trlmath.recipe.schema import AveragingSection

NOT_AVERAGED = "averaging: of {steps} steps none counted (averaging.every={every}): the last weights stay"


class WeightAverage(TrainerCallback):
    """The average of a model's trained parameters, in float32, taken as training goes.

    ``ema``: after t updates, the mean of the weights seen, each ``decay`` times what the next one counts
    (torch's `AveragedModel`, started without the initial weights: those of step one are not held on to).
    ``last``: the plain mean of the last few (Izmailov et al. 2018, "Averaging Weights Leads to Wider Optima
    and Better Generalization"), kept in main memory.

    Args:
        section: the recipe's.
    """

    def __init__(self, section: AveragingSection) -> None:
        self.section = section
        self._average: AveragedModel | None = None
        self._snapshots: deque[list[torch.Tensor]] = deque(maxlen=section.last)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Take the new weights into the average when it is time to."""
        if state.global_step % self.section.every == 0:
            self.update(model)

    @torch.no_grad()
    def update(self, model: torch.nn.Module) -> None:
        """Take the weights as they are into the average."""
        trained = _trained(model)
        if self.section.kind == "last":
            self._snapshots.append([p.detach().to("cpu", torch.float32, copy=True) for p in trained])
            return
        # in float32: in bfloat16 a thousandth of a difference rounds to nothing
        held = torch.nn.ParameterList(
            [torch.nn.Parameter(p.detach().float(), requires_grad=False) for p in trained]
        )
        if self._average is None:
            self._average = AveragedModel(held, avg_fn=self._ema)
        self._average.update_parameters(held)

    def _ema(self, average: torch.Tensor, new: torch.Tensor, seen: torch.Tensor | int) -> torch.Tensor:
        decay = self.section.decay
        return average.lerp(new, (1 - decay) / (1 - decay ** (int(seen) + 1)))

    @property
    def empty(self) -> bool:
        """Whether no weights have counted yet."""
        return self._average is None and not self._snapshots

    @torch.no_grad()
    def keep(self, model: torch.nn.Module) -> None:
        """Put the average into the model for good."""
        values = self._values()
        for parameter, value in zip(_trained(model), values, strict=True) if values else ():
            parameter.copy_(value)

    @contextmanager
    def applied(self, model: torch.nn.Module) -> Iterator[None]:
        """Within, the model has the averaged weights (its own, where there is no average yet)."""
        own = [p.detach().clone() for p in _trained(model)]
        self.keep(model)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, value in zip(_trained(model), own, strict=True):
                    parameter.copy_(value)

    def state_dict(self) -> dict[str, Any]:
        """What goes on from a checkpoint: tensors on the CPU."""
        average = self._average
        return {
            "snapshots": list(self._snapshots),
            "seen": int(average.n_averaged) if average else 0,
            "average": [p.detach().cpu() for p in average.module.parameters()] if average else [],
        }

    def load_state_dict(self, state: dict[str, Any], model: torch.nn.Module) -> None:
        """Go on from `state`, averaging the weights of `model`."""
        self._snapshots.clear()
        self._snapshots.extend(state["snapshots"])
        self._average = None
        if state["average"]:
            pairs = zip(state["average"], _trained(model), strict=True)
            held = [torch.nn.Parameter(value.to(p.device), requires_grad=False) for value, p in pairs]
            self._average = AveragedModel(torch.nn.ParameterList(held), avg_fn=self._ema)
            self._average.n_averaged.fill_(state["seen"])

    def _values(self) -> list[torch.Tensor]:
        if self._snapshots:
            return [torch.stack(several).mean(0) for several in zip(*self._snapshots, strict=True)]
        return list(self._average.module.parameters()) if self._average else []


def _trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]
