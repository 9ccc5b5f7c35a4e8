"""The vLLM server engine: a running OpenAI-compatible vLLM, asked over HTTP with token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from trlmath.errors import EngineError
from trlmath.sampling.room import check_pairs, check_room, smaller
from trlmath.sampling.server_http import Connection
from trlmath.sampling.settings import SamplingSettings
from trlmath.sampling.stopping import finish_reason
from trlmath.types import Group, Rollout

if TYPE_CHECKING:
    import torch

    from trlmath.sampling.server_weights import ServerWeights

T = TypeVar("T")


class ServerSampler:
    """Samples from one or several vLLM servers, and updates them when given a way to.

    Args:
        url: e.g. ``http://localhost:8000``; with several, prompts are spread over them.
        context: tokens a prompt and its completion may take together; None: what the servers have.
        model: its name on the server; default: the only one served.
        concurrency: requests at a time to each server; it batches them.
        timeout: seconds one request may take.
        api_key: sent as a bearer token.
        weights: brings new weights to the servers; None: they keep their own.
        explain: see `Connection`.

    Raises:
        EngineError: nothing answers, it is no such server, or its context is too small.
    """

    name = "server"
    shares_weights = False
    streams = True  # groups can be had as they finish
    own_random = True  # numbers that no state of this process moves: only a seed repeats a draw

    def __init__(
        self,
        url: str | Sequence[str],
        context: int | None,
        model: str | None = None,
        concurrency: int = 64,
        timeout: float = 600.0,
        api_key: str | None = None,
        weights: ServerWeights | None = None,
        explain: Callable[[], str] = lambda: "",
    ) -> None:
        self.concurrency, self.weights_version, self._weights = concurrency, 0, weights
        self._close: Callable[[], None] = lambda: None
        # called when a server that had lost its weights was given them again, to have them proven
        self.on_renewed: Callable[[], None] = lambda: None
        urls = [url] if isinstance(url, str) else list(url)
        self.connections = [Connection(u, timeout, api_key, explain) for u in urls]
        served = [_served_model(c, model, context) for c in self.connections]
        self.models, self._rooms = [name for name, _ in served], [room for _, room in served]
        self.context = smaller(context, *self._rooms)

    @property
    def url(self) -> str:
        """Of the first server."""
        return self.connections[0].url

    def take_weights_from(self, weights: ServerWeights) -> None:
        """From now on `load_weights` brings weights to the servers."""
        self._weights = weights

    def check_tokenizer(self, text: str, ids: Sequence[int]) -> None:
        """Raise EngineError when a server's model reads `text` as other tokens than `ids`."""
        for connection, model in zip(self.connections, self.models, strict=True):
            answer = connection.ask("/tokenize", {"model": model, "prompt": text}, 60.0, tries=3)
            theirs = answer.get("tokens", [])
            if list(theirs) != list(ids):
                raise EngineError(
                    f"the server's model {model!r} has another tokenizer than model.path: {text[:40]!r} is "
                    f"{list(theirs)[:8]}... there and {list(ids)[:8]}... here. Set model.path (--model) to "
                    "the model that is served."
                )

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        settings: SamplingSettings,
        n: int = 1,
        on_group: Callable[[int, Group], None] | None = None,
    ) -> list[Group]:
        """See `Sampler.generate`; `on_group` is called with a prompt's number and its group as it comes."""
        check_room(prompts, settings, self.context)
        if self._weights is not None and self._weights.check(self.connections):
            self.on_renewed()
        # a server not started by us tells log-probabilities of the model, which are those drawn from only
        # where nothing is changed; ours (those that take weights) tell those of the distribution drawn from
        plain = settings.temperature in (0, 1) and (settings.top_p, settings.top_k, settings.min_p) == (
            1,
            0,
            0,
        )
        known = plain or self._weights is not None

        def draw(number: int) -> Group:
            connection, model = self._at(number)
            body = self._body(model, list(prompts[number]), settings, n, number)
            answer = connection.ask("/v1/completions", body, tries=3)
            rollouts = (_rollout(choice, known, connection.url) for choice in _choices(answer, n))
            group = Group("", tuple(prompts[number]), tuple(rollouts))
            if on_group is not None:
                on_group(number, group)
            return group

        groups = self._at_once(draw, len(prompts), self.concurrency * len(self.connections))
        if self._weights is not None:
            self._weights.check_unchanged(self.connections)
        return groups

    @staticmethod
    def _at_once(work: Callable[[int], T], count: int, threads: int) -> list[T]:
        """`work` of each number below `count`, several at a time."""
        with ThreadPoolExecutor(threads) as pool:
            pending = [pool.submit(work, number) for number in range(count)]
            try:
                return [future.result() for future in pending]
            except BaseException:
                # one failed: what has not been asked yet is not asked
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _at(self, number: int) -> tuple[Connection, str]:
        place = number % len(self.connections)
        return self.connections[place], self.models[place]

    def _body(
        self, model: str, prompt: list[int], settings: SamplingSettings, n: int, number: int
    ) -> dict[str, Any]:
        return {
            "model": model,
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
        return self._score_at(0, prompts, completions)

    def score_everywhere(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[list[list[float]]]:
        """As `score`, of each server: one with old weights cannot hide among fresh ones."""
        return [self._score_at(place, prompts, completions) for place in range(len(self.connections))]

    def _score_at(
        self, place: int, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        check_pairs(prompts, completions, self.context)
        connection, room = self.connections[place], self._rooms[place]

        def ask(number: int) -> list[float]:
            first, ids = len(prompts[number]), [*prompts[number], *completions[number]]
            if first == len(ids):
                return []
            body: dict[str, Any] = {
                "model": self.models[place],
                "prompt": ids,
                "max_tokens": 1,
                "temperature": 0.0,
                "prompt_logprobs": 0,
            }
            # a server always draws a token; where there is no room for one, the last is asked for as what
            # is drawn
            full = len(ids) == room
            if full:
                body |= {"prompt": ids[:-1], "logprobs": 1, "logprob_token_ids": ids[-1:]}
                body |= {"return_tokens_as_token_ids": True, "repetition_penalty": 1.0}
            answer = connection.ask("/v1/completions", body, tries=3)["choices"][0]
            told = answer["prompt_logprobs"]
            known = range(first, len(ids) - full)
            scores = [told[i][str(ids[i])]["logprob"] for i in known]
            return [*scores, _last(answer, ids[-1], connection.url)] if full else scores

        return self._at_once(ask, len(prompts), self.concurrency)

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """See `Sampler.load_weights`. Raises EngineError, also where the servers keep their own weights."""
        if self._weights is None:
            raise EngineError(
                f"the server at {self.url} keeps its own weights: it can be evaluated, not trained."
            )
        self._weights.send(named_tensors)
        self.weights_version += 1

    def close(self) -> None:
        """Stop the servers that were started for this sampler; others go on."""
        self._close()

    def on_close(self, close: Callable[[], None]) -> None:
        """Have `close` called by `close`."""
        self._close = close


def _last(choice: Mapping[str, Any], token: int, url: str) -> float:
    """The log-probability of `token`, which was asked for where the next token is drawn."""
    told = ((choice.get("logprobs") or {}).get("top_logprobs") or [{}])[0]
    if f"token_id:{token}" not in told:
        raise EngineError(
            f"the server at {url} cannot score a completion that fills its context: its vLLM is older than "
            "0.31. Start it with a larger --max-model-len."
        )
    return told[f"token_id:{token}"]


def _served_model(connection: Connection, model: str | None, context: int | None) -> tuple[str, int | None]:
    """The name of the model that is served, and the server's context."""
    answer = connection.ask("/v1/models", None, 10.0)
    served = {entry["id"]: entry for entry in (answer or {}).get("data", [])}
    if model is None and len(served) == 1:
        model = next(iter(served))
    if model is None or model not in served:
        raise EngineError(
            f"the server at {connection.url} serves {', '.join(served) or 'no model'}, not {model!r}. Name "
            "one of them: sampling.engine_options.model."
        )
    room = served[model].get("max_model_len")
    if room is not None and context is not None and room < context:
        raise EngineError(
            f"the server at {connection.url} has a context of {room} tokens, and prompt and completion need "
            f"{context}. Start it with --max-model-len {context}, or lower sampling.max_tokens."
        )
    return model, room


def _choices(answer: Mapping[str, Any], n: int) -> list[dict[str, Any]]:
    choices = sorted(answer.get("choices", []), key=lambda choice: choice["index"])
    if len(choices) != n:
        raise EngineError(f"the server returned {len(choices)} completions where {n} were asked for.")
    return choices


def _rollout(choice: Mapping[str, Any], plain: bool, url: str) -> Rollout:
    reason = finish_reason(choice["finish_reason"], f"the server at {url}")
    ids = choice.get("token_ids")
    if ids is None:
        raise EngineError(f"the server at {url} returns no token ids: it is no vLLM, or older than 0.11.")
    logprobs = (choice.get("logprobs") or {}).get("token_logprobs") if plain else None
    return Rollout(choice["text"], tuple(ids), None if logprobs is None else tuple(logprobs), reason)
