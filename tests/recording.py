"""A stand-in for vLLM's engine that can sleep, notes what is asked of it, and refuses a wrong order."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

ALL = {"weights", "kv_cache"}


class RecordingLLM:
    """What `VllmSampler` uses of `vllm.LLM`; samples and scores with a `TransformersSampler`.

    Attributes:
        events: what was asked, in order: ``generate``, ``score``, ``load`` (once for all tensors), ``reset``,
            ``sleep``, ``wake weights``, ``wake kv_cache``.
        awake: what of the engine's memory is there.
    """

    def __init__(self, module, events):
        self.module, self.events, self.awake = module, events, set(ALL)
        self.llm_engine = self.model_executor = self.driver_worker = self.model_runner = self
        self.engine_core = self.model = self
        self.request_counter, self.step = SimpleNamespace(counter=0), list  # it hands out nothing early

    def load_weights(self, weights):
        assert "weights" in self.awake, "loaded into memory that sleeps"
        if self.events[-1:] != ["load"]:
            self.events.append("load")
        own = dict(self.module.model.named_parameters())
        for name, tensor in weights:
            if name in own:
                own[name].data.copy_(tensor)

    def reset_prefix_cache(self):
        self.events.append("reset")
        return True

    def sleep(self, level):
        assert self.awake == ALL, f"put to sleep while only {self.awake} is awake"
        self.awake = set()
        self.events.append("sleep")

    def wake_up(self, tags):
        assert not self.awake & set(tags), f"woken again: {tags}"
        self.awake |= set(tags)
        self.events.append(f"wake {'+'.join(tags)}")

    def shutdown(self):
        self.events.append("shutdown")

    def generate(self, requests, params, use_tqdm):
        assert self.awake == ALL, f"generates while only {self.awake} is awake"
        prompts = [request["prompt_token_ids"] for request in requests]
        if isinstance(params, list):
            self.events.append("generate")
            return [self._drawn(prompt, param) for prompt, param in zip(prompts, params, strict=True)]
        self.events.append("score")
        return [self._scored(prompt) for prompt in prompts]

    def _drawn(self, prompt, param):
        from trlmath.sampling.settings import SamplingSettings

        settings = SamplingSettings(
            temperature=param.temperature, max_tokens=param.max_tokens, seed=param.seed
        )
        group = self.module.generate([prompt], settings, param.n)[0]
        outputs = [
            SimpleNamespace(
                index=i,
                text=r.text,
                token_ids=list(r.token_ids),
                logprobs=[
                    {t: SimpleNamespace(logprob=p)} for t, p in zip(r.token_ids, r.logprobs, strict=True)
                ],
                finish_reason=r.finish_reason,
            )
            for i, r in enumerate(group.rollouts)
        ]
        return SimpleNamespace(outputs=outputs)

    def _scored(self, ids):
        scores = self.module.score([ids[:1]], [ids[1:]])[0]
        told = [None, *({t: SimpleNamespace(logprob=p)} for t, p in zip(ids[1:], scores, strict=True))]
        return SimpleNamespace(prompt_token_ids=ids, prompt_logprobs=told)


def recording_sampler(monkeypatch, module, events):
    """A `VllmSampler` with sleep on, around a `RecordingLLM`; vLLM itself need not be there."""
    from trlmath.sampling.vllm_engine import VllmSampler

    stub = ModuleType("vllm")
    stub.SamplingParams = SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", stub)
    sampler = VllmSampler.__new__(VllmSampler)
    sampler.llm, sampler.sleep, sampler.weights_version = RecordingLLM(module, events), True, 0
    sampler._asleep, sampler.context = set(), None
    sampler._go_to_sleep()
    return sampler
