"""The learning curves of docs/images: of runs that were made before, one a seed.

python scripts/make_learning_curves.py smollm2-sums 20 runs/sums-0 runs/sums-1 runs/sums-2      # up to step 20
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot

from mingce.record.run import Run

IMAGES = Path(__file__).parent.parent / "docs" / "images"
TITLES = ("sampled answers of each step", "held-out questions, sampled", "held-out questions, greedy")
METRICS = ("critic/score/mean", "val/accuracy_sampled", "val/accuracy_greedy")


def draw(name: str, steps: int, runs: list[Run]) -> Path:
    """A picture with a panel for each metric and a line for each run."""
    figure, panels = pyplot.subplots(1, len(METRICS), figsize=(9.6, 2.8), sharey=True, layout="constrained")
    for panel, title, metric in zip(panels, TITLES, METRICS, strict=True):
        for run in runs:
            lines = [line for line in run.metrics() if metric in line and line["step"] <= steps]
            points = [(line["step"], 100 * line[metric]) for line in lines]
            marker = "" if metric == METRICS[0] else "o"
            panel.plot(*zip(*points, strict=True), marker=marker, markersize=3, linewidth=1.2, label=run.path.name)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("step", fontsize=8)
        panel.set_ylim(0, 100)
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("right, %", fontsize=8)
    panels[-1].legend(fontsize=8, loc="lower right")
    path = IMAGES / f"{name}.png"
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


if __name__ == "__main__":
    title, most, *places = sys.argv[1:]
    print(draw(title, int(most), [Run.open(Path(place), readonly=True) for place in places]))
