"""Draw docs/scaling.svg from the table of bench_scaling.py in docs/performance.md.

pip install matplotlib && python tests/bench/plot_scaling.py
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parents[2] / "docs"
PANELS = {"rollouts": "rollouts a step", "length": "tokens of a completion", "group": "rollouts of a prompt"}


def main() -> None:
    text = (DOCS / "performance.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (rollouts|length|group) (\d+) \| [\d,]+ \| ([\d.]+) \| ([\d,]+) \| [\d.]+ \| (\d+) \|$",
        text,
        re.M,
    )
    plt.rcParams.update(
        {"svg.hashsalt": "trlmath", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    )
    figure, axes = plt.subplots(2, 3, figsize=(8.4, 4.4), sharey="row")
    for column, (name, label) in enumerate(PANELS.items()):
        cases = sorted((int(n), float(t.replace(",", "")), float(m)) for k, n, _, t, m in rows if k == name)
        x = [case[0] for case in cases]
        for row, values in enumerate(([case[1] for case in cases], [case[2] for case in cases])):
            axis = axes[row][column]
            axis.plot(x, values, marker="o", color="#2563eb" if row == 0 else "#b45309")
            axis.set_xscale("log", base=2)
            axis.set_xticks(x, [f"{v:,}" for v in x])
            axis.minorticks_off()
            axis.set_ylim(bottom=0)
            axis.grid(alpha=0.25)
        axes[1][column].set_xlabel(label)
    axes[0][0].set_ylabel("tokens a second")
    axes[1][0].set_ylabel("peak memory, MiB")
    figure.tight_layout()
    figure.savefig(DOCS / "scaling.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
