"""What each category of a completion usually means, and what helps: one line each."""

from __future__ import annotations

ADVICE: dict[str, tuple[str, str]] = {
    "both": ("format kept and answer right", "nothing to do"),
    "format_only": (
        "format kept, a readable answer that is wrong",
        "the base cannot do it yet: RL on the answer, easier problems first, or a stronger base",
    ),
    "unparseable_answer": (
        "format kept, but the answer is no mathematics that the grader reads",
        "read some: prose in the answer wants format training; a readable answer is a case for the grader",
    ),
    "several_answers": (
        "format kept, with different answers side by side",
        "the model hedges: RL with this reward ends it",
    ),
    "answer_only": (
        "answer right, format broken",
        "more format training: a little SFT, or a format reward with a small weight",
    ),
    "empty": ("nothing was written", "look at the prompt's end and at sampling.min_tokens"),
    "truncated": (
        "cut off at max_tokens before an answer",
        "more sampling.max_tokens if it was still reasoning; if it repeats itself, SFT or a stronger base",
    ),
    "no_think_end": (
        "the reasoning was never closed",
        "the model does not know the format: SFT on a few traces, or a format reward",
    ),
    "several_think_ends": (
        "the reasoning was closed more than once",
        "SFT on clean traces, or a format reward",
    ),
    "no_answer_tag": ("reasoning closed, but no answer tag", "more format training, or a format reward"),
    "no_answer_end": (
        "the answer tag was never closed",
        "check that sampling.stop holds </answer>; else more format training",
    ),
    "stop_string_dropped": (
        "the text ends inside the answer tag",
        "the engine must keep the stop string (ours do), or the model ended early: format training",
    ),
    "several_answer_tags": (
        "several answer tags",
        "stop at </answer> (sampling.stop), or more format training",
    ),
    "text_between": ("text between reasoning and answer", "more format training"),
    "trailing_text": ("text after the answer", "stop at </answer> (sampling.stop)"),
    "empty_answer": ("an empty answer tag", "RL on the answer; look at the traces it was trained on"),
    "no_box": (
        r"no \boxed{} in the final part",
        "a prompt that asks for the box, or a style the model knows",
    ),
    "no_marker": ("no #### before the answer", "a prompt that asks for it, or another grading style"),
    "no_number": ("no number at all", "a stronger base, or a prompt that asks for a number"),
    "wrong_answer": (
        "an answer, and it is wrong",
        "RL on the answer, easier problems first, or a stronger base",
    ),
    "unparseable_gold": (
        "the gold answer is missing or unreadable: nothing could be scored",
        "`trlmath data check`, then repair the golds or drop them with the filter gradable_gold",
    ),
    "grader_timeout": (
        "the grader ran out of time or memory",
        "`trlmath grade --explain` on one; often an absurd power or a huge expression",
    ),
    "reward_error": (
        "a reward failed on it: nothing could be scored",
        "read its reason; mend the reward, or raise checks.reward_timeout",
    ),
    "prompt_too_long": (
        "prompt and max_tokens exceed the context: nothing was generated",
        "a model with more context, a lower sampling.max_tokens, or the filter prompt_length",
    ),
    "uncategorised": (
        "the reward gave no category",
        "return trlmath.Grade from it, or implement the hook classify",
    ),
}


def advice(category: str) -> str:
    """One line for a table: what it means, and what helps."""
    if category not in ADVICE:
        return "a plugin's own category"
    meaning, helps = ADVICE[category]
    return f"{meaning}: {helps}"
