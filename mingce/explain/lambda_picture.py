"""The picture of what λ trades: variance against bias, sampled and exact, in the small world of simulation.py."""

from __future__ import annotations

from pathlib import Path

from mingce.base.errors import SettingError
from mingce.base.numbers import number
from mingce.base.texts import sentence
from mingce.explain.picture_style import BLUE, FAINT, INK, ORANGE, remarks, save, style
from mingce.explain.simulation import exact, simulated
from mingce.record.rollout import Rollout
from mingce.specs import ESTIMATORS
from mingce.specs.estimators import GAE


def draw_lambda(rollout: Rollout, path: Path, lang: str) -> list[str]:
    """Variance and squared bias of the first token's advantage over λ, sampled and exact. Gives remarks."""
    if "rewards" not in rollout.columns or "values" not in rollout.columns:
        raise SettingError("the λ picture needs rewards and values; give both.")
    found = simulated(rollout)
    fine = [k / 100 for k in range(101)]
    moments = [exact(found.world, lam) for lam in fine]
    curves = (
        (sentence("tutor.variance", lang), BLUE, "o", [v for _, v in moments], [row.variance for row in found.rows]),
        (sentence("tutor.squared_bias", lang), ORANGE, "s", [(m - found.target) ** 2 for m, _ in moments],
         [row.bias**2 for row in found.rows]),
        (sentence("tutor.both", lang), INK, "D", [v + (m - found.target) ** 2 for m, v in moments],
         [row.squared_error for row in found.rows]),
    )  # fmt: skip
    with style(), remarks(lang) as told:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.6, 5.2), layout="constrained")
        ax = figure.subplots()
        for order, (name, colour, marker, exactly, sampled) in enumerate(curves):
            line = "--" if colour == INK else "-"
            ax.plot(fine, exactly, color=colour, linewidth=2.4, linestyle=line, zorder=5 - order, clip_on=False)
            ax.plot(
                [row.lam for row in found.rows], sampled, marker, color=colour, markersize=8, markeredgewidth=1.8,
                markerfacecolor="white", zorder=8 - order, clip_on=False, label=name,
            )  # fmt: skip
        lam = rollout.settings.lam
        spec = ESTIMATORS.get(rollout.settings.estimator or GAE)
        if lam is not None and spec is not None and "lam" in spec.settings:
            ax.axvline(lam, color=FAINT, linewidth=1.2, linestyle=":")
            ax.annotate(f"λ = {number(lam)}", (lam, 1.0), xycoords=("data", "axes fraction"), xytext=(-5, -16),
                        textcoords="offset points", ha="right", color=FAINT)  # fmt: skip
        ax.set_xlabel("λ")
        ax.set_xlim(-0.02, 1.02)
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False, loc="upper left")
        ax.set_title(
            sentence("tutor.lambda_title", lang),
            fontsize=15, loc="left", color=INK, pad=12,
        )  # fmt: skip
        note = sentence("tutor.lambda_note", lang, samples=found.samples)
        ax.text(0, -0.17, note, transform=ax.transAxes, color=FAINT, fontsize=10.5)
        save(figure, path)
    return told
