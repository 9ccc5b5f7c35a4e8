"""The ways to read a parsed answer: value, list, tuple, set, matrix, equation, inequality, ratio, words.

``x = 5`` is an equation and states the value 5; ``(1, 2)`` is a point and an interval; ``1, 2`` is a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from trlmath.grading.realsets import interval
from trlmath.grading.syntax import TRIGONOMETRIC, Node, variables
from trlmath.grading.units import conflict
from trlmath.grading.values import same


@dataclass(frozen=True)
class Reading:
    """One way to read an answer: its kind, and the rule's name when two readings of the kind agree."""

    kind: str
    node: Node
    unit: str = ""


def readings(node: Node, lenient: bool) -> Iterator[Reading]:
    """All ways to read `node`, the most literal first."""
    kind = node[0]
    if kind == "rel":
        yield from _relation_readings(node, lenient)
    elif kind == "matrix":
        yield Reading("matrix", node)
    elif (product := _scaled_matrix(node)) is not None:
        yield Reading("matrix", product)
    elif kind == "text":
        yield Reading("text", node)
    elif kind == "ratio":
        yield Reading("ratio", node)
        if len(node) == 3:
            yield Reading("value", ("div", node[1], node[2]))
        if lenient and node[1][0] in ("sym", "text") and not variables(node[2]):
            yield from readings(node[2], False)  # "x: 5"
    elif kind == "app" and len(node) > 3:  # C(7, 2) counts; P(1, 2) is a named point
        counting = {"C": "binom", "P": "perm"}.get(node[1])
        if counting and len(node) == 4 and not variables(node[2]) and not variables(node[3]):
            yield Reading("value", ("fn", counting, *node[2:]))
        yield Reading("value", node)
        yield Reading("tuple", ("seq", "()", *node[2:]))
    elif kind == "add" and len(node) == 3 and node[1][0] == "seq" and node[2][0] == "neg":  # R - {0}
        yield Reading("set", ("minus", node[1], node[2][1]))
    elif kind in ("cup", "cap", "minus", "such"):
        yield Reading("set", node)
    elif kind == "or" or (kind == "seq" and node[1] in ("", "{}")):
        yield from _list_readings(node, lenient)
    elif kind == "seq":
        yield Reading("tuple", node)
        if len(node) == 4:
            yield Reading("set", node)
    else:
        yield from _value_readings(node)


def _scaled_matrix(node: Node) -> Node | None:
    """A number times a matrix, multiplied out."""
    if node[0] == "neg" and node[1][0] == "matrix":
        return ("matrix", tuple(tuple(("neg", entry) for entry in row) for row in node[1][1]))
    if node[0] != "mul" or sum(part[0] == "matrix" for part in node[1:]) != 1 or not scalar(node[1:-1]):
        return None
    *factors, matrix = node[1:]
    if matrix[0] != "matrix":
        return None
    return ("matrix", tuple(tuple(("mul", *factors, entry) for entry in row) for row in matrix[1]))


def _value_readings(node: Node) -> Iterator[Reading]:
    signs = expand(node)
    if len(signs) > 1:
        yield Reading("many", ("seq", "", *signs))
        return
    yield value_reading(node)


def value_reading(node: Node) -> Reading:
    """A scalar with its unit split off."""
    unit = ""
    while node[0] in ("unit", "deg", "pct"):
        if node[0] == "unit":
            unit, node = node[2], node[1]
        else:
            unit, node = node[0], node[1]
    if node[0] == "neg" and node[1][0] in ("unit", "deg", "pct"):
        inner = value_reading(node[1])
        return Reading("value", ("neg", inner.node), inner.unit)
    return Reading("value", node, unit)


def expand(node: Node) -> list[Node]:
    """Both signs of a ± written out (all signs of one expression move together)."""
    if not has_sign(node):
        return [node]
    return [_with_sign(node, True), _with_sign(node, False)]


def has_sign(node: Node) -> bool:
    return node[0] in ("pm", "mp") or any(
        isinstance(part, tuple) and part and has_sign(part) for part in node
    )


def _with_sign(node: Node, plus: bool) -> Node:
    parts = tuple(_with_sign(part, plus) if isinstance(part, tuple) and part else part for part in node)
    if parts[0] in ("pm", "mp"):
        negative = (parts[0] == "pm") != plus
        return ("add", parts[1], ("neg", parts[2]) if negative else parts[2])
    return parts


def _worked(item: Node) -> bool:
    """Is it a line of arithmetic, ``80 - 20 = 60``, rather than a labelled answer?"""
    return (
        item[0] == "rel"
        and set(item[2]) == {"="}
        and item[1][0][0] in ("add", "mul", "div")
        and not variables(item)
    )


def _list_readings(node: Node, lenient: bool = False) -> Iterator[Reading]:
    items = node[1:] if node[0] == "or" else node[2:]
    braces = node[0] == "seq" and node[1] == "{}"
    labels = [_label(item) for item in items]
    plain: tuple[Node, ...] = items
    if items and not braces and labels[0] is not None:
        if all(label is not None for label in labels):
            names = [label[0] for label in labels if label]
            values = tuple(label[1] for label in labels if label)
            bases = {name.split("_")[0] for name in names}
            if len(bases) == 1:
                plain = values
            elif len(set(names)) == len(names):
                ordered = [v for _, v in sorted(zip(names, values, strict=True), key=lambda pair: pair[0])]
                yield Reading("tuple", ("seq", "()", *ordered))
        elif all(
            label is None and item[0] != "rel" for label, item in zip(labels[1:], items[1:], strict=True)
        ):
            plain = (labels[0][1], *items[1:])
    if len(items) == 1 and braces and items[0][0] == "seq" and items[0][1] == "{}":
        yield from _list_readings(items[0])
        return
    if lenient and len(items) > 1 and all(_worked(item) for item in items):
        yield from readings(items[-1], lenient)
        return
    if braces and len(items) == 1:
        yield from readings(items[0], False)  # the set of one solution
    if (
        items[0:1]
        and items[0][0] == "rel"
        and items[0][2] == ("!=",)
        and all(i[0] != "rel" for i in items[1:])
    ):
        name = items[0][1][0]  # x != 1, 2
        node = ("seq", "", items[0], *(("rel", (name, item), ("!=",)) for item in items[1:]))
        yield Reading("set", node)
    yield Reading("many", ("seq", "{}" if braces else "", *plain))
    if plain is not items:
        yield Reading("many", ("seq", "", *items))
    if items and (all(item[0] == "rel" for item in items) or braces or all(interval(item) for item in items)):
        yield Reading("set", node)


def _label(item: Node) -> tuple[str, Node] | None:
    """(name, value) of ``x = 5`` and ``(x, y) = (1, 2)``."""
    if item[0] != "rel" or item[2] != ("=",) or not named(item[1][0]):
        return None
    return ",".join(sorted(variables(item[1][0]))), item[1][1]


def named(node: Node) -> bool:
    """Is it a name for a quantity: x, AB, |AB|, f(2), (p, q), NO/BO, angle A, S_1 : S_2?"""
    kind = node[0]
    if kind in ("sym", "app", "text"):
        return True
    if kind == "const":
        return node[1] in ("e", "i")
    if kind in ("mul", "div", "ratio"):
        return all(named(part) or part[0] == "seq" for part in node[1:]) and bool(variables(node))
    if kind == "fn":
        simple = node[1] in ("abs", "arg", "det") or node[1] in TRIGONOMETRIC
        return simple and all(_sum_of_names(part) for part in node[2:])
    if kind == "seq":
        return len(node) > 2 and all(part[0] in ("sym", "const") for part in node[2:])
    return False


def scalar(node: Node) -> bool:
    """Holds the expression numbers and names only: no list, matrix, set or words?"""
    if node[0] in ("seq", "matrix", "text", "rel", "or", "cup", "cap", "minus", "such"):
        return False
    return all(scalar(part) for part in node[1:] if isinstance(part, tuple) and part)


def _sum_of_names(node: Node) -> bool:
    parts = node[1:] if node[0] == "add" else (node,)
    return all(named(part[1] if part[0] == "neg" else part) for part in parts)


def _relation_readings(node: Node, lenient: bool) -> Iterator[Reading]:
    parts, signs = node[1], node[2]
    if "~" in signs:  # exact ≈ rounded: the exact side counts
        at = signs.index("~")
        head: Node = ("rel", parts[: at + 1], signs[:at]) if at else parts[0]
        yield from readings(parts[1] if at == 0 and named(parts[0]) and len(parts) == 2 else head, lenient)
        return
    if "to" in signs:  # a derivation: its last line counts
        at = len(signs) - signs[::-1].index("to")
        tail: Node = ("rel", parts[at:], signs[at:]) if at < len(signs) else parts[-1]
        yield from readings(tail, lenient)
        return
    if all(sign == "=" for sign in signs):
        if len(parts) == 2 and scalar(parts[0]) and scalar(parts[1]):
            yield Reading("equation", ("add", parts[0], ("neg", parts[1])))
        stated = _stated(parts, lenient)
        if stated is not None:
            yield from readings(stated, lenient)
        return
    if signs[0] == "=" and signs[1:] and all(sign != "=" for sign in signs[1:]):
        return
    yield Reading("set", node)
    yield Reading("inequality", node)
    if signs == ("in",) and named(parts[0]):
        yield from readings(parts[1], lenient)


def _stated(parts: tuple[Node, ...], lenient: bool) -> Node | None:
    """The value that a chain of equations arrives at; None when it contradicts itself or states none."""
    first, last = parts[0], parts[-1]
    constants = [
        part for part in parts if not variables(part) and part[0] not in ("seq", "matrix", "text", "ratio")
    ]
    for a, b in zip(constants, constants[1:], strict=False):
        if not _consistent(a, b):
            return None
    if named(first) or len(parts) > 2:
        return last
    if named(last) and first[0] != "seq":
        return first
    if not variables(first):
        return last if not variables(last) and scalar(first) == scalar(last) else None
    if lenient and first[0] == "fn" and first[1] in ("ln", "log", "logb") and not variables(last):
        return last
    if lenient and _sum_of_names(first) and not variables(last):
        return last
    return None


def _consistent(a: Node, b: Node) -> bool:
    """Equal as numbers, whatever the units (a percent may be its fraction)."""
    one, two = value_reading(a), value_reading(b)
    if one.unit != two.unit and "pct" in (one.unit, two.unit):
        hundredth: Node = ("num", Fraction(1, 100))
        plain, percent = (two, one) if one.unit == "pct" else (one, two)
        sizes = (percent.node, ("mul", percent.node, hundredth))
        return any(same(plain.node, size) is not False for size in sizes)
    if conflict(one.unit, two.unit):
        return True
    if has_sign(a) or has_sign(b):
        return True
    return same(one.node, two.node) is not False
