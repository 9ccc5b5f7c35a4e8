"""The one final answer that a sentence states, or nothing when it states none or more than one.

The gold is never looked at here: what a sentence states does not depend on what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trlmath.grading.clean import THOUSANDS, clean, markup, scaled, undollar
from trlmath.grading.parser import parse
from trlmath.grading.spans import Span
from trlmath.grading.syntax import FUNCTIONS, UNITS, WORDS, Node, variables
from trlmath.grading.words import NUMBER_WORDS, number_words, plain_text

MAX_PROSE = 4000
"""Only the end of a longer text is searched (characters)."""
MAX_SENTENCE = 700
"""A longer one is no sentence (characters)."""
MAX_VERBS = 8

_ANSWER = re.compile(r"\banswer\b[^.:=\n\d]{0,60}?(?:\bis\b|:|=)\s*:?", re.IGNORECASE)
_SENTENCE = re.compile(
    r"(?<=[.!?])(?<!\b[A-Za-z]\.)(?<!\b(?:Mr|Ms|Dr|St)\.)(?<!\bMrs\.)\s+(?=\S)|\n+|;\s+|(?<=[.!?$*])\s*#"
)
_CLAUSE = re.compile(
    r",\s+(?=(?!and\s+[\d$\\(]|or\s+[\d$\\(])[A-Za-z∴][A-Za-z'’]+[\s,])|,?\s+(?:so|thus|therefore|hence|∴)(?=\s)|=>|⇒|∴"
)
_VERB = re.compile(
    r"\b(?:is|are|was|were|be|equals?|equal to|gives?|gave|gets?|got|yields?|becomes?|became|obtains?|finds?"
    r"|found|totall?ing|total of|totals?|makes?|made|has|have|had|contains?|costs?|needs?|needed|earns?"
    r"|earned|spends?|spent|takes?|took|ran|runs?|walk(?:s|ed)?|drove|drives?|travel(?:s|ed)?|buys?|bought|sells?|sold"
    r"|pays?|paid|uses?|used|eats?|ate|collects?|collected|scores?|scored|loses?|lost|wins?|won|saves?|saved"
    r"|receives?|received|raises?|raised|reads?|writes?|wrote|bakes?|baked|picks?|picked|plants?|planted"
    r"|weighs?|weighed|owes?|owed|caught|counts?|counted|means|comes? out to be)\b:?|:(?!\d)|<-",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(r"\$?\s*([A-Za-z]\w{0,3})\s*=\s*([^=\n]+)")
_ALTERNATIVE = re.compile(r"\W*(?:or|alternatively|otherwise|maybe|perhaps|possibly)\b", re.IGNORECASE)
_BARE = re.compile(r"\s*-?\d+(?:[.,]\d+)*\s*")
_COPULA = re.compile(r"\b(?:is|are|were|be)\b:?|:(?!\d)")
_NOT = re.compile(r"\W*(?:(?:it|that|this|the answer)(?: is|'s) )?(?:not|never)\b", re.IGNORECASE)
_REFUSED = re.compile(r"\b(?:is|are|was|were|be) (?:wrong|incorrect|false)\b|\?", re.IGNORECASE)
_DENIAL = re.compile(
    r"(?:\b(?:not|never|cannot|neither|either)|n't)\s+(?:[a-z]+\s+){0,3}[^A-Za-z]{0,3}[\d\\]", re.IGNORECASE
)
_VAGUE = re.compile(
    r"\b(?:at least|at most|(?:more|less|fewer|greater|larger|smaller) than|up to|between|half of|third of|"
    r"quarter of|divided by|multiplied by|minus|plus|over|negative)\s+(?=\\?\$?\s?[-\d\\.])"
    r"|(?<=\d)\s+(?:squared|cubed|factorial)\b",
    re.IGNORECASE,
)
_OTHER = re.compile(r"\d|\\(?:frac|sqrt|pi)|\b(?:or|instead)\b(?!\s+(?:more|less|so|fewer|greater)\b)")
_BOUND = re.compile(
    r"\s*(?:or|and)\s+(?:more|less|fewer|greater|above|below|up|over|under|higher|lower)\b", re.I
)
_ASIDE = re.compile(
    r"\b(?:because|if|since|when|which|that|where|who|than|after|before|for|in|as|on|per|each|every|of|from|by|at|over|"
    r"within|with|to|until|during|about|while|compared)\b(?!\s+\d+\s*(?:\.|$))(?:(?!\b(?:and|or)\s+\\?\$?\d)[^;=])*"
)
_ROUNDED = re.compile(
    r",?\s*\(?(?:or|which is)?\s*(?:about|approximately|roughly|≈|\\approx)\s*\$?[\d.,]+\s?%?\)?"
)
_BECAUSE = re.compile(
    r"^[\s,]*(?:or about|or approximately|which|where|who|as|since|because|assuming|if|when|while|given"
    r"|and not|not)\b",
    re.IGNORECASE,
)
_IMPERATIVE = re.compile(
    r"\s*(?:set|let|find|simplify|solve|calculate|multiply|divide|add|subtract|consider|compute|use|write|convert|"
    r"evaluate|note|recall|given|suppose|assume|if|when|substitute|apply|we have equation)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![A-Za-z_\d.,/^-])(-?\s?(?:\\?\$\s?)?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?|-?\.\d+)"
    r"(\s?\\?%)?(?![\d/]|\.\d)"
)
_ORDINAL = re.compile(
    r"^(?:st|nd|rd|th)\b|^\s?(?:am|pm|a\.m\.|p\.m\.|o'clock)(?![a-z])|^-?(?:digit|sided|way|pack)\b", re.I
)
_MATH = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(?!\s*\d[\d.,]*\s+[a-z])([^$]+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
_COUNTED = re.compile(
    r"((?:-|\\?\$)?\s?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)(?:\s+|(?=[A-Z])|\s*/\s*)(?!x\b|e\b|i\b|and\b|or\b)([A-Za-z][A-Za-z'&-]+)"
    r"|((?:-|\\?\$)?\d+(?:\.\d+)?)(m|g|s|h|L|A|W|V|J|N|K)(?![A-Za-z0-9_^(*/+=-])"
)
_NAMED = re.compile(
    r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december|step|problem|page|"
    r"question|figure|chapter|section|case|part|option|example|equation|line|room|table|theorem|lemma)\s*#?$",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^(?:\s*(?:about|around|approximately|roughly|exactly|only|just|still|now|equal to|a total of|the|"
    r"simply|always|therefore|thus|so|also|then|that|to|be)\b[\s:]*)+",
    re.IGNORECASE,
)


def statement(text: str) -> str | None:
    """The mathematics (or number) that the text states as its final answer, or None."""
    text = re.sub(r"</?(?:span|math|p|b|i|strong|em)>|```\w*", " ", text[-MAX_PROSE:]).replace("**", " ")
    text = re.sub(r"\\(?:text|mathrm|textbf|mbox)\s*\{([^{}]*)\}", r" \1 ", re.sub(r"<<[^<>]*>>", "", text))
    text = scaled(THOUSANDS.sub("", text))
    marked = list(_ANSWER.finditer(text))
    if marked:
        rest = text[marked[-1].end() :]
        if any(_ALTERNATIVE.match(s) and re.search(r"\d|\\", s) for s in _sentences(rest)):
            return None
        first = next((s for s in _sentences(rest) if _informative(s)), "")
        found = _quantity(first) or _from_sentence(first)
        if found is not None:
            return None if _contradicted(text, marked, found) else found
    sentences = list(_sentences(text))
    bare = {clean(line) for line in text.splitlines() if _BARE.fullmatch(line)}
    if len(bare) > 1 or (bare and len(sentences) > 1 and not _repeats(bare, sentences[-1])):
        return None  # a number alone on a line is an answer too
    if _assigned_twice(sentences):
        return None
    for sentence in reversed(sentences):
        if _ALTERNATIVE.match(sentence):
            return None
        if _informative(sentence):
            return _from_sentence(sentence)
    return None


def _repeats(bare: set[str], sentence: str) -> bool:
    """Does the last sentence state the number that stands alone on a line?"""
    found = _from_sentence(sentence)
    return found is None or clean(found) in bare or clean(sentence) in bare


def _contradicted(text: str, marked: list[re.Match[str]], found: str) -> bool:
    """Does an earlier "the answer is" of the same text state another value?"""
    for marker, following in zip(marked, marked[1:], strict=False):
        first = next(_sentences(text[marker.end() : following.start()]), "")
        earlier = _quantity(first)
        if earlier is not None and clean(earlier) != clean(found):
            return True
    return False


def _assigned_twice(sentences: list[str]) -> bool:
    """``x = 5. x = 6.``: one name with two values states neither."""
    values: dict[str, str] = {}
    for sentence in sentences:
        match = _ASSIGNED.fullmatch(sentence)
        if match and values.setdefault(match[1], clean(match[2])) != clean(match[2]):
            return True
    return False


def _sentences(text: str) -> Iterator[str]:
    for piece in _SENTENCE.split(text):
        if piece.strip():
            yield piece.strip()


def _informative(sentence: str) -> bool:
    return (
        bool(re.search(r"\d|\\(?:frac|sqrt|pi|infty)|[=√π∞½¼¾]|\$[^$]+\$", sentence))
        or _words(sentence) is not None
    )


def _words(sentence: str) -> str | None:
    """The only number word of a sentence."""
    found = [
        w for w in re.findall(r"[a-z-]+", sentence.lower()) if number_words(w) is not None and w != "one"
    ]
    return found[0] if len(set(found)) == 1 else None


def _from_sentence(sentence: str) -> str | None:
    if len(sentence) > MAX_SENTENCE:
        return None
    clauses = [c for c in _CLAUSE.split(sentence) if c and c.strip()]
    informative = [c for c in clauses if re.search(r"\d|\\(?:frac|sqrt|pi|infty)|[√π∞½¼¾]", c)]
    while len(informative) > 1 and _BECAUSE.match(informative[-1]) and "=" not in informative[-1]:
        informative.pop()  # a reason or a remark behind the statement
    clause = informative[-1] if informative else sentence
    if _REFUSED.search(clause) or _NOT.match(clause):
        return None
    listed = _listed(clause)
    if listed is not None:
        return None if _DENIAL.search(clause) else listed
    equals = _after_last_equals(clause)
    if equals is not None:  # "they did not sell 300 - 150 = 150 pieces" denies something else
        return _quantity(equals)
    if _DENIAL.search(clause):
        return None
    verbs = _outside_math(_VERB, clause)
    if verbs:
        found = _quantity(clause[verbs[-1].end() :])
        if found is not None:
            return found
    if _IMPERATIVE.match(sentence) or _VAGUE.search(clause):
        return None
    return _only_number(clause)


def _listed(clause: str) -> str | None:
    """What follows "are" or a colon, when all of it is one list, tuple, set or matrix."""
    for verb in _outside_math(_COPULA, clause):
        raw = clause[verb.end() :].strip(" .")
        rest, span = clean(raw), _MATH.fullmatch(raw)
        node = parse(rest)
        if node is not None and (node[0] in ("seq", "or", "cup", "matrix") or (span and _curve(node))):
            return rest
    return None


def _curve(node: Node) -> bool:
    """An equation that is an answer itself, such as a line's: two sides, and the left one is no name."""
    return node[0] == "rel" and node[2] == ("=",) and node[1][0][0] == "add" and bool(variables(node[1][0]))


def _outside_math(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """The matches of `pattern` that do not lie within ``$...$`` and the like."""
    spans = [m.span() for m in _MATH.finditer(text)]
    return [m for m in pattern.finditer(text) if not any(a < m.start() < b for a, b in spans)][-MAX_VERBS:]


def _after_last_equals(clause: str) -> str | None:
    matches = list(re.finditer(r"(?<![<>!:\\])=(?!>)", clause))
    return clause[matches[-1].end() :] if matches else None


def _quantity(text: str) -> str | None:
    """The value at the start of `text`, when nothing behind it states another one."""
    if len(text) > MAX_SENTENCE:
        return None
    text = _LEAD.sub("", text.strip()).strip()
    text = text.strip("*_ \t")
    if not text or _VAGUE.search(text) or _DENIAL.search(text) or _REFUSED.search(text):
        return None
    counted = _COUNTED.match(text)
    if counted and counted[4]:  # "12m from his end"; in an expression, 12m would be a product
        return clean(counted[3]) if not _OTHER.search(_harmless(text[counted.end() :])) else None
    if counted:
        word = counted[2].lower()
        if (
            word not in WORDS
            and word not in FUNCTIONS
            and not _OTHER.search(_harmless(text[counted.end() :]))
            and not _BOUND.match(text[counted.end() :])
        ):
            unit = f" {counted[2]}" if word in UNITS else ""
            return clean(counted[1] + unit)
    span = _MATH.match(text)
    if span:
        rest = text[span.end() :]
        inside = next(group for group in span.groups() if group is not None)
        if not _OTHER.search(_harmless(rest)) and _value(clean(inside)):
            percent = re.match(r"\s*(?:%|percent\b|\\%)", rest)
            return inside + ("%" if percent else "")
    whole = clean(text)
    if _value(whole):
        return whole
    words = text.split()
    for end in range(min(len(words), 14), 0, -1):
        piece = clean(" ".join(words[:end]))
        if re.search(r"[\d\\]", piece) and _value(piece):
            rest = " ".join(words[end:])
            return None if _OTHER.search(_harmless(rest)) or _BOUND.match(rest) else piece
    named = re.match(r"([a-z]+(?:-[a-z]+)?)\b", text, re.IGNORECASE)
    if named and number_words(named[1]) is not None and not _OTHER.search(text[named.end() :]):
        return str(number_words(named[1]))
    return None


def _harmless(rest: str) -> str:
    """What follows a value, without the numbers of a circumstance (``in 3 days``, ``by 5 pm``)."""
    rest = (
        re.sub(r"\((?!\s*or\b)(?=[^()]*[a-z]{3})[^()]*\)", " ", rest)
        if not re.search(r"\)\s*[-+*/=]", rest)
        else rest
    )
    rest = re.sub(
        r"\b\d+(?:st|nd|rd|th)\b|\b\d{1,2}(?::\d\d)?\s?(?:am|pm|a\.m\.|p\.m\.)|\b\d+-[a-z]+", " ", rest
    )
    rest = _ROUNDED.sub(" ", rest)
    return _ASIDE.sub(" ", rest)


def _value(text: str) -> bool:
    node = parse(text)
    return node is not None and not _is_loose(node)


def _is_loose(node: Node) -> bool:
    """A lone symbol or text is no value that a sentence states by the way."""
    return node[0] == "text" or (node[0] == "sym" and len(node[1]) > 1 and ":" in node[1])


def _only_number(clause: str) -> str | None:
    """The single number of a clause (repeats of one value count once)."""
    maths = [next(g for g in m.groups() if g is not None) for m in _MATH.finditer(clause)]
    if len(maths) == 1 and _value(clean(maths[0])) and not re.search(r"\d", clause.replace(maths[0], "")):
        return maths[0]
    plain = undollar(markup(clause)).replace("\\$", "$")
    found: list[str] = []
    for match in _NUMBER.finditer(plain):
        if _NAMED.search(plain[: match.start()]):
            return None  # a date or a heading counts nothing
        after = plain[match.end() :]
        if _ORDINAL.match(after):
            continue
        if _BOUND.match(after):
            return None
        following = re.match(r"\s*([a-z]+)", after, re.IGNORECASE)
        if following and following[1].lower() in NUMBER_WORDS:
            return None
        found.append(clean((match[1] + (match[2] or "")).replace("$", "")))
    if found:
        return found[0] if len(set(found)) == 1 else None
    return str(number_words(word)) if (word := _words(clause)) is not None else None


def ends_with_text(prediction: str, gold: str) -> bool:
    """Does the last sentence end in stating the words `gold` (``This represents an ellipse.``)?"""
    sentences = list(_sentences(prediction))
    last = undollar(markup(sentences[-1])) if sentences else ""
    last = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", last).lower().rstrip(" .!*")
    if re.search(r"\bnot\b|n't\b|\bor\b|\bneither\b|\?", last) and " " in last.strip():
        return bool(re.search(r"\bor\b|\bneither\b|\bnot\b", gold)) and last.endswith(gold)
    if re.match(rf"{re.escape(gold)}(?:,| (?:is|was|has|had|will|won|wins|can|did|gets?|got)\b)", last):
        return " and " not in last and not re.search(r"\b(?:wrong|incorrect|false)\b", last)
    stated = re.search(
        r"\b(?:is|are|was|were|be|equals|gets?|represents?|describes?|forms?|called|[a-z]+:)\s+(.+)$", last
    )
    return stated is not None and plain_text(stated[1]) == gold


def listing(text: str, found: list[Span]) -> str:
    """Several different boxes read as the list of their contents."""
    return ", ".join(clean(box.text) for box in found)
