"""The vLLM server engine: a running OpenAI-compatible vLLM, asked over HTTP with token ids."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from trlmath.errors import EngineError
from trlmath.sampling.settings import SamplingSettings
from trlmath.types import Group, Rollout

if TYPE_CHECKING:
    import torch


class ServerSampler:
    """Samples from a vLLM server, whose weights it cannot change.

    Args:
        url: e.g. ``http://localhost:8000``.
        context: tokens a prompt and its completion may take together.
        model: its name on the server; default: the only one served.
        concurrency: requests at a time; the server batches them.
        timeout: seconds one request may take.
        api_key: sent as a bearer token.

    Raises:
        EngineError: nothing answers, it is no such server, or its context is too small.
    """

    name = "server"
    shares_weights = False

    def __init__(
        self,
        url: str,
        context: int,
        model: str | None = None,
        concurrency: int = 64,
        timeout: float = 3600.0,
        api_key: str | None = None,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.concurrency, self.timeout, self.weights_version = concurrency, timeout, 0
        self._key = api_key
        served = {entry["id"]: entry for entry in self._ask("/v1/models", None, 10.0).get("data", [])}
        if model is None and len(served) == 1:
            model = next(iter(served))
        if model is None or model not in served:
            raise EngineError(
                f"the server at {self.url} serves {', '.join(served) or 'no model'}, not {model!r}. Name "
                "one of them: sampling.engine_options.model."
            )
        self.model = model
        room = served[model].get("max_model_len")
        if room is not None and room < context:
            raise EngineError(
                f"the server at {self.url} has a context of {room} tokens, and prompt and completion need "
                f"{context}. Start it with --max-model-len {context}, or lower sampling.max_tokens."
            )

    def check_tokenizer(self, text: str, ids: Sequence[int]) -> None:
        """Raise EngineError when the server's model reads `text` as other tokens than `ids`."""
        theirs = self._ask("/tokenize", {"model": self.model, "prompt": text}, 60.0).get("tokens", [])
        if list(theirs) != list(ids):
            raise EngineError(
                f"the server's model {self.model!r} has another tokenizer than model.path: {text[:40]!r} is "
                f"{list(theirs)[:8]}... there and {list(ids)[:8]}... here. Set model.path (--model) to the "
                "model that is served."
            )

    def generate(
        self, prompts: Sequence[Sequence[int]], settings: SamplingSettings, n: int = 1
    ) -> list[Group]:
        """See `Sampler.generate`."""
        bodies = [self._body(list(prompt), settings, n, i) for i, prompt in enumerate(prompts)]
        # the server tells log-probabilities of the model, which are those drawn from only without changes
        plain = settings.temperature in (0, 1) and (settings.top_p, settings.top_k, settings.min_p) == (
            1,
            0,
            0,
        )
        with ThreadPoolExecutor(self.concurrency) as pool:
            answers = list(pool.map(lambda body: self._ask("/v1/completions", body, self.timeout), bodies))
        return [
            Group(
                "", tuple(prompt), tuple(_rollout(choice, plain, self.url) for choice in _choices(answer, n))
            )
            for prompt, answer in zip(prompts, answers, strict=True)
        ]

    def _body(self, prompt: list[int], settings: SamplingSettings, n: int, number: int) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": prompt,
            "n": n,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": settings.top_k,
            "min_p": settings.min_p,
            "min_tokens": settings.min_tokens,
            "max_tokens": settings.max_tokens,
            "stop": list(settings.stop),
            "include_stop_str_in_output": True,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "seed": None if settings.seed is None else settings.seed + number * n,
            "logprobs": 0,
            "return_token_ids": True,
        }

    def score(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """See `Sampler.score`."""
        scores = []
        for prompt, completion in zip(prompts, completions, strict=True):
            ids = [*prompt, *completion]
            body = {
                "model": self.model,
                "prompt": ids,
                "max_tokens": 1,
                "temperature": 0.0,
                "prompt_logprobs": 0,
            }
            told = self._ask("/v1/completions", body, self.timeout)["choices"][0]["prompt_logprobs"]
            scores.append([told[i][str(ids[i])]["logprob"] for i in range(len(prompt), len(ids))])
        return scores

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Not possible here. Raises EngineError."""
        raise EngineError(
            f"the server at {self.url} keeps its own weights: it can be evaluated, not trained."
        )

    def close(self) -> None:
        """The server goes on."""

    def _ask(self, path: str, body: Mapping[str, Any] | None, timeout: float) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            told = error.read().decode("utf-8", "replace")[:400]
            raise EngineError(f"the server at {self.url}{path} answered {error.code}: {told}") from error
        except (OSError, ValueError) as error:
            raise EngineError(
                f"no vLLM server answers at {self.url}{path}: {error}. Start one with `python -m "
                "vllm.entrypoints.openai.api_server --model DIR`, or correct sampling.url (--server)."
            ) from error


def _choices(answer: Mapping[str, Any], n: int) -> list[dict[str, Any]]:
    choices = sorted(answer.get("choices", []), key=lambda choice: choice["index"])
    if len(choices) != n:
        raise EngineError(f"the server returned {len(choices)} completions where {n} were asked for.")
    return choices


def _rollout(choice: Mapping[str, Any], plain: bool, url: str) -> Rollout:
    if choice["finish_reason"] not in ("stop", "length"):
        raise EngineError(f"the server at {url} ended a completion by {choice['finish_reason']!r}.")
    ids = choice.get("token_ids")
    if ids is None:
        raise EngineError(f"the server at {url} returns no token ids: it is no vLLM, or older than 0.11.")
    logprobs = (choice.get("logprobs") or {}).get("token_logprobs") if plain else None
    return Rollout(
        choice["text"], tuple(ids), None if logprobs is None else tuple(logprobs), choice["finish_reason"]
    )
