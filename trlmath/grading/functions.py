"""Names of the grammar: symbols with subscripts, unknown functions, known functions and their arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trlmath.grading.syntax import ARITY, ONE, Node, ParseError, variables

if TYPE_CHECKING:
    from trlmath.grading.parser import Scanner

_SUBSCRIPT = re.compile(r"\{([^{}]*)\}|(\w)")
_INVERSE = re.compile(r"\^\s*\{\s*-\s*1\s*\}(?=\s*\()|'+(?=\s*\()")
_DIGIT = re.compile(r"\d")
_ENDS_ARGUMENT = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc|ln|log|text|sqrt\s*\()|[A-Za-z]{2,}|[(\[]")
_SLASH_FUNCTION = re.compile(r"/\s*(?:\\(?!pi)[a-z]{2,}|[a-z]{2,})")
_DEGREES = re.compile(r"(?:\\text\s*\{\s*)?(?:degrees?|deg)\b\s*\}?")
_COUNTING = tuple("ABCDEMNPQRST")
_APPLIED = ("f", "g", "h", "F", "G", "H", "P", "Q")


def symbol(scanner: Scanner, name: str) -> Node:
    """A variable with its subscript; e and i are constants; f(x) an application."""
    if scanner.text.startswith(" _", scanner.at):
        scanner.at += 1
    if scanner.text.startswith("_", scanner.at):
        scanner.at += 1
        sub = scanner.match(_SUBSCRIPT)
        if sub is None:
            raise ParseError("an empty subscript")
        scanner.at = sub.end()
        inside = sub[1] if sub[1] is not None else sub[2]
        return ("sym", f"{name}_{inside.replace(' ', '')}")
    if name in ("e", "i"):
        return ("const", name)
    if name in _COUNTING and scanner.text.startswith("(", scanner.at):
        start = scanner.at
        inner = scanner.bracket()
        if inner[0] == "seq" and inner[1] == "()" and len(inner) > 3:
            return ("app", name, *inner[2:])
        scanner.at = start
    if name in _APPLIED:
        inverse = scanner.match(_INVERSE)
        if inverse:
            scanner.at = inverse.end()
            name += "'" if "'" in inverse.group() else "^-1"
        if scanner.text.startswith("(", scanner.at):
            inner = scanner.bracket()
            inside = inner[2:] if inner[0] == "seq" else (inner,)
            return ("app", name, *inside)
    return ("sym", name)


def function(scanner: Scanner, name: str) -> Node:
    """A known function with its base, power and arguments: ``\\log_2 6``, ``\\sin^2 x``, ``sqrt(2)``."""
    scanner.skip()
    power: Node | None = None
    base: Node | None = None
    if name == "log" and scanner.take("_"):
        base = scanner.tex_argument() if not scanner.match(_DIGIT) else scanner.number()
    if scanner.take("^") or scanner.take("**"):
        power = scanner.exponent()
        if name == "log" and scanner.take("_"):
            base = scanner.tex_argument()
    given = arguments(scanner, name)
    least, most = ARITY.get(name, (1, 1))
    if not least <= len(given) <= most:
        raise ParseError(f"{name} takes {least} to {most} arguments, not {len(given)}")
    if name == "sqrt":
        node: Node = ("fn", "sqrt", *given)
    elif base is not None:
        node = ("fn", "logb", *given, base)
    else:
        node = ("fn", name, *given)
    if power is None:
        return node
    if power == ("neg", ONE) and name in ("sin", "cos", "tan"):
        return ("fn", f"a{name}", *given)
    return ("pow", node, power)


def arguments(scanner: Scanner, name: str) -> tuple[Node, ...]:
    """What the function `name` is applied to: a bracket, or the factors up to the next function or sign."""
    scanner.skip()
    if scanner.at >= len(scanner.text):
        raise ParseError(f"{name} of nothing")
    if scanner.text[scanner.at] in "([":
        inner = scanner.bracket()
        return inner[2:] if inner[0] == "seq" and inner[1] == "()" else (inner,)
    if scanner.text[scanner.at] == "{" or name in ("sqrt", "cbrt"):
        inner = scanner.tex_argument() if scanner.text[scanner.at] == "{" else scanner.factor()
        return (inner,)
    if scanner.peek(r"\{"):
        return scanner.factor()[2:]
    negative = bool(scanner.take("-"))
    node = scanner.factor()
    while scanner.starts_factor() and not scanner.match(_ENDS_ARGUMENT):
        node = ("mul", node, scanner.factor())
    while _divides_on(scanner, node):
        scanner.take("/")
        node = ("div", node, scanner.factor())
    degrees = scanner.match(_DEGREES)
    if degrees:
        scanner.at = degrees.end()
        node = ("deg", node)
    return (("neg", node),) if negative else (node,)


def _divides_on(scanner: Scanner, argument: Node) -> bool:
    """Does a slash belong to the argument? In ``\\sin 2\\pi/3`` and ``\\sin x/2``, not in ``\\sin x / x``."""
    if not scanner.peek("/") or scanner.match(_SLASH_FUNCTION):
        return False
    spaced = scanner.text[scanner.at - 1] == " " or scanner.text[scanner.at + 1 : scanner.at + 2] == " "
    return not spaced or not variables(argument)
