"""The methods of TRL that are overridden still look as they did when they were."""

from __future__ import annotations

import inspect

import pytest
import trl
from transformers import Trainer
from trl import GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration

PINNED = {
    (GRPOTrainer, "_generate"): "(self, prompts: list)",
    (GRPOTrainer, "_calculate_rewards"): "(self, inputs, prompts, completions, completion_ids_list)",
    (GRPOTrainer, "_generate_and_score_completions"): (
        "(self, inputs: list[dict[str, torch.Tensor | typing.Any]]) -> dict[str, torch.Tensor | typing.Any]"
    ),
    (GRPOTrainer, "_prepare_inputs"): (
        "(self, generation_batch: dict[str, torch.Tensor | typing.Any]) "
        "-> dict[str, torch.Tensor | typing.Any]"
    ),
    (GRPOTrainer, "training_step"): "(self, model, inputs, num_items_in_batch)",
    (GRPOTrainer, "compute_loss"): "(self, model, inputs, return_outputs=False, num_items_in_batch=None)",
    (Trainer, "training_step"): (
        "(self, model: torch.nn.modules.module.Module, inputs: dict[str, torch.Tensor | typing.Any], "
        "num_items_in_batch: torch.Tensor | int | None = None) -> torch.Tensor"
    ),
    (VLLMGeneration, "_iter_named_params"): "(self)",
    (VLLMGeneration, "sync_weights"): "(self)",
}


@pytest.mark.parametrize(("owner", "name"), PINNED, ids=lambda value: getattr(value, "__name__", value))
def test_overridden_methods_have_the_signature_they_were_written_for(owner, name):
    method = getattr(owner, name, None)
    assert method is not None, f"TRL {trl.__version__} has no {owner.__name__}.{name}: trlmath overrides it"
    found = str(inspect.signature(inspect.unwrap(method)))
    assert found == PINNED[owner, name], (
        f"TRL {trl.__version__} moved {owner.__name__}.{name}: it is {found}; trlmath/training/grpo.py was "
        f"written for {PINNED[owner, name]} (TRL 1.16). Read what changed before changing this line."
    )
