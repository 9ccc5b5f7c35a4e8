"""The default plugins. They use the same hooks as everybody else; nobody imports this module by hand."""

from __future__ import annotations

from trlmath.builtin import advantages, filters, rewards, selection, trace_filters, trl_rewards
from trlmath.components import Register
from trlmath.data.nano import NanoDataset
from trlmath.data.prompts import builtin_prompts
from trlmath.hookspecs import hookimpl


@hookimpl
def register_rewards(register: Register) -> None:
    register("r1_zero", rewards.R1Zero)
    register("boxed", rewards.Boxed)
    register("accuracy", rewards.Accuracy)
    register("format", rewards.Format)
    register("length", rewards.Length)
    trl_rewards.register_all(register)


@hookimpl
def register_advantages(register: Register) -> None:
    register("group", advantages.GroupAdvantage)
    register("batch", advantages.BatchAdvantage)
    register("rloo", advantages.RlooAdvantage)
    register("none", advantages.NoBaseline)


@hookimpl
def register_filters(register: Register) -> None:
    register("prompt_length", filters.PromptLength)
    register("gradable_gold", filters.GradableGold)
    register("duplicate", filters.Duplicate)
    register("zero_spread", filters.ZeroSpread)
    register("correct_answer", trace_filters.CorrectAnswer)
    register("trace_length", trace_filters.TraceLength)
    register("duplicate_trace", trace_filters.DuplicateTrace)
    register("per_problem", trace_filters.PerProblem)
    register("near_duplicate", selection.NearDuplicate)
    register("rising_threshold", selection.RisingThreshold)
    register("elite", selection.Elite)


@hookimpl
def register_prompts(register: Register) -> None:
    for prompt in builtin_prompts():
        register(prompt.name, prompt)


@hookimpl
def register_datasets(register: Register) -> None:
    register("nano", NanoDataset)
