"""`trlmath doctor [RECIPE]`: is this machine ready for a recipe?"""

from __future__ import annotations

import click

from trlmath.errors import visible

_MARKS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "fail": ("FAIL", "red")}


@click.command()
@click.argument("recipe", default="nano/grpo")
@click.argument("overrides", nargs=-1, metavar="[KEY.SUBKEY=VALUE]...")
@click.option(
    "--algorithm",
    type=click.Choice(["grpo", "sft", "expert_iteration", "evaluate"]),
    help="Whose recipe it is; default: what its file is called.",
)
@click.option(
    "--no-engine", is_flag=True, help="Load no weights and start no engine: seconds instead of a minute."
)
def doctor(recipe: str, overrides: tuple[str, ...], algorithm: str | None, no_engine: bool) -> None:
    """Check this machine for RECIPE (a YAML file or a shipped name), one line a check.

    Looks at package versions, GPUs and memory, the recipe and its data, write access, ports, room for
    weights, servers; then starts the engine and proves that weights reach it. Ends with status 1 if the
    recipe would not run.
    """
    from trlmath.cli.launch import quiet_libraries
    from trlmath.recipe import load_recipe

    quiet_libraries()
    loaded = load_recipe(recipe, list(overrides))

    from trlmath.planning.doctor import examine

    failed = False
    for finding in examine(loaded, algorithm or guess(loaded.name), engine=not no_engine):
        mark, colour = _MARKS[finding.status]
        said = visible(finding.said)
        click.echo(f"{click.style(mark, fg=colour)}  {visible(finding.name):<12}  {said}")
        if finding.todo:
            click.echo(f"{'':20}{visible(finding.todo)}")
        failed |= finding.status == "fail"
    if failed:
        raise SystemExit(1)


def guess(name: str) -> str:
    """The algorithm that a recipe of this name is of."""
    for algorithm in ("expert_iteration", "evaluate", "sft"):
        if algorithm in name.replace("-", "_"):
            return algorithm
    return "grpo"
