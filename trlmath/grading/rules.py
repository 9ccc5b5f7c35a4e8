"""The rules of the cheap road, in order: each either decides, or leaves the pair to the next."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from trlmath.grading.clean import MAX_LENGTH, clean, markup
from trlmath.grading.limits import LIMITS
from trlmath.grading.parser import parse
from trlmath.grading.prose import ends_with_text, listing, statement
from trlmath.grading.spans import Span, boxes
from trlmath.grading.structure import agree
from trlmath.grading.syntax import Node
from trlmath.grading.verdict import Step
from trlmath.grading.words import choice_letter, fraction_words, is_prose, is_text, plain_text, stated_choice

_SPACES = re.compile(r"\s+")
_DEEP = 24
_SYMBOLIC = re.compile(
    r"\\(?:sum|int|iint|oint|prod|lim|mod|bmod|partial|cases)(?![A-Za-z])|\\begin\s*\{cases"
)
_ENGLISH = re.compile(r"[A-Za-z]{2,}")
_WORDED: dict[str, Node] = {
    "empty set": ("seq", "{}"),
    "no solution": ("seq", "{}"),
    "all real numbers": ("seq", "()", ("neg", ("const", "inf")), ("const", "inf")),
    "infinite": ("const", "inf"),
    "infinity": ("const", "inf"),
    "positive infinity": ("const", "inf"),
    "negative infinity": ("neg", ("const", "inf")),
}


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a rule decided. `equal` None: the gold is unreadable, or a worker must look (`needs_worker`)."""

    equal: bool | None
    rule: str
    reason: str = ""


_OUTCOME = {True: "equal", False: "different", None: "unreadable"}
NEEDS_WORKER = "needs_worker"


@dataclass
class Pair:
    """A prediction and a gold, with their normal forms worked out when first asked for."""

    prediction: str
    gold: str
    unsettled: bool = False
    different: Ruling | None = None
    steps: list[Step] = field(default_factory=list)

    @cached_property
    def found(self) -> list[Span]:
        """Boxes in the prediction."""
        return boxes(self.shown)

    @cached_property
    def shown(self) -> str:
        """The prediction in one spelling; of a very long one only the end."""
        if len(self.prediction) <= MAX_LENGTH:
            return markup(self.prediction)
        text = self.prediction.strip()
        return markup(text if len(text) <= MAX_LENGTH else text[-2000:])

    @cached_property
    def p(self) -> str:
        """Normal form of the prediction: its only box, the list of its boxes, or all of it."""
        if self.found:
            if len(self.found) == 1:
                whole, inside = clean(self.shown), clean(self.found[0].text)
                readable = (
                    len(whole) <= LIMITS.compare and parse(whole) is not None and parse(inside) is not None
                )
                alone = whole == f"\\boxed{{{self.found[0].text}}}"
                if _beside_or(self.shown, self.found[0]) or (readable and not alone):
                    return whole  # a box amid mathematics, as in 2\boxed{5}, is a part of it
                return inside
            if _beside_or(self.shown, self.found[-1]):
                return clean(self.shown)
            texts = list(dict.fromkeys(clean(box.text) for box in self.found))
            return texts[0] if len(texts) == 1 else listing(self.shown, self.found)
        return clean(self.shown)

    @cached_property
    def g(self) -> str:
        """Normal form of the gold."""
        if len(self.gold) > MAX_LENGTH:
            return self.gold.strip()
        found = boxes(markup(self.gold))
        return clean(found[0].text if len(found) == 1 else self.gold)

    @cached_property
    def node_p(self) -> Node | None:
        """The prediction as an expression."""
        return _node(self.p)

    @cached_property
    def node_g(self) -> Node | None:
        """The gold as an expression."""
        return _node(self.g)


def _node(text: str) -> Node | None:
    if len(text) > LIMITS.compare:
        return None
    node = parse(text)
    if node is not None and node[0] != "text":
        return node
    worded = plain_text(text) if text.startswith("\\text") else text
    number = fraction_words(worded) if worded[:1].isalpha() else None
    if number is not None:
        return parse(number)
    return _WORDED.get(plain_text(text), node)


# -- the rules -------------------------------------------------------------


def gold_readable(pair: Pair) -> Ruling | None:
    """An empty gold can be compared with nothing."""
    if not pair.g or not re.search(r"\w|\\[a-z{]", pair.g):
        return Ruling(None, "unreadable_gold", "the gold answer is empty or holds no answer")
    return None


def exact_text(pair: Pair) -> Ruling | None:
    """The same characters, once dress and spaces are off."""
    if pair.prediction.strip() == pair.gold.strip() and pair.p:
        return Ruling(True, "exact_text", "the same text")
    if not pair.p:
        return Ruling(False, "unparseable_answer", "the answer is empty")
    if pair.p == pair.g or _SPACES.sub("", pair.p) == _SPACES.sub("", pair.g):
        return Ruling(True, "exact_text", "the same text")
    return None


def words(pair: Pair) -> Ruling | None:
    """Text answers without regard to case and fonts; choice letters with or without what they stand for."""
    if len(pair.g) > 200:
        return None
    letter = choice_letter(pair.g)
    if letter and stated_choice(pair.p) == letter:
        return Ruling(True, "choice", f"both choose {letter}")
    if is_text(pair.g):
        gold = plain_text(pair.g)
        if plain_text(pair.p) == gold:
            return Ruling(True, "text", "the same words")
        if (
            gold
            and (pair.node_g is None or pair.node_g[0] == "text")
            and ends_with_text(pair.prediction, gold)
        ):
            return Ruling(True, "text_in_sentence", "a sentence that ends in stating the gold words")
    return None


def structure(pair: Pair) -> Ruling | None:
    """Both parsed: compared as numbers, functions, lists, tuples, sets, matrices, equations, inequalities."""
    p, g = pair.node_p, pair.node_g
    if p is None or g is None:
        pair.unsettled = _worth_a_worker(pair)
        return None
    equal, rule = agree(p, g)
    if equal is None:
        pair.unsettled = True
        return None
    if equal:
        return Ruling(True, rule, _REASONS.get(rule, f"equal by the rule {rule}"))
    if _is_list(p) and not _is_list(g):
        rule = "several_answers"
    pair.different = Ruling(False, rule, "different, compared by the rule " + rule)
    return None


def derivation(pair: Pair) -> Ruling | None:
    """Several lines of working, or a chain of equations whose left end cannot be read: the end counts."""
    if pair.node_g is None or "\\begin" in pair.prediction or len(pair.prediction) > LIMITS.compare:
        return None
    lines = [line for line in pair.prediction.strip().splitlines() if line.strip()]
    tail = ""
    if len(lines) > 1 and "=" in lines[0] and not pair.found:
        tail = lines[-1]
    elif (
        pair.node_p is None
        and not pair.found
        and "=" in pair.p
        and not is_prose(pair.p)
        and ". " not in pair.p
    ):
        tail = pair.p.rsplit("=", 1)[1]
    node = _node(clean(tail)) if tail else None
    if node is not None and agree(node, pair.node_g)[0]:
        return Ruling(True, "derivation", "the end of a derivation")
    return None


def sentence(pair: Pair) -> Ruling | None:
    """A sentence that states exactly one final answer."""
    if pair.node_p is not None or pair.node_g is None or not _ENGLISH.search(_no_commands(pair.p)):
        return None
    if pair.unsettled and not is_prose(pair.p):
        return None  # mathematics that a worker may yet read
    stated = statement(pair.prediction if not pair.found else pair.p)
    if stated is None:
        return None
    inner = Pair(stated, pair.gold)
    for rule in (exact_text, structure):
        ruling = rule(inner)
        if ruling is not None and ruling.equal:
            return Ruling(True, "sentence", f"a sentence that states {inner.p!r}: {ruling.rule}")
    pair.unsettled = inner.unsettled
    pair.different = Ruling(False, "sentence", f"a sentence that states {inner.p!r}")
    return None


RULES: tuple[tuple[str, Callable[[Pair], Ruling | None]], ...] = (
    ("gold_readable", gold_readable),
    ("exact_text", exact_text),
    ("words", words),
    ("structure", structure),
    ("derivation", derivation),
    ("sentence", sentence),
)
"""Name and function of each rule, in the order tried."""


def decide(pair: Pair, explain: bool = False) -> Ruling:
    """Walk the cheap road. A ruling named `NEEDS_WORKER` asks for the pool."""
    try:
        return _walk(pair, explain)
    except RecursionError:  # the caller left too little of the stack
        if LIMITS.relaxed:
            raise
        return Ruling(None, NEEDS_WORKER, "nested too deeply for the cheap road")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # A mistake of ours: one answer must not end a run, and must not look like a wrong answer either.
        return Ruling(None, "crash", f"the grader failed on this pair: {type(error).__name__}: {error}")


def _walk(pair: Pair, explain: bool) -> Ruling:
    for name, rule in RULES:
        start = time.perf_counter() if explain else 0.0
        ruling = rule(pair)
        if explain:
            outcome = "undecided" if ruling is None else _OUTCOME[ruling.equal]
            if ruling is None and pair.different is not None and name in ("structure", "sentence"):
                outcome = "different"
            pair.steps.append(Step(name, outcome, time.perf_counter() - start))
        if ruling is not None:
            return ruling
    if pair.unsettled:
        return Ruling(None, NEEDS_WORKER, "the cheap road cannot tell")
    if pair.different is not None:
        return pair.different
    if len(pair.found) > 1:
        return Ruling(False, "several_answers", "several different boxes")
    if pair.node_g is None and not is_text(pair.g) and not choice_letter(pair.g):
        if len(pair.g.split()) > 12:
            return Ruling(None, "unreadable_gold", "the gold answer is no expression and no short text")
        return Ruling(
            False, "different_text", "not the same text, and the gold is no expression that can be read"
        )
    if pair.node_p is None and pair.node_g is not None:
        return Ruling(
            False, "unparseable_answer", "no expression, and no sentence that states exactly one answer"
        )
    return Ruling(False, "different_text", "not the same words")


# -- helpers ---------------------------------------------------------------


_REASONS = {
    "rational": "the same rational number",
    "number": "the same number to 100 digits",
    "function": "the same function at every test point",
    "same_form": "the same expression",
}


_WRONG_BEHIND = re.compile(r"\}[\s$)\\\].,;]*(?:is|was)\s+(?:wrong|incorrect|false|not)\b")
_OR_BEFORE = re.compile(r"\b(?:or|and/or|not)[\s$(\\]*(?:f?boxed)?\s*\{?$")
_OR_BEHIND = re.compile(r"\}[\s$)\\\].,;]*(?:[a-z]+[\s.,]+){0,3}?(?:or|and/or)\b[^A-Za-z]*[\d\\(]")


def _beside_or(text: str, box: Span) -> bool:
    """Is the box denied, or one of two alternatives of which the other is not boxed?"""
    before, behind = text[: box.start], box.end
    return bool(
        _OR_BEFORE.search(before) or _OR_BEHIND.match(text, behind) or _WRONG_BEHIND.match(text, behind)
    )


def _is_list(node: Node) -> bool:
    return node[0] == "or" or (node[0] == "seq" and node[1] == "") or node[0] == "pm"


def _no_commands(text: str) -> str:
    return re.sub(r"\\[A-Za-z]+", " ", text)


def _worth_a_worker(pair: Pair) -> bool:
    """Unparsed, but not hopeless: nested deeply, long mathematics, or sums, integrals and limits."""
    hopeful = False
    for text, node in ((pair.p, pair.node_p), (pair.g, pair.node_g)):
        if node is not None:
            continue
        if is_prose(text):
            return False
        if _SYMBOLIC.search(text):
            hopeful = True
        elif LIMITS.relaxed or not _balanced(text):
            return False
        else:
            hopeful = hopeful or len(text) > LIMITS.compare or _depth(text) > _DEEP
    return hopeful


def _balanced(text: str) -> bool:
    return text.count("{") == text.count("}") and text.count("(") + text.count("[") == text.count(
        ")"
    ) + text.count("]")


def _depth(text: str) -> int:
    deepest = depth = 0
    for char in text:
        if char in "{([":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "})]":
            depth -= 1
    return deepest
