"""Teachers: stronger models that answer prompts given as text, in process or on an OpenAI-like server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

from trlmath.errors import EngineError, nearest
from trlmath.sampling.sampler import Sampler
from trlmath.sampling.server_http import Connection
from trlmath.sampling.settings import SamplingSettings
from trlmath.types import Group, Rollout


class Teacher(Protocol):
    """What answers prompts.

    Attributes:
        identity: what tells it from another, as plain data; no secrets.
    """

    identity: dict[str, Any]

    def generate(self, prompts: Sequence[str], settings: SamplingSettings, n: int) -> list[Group]:
        """Return one group of `n` rollouts a prompt; raises EngineError."""
        ...


class LocalTeacher:
    """A model in an engine of this process, loaded when the first prompt comes.

    Args:
        identity: see `Teacher`.
        tokenizer: the model's.
        load: makes the engine.
        chat: the prompt is a user's message in the model's chat template; else the text itself.
    """

    def __init__(
        self, identity: dict[str, Any], tokenizer: Any, load: Callable[[], Sampler], chat: bool = False
    ) -> None:
        if chat and not getattr(tokenizer, "chat_template", None):
            raise EngineError("--chat: the teacher's tokenizer has no chat template. Leave --chat out.")
        self.identity, self.tokenizer, self.chat, self._load = identity, tokenizer, chat, load

    @cached_property
    def _sampler(self) -> Sampler:
        return self._load()

    def tokenize(self, prompts: Sequence[str]) -> list[list[int]]:
        """The tokens that the teacher is given for each prompt."""
        if not self.chat:
            return [list(ids) for ids in self.tokenizer(text=list(prompts))["input_ids"]]
        texts = [
            self.tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
            )
            for prompt in prompts
        ]
        return [list(ids) for ids in self.tokenizer(text=texts, add_special_tokens=False)["input_ids"]]

    def generate(self, prompts: Sequence[str], settings: SamplingSettings, n: int) -> list[Group]:
        """See `Teacher.generate`."""
        groups = self._sampler.generate(self.tokenize(prompts), settings, n=n)
        return [replace(group, prompt=prompt) for group, prompt in zip(groups, prompts, strict=True)]


class ServedTeacher:
    """A model behind any OpenAI-compatible server.

    vLLM is asked to end at the stop strings and to keep them. Other servers leave a stop string out and do
    not say that they met one: they are not told of any, and their text is cut after the first.

    Args:
        url: e.g. ``http://localhost:8000`` or ``https://api.example.com/v1``.
        model: its name there; None: the only one served.
        chat: ask for the answer to a user's message; else for the continuation of the text.
        concurrency: requests at a time.
        timeout: seconds one request may take.
        api_key: sent as a bearer token.

    Raises:
        EngineError: nothing answers, or no such model is served.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        chat: bool = False,
        concurrency: int = 32,
        timeout: float = 600.0,
        api_key: str | None = None,
    ) -> None:
        self._connection = Connection(url, timeout, api_key)
        self.chat, self.concurrency = chat, concurrency
        answer = self._connection.ask("/v1/models", timeout=30.0, tries=3)
        served = {entry["id"]: entry for entry in (answer or {}).get("data", [])}
        if model is None and len(served) == 1:
            model = next(iter(served))
        if model is None or model not in served:
            some = list(served)[:20]
            raise EngineError(
                f"the server at {self._connection.url} serves {', '.join(some) or 'no model'}"
                f"{', ...' if len(served) > len(some) else ''}, not {model!r}.{nearest(str(model), served)} "
                "Name one of them with --model."
            )
        self.model, self.vllm = model, served[model].get("owned_by") == "vllm"
        self.identity = {"model": model, "url": self._connection.url, "chat": chat}

    def generate(self, prompts: Sequence[str], settings: SamplingSettings, n: int) -> list[Group]:
        """See `Teacher.generate`. A finish reason other than ``stop`` and ``length`` is passed on."""
        # One completion a request: not every server allows more, and they count the tokens of all together.
        bodies = [self._body(p, settings, i * n + k) for i, p in enumerate(prompts) for k in range(n)]
        path = "/v1/chat/completions" if self.chat else "/v1/completions"
        with ThreadPoolExecutor(self.concurrency) as pool:
            answers = pool.map(lambda body: self._connection.ask(path, body, tries=3), bodies)
            rollouts = [self._rollout(answer, settings.stop) for answer in answers]
        return [Group(prompt, (), tuple(rollouts[i * n : (i + 1) * n])) for i, prompt in enumerate(prompts)]

    def _body(self, prompt: str, settings: SamplingSettings, number: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_tokens": settings.max_tokens,
        }
        body |= {"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt}
        if settings.seed is not None:
            body["seed"] = settings.seed + number
        if self.vllm:
            # Every field, so that the model's own generation config does not leak in.
            body |= {"top_k": settings.top_k, "min_p": settings.min_p, "min_tokens": settings.min_tokens}
            body |= {"stop": list(settings.stop), "include_stop_str_in_output": True}
            body |= {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
        return body

    def _rollout(self, answer: Mapping[str, Any], stop: Sequence[str]) -> Rollout:
        try:
            choice = answer["choices"][0]
            text = (choice["message"]["content"] if self.chat else choice["text"]) or ""
            reason = str(choice["finish_reason"])
            tokens = int((answer.get("usage") or {}).get("completion_tokens") or 0)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(
                f"the server at {self._connection.url} does not answer as OpenAI's does "
                f"({type(error).__name__}: {error}): {ascii(answer)[:200]}"
            ) from error
        ends = [text.index(s) + len(s) for s in stop if s in text]
        if ends:
            text, reason = text[: min(ends)], "stop"
        # The server counts tokens and does not name them; -1 stands for each.
        return Rollout(text, (-1,) * tokens, None, reason)  # type: ignore[arg-type]
