"""LaTeX commands and bare words of the grammar: one small function a command."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from trlmath.grading.functions import function, symbol
from trlmath.grading.syntax import FUNCTIONS, GREEK, SAME_FUNCTION, WORDS, Node, ParseError

if TYPE_CHECKING:
    from trlmath.grading.parser import Scanner

COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]+")
_MATRIX = re.compile(r"\{\s*([bpvBV]?matrix|smallmatrix|array)\s*\}\s*(?:\{[clr| ]*\})?")
_LETTERS = re.compile(r"[A-Z](?:\s*(?:,\s*and|,|and|&)\s*[A-Z])+")
_BUILDER = re.compile(r"([a-z])(?:\s*\\in\s*\\mathbb\s*\{?R\}?)?\s*(?:\||:)")


def command(scanner: Scanner) -> Node:
    """What a backslash starts.

    Raises:
        ParseError: a command that the grammar does not know.
    """
    if scanner.take(r"\{"):
        return braces(scanner)
    if scanner.take(r"\$"):
        return ("unit", scanner.signed(), "usd")
    match = scanner.match(COMMAND)
    if match is None:
        raise ParseError(f"{scanner.text[scanner.at : scanner.at + 2]!r} at {scanner.at}")
    name = match.group()[1:]
    start = scanner.at
    scanner.at = match.end()
    if name in _HANDLERS:
        return _HANDLERS[name](scanner)
    if name in FUNCTIONS:
        return function(scanner, SAME_FUNCTION.get(name, name))
    if name in GREEK:
        return symbol(scanner, "\\" + name)
    if name in ("euro", "pound", "yen", "cent"):
        return ("unit", scanner.signed(), name)
    scanner.at = start
    raise ParseError(f"command \\{name}")


def tex_frac(scanner: Scanner) -> Node:
    """``\\frac{a}{b}``, ``\\frac12``."""
    return ("div", scanner.tex_argument(), scanner.tex_argument())


def tex_sqrt(scanner: Scanner) -> Node:
    """``\\sqrt{a}``, ``\\sqrt[n]{a}``, ``\\sqrt 12``."""
    scanner.skip()
    index: Node | None = None
    if scanner.text.startswith("[", scanner.at):
        scanner.at += 1
        index = scanner.sum()
        scanner.need("]")
    scanner.skip()
    if scanner.at < len(scanner.text) and scanner.text[scanner.at].isdigit():
        inner: Node = scanner.number()  # \sqrt 12 and √12 mean the whole number
    else:
        inner = scanner.tex_argument()
    return ("fn", "sqrt", inner) if index is None else ("fn", "root", inner, index)


def tex_binom(scanner: Scanner) -> Node:
    """``\\binom{n}{k}``."""
    return ("fn", "binom", scanner.tex_argument(), scanner.tex_argument())


def tex_lfloor(scanner: Scanner) -> Node:
    """``\\lfloor x \\rfloor``."""
    inner = scanner.sum()
    scanner.need(r"\rfloor")
    return ("fn", "floor", inner)


def tex_lceil(scanner: Scanner) -> Node:
    """``\\lceil x \\rceil``."""
    inner = scanner.sum()
    scanner.need(r"\rceil")
    return ("fn", "ceil", inner)


def tex_langle(scanner: Scanner) -> Node:
    """``\\langle a, b \\rangle``: a vector, read as a tuple."""
    found = scanner.items()
    scanner.need(r"\rangle")
    return ("seq", "()", *found)


def tex_mathbb(scanner: Scanner) -> Node:
    """``\\mathbb{R}`` is the whole line; other blackboard letters are names."""
    name = scanner.match(re.compile(r"\{?\s*([RZNQC])\s*\}?"))
    if name is None:
        raise ParseError("an unknown blackboard letter")
    scanner.at = name.end()
    infinite: Node = ("const", "inf")
    return ("seq", "()", ("neg", infinite), infinite) if name[1] == "R" else ("sym", f"set:{name[1]}")


def tex_angle(scanner: Scanner) -> Node:
    """``\\angle ABC``: a name."""
    scanner.skip()
    name = scanner.match(_WORD)
    if name is None:
        raise ParseError("an angle without a name")
    scanner.at = name.end()
    return ("sym", f"angle:{name.group()}")


def marked(scanner: Scanner, mark: str) -> Node:
    """A name under a mark: ``\\overline{CD}``, ``\\vec{v}``."""
    match = scanner.match(re.compile(r"\{\s*([A-Za-z']{1,4})\s*\}|([A-Za-z])"))
    if match is None and mark == "overline":
        return ("fn", "conj", scanner.tex_argument())
    if match is None:
        raise ParseError(f"\\{mark} of something that is no name")
    scanner.at = match.end()
    return ("sym", f"{mark}:{match[1] or match[2]}")


def tex_text(scanner: Scanner) -> Node:
    """``\\text{...}``: a constant, mathematics in a wrong font, or words."""
    match = scanner.match(re.compile(r"\{([^{}]*)\}"))
    if match is None:
        return scanner.group()
    content = match[1].strip()
    if content in ("e", "i", "") or not re.search(r"[A-Za-z]{2}", content):
        if not content:
            scanner.at = match.end()
            raise ParseError("empty text")
        return scanner.group()
    scanner.at = match.end()
    if content in FUNCTIONS:
        return function(scanner, SAME_FUNCTION.get(content, content))
    if _LETTERS.fullmatch(content):
        scanner.at = match.start()
        return scanner.group()
    if re.fullmatch(r"[A-Z]{1,4}", content):
        return symbol(scanner, content)
    return ("text", content)


def tex_begin(scanner: Scanner) -> Node:
    """A matrix environment; ``vmatrix`` is its determinant."""
    match = scanner.match(_MATRIX)
    if match is None:
        raise ParseError("an environment that is no matrix")
    scanner.at = match.end()
    rows: list[tuple[Node, ...]] = []
    row: list[Node] = []
    scanner.enter()
    while True:
        if scanner.take(r"\end"):
            break
        if scanner.take("\\\\"):
            rows.append(tuple(row))
            row = []
        elif not scanner.take("&"):
            row.append(scanner.statement())
    scanner.depth -= 1
    if row:
        rows.append(tuple(row))
    scanner.need("{")
    closed = scanner.match(re.compile(r"\s*[A-Za-z]+\s*\}"))
    if closed is None or not rows or len({len(r) for r in rows}) != 1:
        raise ParseError("a ragged or unclosed matrix")
    scanner.at = closed.end()
    node: Node = ("matrix", tuple(rows))
    return ("fn", "det", node) if match[1] == "vmatrix" else node


def braces(scanner: Scanner) -> Node:
    """``\\{...\\}``: a set, or a set-builder whose condition counts."""
    scanner.enter()
    bars, scanner.bars = scanner.bars, []
    if scanner.take(r"\}"):
        scanner.bars = bars
        scanner.depth -= 1
        return ("seq", "{}")
    builder = scanner.match(_BUILDER)
    if builder:
        scanner.at = builder.end()
        condition = scanner.items()
        if not scanner.take(r"\}"):
            scanner.need("}")
        node: Node = ("such", ("sym", builder[1]), *condition)
    else:
        node = ("seq", "{}", *scanner.items())
        if not scanner.take(r"\}"):
            scanner.need("}")
    scanner.bars = bars
    scanner.depth -= 1
    return node


def word(scanner: Scanner, single: bool) -> Node:
    """Letters: a function, a constant, or variables side by side."""
    match = scanner.match(_WORD)
    assert match is not None
    letters = match.group()
    if single:
        scanner.at += 1
        return symbol(scanner, letters[0])
    if letters in FUNCTIONS:
        scanner.at = match.end()
        return function(scanner, SAME_FUNCTION.get(letters, letters))
    for name in sorted(WORDS, key=len, reverse=True):
        if letters.startswith(name) and (letters == name or name == "pi"):
            scanner.at += len(name)
            return WORDS[name]
    if letters.startswith(("sqrt", "sin", "cos", "tan", "log", "ln")) and len(letters) <= 5:
        for name in ("sqrt", "sin", "cos", "tan", "log", "ln"):
            if letters.startswith(name):
                scanner.at += len(name)
                return function(scanner, name)
    if len(letters) > 3:
        raise ParseError(f"the word {letters!r}")
    scanner.at += 1
    return symbol(scanner, letters[0])


_HANDLERS: dict[str, Callable[[Scanner], Node]] = {
    "frac": tex_frac,
    "sqrt": tex_sqrt,
    "binom": tex_binom,
    "lfloor": tex_lfloor,
    "lceil": tex_lceil,
    "langle": tex_langle,
    "mathbb": tex_mathbb,
    "angle": tex_angle,
    "triangle": tex_angle,
    "text": tex_text,
    "begin": tex_begin,
    "pi": lambda scanner: ("const", "pi"),
    "infty": lambda scanner: ("const", "inf"),
    "emptyset": lambda scanner: ("seq", "{}"),
    "ldots": lambda scanner: ("sym", "..."),
    "boxed": lambda scanner: scanner.group(),
    "overline": lambda scanner: marked(scanner, "overline"),
    "vec": lambda scanner: marked(scanner, "vec"),
    "hat": lambda scanner: marked(scanner, "hat"),
}
