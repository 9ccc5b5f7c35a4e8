"""Read cleaned mathematical text (LaTeX and plain) into an expression: see `syntax` for its shape.

A hand-written scanner that walks the string once: time grows with the length of the text, depth is bounded,
and nothing is ever evaluated. What it does not know it refuses (`ParseError`) instead of guessing.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from trlmath.grading.commands import COMMAND, command, word
from trlmath.grading.limits import LIMITS
from trlmath.grading.literals import number_at
from trlmath.grading.syntax import RELATIONS, ZERO, Node, ParseError
from trlmath.grading.units import unit_below, units_after
from trlmath.grading.words import is_prose

_SPACE = re.compile(r"\s*")
_RELATION = re.compile(
    r"<=|>=|=<|!=|:=|==|=>|=|<|>|\\(?:le|ge|ne|in|approx|equiv|to|subset|perp|parallel|propto)(?![A-Za-z])"
)
_SEPARATOR = re.compile(
    r"[,;]|\\text\s*\{\s*[,;]?\s*(?:and|or|,|;)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
)
_SCALE = re.compile(r"(?:\\text\s*\{\s*)?[CF]\s*\}?\s*$")  # 25^\circ C
_CLOSERS = (")", "]", "}", r"\}", r"\end", "\\\\", r"\rfloor", r"\rceil", r"\rangle", r"\choose")
_NO_FACTOR = {
    r"\cup", r"\cap", r"\setminus", r"\pm", r"\mp", r"\rfloor", r"\rceil", r"\end", r"\choose", r"\rangle",
    r"\div", r"\times", r"\cdot", *RELATIONS,
}  # fmt: skip


class Scanner:
    """One pass over one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.bars: list[int] = []  # depth at which each open | was opened
        self.only_or = False  # the outermost list is joined by "or" alone

    # -- lexical helpers ---------------------------------------------------

    def skip(self) -> None:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def peek(self, *tokens: str) -> str:
        """The first of `tokens` that stands here, or ""."""
        self.skip()
        for token in tokens:
            if self.text.startswith(token, self.at):
                after = self.at + len(token)
                if token[-1].isalpha() and after < len(self.text) and self.text[after].isalpha():
                    continue
                return token
        return ""

    def take(self, *tokens: str) -> str:
        token = self.peek(*tokens)
        self.at += len(token)
        return token

    def need(self, token: str) -> None:
        if not self.take(token):
            raise ParseError(f"expected {token!r} at {self.at}")

    def enter(self) -> None:
        self.depth += 1
        if self.depth > LIMITS.depth:
            raise ParseError("nested too deeply")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        return pattern.match(self.text, self.at)

    # -- lists, relations --------------------------------------------------

    def items(self) -> list[Node]:
        """Comma-separated statements up to a closing bracket or the end."""
        found: list[Node] = []
        words: set[str] = set()
        self.enter()
        while True:
            self.skip()
            while found and (match := self.match(_SEPARATOR)):  # ", and"
                words.add("or" if "or" in match.group() else match.group())
                self.at = match.end()
                self.skip()
            if self.at >= len(self.text) or self.closing():
                break
            found.append(self.statement())
            if not self.match(_SEPARATOR):
                break
        self.depth -= 1
        if not self.depth:
            self.only_or = words == {"or"}
        return found

    def closing(self) -> bool:
        if self.text[self.at] == "|":
            return bool(self.bars)
        return self.text.startswith(_CLOSERS, self.at)

    def statement(self) -> Node:
        """A chain of relations over set operations over sums."""
        self.enter()
        self.skip()
        lead = self.match(_RELATION)
        if lead:  # "> 5", "= 5", "≈ 8.24"
            self.at = lead.end()
            sign = RELATIONS[lead.group()]
            right = self.union()
            self.depth -= 1
            return right if sign in ("=", "~", "to") else ("rel", (("sym", "?"), right), (sign,))
        parts = [self.union()]
        signs: list[str] = []
        while match := self.match(_RELATION):
            sign = RELATIONS[match.group()]
            self.at = match.end()
            signs.append(sign)
            parts.append(self.union())
        self.depth -= 1
        if not signs:
            return parts[0]
        return ("rel", tuple(parts), tuple(signs))

    def union(self) -> Node:
        left = self.sum()
        while True:
            if self.take(r"\cup"):
                left = ("cup", left, self.sum())
            elif self.take(r"\cap"):
                left = ("cap", left, self.sum())
            elif self.take(r"\setminus"):
                left = ("minus", left, self.sum())
            elif self.peek(":") and not self.peek(":="):
                parts = [left]
                while self.take(":"):
                    parts.append(self.sum())
                left = ("ratio", *parts)
            else:
                return left

    # -- arithmetic --------------------------------------------------------

    def sum(self) -> Node:
        self.enter()
        terms: list[Node] = []
        sign = self.take("+", "-", r"\pm", r"\mp")
        while sign in ("", "+", "-") and self.peek("+", "-"):
            sign = "-" if (sign == "-") != (self.take("+", "-") == "-") else "+"
        negative = sign in (r"\pm", r"\mp") and bool(self.take("-"))
        first = self.product()
        if negative:
            first = ("neg", first)
        left: Node
        if sign == "-":
            left = ("neg", first)
        elif sign in (r"\pm", r"\mp"):
            left = (sign[1:], ZERO, first)
        else:
            left = first
        terms.append(left)
        while sign := self.take("+-", "+", "-", r"\pm", r"\mp"):
            if sign == "+-":
                terms = [("pm", self.add(terms), self.product())]
                continue
            while sign in "+-" and self.peek("+", "-"):
                sign = "-" if (sign == "-") != (self.take("+", "-") == "-") else "+"
            term = self.product()
            if sign == "+":
                terms.append(term)
            elif sign == "-":
                terms.append(("neg", term))
            else:
                terms = [(sign[1:], self.add(terms), term)]
        self.depth -= 1
        return self.add(terms)

    @staticmethod
    def add(terms: list[Node]) -> Node:
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def product(self) -> Node:
        left = self.factor()
        while True:
            if self.take(r"\times", r"\cdot", r"\*") or (
                self.peek("*") and not self.peek("**") and self.take("*")
            ):
                left = self.times(left, self.signed())
            elif (unit := unit_below(self, left)) is not None:
                left = unit
            elif self.take(r"\bmod", r"\mod"):
                left = ("fn", "mod", left, self.signed())
            elif self.take(r"\div", "/"):
                left = ("div", left, self.signed())
            elif self.starts_factor():
                unit = units_after(self, left)
                if unit is not None:
                    left = unit
                    continue
                if left[0] == "num" and self.text[self.at] in "0123456789.":
                    raise ParseError("two numbers side by side")
                if left[0] == "text":
                    raise ParseError("words beside mathematics")
                left = self.times(left, self.factor())
            else:
                return left

    @staticmethod
    def times(left: Node, right: Node) -> Node:
        return (*left, right) if left[0] == "mul" else ("mul", left, right)

    def signed(self) -> Node:
        if self.take("-"):
            return ("neg", self.factor())
        self.take("+")
        return self.factor()

    def starts_factor(self) -> bool:
        self.skip()
        if self.at >= len(self.text):
            return False
        char = self.text[self.at]
        if char.isdigit() or char in "([{.":
            return True
        if char.isalpha():
            return not self.peek("and", "or", "base")
        if char == "|":
            return not self.bars
        if char == "\\":
            if self.text.startswith((r"\{", r"\$"), self.at):
                return True
            found = self.match(COMMAND)
            if found is None:
                return False
            if found.group() == r"\text":
                return not self.match(_SEPARATOR)
            return found.group() not in _NO_FACTOR
        return False

    def factor(self) -> Node:
        """An atom with its powers, factorials, percent and degree signs."""
        self.enter()
        base = self.atom()
        while True:
            self.skip()
            if self.take("**") or self.take("^"):
                if self.take(r"{\circ}", r"{ \circ}", r"{ \circ }", r"{\circ }", r"\circ"):
                    base = ("deg", base)
                    scale = self.match(_SCALE)
                    self.at = scale.end() if scale else self.at
                    continue
                base = ("pow", base, self.exponent())
            elif self.peek("!") and not self.peek("!="):
                self.take("!")
                base = ("fact", base)
            elif self.take(r"\%", "%"):
                base = ("pct", base)
            elif self.text.startswith("'", self.at) and base[0] == "sym":
                self.take("'")
                base = ("sym", base[1] + "'")
            else:
                break
        self.depth -= 1
        return base

    def exponent(self) -> Node:
        self.skip()
        if self.text.startswith("{", self.at):
            return self.group()
        if self.take("-"):
            return ("neg", self.factor())
        self.take("+")
        return self.factor()  # right associative: 2^3^2

    def group(self) -> Node:
        """A TeX group {...}: grouping, a bare set {1, 2}, or {n \\choose k}."""
        self.need("{")
        self.enter()
        bars, self.bars = self.bars, []
        found = self.items()
        if self.take(r"\choose"):
            below = self.items()
            if len(found) != 1 or len(below) != 1:
                raise ParseError("choose takes one entry above and one below")
            found = [("fn", "binom", found[0], below[0])]
        self.need("}")
        self.bars = bars
        self.depth -= 1
        if not found:
            raise ParseError("empty group")
        return found[0] if len(found) == 1 else ("seq", "{}", *found)

    def tex_argument(self) -> Node:
        """What a TeX command takes: a group, a single digit or letter, or a command."""
        self.skip()
        if self.at >= len(self.text):
            raise ParseError("an argument is missing")
        char = self.text[self.at]
        if char == "{":
            return self.group()
        if char.isdigit():
            self.at += 1
            return ("num", Fraction(int(char)))
        return self.atom(single=True)

    def atom(self, single: bool = False) -> Node:
        self.skip()
        if self.at >= len(self.text):
            raise ParseError("the text ends too early")
        char = self.text[self.at]
        if char.isdigit() or char == ".":
            return self.number()
        if char in "([":
            return self.bracket()
        if char == "{":
            return self.group()
        if char == "|":
            return self.bar()
        if char == "\\":
            return command(self)
        if char.isascii() and char.isalpha():
            return word(self, single)
        raise ParseError(f"{char!r} at {self.at}")

    def number(self) -> Node:
        node, self.at = number_at(self.text, self.at)
        return node

    def bracket(self) -> Node:
        opener = self.text[self.at]
        self.at += 1
        self.enter()
        bars, self.bars = self.bars, []
        found = self.items()
        self.skip()
        closer = self.take(")", "]")
        self.bars = bars
        if not closer or not found:
            raise ParseError("an unclosed or empty bracket")
        self.depth -= 1
        if len(found) == 1 and opener + closer in ("()", "[]"):
            inner = found[0]
            return ("seq", "()", inner) if inner[0] == "seq" and inner[1] == "" else inner
        return ("seq", opener + closer, *found)

    def bar(self) -> Node:
        self.need("|")
        self.enter()
        self.bars.append(self.depth)
        inner = self.statement()
        self.bars.pop()
        self.need("|")
        self.depth -= 1
        return ("fn", "abs", inner)


def too_deep(nodes: list[Node]) -> bool:
    """Is an expression nested beyond the limit, as a long chain of quotients or factorials is?"""
    level: list[Node] = nodes
    for _ in range(LIMITS.depth):
        level = [part for node in level for part in node if isinstance(part, tuple)]
        if not level:
            return False
    return True


@lru_cache(maxsize=16384)
def parse(text: str) -> Node | None:
    """The expression that `text` (as `clean` returns it) states, or None when it cannot be read.

    A bare list becomes ("seq", "", ...); a list of which every separator is "or" becomes ("or", ...).
    """
    if is_prose(text):
        return None
    scanner = Scanner(text)
    try:
        found = scanner.items()
        scanner.skip()
        if scanner.at < len(text) or not found:
            return None
    except (ValueError, RecursionError):  # ParseError is a ValueError, as is a number with too many digits
        return None
    if too_deep(found):
        return None
    if len(found) == 1:
        return found[0]
    return ("or", *found) if scanner.only_or else ("seq", "", *found)
