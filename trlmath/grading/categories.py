"""The words a grade may carry as its category, and which of four outcomes each belongs to."""

from __future__ import annotations

OUTCOMES: dict[str, str] = {
    # format kept, answer right
    "both": "both",
    # format kept, answer not right
    "format_only": "format_only",  # a readable answer, and it is wrong
    "unparseable_answer": "format_only",  # an answer that cannot be read as one
    "several_answers": "format_only",  # different answers side by side never score
    # format broken, answer right; the reason says how the format broke
    "answer_only": "answer_only",
    # format broken, answer not right: how the format broke
    "empty": "neither",  # nothing but whitespace was generated
    "truncated": "neither",  # the engine says the token limit cut it off
    "no_think_end": "neither",
    "several_think_ends": "neither",
    "no_answer_tag": "neither",
    "no_answer_end": "neither",  # `<answer>` opened; nothing says whether a stop string was dropped
    "stop_string_dropped": "neither",  # `<answer>` opened; ended by itself or by a lost stop string
    "several_answer_tags": "neither",
    "text_between": "neither",
    "trailing_text": "neither",
    "empty_answer": "neither",
    "no_box": "neither",
    "no_marker": "neither",  # gsm8k style without `####`
    "no_number": "neither",  # last_number style without a number
    "wrong_answer": "neither",  # a style without a format
    # the grader cannot score it
    "unparseable_gold": "unscored",
    "grader_timeout": "unscored",
}
"""Category -> ``both``, ``format_only``, ``answer_only``, ``neither`` or ``unscored``."""

CATEGORIES: tuple[str, ...] = tuple(OUTCOMES)
"""Every category; each grade carries exactly one."""
