"""What a worker does with a pair that the cheap road leaves open: the same rules, wider limits, sympy.

Only ever called inside a worker process, which has a memory limit and is killed at its time limit.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from trlmath.grading.clean import clean
from trlmath.grading.limits import LIMITS
from trlmath.grading.rules import NEEDS_WORKER, Pair, Ruling, decide

STACK_BYTES = 512 * 1024 * 1024
WARM_UP = ((r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}"), (r"\int_0^1 x^2 dx", r"\frac{1}{3}"))
CLEARLY = 1e-2
"""A numeric integral or sum further than this from the gold is another number."""


def judge(prediction: str, gold: str) -> tuple[bool | None, str, str]:
    """(equal, rule, reason) of one pair, in a thread with a deep stack."""
    answer: list[Any] = []

    def work() -> None:
        try:
            answer.append(_judge(prediction, gold))
        except (MemoryError, RecursionError) as error:  # carried over to the calling thread, which raises it
            answer.append(error)

    thread = threading.Thread(target=work, name="judge")
    thread.start()
    thread.join()
    if not answer:
        return None, "crash", "the grader failed on this answer"
    if isinstance(answer[0], BaseException):
        raise answer[0]
    return answer[0]


def prepare() -> None:
    """Once a worker: widen the limits and import what takes long."""
    LIMITS.relax()
    sys.setrecursionlimit(200_000)
    sys.set_int_max_str_digits(0)
    threading.stack_size(STACK_BYTES)
    import logging

    import math_verify  # noqa: F401
    import sympy  # noqa: F401

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that we limit the time ourselves
    for prediction, gold in WARM_UP:  # sympy imports and compiles much of itself at first use
        symbolic(Pair(prediction, gold))


def _judge(prediction: str, gold: str) -> tuple[bool | None, str, str]:
    pair = Pair(prediction, gold)
    ruling = decide(pair)
    if ruling.rule == NEEDS_WORKER:
        ruling = symbolic(pair)
    return ruling.equal, ruling.rule, ruling.reason


def symbolic(pair: Pair) -> Ruling:
    """Read both with math-verify's LaTeX grammar and compare the sympy expressions."""
    import sympy

    left, right = _read(pair.p), _read(pair.g)
    if right is None:
        if pair.node_g is None:
            return Ruling(None, "unreadable_gold", "the gold answer cannot be read as an expression")
        return Ruling(False, "symbolic", "the prediction cannot be reduced to the gold's form")
    if left is None:
        return Ruling(False, "unparseable_answer", "the prediction cannot be read as an expression")
    if left == right:
        return Ruling(True, "symbolic", "the same sympy expression")
    if not isinstance(left, sympy.Expr) or not isinstance(right, sympy.Expr):
        return Ruling(False, "symbolic", "different sympy objects")
    gap = left - right
    if not gap.free_symbols and gap.has(sympy.Integral, sympy.Sum):
        estimate = gap.evalf(15, maxn=40)
        if estimate.is_number and estimate.is_finite and abs(estimate) > CLEARLY:
            return Ruling(False, "symbolic", "numerically far from the gold")
    if gap.has(sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative):
        gap = gap.doit()
    if sympy.simplify(gap) == 0:
        return Ruling(True, "symbolic", "sympy simplifies the difference to zero")
    return Ruling(False, "symbolic", "sympy does not simplify the difference to zero")


def _read(text: str) -> Any:
    """The sympy object of a LaTeX expression, or None when it is none or more than one."""
    import sympy
    from math_verify import LatexExtractionConfig, parse

    found = parse(
        f"${clean(text)}$",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=None,
    )
    objects = [item for item in found if isinstance(item, sympy.Basic)]
    return objects[0] if len(objects) == 1 else None
