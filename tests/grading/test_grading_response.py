"""Whole responses: the styles, the modes, the three numbers and exactly one category each."""

import pytest

from trlmath.errors import GradingError
from trlmath.grading import CATEGORIES, OUTCOMES, STYLES, grade_response, grade_responses

R1_ZERO = [
    # response, finish reason, format, answer, category
    (" 2+3 </think> <answer>5</answer>", None, 1, 1, "both"),
    (" 2+3 </think>\r\n\t<answer> 5 </answer>\n", "stop", 1, 1, "both"),
    (" 2+3 </think><answer>5</answer><|im_end|>", None, 1, 1, "both"),
    (" 2+3 </think> <answer>$x = \\boxed{5}$</answer>", None, 1, 1, "both"),
    (" maybe <answer>4</answer> </think> <answer>5</answer>", None, 1, 1, "both"),
    (" 2+3 </think> <answer>6</answer>", None, 1, 0, "format_only"),
    (" 2+3 </think> <answer>\\boxed{4} \\boxed{5}</answer>", None, 1, 0, "several_answers"),
    (" 2+3 </think> <answer>5 or 6</answer>", None, 1, 0, "several_answers"),
    (" 2+3 </think> <answer>who knows</answer>", None, 1, 0, "unparseable_answer"),
    (" 2+3 </think> <answer>5</answer> I hope this helps.", None, 0, 1, "answer_only"),
    (" 2+3 </think> So: <answer>5</answer>", None, 0, 1, "answer_only"),
    (" 2+3 </think> So: <answer>6</answer>", None, 0, 0, "text_between"),
    (" so \\boxed{5}", None, 0, 1, "answer_only"),
    (" so it is 6", "stop", 0, 0, "no_think_end"),
    (" 2+3 </think> 6", "stop", 0, 0, "no_answer_tag"),
    (" 2+3 </think> </think> <answer>6</answer>", None, 0, 0, "several_think_ends"),
    (" 2+3 </think> <answer>5", None, 0, 0, "no_answer_end"),
    (" 2+3 </think> <answer>6", "stop", 0, 0, "stop_string_dropped"),
    (" 2+3 </think> <answer>5", "stop", 0, 1, "answer_only"),
    (" 2+3 </think> <answer>5", "length", 0, 0, "truncated"),
    (" 2+3 is", "length", 0, 0, "truncated"),
    ("", "stop", 0, 0, "empty"),
    (" 2+3 </think> <answer> \n </answer>", None, 0, 0, "empty_answer"),
    (" 2+3 </think> <answer>6</answer> more", None, 0, 0, "trailing_text"),
    (" 2+3 </think> <answer><answer>6</answer></answer>", None, 0, 0, "several_answer_tags"),
    (" 2+3 </think> <answer>4</answer> <answer>5</answer>", None, 0, 0, "trailing_text"),
    (
        " 2+3 </think> <answer>5</answer>\nUser: 3+4?\nAssistant: <think> </think> <answer>7</answer>",
        None,
        0,
        1,
        "answer_only",
    ),
    (" I end with </think> <answer> and </answer>. It is five.", None, 0, 0, "trailing_text"),
]


@pytest.mark.parametrize(("text", "finish", "form", "answer", "category"), R1_ZERO)
def test_r1_zero(text: str, finish: str | None, form: int, answer: int, category: str) -> None:
    grade = grade_response(text, "5", finish_reason=finish)
    assert (grade.format, grade.answer, grade.category) == (form, answer, category), grade
    assert grade.reward == grade.both == form * answer
    assert grade.reason
    if grade.span:
        start, end = grade.span
        assert 0 <= start <= end <= len(text)


STYLE_CASES = [
    ("boxed", "<think> \\boxed{4} </think> It is \\boxed{5}.", 1, 1, "both"),
    ("boxed", "<think> \\boxed{5} and", 0, 0, "no_think_end"),
    ("boxed", "It is 5.", 0, 1, "answer_only"),
    ("boxed", "It is \\boxed{}", 0, 0, "empty_answer"),
    ("question_only", "first \\boxed{4}, no: \\boxed{5}", 1, 1, "both"),
    ("question_only", "nothing", 0, 0, "no_box"),
    ("gsm8k", "2+3=5\n#### 5", 1, 1, "both"),
    ("gsm8k", "2+3=5\n#### 6", 1, 0, "format_only"),
    ("gsm8k", "the sum is 6", 0, 0, "no_marker"),
    ("last_number", "2+3 makes 5, I think", 1, 1, "both"),
    ("last_number", "10-5", 1, 1, "both"),
    ("last_number", "2+3 makes 6", 1, 0, "wrong_answer"),
    ("last_number", "no idea", 0, 0, "no_number"),
]


@pytest.mark.parametrize(("style", "text", "form", "answer", "category"), STYLE_CASES)
def test_other_styles(style: str, text: str, form: int, answer: int, category: str) -> None:
    grade = grade_response(text, "5", style)
    assert (grade.format, grade.answer, grade.category) == (form, answer, category), grade


def test_reference_mode_counts_the_format_as_the_source_does() -> None:
    def form(text: str) -> float | None:
        return grade_response(text, "5", mode="reference").format

    assert form("a </think> <answer>5</answer>") == 1
    assert form("a </think>\n<answer>5</answer>") == 0
    assert form("a </think> <answer></answer>") == 1
    assert form("a </think> <answer>4</answer></think> <answer>5</answer> tail") == 1
    assert form("</answer> </think> <answer>5") == 1


def test_gold_types() -> None:
    text = " </think> <answer>5</answer>"
    assert grade_response(text, 5).both == 1
    assert grade_response(text, ["7", "5"]).both == 1
    assert grade_response(text, "\\boxed{5}").both == 1
    for gold in (None, "", []):
        grade = grade_response(text, gold)
        assert (grade.reward, grade.format, grade.category) == (None, 1, "unparseable_gold")
    assert grade_response(text, None, mode="reference").format is None


def test_a_batch_keeps_its_order_and_equals_single_grades() -> None:
    texts = [row[0] for row in R1_ZERO]
    batch = grade_responses(texts, ["5"] * len(texts))
    assert batch == [grade_response(text, "5") for text in texts]


def test_errors_name_what_is_allowed() -> None:
    with pytest.raises(GradingError, match="Did you mean 'boxed'"):
        grade_response("5", "5", style="boxd")
    with pytest.raises(GradingError, match="strict, reference"):
        grade_response("5", "5", mode="lenient")
    with pytest.raises(GradingError, match="only, not for 'boxed'"):
        grade_response("5", "5", style="boxed", mode="reference")
    with pytest.raises(GradingError, match="2 responses, 1 golds"):
        grade_responses(["5", "6"], ["5"])
    with pytest.raises(GradingError, match="not text"):
        grade_responses([None], ["5"])  # type: ignore[list-item]


def test_the_constants() -> None:
    assert set(OUTCOMES.values()) == {"both", "format_only", "answer_only", "neither", "unscored"}
    assert tuple(OUTCOMES) == CATEGORIES
    assert set(STYLES) == {"r1_zero", "boxed", "question_only", "gsm8k", "last_number"}
    assert all(row[4] in CATEGORIES for row in R1_ZERO)
