"""What must hold for every answer: reflexive, blind to dress, no two numbers equal, never a crash."""

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trlmath.grading import CATEGORIES, STYLES, grade_answer, grade_response
from trlmath.grading.rules import NEEDS_WORKER, Pair, decide

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

integers = st.integers(-(10**12), 10**12)
fractions = st.fractions(min_value=-10_000, max_value=10_000, max_denominator=5_000)


def latex(value: Fraction) -> str:
    """A fraction as LaTeX."""
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    """A LaTeX expression."""
    leaf = st.one_of(
        st.integers(0, 999).map(str),
        st.sampled_from(["x", "y", r"\pi", "n", "a_1", r"\sqrt{2}", "3.5", r"\frac{1}{3}", "i", "e"]),
    )
    if depth == 0:
        return draw(leaf)
    inner = expressions(depth=depth - 1)
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return draw(leaf)
    a, b = draw(inner), draw(inner)
    return [
        f"{a}+{b}",
        f"{a}-({b})",
        rf"\left({a}\right)\left({b}\right)",
        rf"\frac{{{a}}}{{{b}}}",
        rf"\sqrt{{{a}}}",
        f"({a})^{{{draw(st.integers(0, 4))}}}",
        rf"{a} \cdot ({b})",
    ][kind - 1]


@quick
@given(expressions())
def test_reflexive(text: str) -> None:
    assert grade_answer(text, text).equal is True


@quick
@given(expressions(2), expressions(2))
def test_symmetric(left: str, right: str) -> None:
    one, two = decide(Pair(left, right)), decide(Pair(right, left))
    assert one.equal == two.equal


DRESS = [
    lambda t: f"${t}$",
    lambda t: rf"\({t}\)",
    lambda t: rf"\[ {t} \]",
    lambda t: rf"\boxed{{{t}}}",
    lambda t: rf"\displaystyle {t}",
    lambda t: (
        t.replace("(", r"\left(")
        .replace(")", r"\right)")
        .replace(r"\left\left", r"\left")
        .replace(r"\right\right", r"\right")
    ),
    lambda t: t.replace(r"\frac", r"\dfrac"),
    lambda t: t.replace("+", " + ").replace("-", " - "),
    lambda t: t + ".",
    lambda t: f"The answer is ${t}$.",
    lambda t: rf"\,{t}\;",
]


@quick
@given(expressions(2), st.sampled_from(DRESS))
def test_blind_to_dress(text: str, dress) -> None:
    assert grade_answer(dress(text), text).equal is True


@quick
@given(integers)
def test_blind_to_thousands_separators_and_leading_zeros(number: int) -> None:
    grouped = f"{number:,}"
    for text in (grouped, grouped.replace(",", "{,}"), grouped.replace(",", r",\!"), f"{number}.0"):
        assert grade_answer(text, str(number)).equal is True
    zeros = f"{'-' if number < 0 else ''}00{abs(number)}"
    assert grade_answer(zeros, str(number)).equal is True


@quick
@given(fractions, fractions)
def test_never_equal_for_different_rationals(left: Fraction, right: Fraction) -> None:
    assert grade_answer(latex(left), latex(right)).equal is (left == right)
    assert grade_answer(f"{left.numerator}/{left.denominator}", latex(right)).equal is (left == right)


@quick
@given(fractions, st.integers(2, 60))
def test_unreduced_fractions_are_equal(value: Fraction, factor: int) -> None:
    text = rf"\frac{{{value.numerator * factor}}}{{{value.denominator * factor}}}"
    assert grade_answer(text, latex(value)).equal is True


@quick
@given(st.integers(-99, 99), st.integers(1, 4), st.integers(2, 50))
def test_never_equal_for_nearby_constants(whole: int, shift: int, radicand: int) -> None:
    gold = rf"{whole}+\sqrt{{{radicand}}}"
    assert grade_answer(rf"{whole}+\sqrt{{{radicand}}}+\frac{{{shift}}}{{10^{{12}}}}", gold).equal is False


@quick
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=5, unique=True), st.randoms())
def test_lists_are_unordered_and_tuples_are_not(items: list[int], random_) -> None:
    shuffled = list(items)
    random_.shuffle(shuffled)
    left, right = (", ".join(map(str, each)) for each in (shuffled, items))
    assert grade_answer(left, right).equal is True
    assert grade_answer(f"({left})", f"({right})").equal is (shuffled == items)
    assert grade_answer(left, str(items[0])).equal is False


PIECES = [
    "\\", "{", "}", "(", ")", "[", "]", "|", "$", "^", "_", "&", "%", "!", ",", ";", ":", "=", "<", ">",
    "+", "-", "*", "/", ".", "'", '"', "~", "#", "\n", " ", "0", "9", "12", "10^9", "99999999", "x",
    "e", "i", "or", "and", "is", "the answer", r"\frac", r"\sqrt", r"\boxed", r"\text", r"\left",
    r"\right", r"\begin{pmatrix}", r"\end{pmatrix}", r"\\", r"\pm", r"\cup", r"\infty", r"\binom",
    r"\log", r"\sin", r"\pi", r"^\circ", r"\overline", r"\{", r"\}", "<answer>", "</answer>",
    "</think>", "####", "½", "√", "²", "∞", "−", "\x00", "\ud7ff", "😀", "\u00a0", "\x0c", "1e999", "0x",
    "**", "!!", "mod",
]  # fmt: skip
hostile = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))


@pytest.mark.parametrize(
    "text", ["binom(5)", r"\log_{}{", "sin()", "gcd(x,)", r"\sqrt[0]{5}", "0^0", "0/0!", "5/%"]
)
def test_malformed_functions(text: str) -> None:
    assert decide(Pair(text, "5")).rule != "crash"


@settings(max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(hostile, st.one_of(st.just("5"), hostile))
def test_no_text_crashes_the_cheap_road_or_makes_it_slow(prediction: str, gold: str) -> None:
    ruling = decide(Pair(prediction, gold))
    assert ruling.equal in (True, False, None)
    if ruling.equal is None:
        assert ruling.rule in (NEEDS_WORKER, "unreadable_gold")


@quick
@given(hostile, st.sampled_from(sorted(STYLES)), st.sampled_from([None, "stop", "length"]))
def test_no_response_crashes_a_style(text: str, style: str, finish: str | None) -> None:
    grade = grade_response(text, "5", style, finish_reason=finish)
    assert grade.category in CATEGORIES
    assert grade.parts.keys() == {"format", "answer", "both"}
    if style == "r1_zero":
        reference = grade_response(text, "5", mode="reference")
        assert reference.format == float("</think> <answer>" in text and "</answer>" in text)


@pytest.mark.parametrize("text", ["\ud800", "5\udfff", "\x00"])
def test_broken_unicode(text: str) -> None:
    assert grade_answer(text, "5").equal is False
