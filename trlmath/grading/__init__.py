"""Text to verdict: what a response answers, whether it is right, and why the grader says so."""

from trlmath.grading.answer import grade_answer, grade_answers, same_answer
from trlmath.grading.categories import CATEGORIES, OUTCOMES
from trlmath.grading.response import STYLES, grade_response, grade_responses
from trlmath.grading.verdict import Step, Verdict

__all__ = [
    "CATEGORIES",
    "OUTCOMES",
    "STYLES",
    "Step",
    "Verdict",
    "grade_answer",
    "grade_answers",
    "grade_response",
    "grade_responses",
    "same_answer",
]
