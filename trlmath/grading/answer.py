"""Does a prediction state the gold answer? The road of rules, cheapest first."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trlmath.grading.clean import MAX_LENGTH, clean, markup, trim, undollar
from trlmath.grading.parser import parse
from trlmath.grading.spans import boxes
from trlmath.grading.structure import agree
from trlmath.grading.verdict import Step, Verdict
from trlmath.grading.words import choice_letter, is_text, number_words, plain_text, stated_choice


@dataclass
class Pair:
    pred: str
    gold: str


WORDED = {"empty set": ("seq", "{}"), "no solution": ("seq", "{}"), "all real numbers": parse(r"\mathbb{R}"),
  "infinity": ("const", "inf"), "negative infinity": ("neg", ("const", "inf"))}


def _tight(text: str) -> str:
    return re.sub(r"\s+", "", text)


def decide(prediction: str, gold: str, prose: bool = True):
    g = gold if len(gold) > MAX_LENGTH else clean(gold)
    gb = boxes(markup(gold))
    if len(gb) == 1:
        g = clean(gb[0].text)
    if not g:
        return None, "unreadable_gold", prediction, g
    if len(prediction) > MAX_LENGTH:
        if prediction.strip() == gold.strip():
            return True, "exact_text", prediction, g
        prediction = prediction.strip()
        if len(prediction) > MAX_LENGTH:
            prediction = prediction[-2000:]
    found = boxes(markup(prediction))
    p = clean(prediction)
    if found:
        texts = {clean(b.text) for b in found}
        if len(texts) == 1:
            p = texts.pop()
        elif len(found) > 1:
            from trlmath.grading.prose import listing
            p = listing(prediction, found)
    if not p:
        return False, "unparseable_answer", p, g
    if p == g or _tight(p) == _tight(g):
        return True, "exact_text", p, g
    if is_text(g):
        if plain_text(p) == plain_text(g):
            return True, "text", p, g
        from trlmath.grading.prose import ends_with_text
        if ends_with_text(prediction, plain_text(g)):
            return True, "text_in_sentence", p, g
    letter = choice_letter(g)
    if letter and stated_choice(p) == letter:
        return True, "choice", p, g
    pn, gn = parse(p), parse(g)
    if pn is None:
        pn = WORDED.get(plain_text(p))
    if gn is None:
        gn = WORDED.get(plain_text(g))
    n = number_words(p)
    if n is not None and pn is None:
        pn = parse(str(n))
    if gn is None and g and (alt := number_words(g)) is not None:
        gn = parse(str(alt))
    if pn is not None and gn is not None:
        eq, rule = agree(pn, gn)
        if eq is False and prose and "\n" in prediction.strip() and "\\begin" not in prediction:
            *before, lastline = [l for l in prediction.strip().splitlines() if l.strip()]
            if before and all("=" in l for l in before[:1]):
                eq2, rule2, p2, g2 = decide(lastline, gold, False)
                if eq2: return eq2, "last_line:" + rule2, p2, g2
        if eq is not None:
            return eq, rule, p, g
        return False, "undecided:" + rule, p, g
    if prose and gn is not None and re.search(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+", "", prediction)):
        from trlmath.grading.prose import statement
        s = statement(prediction)
        if s is not None:
            eq, rule, p2, g2 = decide(s, gold, False)
            return eq, "prose:" + rule, p2, g2
    return False, "different_text", p, g


def grade_answer(prediction: str, gold: object) -> Verdict:
    """Compare the text of an answer with the gold answer."""
    start = time.perf_counter()
    if gold is None or not str(gold).strip():
        return Verdict(None, "unreadable_gold", str(prediction), "", 0.0, "the gold answer is empty or missing")
    eq, rule, p, g = decide(str(prediction), str(gold))
    return Verdict(eq, rule, p, g, time.perf_counter() - start)


def grade_answers(predictions: Sequence[str], golds: Sequence[object], *, workers: int | None = None) -> list[Verdict]:
    return [grade_answer(p, g) for p, g in zip(predictions, golds, strict=True)]
