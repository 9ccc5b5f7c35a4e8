"""Rows of the table of metrics: rewards, completions and the update; see `trlmath.runs.metrics_table`."""

from __future__ import annotations

from trlmath.runs.metric import NATS, NUMBER, SHARE, TOKENS, Metric

LEARNING: dict[str, tuple[Metric, ...]] = {
    "Reward (`train/`)": (
        Metric(
            "train/reward",
            "mean over the step's scorable rollouts of the weighted sum of rewards",
            "reward",
            "What is trained on. It should rise over tens of steps; step to step it is noisy, since every "
            "step draws other problems.",
        ),
        Metric(
            "train/reward_std",
            "mean over groups of the standard deviation of reward within the group",
            "reward",
            "Near 0: groups agree (all right or all wrong) and give no gradient with `group` advantages.",
        ),
        Metric(
            "train/frac_reward_zero_std",
            "groups whose rewards are all equal / groups",
            SHARE,
            "Rises as problems become too easy or stay too hard: fewer groups teach. See the filter "
            "`zero_spread`, `rollout.refill`, or other data.",
        ),
        Metric(
            "train/rewards/<reward>/mean",
            "mean of one reward function over the step's rollouts, before its weight",
            "reward",
            "Tells which of several rewards moves the sum.",
        ),
        Metric(
            "train/rewards/<reward>/std",
            "standard deviation of one reward function over the step's rollouts",
            "reward",
            "0: that reward tells rollouts apart no more.",
        ),
        Metric(
            "train/rewards/<reward>/errors",
            "rollouts that the reward failed on (raised, hung, wrong value) / rollouts; only with "
            "`checks.on_reward_error: unscorable`",
            SHARE,
            "Above 0: read the reasons under the category `reward_error` in `rollouts/`; those rollouts get "
            "advantage 0.",
        ),
        Metric(
            "train/format",
            "rollouts that keep the asked format / rollouts",
            SHARE,
            "Rises first, as a rule. A fall with rising length: completions are cut off.",
        ),
        Metric(
            "train/answer",
            "rollouts whose final answer is right, whatever the format / rollouts",
            SHARE,
            "The mathematics itself. `answer` above `both`: right answers lost to the format.",
        ),
        Metric(
            "train/both",
            "rollouts right in format and answer / rollouts",
            SHARE,
            "The reward of CS336; equals `train/reward` when `r1_zero` is the only reward.",
        ),
        Metric(
            "train/category/<category>",
            "rollouts of the category / rollouts; categories of a step add up to 1",
            SHARE,
            "Where failures go: a category that grows names what the policy does wrong instead.",
        ),
        Metric(
            "train/unscorable",
            "rollouts without a reward (the gold cannot be read) / rollouts",
            SHARE,
            "Above 0: look at those rows with `trlmath data check`; they get advantage 0.",
        ),
        Metric(
            "train/groups_dropped",
            "groups dropped by group filters / groups of the step",
            SHARE,
            "The update sees fewer rollouts; the reasons are in `filters.jsonl`.",
        ),
        Metric(
            "train/refill/rounds",
            "rounds of further prompts that the step needed (`rollout.refill`)",
            NUMBER,
            "At `max_rounds`: steps stay short; problems are too easy or too hard.",
        ),
        Metric(
            "train/refill/groups",
            "groups rolled out beyond `rollout.prompts_per_step`",
            NUMBER,
            "What the useful groups of a step cost in generation.",
        ),
        Metric(
            "train/refill/unused",
            "useful groups beyond what the step needed, not trained on",
            NUMBER,
            "Above 0 only where several processes share a round.",
        ),
        Metric(
            "train/distinct",
            "different completions / completions of the step",
            SHARE,
            "A fall towards 0 is collapse: the policy says the same thing whatever is drawn.",
        ),
        Metric(
            "train/<part>",
            "mean of a part that a plugin's reward reports",
            "as the plugin says",
            "As the plugin says.",
        ),
    ),
    "Expert iteration (`train/`)": (
        Metric(
            "train/iteration",
            "number of the iteration, from 0; one line when it has sampled, one when it has selected, one "
            "when it has trained",
            NUMBER,
            "Steps do not grow in an iteration that keeps nothing.",
        ),
        Metric(
            "train/temperature",
            "sampling temperature of the iteration",
            NUMBER,
            "Follows `expert_iteration.temperatures`; rises when nothing was kept.",
        ),
        Metric(
            "train/solved",
            "problems with a right rollout / problems with one that can be scored",
            SHARE,
            "Rises as the policy improves; the rest gives no trace.",
        ),
        Metric(
            "train/always_solved",
            "problems of which every rollout is right / problems with one that can be scored",
            SHARE,
            "Near 1: the questions teach little more.",
        ),
        Metric("train/candidates", "rollouts sampled in the iteration", NUMBER, "Questions x group size."),
        Metric(
            "train/kept",
            "traces of this iteration that the filters keep",
            NUMBER,
            "0: nothing is trained, see `expert_iteration.nothing_kept`; the reasons are in `filters.jsonl`.",
        ),
        Metric(
            "train/kept_share",
            "`train/kept` / `train/candidates`",
            SHARE,
            "A fall: a filter has become stricter (a threshold rises, traces become alike).",
        ),
        Metric(
            "train/recalled",
            "traces of earlier iterations that a filter brought back to be judged again",
            NUMBER,
            "The pool of `elite`.",
        ),
        Metric(
            "train/pool_size",
            "traces that the iteration trains on, new and old",
            NUMBER,
            "Grows up to the cap of `elite`; without it equals `train/kept`.",
        ),
        Metric(
            "train/pool_problems",
            "different problems among them",
            NUMBER,
            "Far below `train/pool_size`: few problems fill the pool; lower `per_problem`'s `max`.",
        ),
    ),
    "Completions (`train/completions/`, `train/length/`)": (
        Metric(
            "train/length/<correctness>",
            "mean length of the `right` rollouts (part `both`, or else reward, of 1) and of the `wrong`",
            TOKENS,
            "Wrong ones growing away from right ones: rambling, or a length bias of the loss "
            "(compare `loss_type: grpo` and `dr_grpo`).",
        ),
        Metric(
            "train/completions/mean_length",
            "mean number of completion tokens",
            TOKENS,
            "Rises when longer reasoning pays, or when wrong answers drift long; see `train/length/`.",
        ),
        Metric("train/completions/min_length", "shortest completion", TOKENS, "Near 0: empty answers."),
        Metric(
            "train/completions/max_length",
            "longest completion",
            TOKENS,
            "At `sampling.max_tokens`: some are cut off.",
        ),
        Metric(
            "train/completions/clipped_ratio",
            "completions cut off at `sampling.max_tokens` (the engine's finish reason) / completions",
            SHARE,
            "A rise means that answers are lost to the limit: raise it, or reward shorter ones.",
        ),
        Metric(
            "train/completions/<which>_terminated_length",
            "`mean`, `min` or `max` length of the completions that ended by themselves",
            TOKENS,
            "The lengths without those that were cut off.",
        ),
        Metric(
            "train/tokens",
            "completion tokens of the step, over all processes (SFT: prompts too)",
            TOKENS,
            "Work of a step.",
        ),
        Metric(
            "train/rollouts", "completions of the step, over all processes", NUMBER, "As the recipe asks."
        ),
        Metric(
            "train/num_tokens",
            "prompt and completion tokens since the start, over all processes",
            TOKENS,
            "The axis for comparing runs by work done.",
        ),
    ),
    "Update (`train/`)": (
        Metric(
            "train/loss",
            "the loss that was minimised, of the whole step (GRPO: TRL's `loss_type`; SFT: mean negative "
            "log-probability of the trained tokens)",
            "GRPO: no unit; SFT: nats a token",
            "SFT: should fall. GRPO on fresh rollouts: near 0 whatever happens; it is no sign of progress.",
        ),
        Metric(
            "train/grad_norm",
            "2-norm of the gradient before clipping at `max_grad_norm`",
            NUMBER,
            "0: no group taught anything. Spikes: too large a learning rate, or a few odd long rows.",
        ),
        Metric("train/learning_rate", "of the optimizer, at this step", NUMBER, "As the schedule says."),
        Metric(
            "train/entropy",
            "mean over the completion tokens that were computed (`train/rows_with_advantage`) of the entropy "
            "of the policy's next-token distribution; null where none was",
            NATS,
            "A steady fall is sharpening; near 0 exploration is over and rewards stop improving. A rise to "
            "far above the start is divergence.",
        ),
        Metric(
            "train/sampled_entropy",
            "mean of -log p over the sampled tokens: an unbiased estimate, over all rollouts",
            NATS,
            "As `train/entropy`, under the distribution that was sampled from (temperature included).",
        ),
        Metric(
            "train/kl",
            "mean over tokens of r - 1 - log r with r = p_ref / p (Schulman's k3); logged when `beta` > 0",
            NATS,
            "How far the policy has moved from the reference.",
        ),
        Metric(
            "train/clip_ratio/<which>",
            "tokens whose probability ratio met the clip / tokens of the step (a row without an advantage "
            "cannot meet it): `low_mean`, `high_mean`, `region_mean` (either), and the extremes over "
            "completions `low_min`, `high_max`; with `importance_sampling_level: sequence` of sequences",
            SHARE,
            "0 on fresh rollouts. Above some percent: the rollouts are too old for the update; fewer "
            "updates a rollout, or a smaller learning rate.",
        ),
        Metric(
            "train/cispo_clip_ratio",
            "tokens whose importance weight CISPO clipped / tokens of the step",
            SHARE,
            "As `train/clip_ratio/`.",
        ),
        Metric(
            "train/vespo/phi_seq_mean",
            "mean sequence weight of the loss `vespo`, over the rows that were computed",
            NUMBER,
            "Far below 1: rollouts are discounted as off-policy.",
        ),
        Metric(
            "train/policy_loss",
            "`train/loss` without the entropy bonus, where there is one",
            NUMBER,
            "See the loss.",
        ),
        Metric("train/entropy_coef", "weight of the entropy bonus at this step", NUMBER, "As scheduled."),
        Metric(
            "train/aux_loss", "a mixture-of-experts model's balance loss", NUMBER, "A rise: unused experts."
        ),
        Metric(
            "train/rows_with_advantage",
            "rows that were computed (advantage not 0) / rows that count in the means",
            SHARE,
            "The update's cost, and how much of the step taught; 1 minus it is skipped for free.",
        ),
        Metric(
            "train/microbatches",
            "forward passes that the step was cut into, on the process with most",
            NUMBER,
            "More than before: longer completions.",
        ),
        Metric(
            "train/supervised_tokens",
            "tokens of the step that the loss is taken on, over all processes (SFT)",
            TOKENS,
            "What a step learns from: responses, not prompts.",
        ),
        Metric(
            "train/mean_token_accuracy",
            "trained tokens that were the policy's most likely token / trained tokens (SFT)",
            SHARE,
            "Near 1 while evaluation stands still: memorising.",
        ),
    ),
}
