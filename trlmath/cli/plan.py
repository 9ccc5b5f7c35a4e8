"""`trlmath plan RECIPE`: does it fit, what takes the memory, and how much work is it?"""

from __future__ import annotations

import os

import click

from trlmath.cli.echo import echo_json


@click.command()
@click.argument("recipe", default="nano/grpo")
@click.argument("overrides", nargs=-1, metavar="[KEY.SUBKEY=VALUE]...")
@click.option("--gpu", metavar="SIZE", help="Plan for a GPU of this size, e.g. 80GB; default: this machine.")
@click.option(
    "--algorithm",
    type=click.Choice(["grpo", "sft", "expert_iteration", "evaluate"]),
    help="Whose recipe it is; default: what its file is called.",
)
@click.option(
    "--processes", type=click.IntRange(1), default=1, show_default=True, help="Processes of the run."
)
@click.option(
    "--longest-prompt",
    type=click.IntRange(1),
    help="Tokens of the longest prompt, in place of reading the data.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, bytes as whole numbers.")
def plan(
    recipe: str,
    overrides: tuple[str, ...],
    gpu: str | None,
    algorithm: str | None,
    processes: int,
    longest_prompt: int | None,
    as_json: bool,
) -> None:
    """Estimate memory and work of RECIPE (a YAML file or a shipped name), loading no weight.

    Memory is told phase by phase, each at its widest: completions and prompts as long as they may be. The
    Hub is not asked: what is not in its cache is assumed, and said. Ends with status 1 if it does not fit,
    and names what to change and how far.
    """
    from trlmath.cli.launch import quiet_libraries
    from trlmath.recipe import load_recipe

    quiet_libraries()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    loaded = load_recipe(recipe, list(overrides))

    from trlmath.cli.doctor import guess
    from trlmath.planning.advice import knobs
    from trlmath.planning.machine import machine
    from trlmath.planning.plan import plan_of
    from trlmath.planning.table import show
    from trlmath.reports.plain import PlainConsole

    told = plan_of(loaded, algorithm or guess(loaded.name), machine(gpu), processes, longest_prompt)
    advice = [] if told.fits else knobs(told, loaded)
    if as_json:
        knobs_ = [
            {"changes": list(k.changes), "peak_bytes": k.peak, "fits": k.fits, "cost": k.cost} for k in advice
        ]
        echo_json({**told.to_dict(), "knobs": knobs_}, indent=2)
    else:
        console = PlainConsole()
        if not console.is_terminal:
            console.width = 160  # a log or a pipe has no width of its own
        show(told, loaded.name, advice, console)
    if not told.fits:
        raise SystemExit(1)
