"""A plan as a person reads it: one table of memory, a few lines on the work, what fits and what would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trlmath.planning.advice import Knob
from trlmath.planning.machine import GIB
from trlmath.planning.plan import Plan


def show(plan: Plan, name: str, advice: Sequence[Knob], console: Console) -> None:
    """Print the plan of the recipe called `name`."""
    shape = plan.shape
    trained = "" if shape.trained == shape.parameters else f", {shape.trained / 1e6:,.1f} M of them trained"
    _line(console, f"recipe   {name}, {plan.algorithm}")
    _line(console, f"model    {shape.parameters / 1e6:,.1f} M parameters in {shape.dtype}{trained}")
    _line(console, f"engine   {plan.engine}: {plan.why}")
    shared = "" if plan.processes == 1 else f", {plan.processes} processes"
    _line(console, f"machine  {plan.machine.said}{shared}")
    for line in work(plan):
        _line(console, f"work     {line}")
    console.print(_memory(plan))
    for note in plan.notes:
        _line(console, f"note     {note}")
    _line(console, verdict(plan))
    for knob in advice:
        mark = "fits" if knob.fits else "    "
        _line(console, f"  {mark}  {' '.join(knob.changes)}: {amount(knob.peak)} ({knob.phase}); {knob.cost}")


def verdict(plan: Plan) -> str:
    """Whether it fits, in a sentence."""
    peak = f"{amount(plan.needed)} at the peak ({plan.peak.name})"
    if plan.processes > 1 and not plan.machine.gpu:
        peak += f", {plan.processes} processes together"
    if plan.fits:
        return f"fits     {peak} of {amount(plan.machine.memory)}"
    return f"NO FIT   {peak}, and there are {amount(plan.machine.memory)}. Turn one of these:"


def work(plan: Plan) -> Iterator[str]:
    """What a step and the run do."""
    steps, unit = plan.steps, plan.steps.unit
    if steps.rollouts:
        updates = f"{steps.updates:,} update{'s' if steps.updates > 1 else ''}"
        most = "at most " if unit == "iteration" else ""
        yield (
            f"a {unit}: {steps.prompts:,} prompts, {steps.rollouts:,} rollouts, at most {steps.tokens:,} "
            f"tokens generated, {most}{updates}"
        )
    elif steps.tokens:
        yield f"a {unit}: {len(plan.facts.examples):,} examples, at most {steps.tokens:,} tokens, one update"
    if steps.updates:
        if steps.count is None:
            yield "the run: as many steps as the data has; set trainer.max_steps to know"
        else:
            kind = "trained on" if plan.algorithm == "sft" else "generated"
            yield (
                f"the run: {steps.count:,} {unit}s, {steps.all_updates:,} updates, at most "
                f"{steps.all_tokens:,} tokens {kind}"
            )
    if steps.evaluations:
        told = "" if steps.evaluated is None else f", at most {steps.evaluated:,} tokens generated"
        yield f"evaluations: {steps.evaluations:,}{told}"


def amount(count: float) -> str:
    """Bytes as a person reads them."""
    return f"{count / GIB:,.1f} GiB" if count >= GIB else f"{count / 2**20:,.0f} MiB"


def _memory(plan: Plan) -> Table:
    names = list(dict.fromkeys(part for phase in plan.phases for part in phase.parts))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("memory of a process")
    for phase in plan.phases:
        table.add_column(phase.name, justify="right", no_wrap=True)
    for name in names:
        table.add_row(name, *(_cell(phase.parts.get(name)) for phase in plan.phases))
    wide = plan.peak
    table.add_row(
        Text("together", style="bold"),
        *(Text(amount(p.total), style="bold" if p is wide else "") for p in plan.phases),
    )
    return table


def _cell(count: int | None) -> str:
    return "" if count is None else amount(count)


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True, highlight=False)
