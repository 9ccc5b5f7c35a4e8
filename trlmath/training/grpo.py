"""MathGRPOTrainer: TRL's GRPO with our rollouts, rewards, advantages and filters; the update is `update.py`.

Nothing of TRL is copied. What is overridden, and why, is one method each; a test pins their
signatures to the TRL release they were written for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset

from trlmath.composition import weights
from trlmath.data.filtering import LedgerEntry, NamedFilter
from trlmath.errors import EngineError
from trlmath.evaluation.categories import classified
from trlmath.evaluation.merge import merge_grades
from trlmath.reward_faults import error_shares
from trlmath.sampling.sampler import Sampler
from trlmath.sampling.settings import SamplingSettings
from trlmath.training import group_filters, metrics, old_policy
from trlmath.training.advantages import combine_rewards, compute_advantages
from trlmath.training.checkpointing import Checkpointed
from trlmath.training.composed import composed_matrix
from trlmath.training.early_grading import EarlyGrading
from trlmath.training.engine import engine_dtype
from trlmath.training.order import OrderedPrompts
from trlmath.training.refill import Drawn, draw, further_rows
from trlmath.training.reward_calls import RewardCall, raise_together, rows_for_rewards
from trlmath.training.seeds import seed_of
from trlmath.training.update import CutUpdate
from trlmath.training.weights import WeightBridge
from trlmath.types import Grade, Group, Problem, Rollout


@dataclass
class Algorithm:
    """The named parts a recipe picked, ready to call.

    Attributes:
        rewards: callables ``(**columns) -> list[Grade]``, with ``name``.
        reward_weights: one number a reward.
        advantage: see `trlmath.hookspecs`.
        advantage_label: how to name it in an error.
        group_filters: filters with ``moment == "group"``.
        microbatch_tokens: bound on the padded tokens of a forward; None for no bound.
        old_logprobs: of the policy that drew a rollout: ``recompute`` them with the trainer's module, or
            take the ``engine``'s own, which saves a forward; the ratio then corrects for both the steps
            since and the engine's rounding, and is clipped as one.
        refill_rounds: how often further prompts are rolled out, at most, when group filters dropped some;
            0: never.
        limit: seconds that the advantage may take; None: no limit.
        on_rollouts: called on every process with all groups of a step, graded, their advantages
            [groups, size], and the step.
        on_drops: called on every process with the ledger entries of dropped groups, and the step.
    """

    rewards: Sequence[Callable[..., list[Grade]]]
    reward_weights: Sequence[float]
    advantage: Callable[..., torch.Tensor]
    advantage_label: str = "advantage"
    group_filters: Sequence[NamedFilter] = ()
    microbatch_tokens: int | None = None
    old_logprobs: str = "recompute"
    refill_rounds: int = 0
    limit: float | None = None
    on_rollouts: Callable[[list[Group], torch.Tensor, int], None] | None = None
    on_drops: Callable[[list[LedgerEntry], int], None] | None = None


class MathGRPOTrainer(Checkpointed, OrderedPrompts, CutUpdate):
    """TRL's `GRPOTrainer` over a `Sampler` and an `Algorithm`.

    Args:
        algorithm: rewards, advantage, filters.
        settings: how training rollouts are drawn.
        make_sampler: builds the engine, given this trainer (model, tokenizer and accelerator are ready).
        freshness: what a stale engine does: ``stop``, ``warn`` or ``off``.
        correct_sampling: importance-weigh rollouts for the difference between engine and trainer
            (TRL's ``vllm_importance_sampling_correction``), where the engine is not the trainer's module.
        problems, prompts: what is trained on, and the text given to the model for each.
        others: as for `trl.GRPOTrainer`.
    """

    def __init__(
        self,
        *,
        algorithm: Algorithm,
        settings: SamplingSettings,
        make_sampler: Callable[[MathGRPOTrainer], tuple[Sampler, Sampler]],
        problems: Sequence[Problem],
        prompts: Sequence[str],
        freshness: str = "stop",
        correct_sampling: bool = True,
        **kwargs: Any,
    ) -> None:
        self.algorithm, self.settings = algorithm, settings
        self._problems, self._rows = list(problems), rows_for_rewards(problems)
        self._calls = [RewardCall(reward) for reward in algorithm.rewards]
        self._groups: list[Group] = []
        self._prompts = list(prompts)
        self._asked: list[int] = []  # dataset rows of the prompts that are rolled out
        self._drawn: Drawn | None = None  # a step of training, rolled out before TRL asks for it
        self._reward_matrix, self._round = torch.empty(0), 0  # refills of this step so far
        self.microbatch_tokens = algorithm.microbatch_tokens
        # the rows stay ours: a column of mixed types would not survive the dataset's own typing
        dataset = Dataset.from_dict({"prompt": list(prompts), "row": list(range(len(problems)))})
        super().__init__(
            reward_funcs=list(self._calls), rollout_func=_rollouts_of_trainer, train_dataset=dataset, **kwargs
        )
        # TRL would tell truncation from the last token; ours is the engine's word, applied below
        self._mask_truncated = bool(self.args.mask_truncated_completions)
        self.mask_truncated_completions = False
        self.sampler, self.reference = make_sampler(self)
        if not self.sampler.shares_weights:
            self._bridge_engine(freshness, correct_sampling)

    def _bridge_engine(self, freshness: str, correct_sampling: bool) -> None:
        # From here on TRL treats the rollouts as an engine's: it syncs before generating and, when asked,
        # corrects for the difference between the engine's log-probabilities and its own.
        ids = self._tokenizer(text=self.train_dataset[0]["prompt"])["input_ids"][-64:]
        half = max(1, len(ids) // 2)
        probe = (ids[:half], ids[half:] or ids[:1])
        self.vllm_generation = WeightBridge(
            self.sampler, self.reference, self.model, self.accelerator, engine_dtype(self), probe, freshness
        )
        self.vllm_generation.took = partial(self.spent, "sync")  # TRL syncs too, before it generates
        # the engine's own log-probabilities as the old ones leave nothing to correct beside the ratio
        self.vllm_importance_sampling_correction = (
            correct_sampling and self.algorithm.old_logprobs != "engine"
        )
        self.use_vllm = True
        self._last_loaded_step = -1

    # -- rollouts ---------------------------------------------------------------------------------

    def ready_sampler(self) -> Sampler:
        """Return the engine, generating from the current weights."""
        if not self.sampler.shares_weights and self.state.global_step != self._last_loaded_step:
            self.vllm_generation.sync_weights()
            self._last_loaded_step = self.state.global_step
        return self.sampler

    def _roll_out(self, prompts: list[str]) -> dict[str, Any]:
        """Sample for `prompts`, in which each prompt stands once for each of its completions."""
        if self._drawn is None:
            self._sample(prompts)
        return {
            "prompt_ids": [list(g.prompt_ids) for g in self._groups for _ in g.rollouts],
            "completion_ids": [list(r.token_ids) for r in self._rollouts],
            "logprobs": None
            if self.sampler.shares_weights
            else [list(r.logprobs or ()) for r in self._rollouts],
            "finish_reasons": [r.finish_reason for r in self._rollouts],
        }

    def _sample(self, prompts: list[str]) -> None:
        mode = "train" if self.model.training else "eval"
        size = self.num_generations if mode == "train" else self.num_generations_eval
        sampler = self.ready_sampler()
        started = time.perf_counter()
        unique = prompts[::size]
        prompt_ids = self._tokenizer(text=list(unique))["input_ids"]
        rows, settings = [self._rows[row] for row in self._asked], self.settings
        if hasattr(sampler, "own_random"):
            where = (self.state.global_step, self.accelerator.process_index, self._round)
            settings = replace(settings, seed=seed_of(self.args.seed, "rollout", *where))
        self._round += 1
        with EarlyGrading(self._calls if mode == "train" else (), rows, unique, self.state) as early:
            streamed = {"on_group": early.take} if hasattr(sampler, "streams") else {}
            groups = sampler.generate(prompt_ids, settings, n=size, **streamed)
            self.spent("generate", started)
            started = time.perf_counter()
        self.spent("grade", started)  # what was not done when the last completion had come
        self._groups = [replace(g, prompt=p) for g, p in zip(groups, unique, strict=True)]

    def _generate(self, prompts: list) -> tuple:
        output = super()._generate(prompts)
        mode = "train" if self.model.training else "eval"
        lengths, truncated = (
            self.accelerator.gather(torch.tensor(values, device=self.accelerator.device))
            for values in (
                [len(r.token_ids) for r in self._rollouts],
                [r.finish_reason == "length" for r in self._rollouts],
            )
        )
        for name, value in metrics.completion_lengths(lengths, truncated).items():
            self._metrics[mode][f"completions/{name}"][-1] = value
        return output

    @property
    def _rollouts(self) -> list[Rollout]:
        return [r for g in self._groups for r in g.rollouts]

    # -- rewards, advantages, filters -----------------------------------------------------------------

    def _calculate_rewards(
        self, inputs: list, prompts: list, completions: list, completion_ids_list: list
    ) -> torch.Tensor:
        if self._drawn is not None:
            return self._reward_matrix
        started = time.perf_counter()
        # the engine's text ends with the stop string; TRL's, decoded again, may run past it
        texts = [r.text for r in self._rollouts]
        # past TRL, which leaves some names out and fails at others (a column called `prompts`)
        rows = [self._rows[row["row"]] for row in inputs]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        for call in self._calls:
            call.columns, call.holds = columns, self.accelerator.num_processes > 1
        reasons = [{"finish_reasons": row["finish_reasons"]} for row in inputs]
        matrix = super()._calculate_rewards(reasons, prompts, texts, completion_ids_list)
        raise_together(self._calls, self.accelerator)
        for name, share in error_shares(self.algorithm.rewards, gather_object).items():
            self._metrics["train" if self.model.training else "eval"][name].append(share)
        matrix = composed_matrix(matrix, self._calls, self.accelerator)
        self._weights = weights(self.algorithm.rewards, self.algorithm.reward_weights, self.state.global_step)
        self.reward_weights = torch.tensor(self._weights)  # TRL's own sum, which it logs, weighs alike
        self._reward_matrix = matrix
        self._attach_grades([row["row"] for row in inputs])
        self.spent("grade", started)
        return matrix

    def _attach_grades(self, rows: list[int]) -> None:
        names = [call.__name__ for call in self._calls]
        graded = [
            classified(replace(rollout, grade=merge_grades(grades, self._weights, names)))
            for rollout, grades in zip(
                self._rollouts, zip(*(c.grades for c in self._calls), strict=True), strict=True
            )
        ]
        size = len(graded) // len(self._groups)
        self._groups = [
            replace(
                group,
                rollouts=tuple(graded[i * size : (i + 1) * size]),
                problem=self._problems[rows[i * size]],
            )
            for i, group in enumerate(self._groups)
        ]

    def _fill(self, inputs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Drawn]:
        """Roll out, grade and filter `inputs` and what has to stand in for them; gives the step's rows."""
        size, world, rank = (
            self.num_generations,
            self.accelerator.num_processes,
            self.accelerator.process_index,
        )

        def roll_out(rows: list[int]) -> tuple[list[Group], torch.Tensor]:
            share = len(rows) // world
            mine = self._asked = rows[rank * share : (rank + 1) * share]
            self._sample([self._prompts[row] for row in mine for _ in range(size)])
            graded: list[dict[str, Any]] = [
                {"row": row, "finish_reasons": rollout.finish_reason}
                for row, group in zip(mine, self._groups, strict=True)
                for rollout in group.rollouts
            ]
            ids = [list(r.token_ids) for r in self._rollouts]
            matrix = self._calculate_rewards(graded, [self._prompts[g["row"]] for g in graded], [], ids)
            return gather_object(self._groups), matrix

        def decide(groups: list[Group]) -> list[LedgerEntry]:
            filters = self.algorithm.group_filters
            return group_filters.decide(filters, groups, self.accelerator) if filters else []

        rows = gather_object([item["row"] for item in inputs[::size]])
        rounds, step = self.algorithm.refill_rounds, self.state.global_step
        further = further_rows(len(self._prompts), rows, self.args.seed, step) if rounds else iter(())
        drawn = draw(rows, rounds, roll_out, decide, further, world)
        chosen = drawn.chosen(len(rows))
        share = len(rows) // world
        mine = chosen[rank * share : (rank + 1) * share]
        self._reward_matrix = drawn.matrix_of(chosen)
        self._groups = [drawn.groups[i] for i in mine]
        if rounds:
            logged = self._metrics["train"]
            logged["refill/rounds"].append(drawn.rounds)
            logged["refill/groups"].append(len(drawn.groups) - len(rows))
            logged["refill/unused"].append(max(0, len(drawn.useful()) - len(rows)))
        numbers = [i for i in mine for _ in range(size)]
        return [{"prompt": self._prompts[drawn.rows[i]], "row": drawn.rows[i]} for i in numbers], drawn

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        mode = "train" if self.model.training else "eval"
        self._drawn, self._round = None, 0
        size = self.num_generations if mode == "train" else self.num_generations_eval
        self._asked = [item["row"] for item in inputs[::size]]
        rows = len(inputs)
        mine = slice(self.accelerator.process_index * rows, (self.accelerator.process_index + 1) * rows)
        if mode == "train":  # before TRL scores the old policy, which need not know what has no advantage
            inputs, self._drawn = self._fill(inputs)
            advantages, kept, whole = self._judge(self._drawn, size)
            every = self.to_score(advantages, kept & whole)
            self._scored = None if every is None else every[mine]
        output = super()._generate_and_score_completions(inputs)
        scored, self._scored = self._scored, None
        drawn, self._drawn = self._drawn, None
        if scored is not None and "old_per_token_logps" in output:
            old_policy.settle(output, scored, self._metrics[mode], self.accelerator.gather)
        if drawn is None:
            drawn = Drawn(gather_object(self._groups), matrix=self._reward_matrix)
            advantages, kept, whole = self._judge(drawn, size)

        output["advantages"] = advantages[mine]
        if self.algorithm.old_logprobs == "engine":
            output["old_per_token_logps"] = self._old_logps(output["completion_ids"].size(1))
        self._logs["advantages"].extend(
            advantages.tolist()
        )  # a deque of one generation batch: replaces TRL's
        output["kept"] = kept[mine]
        trained = kept & whole
        if not bool(trained.all()):
            # one effective mask above and below the fraction line
            output["completion_mask"] = output["completion_mask"] * trained[mine].unsqueeze(1).int()
            output["num_items_in_batch"] = self.accelerator.gather(output["completion_mask"].sum()).sum()
        self._tell(drawn, advantages.view(-1, size), mode)
        return output

    def _judge(self, drawn: Drawn, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Advantages [rows] (0 in dropped groups), which rows are of kept groups, and which are whole."""
        matrix, device = self._reward_matrix, self.accelerator.device
        numbers = drawn.chosen(len(matrix) // size)
        every = [r for i in numbers for r in drawn.groups[i].rollouts]
        rewards = combine_rewards(matrix, self.reward_weights.to(matrix)).view(-1, size)
        lengths = torch.tensor([len(r.token_ids) for r in every], device=device).view(-1, size)
        whole = torch.ones(len(every), dtype=torch.bool, device=device)
        if self._mask_truncated:  # truncated rows only lose their tokens: TRL counts them as rows
            whole &= torch.tensor([r.finish_reason != "length" for r in every], device=device)
        out = {entry.index for entry in drawn.dropped}  # all rows of dropped groups leave
        kept = torch.tensor([number not in out for number in numbers], device=device)
        advantages = torch.zeros_like(rewards)
        if bool(kept.any()):  # statistics of a batch are of what is trained on
            advantages[kept] = compute_advantages(
                self.algorithm.advantage,
                self.algorithm.advantage_label,
                rewards[kept],
                self.algorithm.limit,
                lengths=lengths[kept],
                parts=matrix.view(-1, size, matrix.size(1))[kept],
                mask=whole.view(-1, size)[kept],
            )
        return advantages.view(-1), kept.repeat_interleave(size), whole

    def _tell(self, drawn: Drawn, shares: torch.Tensor, mode: str) -> None:
        """Metrics and files: of all that was rolled out, not of what survived; `shares` are advantages."""
        step, shown = self.state.global_step, drawn.groups
        if mode == "train" and self.algorithm.group_filters:
            if self.algorithm.on_drops:
                self.algorithm.on_drops(drawn.dropped, step)
            out = {entry.index for entry in drawn.dropped}
            self._metrics[mode]["groups_dropped"].append(len(out) / len(shown))
        if len(shown) > len(shares):
            told = combine_rewards(drawn.matrix, self.reward_weights.to(drawn.matrix))
            self._metrics[mode]["reward"][-1] = told.nanmean().item()
            chosen, shares = shares, shares.new_zeros(len(shown), shares.size(1))
            shares[drawn.chosen(len(chosen))] = chosen
        every = [r for g in shown for r in g.rollouts]
        self._metrics[mode]["tokens"].append(sum(len(r.token_ids) for r in every))
        metrics.log(self._metrics[mode], metrics.rollout_metrics(every))
        if mode == "train" and self.algorithm.on_rollouts:
            self.algorithm.on_rollouts(shown, shares, step)

    def _old_logps(self, width: int) -> torch.Tensor | None:
        if self.algorithm.old_logprobs != "engine":
            return None
        logps = torch.zeros(len(self._rollouts), width, device=self.accelerator.device)
        for row, rollout in zip(logps, self._rollouts, strict=True):
            row[: len(rollout.token_ids)] = torch.tensor(rollout.logprobs or (), dtype=torch.float32)
        if not bool(torch.isfinite(logps).all()):
            raise EngineError(
                f"The {self.sampler.name} engine gave log-probabilities that are not finite. "
                "Set rollout.old_logprobs: recompute."
            )
        return logps

    def training_step(
        self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """See `CutUpdate.training_step`; tells how fresh the engine was."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not self.sampler.shares_weights:
            numbers = self._metrics["train"]
            numbers["engine/weights_version"].append(float(self.sampler.weights_version))
            if self.vllm_generation.difference is not None:
                numbers["engine/freshness"].append(self.vllm_generation.difference)
        return loss


def _rollouts_of_trainer(prompts: list[str], trainer: MathGRPOTrainer) -> dict[str, Any]:
    return trainer._roll_out(prompts)
