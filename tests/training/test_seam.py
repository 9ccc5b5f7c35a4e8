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
    (GRPOTrainer, "_get_per_token_logps_and_entropies"): (
        "(self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, compute_entropy=False, "
        "compute_aux_loss=False, pixel_values=None, image_grid_thw=None, num_images=None, "
        "pixel_attention_mask=None, spatial_shapes=None, num_tiles=None, image_sizes=None, "
        "token_type_ids=None, mm_token_type_ids=None, image_position_ids=None) "
        "-> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]"
    ),
    (GRPOTrainer, "get_high_entropy_mask"): (
        "(self, entropies: torch.Tensor, mask: torch.Tensor, threshold: float) -> torch.Tensor"
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
