"""``trlmath traces make``: worked answers for SFT from a stronger model."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import click

from trlmath.cli.launch import quiet_libraries, readable_errors
from trlmath.errors import RecipeError
from trlmath.secrets import of_variable

# tokens of a trace where nothing is said and the teacher's context allows it
ROOM = 1024


@click.group()
def traces() -> None:
    """Make worked answers to train on."""


@traces.command(short_help="Ask a stronger model for traces.")
@click.option("--dataset", required=True, help="A registered dataset, a file or a Hub id.")
@click.option(
    "--split",
    type=click.Choice(["train", "eval"]),
    default="train",
    show_default=True,
    help="Of the dataset.",
)
@click.option("--column", "columns", multiple=True, metavar="FIELD=COLUMN", help="E.g. question=problem.")
@click.option("--teacher", required=True, help="nano, a model folder, a Hub id, or the URL of a server.")
@click.option("--model", help="The model's name on the server.  [default: the only one]")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the server's key.")
@click.option("--chat", is_flag=True, help="The prompt is a user's message, not a text to continue.")
@click.option(
    "-n", "--n", "n", type=click.IntRange(min=1), default=1, show_default=True, help="Traces a problem."
)
@click.option("--prompt", default="r1_zero", show_default=True, help="A registered prompt or template file.")
@click.option(
    "--temperature", type=click.FloatRange(min=0), default=1.0, show_default=True, help="0 is greedy."
)
@click.option(
    "--top-p",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=1.0,
    show_default=True,
    help="Nucleus sampling; 1 keeps all tokens.",
)
@click.option("--max-tokens", type=click.IntRange(min=1), help="Of a trace.  [default: 1024, or what fits]")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many problems.  [default: all]")
@click.option("--reward", default="r1_zero", show_default=True, help="The reward that grades.")
@click.option(
    "--keep",
    type=click.Choice(["finished", "right"]),
    default="finished",
    show_default=True,
    help="Write all that ended by themselves, or of these the right ones.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draw.")
@click.option("--concurrency", type=click.IntRange(min=1), default=32, show_default=True, help="Of a server.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "vllm", "transformers"]),
    default="auto",
    show_default=True,
    help="What generates, for a teacher in this process.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder; the same one goes on.")
def make(
    dataset: str,
    split: Literal["train", "eval"],
    columns: tuple[str, ...],
    limit: int | None,
    out: Path,
    **options: Any,
) -> None:
    """Ask a stronger model for traces in the prompt's format, grade them, and write what SFT reads.

    Writes samples.jsonl, every completion with its grade, and traces.jsonl: give that as data.train. A trace
    that was cut off by --max-tokens is not written. An interrupted command goes on when given again.

    \b
    trlmath traces make --dataset train.jsonl --teacher http://localhost:8000 --n 4 --out teacher
    trlmath traces make --dataset openai/gsm8k --teacher Qwen/Qwen2.5-Math-7B-Instruct --chat --out teacher
    """
    quiet_libraries()
    with readable_errors(), ExitStack() as held:
        from trlmath.cli.data import pair
        from trlmath.data.load import load_problems
        from trlmath.data.prompts import load_prompt
        from trlmath.evaluation.teach import TraceMaker
        from trlmath.recipe.schema import RewardEntry
        from trlmath.reports.console import ConsoleDisplay
        from trlmath.rewards import build_rewards
        from trlmath.sampling.settings import SamplingSettings

        problems = load_problems(dataset, split, dict(pair(column) for column in columns))[:limit]
        prompt = load_prompt(options["prompt"])
        prompts = [prompt.render(problem.question) for problem in problems]
        teacher, room = _teacher(prompts, options, held)
        settings = SamplingSettings(
            temperature=options["temperature"],
            top_p=options["top_p"],
            max_tokens=room,
            stop=(prompt.stop,) if prompt.stop else (),
            seed=options["seed"],
        )
        rewards = build_rewards([RewardEntry(name=options["reward"])])
        display = ConsoleDisplay()
        maker = TraceMaker(problems, prompt, teacher, rewards, settings, options["n"], out, options["keep"])
        with maker, display.bar("traces", len(problems)) as advance:
            made = maker.run(advance)
        for line in made.lines():
            display.note(line)


def _teacher(prompts: list[str], options: dict[str, Any], held: ExitStack) -> tuple[Any, int]:
    """What `--teacher` names, and the most tokens of a trace; a model is loaded when it is first asked."""
    from trlmath.sampling.teacher import LocalTeacher, ServedTeacher

    name, chat, wanted = options["teacher"], options["chat"], options["max_tokens"]
    if name.startswith(("http://", "https://")):
        key = _key(options["api_key_env"])
        served = ServedTeacher(name, options["model"], chat, options["concurrency"], api_key=key)
        return served, wanted or ROOM
    for option in ("model", "api_key_env"):
        if options[option] is not None:
            raise RecipeError(
                f"--{option.replace('_', '-')} belongs to a server, and --teacher {name!r} is none. A server "
                "is given as its URL, http://..."
            )
    from transformers.utils.logging import disable_progress_bar

    from trlmath.recipe import Recipe
    from trlmath.sampling.build import build_sampler
    from trlmath.sampling.choose import engine_of
    from trlmath.sampling.devices import own_device
    from trlmath.sampling.models import count_parameters, located, read_model_files, weights_fingerprint

    recipe = Recipe.model_validate(
        {"model": {"path": name, "dtype": "auto"}, "sampling": {"engine": options["engine"]}}
    )
    files = read_model_files(located(name))
    engine, _ = engine_of(recipe, count_parameters(files.config))
    identity = {"model": files.path, "weights": weights_fingerprint(files.path), "chat": chat}

    def load() -> Any:
        disable_progress_bar()  # transformers' own would break into ours
        return build_sampler(recipe, files, engine, longest + room, held, device=own_device())

    teacher = LocalTeacher(identity, files.tokenizer, load, chat)
    longest = max(map(len, teacher.tokenize(prompts)))
    left = ROOM if files.context is None else files.context - longest
    room = wanted or max(1, min(ROOM, left))
    if files.context is not None and room > left:
        raise RecipeError(
            f"--max-tokens: the longest prompt has {longest} tokens, and {room} more are over the context of "
            f"{name!r}, {files.context}. Give at most {left}, or a --limit that leaves the longest out."
        )
    return teacher, room


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = of_variable(name)
    if not key:
        raise RecipeError(f"--api-key-env: the environment has no variable {name!r}, or it is empty.")
    return key
