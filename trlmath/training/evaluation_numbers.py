"""An evaluation's numbers as ``metrics.jsonl`` names them."""

from __future__ import annotations

from trlmath.evaluation.categories import category_shares
from trlmath.evaluation.report import EvaluationReport
from trlmath.recipe.schema import EvaluationSetting


def evaluation_numbers(setting: EvaluationSetting, report: EvaluationReport) -> dict[str, float]:
    """The numbers of one setting's report: ``eval/...`` or ``eval_<setting>/...``."""
    prefix = evaluation_prefix(setting.name)
    numbers = {f"{prefix}/{part}": rate.value for part, rate in report.rates.items()}
    numbers |= {f"{prefix}/{name}": share for name, share in category_shares(report.categories).items()}
    numbers |= {f"{prefix}/mean_length": report.mean_tokens, f"{prefix}/truncated": report.truncated}
    for part, rates in report.pass_at_k.items() if setting.n > 1 else ():
        numbers[f"{prefix}/pass@{setting.n}/{part}"] = rates[-1].value
    if report.mean_reward is not None:
        numbers[f"{prefix}/reward"] = report.mean_reward.value
    if report.entropy is not None:
        numbers[f"{prefix}/entropy"] = report.entropy
    return numbers


def evaluation_prefix(setting: str) -> str:
    """The group of a setting's metrics: `sampled` is the plain one."""
    return "eval" if setting == "sampled" else f"eval_{setting}"
