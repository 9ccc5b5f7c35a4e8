"""Do two parsed answers denote one object? Values, lists, tuples, sets, matrices, equations, inequalities.

An answer may be read in more than one way (``x = 5`` is an equation and states the value 5); two answers
agree when some reading of one agrees with a reading of the same kind of the other.
"""

from __future__ import annotations

from fractions import Fraction

from trlmath.grading.readings import Reading, expand, readings
from trlmath.grading.realsets import NotASet, real_set, same_set
from trlmath.grading.syntax import Node, variables
from trlmath.grading.units import conflict
from trlmath.grading.values import exact, proportional, same

MAX_ITEMS = 60


RULE = {
    "matrix": "matrix", "tuple": "tuple", "many": "list", "set": "real_set",
    "equation": "equation", "inequality": "inequality", "ratio": "ratio", "text": "text",
}  # fmt: skip


def agree(left: Node, right: Node, lenient: bool = True) -> tuple[bool | None, str]:
    """(equal, rule) of a predicted and a gold expression.

    `lenient` allows the prediction to name what it computed (``m + n = 25`` for 25).
    None when no reading could be decided within the limits.
    """
    if left == right:
        return True, "same_form"
    undecided = False
    last = "structure"
    golds = list(readings(right, False))
    for mine in readings(left, lenient):
        for gold in golds:
            if mine.kind != gold.kind:
                continue
            outcome = _MATCH[mine.kind](mine, gold)
            if outcome:
                return True, _rule(mine, gold)
            last = _rule(mine, gold)
            undecided = undecided or outcome is None
    return (None if undecided else False), last


def _rule(left: Reading, right: Reading) -> str:
    """The name of the rule that compares two readings of one kind."""
    if left.kind != "value":
        return RULE[left.kind]
    if variables(left.node) or variables(right.node):
        return "function"
    return "number" if exact(left.node) is None or exact(right.node) is None else "rational"


# -- agreement of two readings of a kind ------------------------------------


def _values(left: Reading, right: Reading) -> bool | None:
    bases = [reading.node[2] for reading in (left, right) if reading.node[0] == "base"]
    if len(set(bases)) == 2 or (len(bases) == 1 and bases[0] != 10):
        return False  # a number written in another base is another answer
    if left.unit == right.unit == "pct":
        return same(left.node, right.node)
    if "pct" in (left.unit, right.unit):
        plain, percent = (right, left) if left.unit == "pct" else (left, right)
        if plain.unit and conflict(plain.unit, "pct"):
            return False
        hundredth: Node = ("div", percent.node, ("num", Fraction(100)))
        return same(plain.node, percent.node) or same(plain.node, hundredth)
    if conflict(left.unit, right.unit):
        return False
    return same(left.node, right.node)


def _pairwise(left: tuple[Node, ...], right: tuple[Node, ...]) -> bool | None:
    if len(left) != len(right):
        return False
    outcomes = [agree(a, b, False)[0] for a, b in zip(left, right, strict=True)]
    return False if False in outcomes else None if None in outcomes else True


def _tuples(left: Reading, right: Reading) -> bool | None:
    return left.node[1] == right.node[1] and _pairwise(left.node[2:], right.node[2:])


def _matrices(left: Reading, right: Reading) -> bool | None:
    one, two = left.node[1], right.node[1]
    if len(one) != len(two) or len(one[0]) != len(two[0]):
        return False
    return _pairwise(tuple(e for row in one for e in row), tuple(e for row in two for e in row))


def _many(left: Reading, right: Reading) -> bool | None:
    one = [item for part in left.node[2:] for item in expand(part)]
    two = [item for part in right.node[2:] for item in expand(part)]
    if len(one) > MAX_ITEMS or len(two) > MAX_ITEMS:
        return None
    if "{}" in (left.node[1], right.node[1]):
        one, two = _distinct(one), _distinct(two)
    if len(one) != len(two):
        return False
    undecided = False
    for item in one:
        for index, other in enumerate(two):
            outcome = agree(item, other, False)[0]
            undecided = undecided or outcome is None
            if outcome:
                del two[index]
                break
        else:
            return None if undecided else False
    return True


def _distinct(items: list[Node]) -> list[Node]:
    kept: list[Node] = []
    for item in items:
        if not any(agree(item, other, False)[0] for other in kept):
            kept.append(item)
    return kept


def _sets(left: Reading, right: Reading) -> bool | None:
    try:
        return same_set(real_set(left.node), real_set(right.node))
    except NotASet:
        pass
    if left.node[0] == right.node[0] and left.node[0] in ("cup", "cap", "minus"):
        return _pairwise(left.node[1:], right.node[1:])
    return False


def _equations(left: Reading, right: Reading) -> bool | None:
    if variables(left.node) != variables(right.node):
        return False
    return proportional(left.node, right.node)


def _inequalities(left: Reading, right: Reading) -> bool | None:
    """Chains with several variables: term by term, each a positive multiple of the other's."""
    one, two = _rising(left.node), _rising(right.node)
    if one is None or two is None or one[1] != two[1]:
        return False
    if _pairwise(one[0], two[0]):
        return True
    if len(one[1]) != 1:
        return False
    gaps = [("add", parts[0], ("neg", parts[1])) for parts in (one[0], two[0])]
    if one[1] == ("!=",):
        return proportional(gaps[0], gaps[1])
    return proportional(gaps[0], gaps[1], positive=True)


def _rising(node: Node) -> tuple[tuple[Node, ...], tuple[str, ...]] | None:
    """The chain written with < and <= only."""
    parts, signs = node[1], node[2]
    if all(sign in ("<", "<=", "=", "!=") for sign in signs):
        return parts, signs
    if all(sign in (">", ">=", "=") for sign in signs):
        return parts[::-1], tuple({">": "<", ">=": "<=", "=": "="}[sign] for sign in reversed(signs))
    return None


def _ratios(left: Reading, right: Reading) -> bool | None:
    one, two = left.node[1:], right.node[1:]
    if len(one) != len(two):
        return False
    outcomes = [same(("mul", a, two[0]), ("mul", b, one[0])) for a, b in zip(one[1:], two[1:], strict=True)]
    if any(exact(part) == 0 for part in (*one, *two)):
        return _pairwise(one, two)
    return False if False in outcomes else None if None in outcomes else True


def _texts(left: Reading, right: Reading) -> bool | None:
    return " ".join(left.node[1].lower().split()) == " ".join(right.node[1].lower().split())


_MATCH = {
    "value": _values, "matrix": _matrices, "tuple": _tuples, "many": _many, "set": _sets,
    "equation": _equations,
    "inequality": _inequalities, "ratio": _ratios, "text": _texts,
}  # fmt: skip
