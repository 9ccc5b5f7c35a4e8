"""Checks across keys: some when a recipe loads, others when a run knows more, all before any weight loads."""

from __future__ import annotations

from trlmath.errors import DataError, RecipeError
from trlmath.recipe.owned import OWNED_BY
from trlmath.recipe.schema import Recipe


def cross_field_errors(recipe: Recipe) -> list[str]:
    """Return a sentence for each contradiction between keys; needs no torch and no plugin."""
    checks = (_not_yet, _sampling, _rollout, _old_logprobs, _lists, _trainer)
    return [error for check in checks for error in check(recipe)]


def _not_yet(recipe: Recipe) -> list[str]:
    errors = []
    if recipe.run.resume not in (None, False, "auto"):
        errors.append(f"run.resume: got {recipe.run.resume!r}; allowed: auto, false, or null.")
    return errors


def _sampling(recipe: Recipe) -> list[str]:
    sampling = recipe.sampling
    errors = []
    if sampling.mode == "colocate":
        errors += [
            f"sampling.{key}: has no meaning while sampling.mode is colocate; set the mode to server."
            for key, given in (
                ("url", sampling.url is not None),
                ("devices", sampling.devices is not None),
                ("transport", sampling.transport != "files"),
                ("weights_dir", sampling.weights_dir is not None),
            )
            if given
        ]
    else:
        if sampling.engine == "transformers":
            errors.append("sampling.engine: 'transformers' is no server; use vllm or auto with mode: server.")
        if sampling.sleep:
            errors.append("sampling.sleep: a server does not share the trainer's GPU; remove it.")
        if sampling.url is not None and sampling.devices is not None:
            errors.append("sampling.devices: are of a server this run starts; with a url, start it on them.")
        for url in [sampling.url] if isinstance(sampling.url, str) else sampling.url or ():
            if not url.startswith(("http://", "https://")):
                errors.append(f"sampling.url: got {url!r}; allowed: http://host:port or https://host:port.")
        if sampling.url == []:
            errors.append("sampling.url: is an empty list; give a URL, or null to start a server.")
    if sampling.min_tokens > sampling.max_tokens:
        errors.append(
            f"sampling.min_tokens: got {sampling.min_tokens}; allowed: at most sampling.max_tokens, which is "
            f"{sampling.max_tokens}."
        )
    if sampling.stop is not None and not all(sampling.stop):
        errors.append(
            "sampling.stop: an empty string would end every completion at once; use [] for no stop string."
        )
    return errors


def _rollout(recipe: Recipe) -> list[str]:
    rollout = recipe.rollout
    completions = rollout.prompts_per_step * rollout.group_size
    if completions % rollout.updates_per_rollout:
        return [
            f"rollout.updates_per_rollout: got {rollout.updates_per_rollout}, which does not divide the "
            f"{completions} completions of a phase ({rollout.prompts_per_step} prompts x "
            f"{rollout.group_size}); allowed: {_divisors(completions)}."
        ]
    if rollout.refill is not None and not recipe.filters:
        return ["rollout.refill: refills dropped groups, and `filters` is empty; name one, e.g. zero_spread."]
    return []


def _old_logprobs(recipe: Recipe) -> list[str]:
    """What speaks against the engine's own log-probabilities as those of the old policy."""
    if recipe.rollout.old_logprobs != "engine":
        return []
    sampling = recipe.sampling
    cut = {"top_p": sampling.top_p < 1, "top_k": sampling.top_k, "min_p": sampling.min_p}
    errors = [
        f"rollout.old_logprobs: the engine's are of what sampling.{key} leaves of the distribution, the "
        f"trainer's are of all of it; use recompute, or no {key}."
        for key, given in cut.items()
        if given
    ]
    if recipe.trainer.get("vllm_importance_sampling_correction"):
        errors.append(
            "trainer.vllm_importance_sampling_correction: needs log-probabilities of both engine and "
            "trainer; remove it, or set rollout.old_logprobs: recompute."
        )
    return errors


def _lists(recipe: Recipe) -> list[str]:
    errors = []
    names = [entry.name for entry in recipe.rewards]
    for name in sorted({n for n in names if names.count(n) > 1}):
        errors.append(f"rewards: {name!r} is named {names.count(name)} times; name it once, with one weight.")
    if all(entry.weight == 0 for entry in recipe.rewards):
        errors.append("rewards: every weight is 0, so nothing would be trained on; give one a weight.")
    settings = [setting.name for setting in recipe.evaluation.settings]
    for name in sorted({n for n in settings if settings.count(n) > 1}):
        errors.append(f"evaluation.settings: two settings are called {name!r}; their metrics would mix.")
    if recipe.evaluation.enabled and not settings:
        errors.append("evaluation.settings: is empty; give a setting, or set evaluation.enabled: false.")
    if recipe.evaluation.enabled and recipe.data.eval is None:
        errors.append(
            "data.eval: is null while evaluation.enabled is true; name a dataset or switch evaluation off."
        )
    return errors


def _trainer(recipe: Recipe) -> list[str]:
    # which script runs the recipe is not known here, but `batch` is read by SFT alone
    owned = OWNED_BY["grpo" if recipe.batch is None else "sft"]
    errors = [
        f"trainer.{name}: is decided by {owned[name]}; write it there and remove it here."
        for name in recipe.trainer
        if name in owned
    ]
    if not recipe.rollout.clip:
        errors += [
            f"trainer.{name}: has no meaning while rollout.clip is false; remove one of the two."
            for name in ("epsilon", "epsilon_high", "delta")
            if name in recipe.trainer
        ]
        if (loss := recipe.trainer.get("loss_type")) in ("sapo", "vespo"):
            errors.append(f"rollout.clip: {loss} has no clip to leave out; remove the key.")
    if recipe.trainer.get("use_adaptive_entropy"):
        errors.append(
            "trainer.use_adaptive_entropy: its controller counts forwards, and a step here has as many as "
            "fit the budget; use entropy_coef."
        )
    if recipe.trainer.get("entropy_coef") and recipe.trainer.get("top_entropy_quantile", 1) != 1:
        errors.append(
            "trainer.entropy_coef: together with top_entropy_quantile it would be a mean over tokens that "
            "differ by micro-batch; use one of the two."
        )
    return errors


def check_processes(recipe: Recipe, processes: int) -> None:
    """Raise RecipeError unless each process gets whole groups and an equal share of each update."""
    rollout = recipe.rollout
    if rollout.prompts_per_step % processes:
        raise RecipeError(
            f"rollout.prompts_per_step: {rollout.prompts_per_step} prompts do not divide evenly over "
            f"{processes} processes, and a prompt's completions are sampled and graded by one process. Make "
            f"prompts_per_step a multiple of {processes}, or start fewer processes."
        )
    completions = rollout.prompts_per_step * rollout.group_size
    if completions % (rollout.updates_per_rollout * processes):
        raise RecipeError(
            f"rollout.prompts_per_step: {rollout.prompts_per_step} prompts x {rollout.group_size} = "
            f"{completions} completions do not divide evenly into {rollout.updates_per_rollout} updates on "
            f"{processes} processes. Make prompts_per_step x group_size a multiple of "
            f"{rollout.updates_per_rollout * processes}."
        )


def check_reward_timeout(recipe: Recipe, processes: int, patience: float) -> None:
    """Raise RecipeError when processes would give each other up, after `patience` s, before a hung reward."""
    timeout = recipe.checks.reward_timeout
    if processes > 1 and timeout is not None and timeout >= patience:
        raise RecipeError(
            f"checks.reward_timeout: got {timeout:g}; while a reward of one process hangs, the others wait, "
            f"and they give up after trainer.ddp_timeout, {patience:g} seconds. Make it less, or raise "
            "trainer.ddp_timeout."
        )


def check_context(recipe: Recipe, context_length: int, longest_prompt_tokens: int) -> None:
    """Raise RecipeError when the longest prompt plus `sampling.max_tokens` exceeds the context, in tokens."""
    total = longest_prompt_tokens + recipe.sampling.max_tokens
    if total > context_length:
        room = context_length - longest_prompt_tokens
        way_out = (
            f"Set sampling.max_tokens to at most {room}, or drop"
            if room > 0
            else "The prompt alone fills the context. Drop"
        )
        raise RecipeError(
            f"sampling.max_tokens: the longest prompt has {longest_prompt_tokens} tokens, and with "
            f"{recipe.sampling.max_tokens} new ones that is {total}, over the context of {context_length} "
            f"tokens of {recipe.model.path!r}. {way_out} long prompts with the filter prompt_length."
        )


def check_enough_prompts(recipe: Recipe, rows: int) -> None:
    """Raise DataError when the training rows that passed the filters do not fill one step."""
    needed = recipe.rollout.prompts_per_step
    if rows < needed:
        raise DataError(
            f"{recipe.data.train.name!r} leaves {rows} training rows, and a step needs {needed}. Set "
            f"rollout.prompts_per_step to at most {rows}, raise data.train_size, or filter less."
        )


def _divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)
