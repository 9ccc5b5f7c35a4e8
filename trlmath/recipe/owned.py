"""Arguments of TRL's configs that other keys of the recipe own, and the key to write instead."""

from __future__ import annotations

_OPTIONS = "sampling.engine_options"
_EVALUATION = "evaluation.enabled, evaluation.every and evaluation.settings"

# every algorithm's
_COMMON: dict[str, str] = {
    "model_init_kwargs": "model.dtype and model.attention",
    "output_dir": "run.dir",
    "logging_dir": "run.dir",
    "seed": "run.seed",
    "data_seed": "run.seed",
    "report_to": "run.report_to",
    "resume_from_checkpoint": "run.resume",
    "do_train": "evaluation.enabled (training always happens)",
    "do_eval": _EVALUATION,
    "do_predict": _EVALUATION,
    "eval_strategy": _EVALUATION,
    "eval_steps": "evaluation.every",
    "eval_delay": _EVALUATION,
    "eval_on_start": _EVALUATION,
    "eval_accumulation_steps": _EVALUATION,
    "per_device_eval_batch_size": _EVALUATION,
    "eval_do_concat_batches": _EVALUATION,
    "eval_use_gather_object": _EVALUATION,
    "batch_eval_metrics": _EVALUATION,
    "bf16_full_eval": _EVALUATION,
    "fp16_full_eval": _EVALUATION,
    "prediction_loss_only": _EVALUATION,
    "include_for_metrics": _EVALUATION,
}

_CHECKPOINTS = {
    "save_strategy": "run.checkpoint_every",
    "save_steps": "run.checkpoint_every",
    "save_total_limit": "run.keep_last and run.keep_best",
    "save_only_model": "run.checkpoint_every (a checkpoint holds what a run needs to go on)",
}

OWNED: dict[str, str] = {
    **_CHECKPOINTS,
    **_COMMON,
    "per_device_train_batch_size": "rollout.prompts_per_step, .group_size and .microbatch_tokens",
    "gradient_accumulation_steps": "rollout.updates_per_rollout and rollout.microbatch_tokens",
    "generation_batch_size": "rollout.prompts_per_step and rollout.group_size",
    "steps_per_generation": "rollout.updates_per_rollout",
    "num_iterations": "rollout.epochs_per_rollout",
    "num_generations": "rollout.group_size",
    "auto_find_batch_size": "rollout.microbatch_tokens",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "top_k": "sampling.top_k",
    "min_p": "sampling.min_p",
    "max_completion_length": "sampling.max_tokens",
    "max_prompt_length": "the filter prompt_length",
    "generation_kwargs": "sampling.stop, sampling.min_tokens and sampling.engine_options",
    "use_vllm": "sampling.engine",
    "vllm_mode": "sampling.mode",
    "vllm_server_base_url": "sampling.url",
    "vllm_server_host": "sampling.url",
    "vllm_server_port": "sampling.url",
    "vllm_server_timeout": "sampling.start_timeout and sampling.request_timeout",
    "vllm_model_impl": _OPTIONS,
    "vllm_enable_sleep_mode": "sampling.sleep",
    "vllm_gpu_memory_utilization": _OPTIONS,
    "vllm_max_model_length": "sampling.max_tokens and the filter prompt_length",
    "vllm_tensor_parallel_size": _OPTIONS,
    "reward_weights": "rewards.<i>.weight",
    # TRL prints completions as they are, and a terminal obeys what is in them
    "log_completions": "run.show_every (on the terminal) and run.keep_rollouts (rollouts/ and report.html)",
    "num_completions_to_print": "run.show_every",
    "log_unique_prompts": "run.show_every",
    "log_completions_hub_repo": "run.keep_rollouts",
    "scale_rewards": "advantage (options: {std: true or false} of `group`; `batch`; `none`)",
    "multi_objective_aggregation": "advantage",
    "chat_template_kwargs": "data.prompt",
    "num_generations_eval": "evaluation.settings.<i>.n",
    "remove_unused_columns": "data.columns (columns are kept for the rewards that name them)",
    "label_names": "data.columns",
}

_ROWS = "data (columns, prompt) and batch: rows are tokenised and masked before TRL sees them"

OWNED_SFT: dict[str, str] = {
    **_CHECKPOINTS,
    **_COMMON,
    "per_device_train_batch_size": "batch.size and batch.microbatch_tokens",
    "gradient_accumulation_steps": "batch.size and batch.microbatch_tokens",
    "auto_find_batch_size": "batch.microbatch_tokens",
    "average_tokens_across_devices": "batch.size (the loss is the mean over the tokens of all processes)",
    "train_sampling_strategy": "run.seed and batch.microbatch_tokens (forwards hold rows of like length)",
    "max_length": "batch.max_length",
    "truncation_mode": "batch.over_long",
    "packing": "batch.packing",
    "packing_strategy": "batch.packing",
    "padding_free": "batch.packing",
    "eval_packing": _EVALUATION,
    "dataset_text_field": _ROWS,
    "dataset_kwargs": _ROWS,
    "dataset_num_proc": _ROWS,
    "completion_only_loss": _ROWS,
    "assistant_only_loss": _ROWS,
    "chat_template_path": "data.prompt",
    "eos_token": "the tokenizer of model.path",
    "pad_token": "the tokenizer of model.path",
    "shuffle_dataset": "run.seed (every epoch is shuffled)",
    "remove_unused_columns": "data.columns",
    "label_names": "data.columns",
    "metric_for_best_model": "early_stop.metric",
    "greater_is_better": "early_stop.mode",
    "load_best_model_at_end": "early_stop and averaging",
}

_KEPT = "run.dir and run.resume (what a continued run needs is kept after each phase)"

# expert iteration trains by SFT, again and again
OWNED_EXPERT_ITERATION: dict[str, str] = {
    **OWNED_SFT,
    "max_steps": "expert_iteration.iterations and expert_iteration.epochs",
    "num_train_epochs": "expert_iteration.epochs",
    **dict.fromkeys(("save_strategy", "save_steps", "save_total_limit", "save_only_model"), _KEPT),
}

OWNED_BY: dict[str, dict[str, str]] = {
    "grpo": OWNED,
    "sft": OWNED_SFT,
    "expert_iteration": OWNED_EXPERT_ITERATION,
}

_BEST = "checkpoints are not compared: transformers' own evaluation never runs; `evaluation` measures instead"

# argument -> why it would do nothing in any of our trainers
IDLE: dict[str, str] = {
    "trust_remote_code": "code that comes with a model is never run",
    "load_best_model_at_end": _BEST,
    "metric_for_best_model": _BEST,
    "greater_is_better": _BEST,
    "disable_tqdm": "progress is trlmath's own",
    "train_sampling_strategy": "the order of rows is the trainer's own",
    "length_column_name": "the order of rows is the trainer's own",
    "max_tool_calling_iterations": "rollouts call no tools",
}

_OWN_DRAWS = "completions are drawn from the policy itself, which is what is trained"
_OWN_ENGINE = "the transformers engine is trlmath's own"

# and in one of them only
IDLE_BY: dict[str, dict[str, str]] = {
    "grpo": {
        **IDLE,
        "label_smoothing_factor": "a policy's loss has no labels to smooth",
        "repetition_penalty": _OWN_DRAWS,
        "vllm_structured_outputs_regex": _OWN_DRAWS,
        "vllm_group_port": "a free port is taken",
        "cache_implementation": _OWN_ENGINE,
        "use_transformers_continuous_batching": _OWN_ENGINE,
        "transformers_continuous_batching_config": _OWN_ENGINE,
        "use_transformers_paged": _OWN_ENGINE,
    },
    "sft": IDLE,
    "expert_iteration": IDLE,
}
