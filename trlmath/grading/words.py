"""Answers in words: number words, text answers, choice letters."""

from __future__ import annotations

import re

from trlmath.grading.syntax import FUNCTIONS, UNITS, WORDS

_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
    "ninety": 90,
}  # fmt: skip
_SMALL = {word: number for number, word in enumerate(_ONES)} | _TENS
_SCALE = {"hundred": 100, "thousand": 1000, "million": 1_000_000, "billion": 1_000_000_000}
NUMBER_WORDS = frozenset(_SMALL) | frozenset(_SCALE)

_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_CHOICE = re.compile(r"\(?([A-J])\)?")
_STATED_CHOICE = re.compile(
    r"(?:(?:the )?(?:correct |final |right )?(?:answer|option|choice)(?: is)?:?\s*)?(?:option |choice )?"
    r"(?:\(([A-J])\)|([A-J])(?![A-Za-z]))(.*)",
    re.DOTALL | re.IGNORECASE,
)
_OTHER_CHOICE = re.compile(
    r"\b(?:or|and|not)\b|\([A-J]\)|[,/;&]\s*\(?[A-J]\b\)?(?![a-z])|^\s*[A-J]\b(?![a-z'])"
)

_SAME = {
    "no solutions": "no solution", "none exist": "no solution", "there are no solutions": "no solution",
    "there is no solution": "no solution", "does not exist": "dne", "doesn't exist": "dne",
    "the empty set": "empty set", "null set": "empty set", "all reals": "all real numbers",
    "all real": "all real numbers", "all real values": "all real numbers",
    "no real solutions": "no real solution",
    "infinitely many solutions": "infinitely many", "not defined": "undefined",
}  # fmt: skip


def number_words(text: str) -> int | None:
    """The number that `text` writes in English words (``thirty-two``), or None."""
    words = text.lower().replace("-", " ").replace(" and ", " ").split()
    sign = 1
    if words and words[0] in ("negative", "minus"):
        sign, words = -1, words[1:]
    if not words or not all(word in NUMBER_WORDS for word in words):
        return None
    total = current = 0
    previous = 1000
    for word in words:
        if word == "hundred":
            current = max(current, 1) * 100
            previous = 1000
        elif word in _SCALE:
            total += max(current, 1) * _SCALE[word]
            current, previous = 0, 1000
        else:
            number = _SMALL[word]
            if previous < 20 or (previous < 100 and number >= 10) or previous == 0:
                return None  # "two three" is two numbers
            current += number
            previous = number
    return sign * (total + current)


_PARTS = {"half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
          "eighth": 8, "ninth": 9, "tenth": 10, "hundredth": 100}  # fmt: skip


def fraction_words(text: str) -> str | None:
    """The number in words as mathematics (``two thirds``, ``two and a half``); None if it is none."""
    number = number_words(text)
    if number is not None:
        return str(number)
    words = text.lower().replace("-", " ").split()
    if len(words) < 2:
        return None
    bottom = _PARTS.get(words[-1]) or _PARTS.get(words[-1].removesuffix("s"))
    whole, _, top = " ".join(words[:-1]).rpartition(" and ")
    count = 1 if top in ("a", "an") else number_words(top)
    base = number_words(whole) if whole else 0
    if bottom is None or count is None or base is None:
        return None
    return f"{base}+\\frac{{{count}}}{{{bottom}}}"


def plain_text(text: str) -> str:
    """Lower-case words of a text answer without fonts, articles, quotes and closing punctuation."""
    text = _TEXT.sub(r" \1 ", text).replace("{", " ").replace("}", " ")
    text = re.sub(r"\s+", " ", text.lower().strip(" .,;:!\"'()*")).strip()
    text = re.sub(r"\b([ap])\.? ?m\b\.?", r"\1m", text)
    text = re.sub(r"(\d) (?=[ap]m\b)", r"\1", text)
    text = re.sub(r"(\d)(?:st|nd|rd|th)\b", r"\1", text)
    text = re.sub(r"^(?:the|an?|it is|it's|on|at) (?=[a-z]{2})", "", text)
    return _SAME.get(text, text)


def is_text(gold: str) -> bool:
    """Is the gold words rather than mathematics: a name, ``even``, ``June 20``, ``4:30 p.m.``?"""
    bare = _TEXT.sub(r" \1 ", gold).strip()
    if re.search(r"\d\s*[ap]\.?\s?m\b", bare, re.IGNORECASE):
        return True
    words = re.findall(r"[A-Za-z]{2,}", bare)
    if "\\" in bare or re.search(r"[=^_<>+*/]", bare):
        return False
    if not words:
        return False
    return (
        bool(_TEXT.search(gold))
        or any(len(word) > 3 for word in words)
        or bare.lower() in ("yes", "no", "odd")
    )


def choice_letter(gold: str) -> str | None:
    """The letter of a multiple-choice gold such as ``\\text{(C)}``, ``(C)``, ``C``; None if it is none."""
    bare = _TEXT.sub(r" \1 ", gold).strip().replace(" ", "")
    match = _CHOICE.fullmatch(bare)
    return match[1] if match else None


def stated_choice(prediction: str) -> str | None:
    """The one letter that a prediction picks: ``Option C``, ``(D) Alina``, ``C Cecile``, ``C: 5``."""
    bare = re.sub(r"\s+", " ", _TEXT.sub(r" \1 ", prediction).replace("{", "").replace("}", "")).strip(" .*")
    bare = re.sub(r"\(\s+", "(", re.sub(r"\s+\)", ")", bare))
    bare = re.sub(r"^.*\b(?:answer|choice|option) is:? (?=\(?[A-J]\b)", "", bare)
    match = _STATED_CHOICE.fullmatch(bare)
    if not match:
        return None
    letter, rest = (match[1] or match[2]), match[3]
    if not letter.isupper() or _OTHER_CHOICE.search(rest):
        return None
    if rest and not match[1] and not re.match(r"[\s.:)]", rest):
        return None
    if not match[1] and rest.strip() and re.match(r"\s*[-+*/=<>^\\\d]", rest):
        return None  # "A = 5", "C 2": mathematics, not a choice
    return letter


_RUN = re.compile(r"(?<![\\A-Za-z_{])[A-Za-z]{2,}")
_STOP_WORDS = frozenset({
    "is", "the", "of", "are", "was", "were", "has", "had", "be", "to", "so", "we", "it", "its", "if",
    "then", "for", "by", "he", "she", "they", "will", "can", "not", "no", "yes", "an", "as", "at", "on",
    "with", "that", "this", "there", "from", "than", "all", "any", "each", "how", "what", "which",
    "who", "when", "where", "because", "since", "but", "let", "get", "gets", "two", "three", "four",
    "five", "six", "seven", "eight", "nine", "ten", "got", "ans", "my", "our", "may", "out", "did", "put",
    "say", "use", "add", "sum", "now", "old", "new", "her", "his", "him", "you", "your", "do", "does", "up",
    "also",
})  # fmt: skip
_KNOWN_WORDS = (
    FUNCTIONS | set(WORDS) | set(UNITS) | {"and", "or", "sq", "square", "cubic", "per", "base", "in"}
)


def is_prose(text: str) -> bool:
    """Does the text hold English words, so that it is no product of letters?"""
    words = _RUN.findall(_TEXT_GROUP.sub(" ", text)) if "text" in text else _RUN.findall(text)
    if _NAME.search(text):
        return True
    strange = [word for word in words if word not in _KNOWN_WORDS and word.lower() not in _KNOWN_WORDS]
    if any(word.lower() in _STOP_WORDS for word in strange):
        return True
    return len(strange) > 1 and bool(_TWO_WORDS.search(text))


_TEXT_GROUP = re.compile(r"\\text\s*\{[^{}]*\}")
_NAME = re.compile(
    r"(?<![\\A-Za-z_{])(?!Re\b|Im\b)[A-Z][a-z]{1,2}(?![A-Za-z])(?=[\s:,.])|(?<![A-Za-z\\])in\s+[a-z]"
)
_TWO_WORDS = re.compile(r"(?<![\\A-Za-z_{])[A-Za-z]{2,}\s+[A-Za-z]{2,}")
