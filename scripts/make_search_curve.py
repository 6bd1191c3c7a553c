"""Draws docs/images/search-agent-{en,zh}.png: how the search agent learns, over three seeds.

    python scripts/make_search_curve.py            # trains six runs of about a minute each
    python scripts/make_search_curve.py RUNS       # of runs made before: RUNS/s-en0 … s-zh2

Above, what the steps' own conversations did: how many searched, and how many answers matched exactly. Below, held-out
questions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import font_manager, pyplot

ROOT = Path(__file__).parent.parent
SEEDS = (0, 1, 2)
LABELS = {
    "en": ("conversations that search", "exact match, sampled in the step", "exact match, held out", "step"),
    "zh": ("搜索过的对话", "精确匹配（训练时采样）", "精确匹配（留出的问题）", "训练步"),
}
CURVES = ("agent/called_share", "critic/score/mean", "val/accuracy_sampled")
COLOURS = ("#4c78a8", "#f58518", "#54a24b")


def train(root: Path) -> None:
    """The six runs."""
    for lang in LABELS:
        for seed in SEEDS:
            settings = [f"lang={lang}", f"seed={seed}", f"root={root}", f"name=s-{lang}{seed}", "threads=1"]
            command = [sys.executable, "-m", "mingce.cli", "train", str(ROOT / "recipes/search_agent.yaml"), *settings]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def points(run: Path, name: str) -> tuple[list[int], list[float]]:
    """A metric over the steps that have it."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [(line["step"], line[name]) for line in lines if name in line]
    return [step for step, _ in found], [100 * value for _, value in found]


def draw(runs: Path, lang: str, file: Path) -> None:
    known = {font.name for font in font_manager.fontManager.ttflist}
    chinese = [name for name in ("Noto Sans CJK SC", "WenQuanYi Zen Hei", "Droid Sans Fallback") if name in known]
    pyplot.rcParams["font.family"] = [*chinese[:1], "DejaVu Sans"] if lang == "zh" else ["DejaVu Sans"]
    figure, axes = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
    *names, step = LABELS[lang]
    for seed in SEEDS:
        for curve, colour, label in zip(CURVES, COLOURS, names, strict=True):
            held_out = curve.startswith("val/")
            line, mark = ("--", "o") if held_out else ("-", "")
            xs, ys = points(runs / f"s-{lang}{seed}", curve)
            label = "" if seed else label
            axes.plot(xs, ys, line, marker=mark, color=colour, alpha=0.85, linewidth=1.4, label=label or None)
    axes.set_ylim(0, 100)
    axes.set_xlabel(step)
    axes.set_ylabel("%")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(file, dpi=130, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        runs = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(place)
        if len(sys.argv) < 2:
            train(runs)
        for lang in LABELS:
            draw(runs, lang, ROOT / "docs" / "images" / f"search-agent-{lang}.png")


if __name__ == "__main__":
    main()
