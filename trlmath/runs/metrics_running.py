"""Rows of the table of metrics: engine, time, memory, evaluation; see `trlmath.runs.metrics_table`."""

from __future__ import annotations

from trlmath.runs.metric import NATS, NUMBER, SECONDS, SHARE, TOKENS, Metric

RUNNING: dict[str, tuple[Metric, ...]] = {
    "Engine (`engine/`)": (
        Metric(
            "engine/freshness",
            "mean over a probe's tokens of |log p of the engine - log p of the policy| after a sync, the "
            "largest of several servers",
            "nats",
            "Above 1e-3 in float32, 0.15 in bfloat16 or 0.05 in float16 the engine generates from old "
            "weights, and the run stops (`sampling.freshness`).",
        ),
        Metric(
            "engine/weights_version",
            "how often weights were loaded into the engine (expert iteration: iterations whose SFT has "
            "changed them); an engine that is the policy's own module has none",
            NUMBER,
            "Grows by one with each sync (`time/sync`). Rollouts and traces name the version that drew them.",
        ),
        Metric(
            "engine/sampling_logp_difference/<which>",
            "`mean` and `max` over tokens of |log p of the engine - log p of the policy|",
            "nats",
            "A rise: engine and trainer compute differently (dtype, kernels) or weights are stale.",
        ),
        Metric(
            "engine/importance_sampling_ratio/<which>",
            "`min`, `mean` and `max` of p of the policy / p of the engine, after TRL's cap",
            NUMBER,
            "A mean away from 1: the correction is working hard; see the difference above.",
        ),
    ),
    "Time (`time/`)": (
        Metric("time/step", "the phases below added up", SECONDS, "What a step costs."),
        Metric(
            "time/generate",
            "sampling the rollouts, until the last completion has come",
            SECONDS,
            "Grows with length and stragglers.",
        ),
        Metric(
            "time/grade",
            "waiting for reward functions after the last completion (what is graded while others are still "
            "being generated costs nothing and is not counted)",
            SECONDS,
            "Grows with answers that are hard to compare.",
        ),
        Metric("time/sft", "the whole SFT of an iteration", SECONDS, "Grows with the pool and epochs."),
        Metric(
            "time/old_logprobs",
            "log-probabilities of the policy that drew the rollouts, once a rollout",
            SECONDS,
            "Grows with tokens; `rollout.old_logprobs: engine` saves it.",
        ),
        Metric("time/reference", "log-probabilities of the reference (KL)", SECONDS, "Grows with tokens."),
        Metric("time/update", "forward and backward", SECONDS, "Grows with tokens."),
        Metric("time/optimizer", "the optimizer's step, clipping left out", SECONDS, "Constant for a model."),
        Metric("time/data", "waiting for the next step's examples (SFT)", SECONDS, "See the share."),
        Metric(
            "time/data_share",
            "`time/data` / `time/step` (SFT)",
            SHARE,
            "Above a few percent: loading holds the update up; raise `trainer.dataloader_num_workers`.",
        ),
        Metric("time/sync", "handing new weights to the engine", SECONDS, "Constant for a model."),
    ),
    "Memory (`memory/`)": (
        Metric(
            "memory/host",
            "resident memory of the first process",
            "GiB",
            "A steady climb is a leak.",
        ),
        Metric(
            "memory/gpu_peak",
            "most memory that tensors held on the first process's GPU since the last line",
            "GiB",
            "Near the card's size: the next long batch fails; lower `microbatch_tokens`.",
        ),
    ),
    "Evaluation (`eval/` for the setting `sampled`, `eval_<setting>/` for any other)": (
        Metric(
            "eval/<part>",
            "`format`, `answer`, `both` or a plugin's part: its mean, each problem weighing the same",
            SHARE,
            "The result. Judge a change by its interval (report, `trlmath runs diff`), not by the number.",
        ),
        Metric(
            "eval/reward",
            "mean reward over scorable completions, each problem weighing the same",
            "reward",
            "As `train/reward`, on held-out problems.",
        ),
        Metric(
            "eval/category/<category>",
            "completions of the category / completions; they add up to 1",
            SHARE,
            "What goes wrong; `trlmath evaluate` prints what helps against each.",
        ),
        Metric("eval/mean_length", "mean number of completion tokens", TOKENS, "As in training."),
        Metric(
            "eval/truncated",
            "completions cut off at the limit / completions",
            SHARE,
            "Above 0 the rates are a lower bound.",
        ),
        Metric(
            "eval/entropy",
            "mean of -log p over the sampled tokens; not for greedy",
            NATS,
            "As `train/sampled_entropy`, on held-out problems.",
        ),
        Metric(
            "eval/pass@<k>/<part>",
            "problems that have the part in at least one of k samples, unbiased estimate / problems",
            SHARE,
            "Rising `eval/both` with falling pass@k: the policy sharpens and explores less.",
        ),
    ),
}
