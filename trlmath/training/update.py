"""TRL's GRPO update, cut by tokens: the half of the trainer that knows rows and lengths, not rewards.

The forwards of the loss, of the old policy and of the reference are cut alike: none is wider than the
budget, but for a single longer row. Where the model allows it, rows that share a prompt share its
computation (`shared_prompts`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import Trainer
from trl import GRPOTrainer

from trlmath.training import metrics, microbatches, shared_prompts
from trlmath.training.accumulating import micro_batch_of_step
from trlmath.training.metrics import Mean
from trlmath.training.microbatches import MicroBatch
from trlmath.training.optimizer_clock import OptimizerClock
from trlmath.training.ragged import ragged_gather


class CutUpdate(GRPOTrainer):
    """`GRPOTrainer` whose optimizer step takes one batch and cuts it itself.

    Attributes:
        microbatch_tokens: most tokens of a forward on one process, padding included; None: no cut.
        padded_because: why rows of one prompt do not share it; None when they do.
        seconds: of the step under way, by phase.
    """

    microbatch_tokens: int | None = None
    padded_because: str | None = "not prepared"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seconds: dict[str, float] = {}
        self._entropy_threshold: torch.Tensor | None = None
        self._scoring = "reference"
        self._scored: torch.Tensor | None = None  # rows the old policy is asked about; None: all
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = True  # losses are scaled here, once, not by the accumulation count
        for model in (self.model, self.ref_model):
            if model is not None:
                bare = self.accelerator.unwrap_model(model)
                bare = bare.get_base_model() if hasattr(bare, "get_base_model") else bare
                self.padded_because = shared_prompts.install(bare)
        self.add_callback(OptimizerClock(self.spent, self._log_seconds))

    # -- one optimizer step ------------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if isinstance(generation_batch, MicroBatch):
            return generation_batch
        return super()._prepare_inputs(generation_batch)

    def training_step(
        self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """One optimizer step's rollouts in, gradients out; returns the loss of the uncut batch."""
        model.train()
        batch = self._prepare_inputs(inputs)  # generates when it is time to
        started = time.perf_counter()
        parts = self._cut(batch)
        if self.top_entropy_quantile < 1.0:
            self._entropy_threshold = self._entropy_quantile(model, parts)
        logged = self._metrics["train"]
        before = {name: len(values) for name, values in logged.items()}
        loss = torch.zeros((), device=self.accelerator.device)
        for i, part in enumerate(parts):
            last = i + 1 == len(parts)
            with micro_batch_of_step(self.accelerator, model, last):
                # transformers' own step: forward, loss, backward (TRL's would count a step for each part)
                loss += Trainer.training_step(self, model, part, num_items_in_batch)
        self._entropy_threshold = None
        metrics.collapse(logged, before, *self._weights_of(batch, parts))
        if self._entropy_bonus_enabled:
            logged["entropy_coef"][-1] = self.entropy_coef  # not the last micro-batch's share of it
        self._step += 1
        logged["microbatches"].append(len(parts))
        self.spent("update", started)
        return loss

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """TRL's loss, times what this micro-batch counts for."""
        weight = inputs.weight if isinstance(inputs, MicroBatch) else 1.0
        with ragged_gather(self.accelerator, weight), self._terms_beside(inputs):
            loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return loss * weight

    @contextmanager
    def _terms_beside(self, inputs: Any) -> Iterator[None]:
        # The entropy bonus and the experts' balance are means over tokens whatever the loss type: they
        # count for the micro-batch's share of the tokens, not for the weight of the policy's loss.
        if not isinstance(inputs, MicroBatch) or inputs.weight == 0:
            yield
            return
        factor = inputs.token_share / inputs.weight
        names = ["entropy_coef", *(["router_aux_loss_coef"] if self.aux_loss_enabled else [])]
        own = {name: getattr(self, name) for name in names}
        for name, coefficient in own.items():
            setattr(self, name, coefficient * factor)
        try:
            yield
        finally:
            for name, coefficient in own.items():
                setattr(self, name, coefficient)

    def _weights_of(
        self, batch: dict[str, Any], parts: list[MicroBatch]
    ) -> tuple[list[float], dict[str, Mean]]:
        """Tokens of each micro-batch over all processes, and how those numbers are averaged that TRL takes
        otherwise than as a mean over tokens.

        A row that is not computed for want of an advantage cannot meet the clip: it counts there, as in TRL.
        """
        mask = batch["completion_mask"]
        mask = mask * batch["tool_mask"] if "tool_mask" in batch else mask
        kept = int(batch["kept"].sum()) if "kept" in batch else len(mask)
        counts = [p.tokens for p in parts] + [len(p["completion_ids"]) for p in parts]
        told = torch.tensor([*counts, int(mask.sum()), kept], device=self.accelerator.device)
        *every, all_tokens, all_rows = self.accelerator.reduce(told, "sum").tolist()
        tokens, rows = every[: len(parts)], every[len(parts) :]
        by_row = self.importance_sampling_level == "sequence"
        clipped = Mean(rows, all_rows) if by_row else Mean(tokens, all_tokens)
        return tokens, {
            "clip_ratio": clipped,
            "cispo_clip_ratio": clipped,
            "vespo": Mean([r if t else 0 for r, t in zip(rows, tokens, strict=True)]),
            "policy_loss": Mean([1.0] * len(parts), 1.0),  # they are weighed already, and add up
        }

    def _log_seconds(self) -> None:
        logged = self._metrics["train"]
        for phase, seconds in self.seconds.items():
            logged[f"time/{phase}"].append(seconds)
        logged["step_time"].append(sum(self.seconds.values()))
        self.seconds = {}

    # -- cutting -----------------------------------------------------------------------------------

    def _cut(self, batch: dict[str, Any]) -> list[MicroBatch]:
        """Micro-batches of one step, equally many on every process, weighed to be the uncut batch."""
        prompts, completions = (lengths.tolist() for lengths in microbatches.row_lengths(batch))
        keys = shared_prompts.prompt_keys(batch["prompt_ids"], batch["prompt_mask"])
        kept = batch["kept"].tolist() if "kept" in batch else [True] * len(keys)
        rows = [i for i, length in enumerate(completions) if length and kept[i] and self._has_work(batch, i)]
        chosen = self._plan(
            [keys[i] for i in rows], [prompts[i] for i in rows], [completions[i] for i in rows]
        )
        parts = [microbatches.take(batch, [rows[i] for i in chunk]) for chunk in chosen]
        # what is not computed still counts in the means: the update is that of all rows that were kept
        tokens = int(batch["completion_mask"].sum())
        counts = torch.tensor([len(parts), sum(kept), tokens, len(rows)], device=self.accelerator.device)
        every = self.accelerator.gather(counts).view(-1, 4).float()
        most, _, _, _ = every.amax(0).tolist()
        _, mean_rows, mean_tokens, worked = every.mean(0).tolist()
        self._metrics["train"]["rows_with_advantage"].append(worked / max(mean_rows, 1.0))
        # the loss calls collectives, so every rank makes equally many calls
        parts += [microbatches.empty(batch) for _ in range(max(int(most), 1) - len(parts))]
        return [
            p if p.tokens == 0 else microbatches.weigh(p, self.loss_type, mean_rows, mean_tokens)
            for p in parts
        ]

    def _plan(self, keys: list[int], prompts: list[int], completions: list[int]) -> list[list[int]]:
        if self.padded_because is None:
            return microbatches.plan_shared(keys, prompts, completions, self.microbatch_tokens)
        return microbatches.plan(prompts, completions, self.microbatch_tokens)

    def _has_work(self, batch: dict[str, Any], row: int) -> bool:
        """Whether the row's loss has a gradient; without an advantage only terms beside the policy's have."""
        return self._terms_of_all() or bool((batch["advantages"][row] != 0).any())

    def _terms_of_all(self) -> bool:
        beside = self.beta != 0.0 or self._entropy_bonus_enabled or self.aux_loss_enabled
        # the quantile of high-entropy tokens is taken over all rows
        return beside or self.top_entropy_quantile < 1.0

    def to_score(self, advantages: torch.Tensor, trained: torch.Tensor) -> torch.Tensor | None:
        """Which rows [rows] of all processes the update reads the old policy of; None: every one."""
        needed = trained if self._terms_of_all() else trained & (advantages != 0)
        return None if bool(needed.all()) else needed

    # -- log-probabilities -------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        # TRL scores the old policy first, where it needs it at all, then the reference
        several = self.args.gradient_accumulation_steps % (
            self.args.steps_per_generation * self.num_iterations
        )
        corrected = self.use_vllm and self.vllm_importance_sampling_correction
        self._scoring = "old_logprobs" if several or corrected else "reference"
        return super()._generate_and_score_completions(inputs)

    def _old_logps(self, width: int) -> torch.Tensor | None:
        """The old policy's log-probabilities [rows, width] where they are known; None: compute them."""
        return None

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **images: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's, never wider than the budget: what is not a micro-batch already is cut into some."""
        if compute_aux_loss or any(value is not None for value in images.values()):
            return super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size,
                compute_entropy,
                compute_aux_loss,
                **images,
            )
        if batch_size is None:  # the loss of one micro-batch
            return *self._forward(model, input_ids, attention_mask, logits_to_keep, compute_entropy), None
        started = time.perf_counter()
        phase, self._scoring = self._scoring, "reference"
        known = self._old_logps(logits_to_keep) if phase == "old_logprobs" else None
        if known is not None:
            return known, None, None
        width = input_ids.size(1) - logits_to_keep
        rows = {
            "prompt_ids": input_ids[:, :width],
            "prompt_mask": attention_mask[:, :width],
            "completion_ids": input_ids[:, width:],
            "completion_mask": attention_mask[:, width:],
        }
        prompts, completions = (lengths.tolist() for lengths in microbatches.row_lengths(rows))
        keys = shared_prompts.prompt_keys(rows["prompt_ids"], rows["prompt_mask"])
        every = list(range(len(keys)))
        logps = torch.zeros(input_ids.size(0), logits_to_keep, device=input_ids.device)
        if phase == "old_logprobs" and self._scored is not None:
            every = self._scored.nonzero().flatten().tolist()
            logps[~self._scored] = float("nan")  # unknown: TRL corrects nothing there (see old_policy.py)
        chosen = self._plan(*([of[i] for i in every] for of in (keys, prompts, completions)))
        chosen = [[every[i] for i in chunk] for chunk in chosen]
        # sharded models gather weights in each forward, so every rank makes equally many
        most = int(self.accelerator.gather(torch.tensor([len(chosen)], device=input_ids.device)).max())
        spare = chosen[-1][:1] if chosen else [0]
        chosen += [spare] * (most - len(chosen))
        entropies = torch.zeros_like(logps) if compute_entropy else None
        for chunk in chosen:
            part = microbatches.take(rows, chunk)
            keep = part["completion_ids"].size(1)
            found, entropy = self._forward(
                model, *microbatches.joined(part), logits_to_keep=keep, entropy=compute_entropy
            )
            logps[chunk, :keep] = found.to(logps)
            if entropies is not None and entropy is not None:
                entropies[chunk, :keep] = entropy.to(logps)
        self.spent(phase, started)
        return logps, entropies, None

    def _forward(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        entropy: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probabilities and entropies of one micro-batch: prompts shared, or TRL's padded rows."""
        if self.padded_because is not None:
            logps, entropies, _ = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, compute_entropy=entropy
            )
            return logps, entropies
        width = input_ids.size(1) - logits_to_keep
        prompt_mask, mask = attention_mask[:, :width], attention_mask[:, width:]
        prompts, completions = microbatches.row_lengths({"prompt_mask": prompt_mask, "completion_mask": mask})
        packed = shared_prompts.pack(
            shared_prompts.prompt_keys(input_ids[:, :width], prompt_mask),
            prompts.tolist(),
            completions.tolist(),
            width,
            input_ids.device,
        )
        with self.accelerator.autocast():
            return shared_prompts.score_packed(model, packed, input_ids, logits_to_keep, entropy)

    # -- high-entropy tokens -----------------------------------------------------------------------

    @torch.no_grad()
    def _entropy_quantile(self, model: Any, parts: list[MicroBatch]) -> torch.Tensor:
        """The entropy above which tokens count, over the tokens of the whole step on all processes."""
        found = []
        for part in parts:
            ids, mask = microbatches.joined(part)
            _, entropy = self._forward(model, ids, mask, part["completion_ids"].size(1), entropy=True)
            assert entropy is not None
            found.append(entropy[part["completion_mask"].bool()].float())
        padded = self.accelerator.pad_across_processes(torch.cat(found), dim=0, pad_index=-1.0)
        every = self.accelerator.gather(padded)
        every = every[every >= 0]
        return torch.quantile(every, 1 - self.top_entropy_quantile) if every.numel() else every.new_zeros(())

    def get_high_entropy_mask(
        self, entropies: torch.Tensor, mask: torch.Tensor, threshold: float
    ) -> torch.Tensor:
        """TRL's, with the threshold of the whole step instead of this micro-batch's own."""
        if self._entropy_threshold is None:
            return super().get_high_entropy_mask(entropies, mask, threshold)
        return (entropies * mask >= self._entropy_threshold) & mask.bool()

    def spent(self, phase: str, started: float) -> None:
        """Add the time since `started` to what `phase` took in this step."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started
