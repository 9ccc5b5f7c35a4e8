"""Find an ``only_if`` that names nothing before a weight is loaded: parts are known only from a grade."""

from __future__ import annotations

from collections.abc import Sequence

from trlmath.composition import compose, rule_of
from trlmath.errors import PluginError
from trlmath.evaluation.run import rollout_columns
from trlmath.rewards import RewardCaller
from trlmath.types import Problem

# a completion in no particular format; what it earns does not matter, only which parts are told
_TEXT = "so </think> <answer> 0 </answer>"


def check_gates(rewards: Sequence[RewardCaller], problems: Sequence[Problem]) -> None:
    """Grade one made-up completion of the first problem when an ``only_if`` names no other reward.

    Raises RecipeError when it names no part of any reward either. A reward that cannot grade the made-up
    completion is left to the run, where the text is real.
    """
    names = {reward.name for reward in rewards}
    gates = [gate for reward in rewards if (gate := rule_of(reward).only_if) is not None]
    if not problems or all(gate in names for gate in gates):
        return
    given = rollout_columns(problems[:1]) | {
        "prompts": [problems[0].question],
        "completions": [_TEXT],
        "completion_ids": [[0]],
        "finish_reasons": ["stop"],
    }
    try:
        graded = [reward(**given) for reward in rewards]
    except PluginError:
        return
    compose(rewards, graded)
