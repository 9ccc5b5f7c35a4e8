"""MathSFTTrainer: TRL's SFT on masked examples, each step cut into forwards by tokens.

Nothing of TRL is copied: its collator pads or packs, its loss is taken, with the whole step's supervised
tokens under the fraction line, so that the update does not depend on how a step was cut.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from accelerate.utils import send_to_device
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from trlmath.data.examples import Example
from trlmath.recipe.schema import BatchSection
from trlmath.training import metrics
from trlmath.training.accumulating import micro_batch_of_step
from trlmath.training.checkpointing import Checkpointed
from trlmath.training.optimizer_clock import OptimizerClock
from trlmath.training.packing import check_rows_apart
from trlmath.training.sft_batches import StepCollator, StepLoader, StepSampler, as_row

_PROBE = 64  # tokens of a row that packing is tried on


class MathSFTTrainer(Checkpointed, SFTTrainer):
    """TRL's `SFTTrainer` over `Example`s that are tokenised and masked already.

    One `training_step` is one optimizer step: ``batch.size`` examples over all processes, of which each
    trains its share in forwards of at most ``batch.microbatch_tokens``. The loss is the mean over the
    supervised tokens of the whole step. ``per_device_train_batch_size`` of `args` says nothing here.

    Args:
        examples: what is trained on; an epoch takes each once, in an order that ``args.seed`` decides.
        batch: the step's size, how it is cut, and whether rows are packed.
        args: TRL's arguments; those that `batch` owns are set here.
        others: as for `trl.SFTTrainer`.

    Raises:
        ValueError: there are no examples, or `args` accumulates gradients by itself.
        RecipeError: rows are to be packed, and the model would not keep them apart.
    """

    def __init__(
        self, *, examples: Sequence[Example], batch: BatchSection, model: Any, args: SFTConfig, **kwargs: Any
    ) -> None:
        if not examples:
            raise ValueError("there are no examples to train on")
        if args.gradient_accumulation_steps != 1:
            raise ValueError("gradient_accumulation_steps must be 1: batch.microbatch_tokens cuts a step")
        args.padding_free, args.packing, args.max_length = batch.packing, False, None
        args.average_tokens_across_devices = True
        args.dataset_kwargs = {"skip_prepare_dataset": True}
        self.examples, self.batch = list(examples), batch
        self._lengths = [len(e.prompt_ids) + len(e.response_ids) for e in self.examples]
        self._seconds: dict[str, float] = {}
        rows = Dataset.from_dict({"row": list(range(len(self.examples)))})  # TRL asks for one; ours is read
        super().__init__(model=model, args=args, train_dataset=rows, **kwargs)
        self.model_accepts_loss_kwargs = True  # the loss is divided once, by what training_step hands it
        collate: Any = self.data_collator  # type: ignore[has-type]  # TRL's own
        self._collator = StepCollator(collate, batch.microbatch_tokens, batch.packing)
        self.data_collator = self._collator
        if batch.packing:
            few = [as_row(e)["input_ids"][:_PROBE] for e in self.examples[:3]]
            check_rows_apart(self.model, collate, few if len(few) > 1 else few * 2)
        self.add_callback(OptimizerClock(self._spent, self._log_seconds))

    @property
    def tokens(self) -> int:
        """Tokens of all forwards so far: what TRL logs as ``num_tokens``."""
        return self._total_train_tokens

    @tokens.setter
    def tokens(self, count: int) -> None:
        self._total_train_tokens = count

    # -- which rows -------------------------------------------------------------------------------

    def get_train_dataloader(self) -> StepLoader:
        """A loader of whole steps, each process its own rows; workers collate ahead of the update."""
        arguments = self.args
        sampler = StepSampler(
            self._lengths,
            self.batch.size,
            arguments.seed if arguments.data_seed is None else arguments.data_seed,
            self.accelerator.process_index,
            self.accelerator.num_processes,
            arguments.dataloader_drop_last,
        )
        return StepLoader(
            self.examples,  # type: ignore[arg-type]  # a sequence is a dataset
            batch_sampler=sampler,
            collate_fn=self._collator,
            num_workers=arguments.dataloader_num_workers,
            pin_memory=arguments.dataloader_pin_memory,
            persistent_workers=arguments.dataloader_persistent_workers,
            prefetch_factor=arguments.dataloader_prefetch_factor,
        )

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, None]:
        """Take the next step from the loader, and record how long that took."""
        started = time.perf_counter()
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._spent("data", started)
        return batches, None  # counted in training_step, where all processes meet

    # -- the update -------------------------------------------------------------------------------

    def training_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """One optimizer step's examples in, gradients out; returns the loss of the uncut batch."""
        started = time.perf_counter()
        device, logged = self.accelerator.device, self._metrics["train"]
        own = torch.tensor([len(inputs["parts"]), sum(inputs["supervised"]), inputs["tokens"]], device=device)
        every = self.accelerator.gather(own).view(-1, 3)
        most, (_, total, tokens) = int(every[:, 0].max()), every.sum(0).tolist()
        # TRL's loss calls collectives, so every rank makes equally many calls; the empty ones first,
        # because the last one brings the gradients together
        missing = most - len(inputs["parts"])
        parts = [self._collator.nothing() for _ in range(missing)] + inputs["parts"]
        counts = torch.tensor([0] * missing + inputs["supervised"], device=device)
        counts = self.accelerator.reduce(counts, "sum").tolist()
        parts = send_to_device(parts, device, non_blocking=True)
        self.current_gradient_accumulation_steps = most  # TRL divides a router's auxiliary loss by it
        before = {name: len(values) for name, values in logged.items()}
        loss = torch.zeros((), device=device)
        for i, part in enumerate(parts):
            with micro_batch_of_step(self.accelerator, model, last=i + 1 == most):
                loss += super().training_step(model, part, torch.tensor(total, device=device))
        metrics.collapse(logged, before, counts)
        logged["tokens"].append(tokens)
        logged["supervised_tokens"].append(total)
        logged["microbatches"].append(most)
        self._spent("update", started)
        return loss

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Of all the forwards of a step."""
        return sum(super(MathSFTTrainer, self).floating_point_ops(part) for part in inputs["parts"])

    def _spent(self, phase: str, started: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + time.perf_counter() - started

    def _log_seconds(self) -> None:
        logged, whole = self._metrics["train"], sum(self._seconds.values())
        for phase, seconds in self._seconds.items():
            logged[f"time/{phase}"].append(seconds)
        logged["time/data_share"].append(self._seconds.get("data", 0.0) / whole if whole else 0.0)
        logged["step_time"].append(whole)
        self._seconds = {}
