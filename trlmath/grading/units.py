"""Units behind a value: recognise them, and tell conflicting ones apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trlmath.grading.syntax import BARE_UNITS, FUNCTIONS, LETTER_UNITS, UNITS, Node

if TYPE_CHECKING:
    from trlmath.grading.parser import Scanner

_TEXT = re.compile(
    r"\\text\s*\{([^{}]*)\}\s*(?:\^\s*\{?\s*([23])\s*\}?)?|\\(euro|pound|yen|cent)(?![A-Za-z])"
)
_BARE = re.compile(r"([A-Za-z]+)\.?\s*(?:\^\s*\{?\s*([23])\s*\}?)?(?![A-Za-z(_])")
_FRACTION = re.compile(
    r"\\frac\s*\{\s*(?:\\text\s*\{)?\s*([A-Za-z]+)\s*\}?\s*\}\s*\{\s*(?:\\text\s*\{)?\s*([A-Za-z]+)\s*\}?\s*\}"
)
_PER = re.compile(r"(?:\\text\s*\{\s*)?(?:per|an?)\s+([A-Za-z]+)\s*\}?\s*$")
_QUOTIENT = re.compile(r"([A-Za-z]+)\s*/\s*([A-Za-z]+)\s*(\^\s*\{?[23]\}?)?\s*$")
_BELOW = re.compile(r"/\s*(?:\\text\s*\{\s*)?([A-Za-z]{2,})\s*\}?\s*$")
_POWER = {"2": "^2", "3": "^3", None: ""}
_ALTERNATIVE = {
    "or",
    "and",
    "not",
    "if",
    "where",
    "with",
    "is",
    "when",
    "for",
    "but",
    "mod",
    "than",
    "base",
    "choose",
}
_PURE = ("num", "div", "neg", "mul", "fn", "const", "pow", "unit", "add", "pct", "deg", "ratio")


def read_unit(words: str, power: str | None = None) -> str | None:
    """The unit that `words` name: a key such as ``cm``, ``in^2``, ``mi/h``; ``*`` + words for a plain noun.

    None when the words are no unit (they state an alternative or a condition).
    """
    parts = re.findall(r"[A-Za-z&]+|/|\^\s*\{?[23]\}?", words.replace("squared", "^2").replace("cubed", "^3"))
    if not parts:
        return ""
    lowered = [p.lower() for p in parts]
    if any(word in _ALTERNATIVE for word in lowered):
        return None
    lift = _POWER[power]
    keys: list[str] = []
    for part, low in zip(parts, lowered, strict=True):
        if low in ("square", "sq"):
            lift = "^2"
        elif low in ("cubic", "cu"):
            lift = "^3"
        elif part.startswith("^"):
            lift = "^2" if "2" in part else "^3"
        elif low in ("per", "/"):
            keys.append("/")
        elif part in UNITS or low in UNITS:
            keys.append(UNITS.get(part) or UNITS[low])
        elif low not in ("unit", "units", "an", "a", "each"):
            keys.append(f"*{low}")
    if len(keys) == 3 and keys[1] == "/":
        rate = f"{keys[0]}/{keys[2]}"
        return "mph" if rate == "mi/h" else rate
    known = [k for k in keys if not k.startswith(("*", "/"))]
    if known and not keys[0].startswith("*"):
        return known[0] + lift
    return "".join(keys) if keys else "*units" + lift


def conflict(left: str, right: str) -> bool:
    """Do two units contradict each other? A plain noun never contradicts anything."""
    return bool(left and right) and left != right and not left.startswith("*") and not right.startswith("*")


def units_after(scanner: Scanner, left: Node) -> Node | None:
    """The value `left` with the unit that stands here, or None when what follows is no unit."""
    match = scanner.match(_TEXT)
    if match:
        words = match[1] if match[3] is None else match[3]
        if words.strip() in FUNCTIONS and words.strip() not in UNITS:
            return None
        if not re.search(r"[A-Za-z]", words):
            if words.strip(" ~.,"):
                return None
            scanner.at = match.end()
            return left
        if left[0] not in _PURE and not re.search(r"[a-z]{2}", words):
            return None
        if re.fullmatch(r"\s*[A-Za-z]\s*", words) and words.strip() not in UNITS:
            return None  # a variable in an upright font
        unit = read_unit(words, match[2])
        if unit is None:
            return None
        scanner.at = match.end()
        return ("pct", left) if unit == "pct" else ("deg", left) if unit == "deg" else _with(left, unit)
    match = scanner.match(_FRACTION)
    if match and match[1] in UNITS and match[2] in UNITS:
        scanner.at = match.end()
        return _with(left, read_unit(f"{match[1]} per {match[2]}") or "")
    quotient = scanner.match(_QUOTIENT)
    if quotient and left[0] in _PURE and quotient[1] in UNITS and quotient[2] in UNITS:
        scanner.at = quotient.end()
        return _with(left, read_unit(f"{quotient[1]} per {quotient[2]}{quotient[3] or ''}") or "")
    rate = scanner.match(_PER)
    if rate and left[0] in _PURE:
        scanner.at = rate.end()
        return _with(left, "/" + (UNITS.get(rate[1]) or UNITS.get(rate[1].lower()) or "*"))
    spaced = scanner.at > 0 and scanner.text[scanner.at - 1] == " "
    match = scanner.match(_BARE)
    if match is None or left[0] not in _PURE:
        return None
    word = match[1]
    lone = word in LETTER_UNITS and left[0] in ("num", "div", "neg")
    if lone and (match[2] or (spaced and match.end() >= len(scanner.text.rstrip()))):
        scanner.at = match.end()
        return _with(left, LETTER_UNITS[word] + _POWER[match[2]])
    final = word in ("in", "min", "sec") and match.end() >= len(scanner.text.rstrip())
    if final or word in BARE_UNITS or word.lower() in BARE_UNITS or word in ("sq", "square", "cubic"):
        tail = re.compile(r"[A-Za-z/. ]*(?:\^\s*\{?[23]\}?)?").match(scanner.text, scanner.at)
        assert tail is not None
        unit = read_unit(tail.group())
        if unit is None:
            return None
        scanner.at = tail.end()
        return ("pct", left) if unit == "pct" else ("deg", left) if unit == "deg" else _with(left, unit)
    return None


def unit_below(scanner: Scanner, left: Node) -> Node | None:
    """``77 sandwiches/week``, ``\\$1040/year``: a value by a unit at the end of the text."""
    match = scanner.match(_BELOW)
    if match is None or left[0] not in _PURE or match[1].lower() not in UNITS:
        return None
    scanner.at = match.end()
    return _with(left, "/" + UNITS[match[1].lower()])


def _with(left: Node, unit: str) -> Node:
    if left[0] == "unit":
        if left[2] == "usd" and unit in ("usd", "cent"):
            return left
        return ("unit", left[1], left[2]) if unit.startswith("*") else ("unit", left[1], f"{left[2]}{unit}")
    return ("unit", left, unit)
