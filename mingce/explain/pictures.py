"""The picture of an account: which later surprise pays which earlier token, and the curves of the columns.

A state's numbers (V, R) stand at the left edge of their token, for they are about the moment before it; an action's
(r, δ, A) stand on the token. Colours can be told apart by colour-blind readers and differ in shape as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mingce.algorithms import reference
from mingce.base.errors import SettingError
from mingce.base.texts import sentence
from mingce.explain.picture_style import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, SKY, remarks, save, style
from mingce.record.rollout import Rollout
from mingce.specs import ESTIMATORS
from mingce.specs.settings import SYMBOLS
from mingce.watch.tokens import END, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TOKENS = 120
MOST_ARROWS = 60
MOST_FIGURES = 12
LEAST_SHARE = 0.02
"""An arrow thinner than this share of the thickest is left out."""


def draw_account(rollout: Rollout, path: Path, lang: str) -> list[str]:
    """Tokens on the axis; credit arrows over δ, values and returns, rewards and advantages. Gives remarks."""
    shown = Shown(rollout)
    panels = [draw for draw, names in _PANELS if any(name in rollout.columns for name in names)]
    if not panels:
        raise SettingError("there is nothing to draw: the rollout has neither rewards nor values nor advantages.")
    with style(), remarks(lang) as told:
        from matplotlib.figure import Figure

        width = min(max(1.05 * len(shown.slots) + 2.4, 8.6), 26.0)
        figure = Figure(figsize=(width, 2.5 * len(panels) + 1.5), layout="constrained")
        axes: Sequence[Axes] = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
        figure.suptitle(_title(rollout, lang), fontsize=16, x=0.01, ha="left", color=INK)
        for ax, draw in zip(axes, panels, strict=True):
            draw(ax, shown, lang)
        _token_axis(axes[-1], shown, lang)
        save(figure, path)
    if shown.left_out:
        counts = {"shown": len(shown.slots), "left_out": shown.left_out}
        told.append(sentence("tutor.left_out_of_picture", lang, **counts))
    return told


# ── the panels ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Shown:
    """The slots that are drawn, at x = 0, 1, 2 …, and their numbers; a hole has none."""

    def __init__(self, rollout: Rollout):
        count = len(rollout.tokens)
        self.rollout, self.slots, self.left_out = rollout, range(min(count, MOST_TOKENS)), max(0, count - MOST_TOKENS)
        mask = rollout.columns["response_mask"]
        self.chosen = [t for t in reference.chosen(mask) if t in self.slots]
        self.texts = [visible(rollout.tokens[t].text).replace(" ", "␣") or END for t in self.slots]

    def column(self, name: str) -> list[tuple[int, float]]:
        """(slot, number) of the chosen tokens that have one."""
        column = self.rollout.columns.get(name) or ()
        return [(t, float(column[t])) for t in self.chosen if column and column[t] is not None]


def credit_panel(ax: Axes, shown: Shown, lang: str) -> None:
    """δ as bars, and arrows from each to the earlier tokens that it pays."""
    deltas = dict(shown.column("deltas"))
    for t, delta in deltas.items():
        ax.bar(t, delta, 0.46, color=BLUE if delta >= 0 else ORANGE, hatch="" if delta >= 0 else "///",
               edgecolor="white", linewidth=0, zorder=2)  # fmt: skip
    settings = shown.rollout.settings.as_dict()
    decay, reach = _decay(settings), _reach(settings)
    top, bottom = max(0.0, *deltas.values()), min(0.0, *deltas.values())
    span = top - bottom or 1.0
    paid = [
        (decay ** (later - earlier) * delta, shown.chosen[earlier], shown.chosen[later])
        for later, delta in ((k, deltas[t]) for k, t in enumerate(shown.chosen) if t in deltas)
        for earlier in range(max(0, later - reach), later)
    ]
    thickest = max((abs(amount) for amount, _, _ in paid), default=0.0)
    strong = sorted((p for p in paid if abs(p[0]) > LEAST_SHARE * thickest), key=lambda p: abs(p[0]))[-MOST_ARROWS:]
    furthest = max((later - earlier for _, earlier, later in strong), default=1)
    highest = top
    for amount, earlier, later in strong:
        low, high = max(deltas.get(earlier, 0), 0), max(deltas[later], 0)
        lift = max(low, high) + span * (0.3 + 0.9 * (later - earlier) / furthest)
        _arrow(ax, (later, high), (earlier, low), lift, amount / thickest)
        highest = max(highest, (low + high) / 4 + lift / 2)
    _under_bars(ax, deltas.items(), shown)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_ylim(bottom - (0.16 * span if bottom < 0 else 0.0), highest + 0.12 * span)
    _name(ax, "δ_t", sentence("tutor.delta_panel", lang))


def _arrow(ax: Axes, start: tuple[int, float], end: tuple[int, float], lift: float, share: float) -> None:
    """From the δ that pays to the token that is paid; the less, the thinner and paler."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    points = [(start[0] - 0.06, start[1]), ((start[0] + end[0]) / 2, lift), (end[0] + 0.1, end[1])]
    size = abs(share)
    ax.add_patch(
        FancyArrowPatch(
            path=Curve(points, [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3]),
            arrowstyle="-|>,head_length=0.55,head_width=0.24", mutation_scale=9 + 7 * size,
            linewidth=0.8 + 2.6 * size, color=_paler(BLUE if share >= 0 else ORANGE, 0.65 * (1 - size)),
            linestyle="-" if share >= 0 else "--", zorder=3 + size, shrinkA=0, shrinkB=3, joinstyle="miter",
        )
    )  # fmt: skip


def _paler(colour: str, by: float) -> tuple[float, ...]:
    """The colour mixed with white; unlike a transparent one it shows nothing through."""
    from matplotlib.colors import to_rgb

    return tuple(part + (1 - part) * by for part in to_rgb(colour))


def _figures(ax: Axes, points: Iterable[tuple[float, float, bool]], shown: Shown, colour: str = INK) -> None:
    """Numbers above their points or below, where there is room for them, in a white seam so that lines do not cross."""
    from matplotlib.patheffects import withStroke

    if len(shown.slots) > MOST_FIGURES:
        return
    for x, number, above in points:
        ax.annotate(
            f"{number:.3g}".replace("-", "−"), (x, number), xytext=(0, 8 if above else -8), ha="center",
            textcoords="offset points", va="bottom" if above else "top", fontsize=10, color=colour, zorder=9,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip


def _under_bars(ax: Axes, points: Iterable[tuple[int, float]], shown: Shown) -> None:
    """Numbers below their bars: below 0 for a positive one."""
    if len(shown.slots) <= MOST_FIGURES:
        for t, number in points:
            text = f"{number:.3g}".replace("-", "−")
            ax.annotate(text, (t, min(number, 0.0)), xytext=(0, -4), ha="center", va="top", fontsize=10, zorder=9,
                        textcoords="offset points")  # fmt: skip


def _state_panel(ax: Axes, shown: Shown, lang: str) -> None:
    """V and R at the left edge of their tokens, and what follows the last one."""
    for name, symbol, words, colour, marker in (
        ("values", "V(s_t)", sentence("tutor.value", lang), SKY, "o"),
        ("returns", "R_t", sentence("tutor.return", lang), GREEN, "s"),
    ):
        points = shown.column(name)
        if points:
            x, y = zip(*points, strict=True)
            ax.plot([t - 0.5 for t in x], y, marker=marker, color=colour, linewidth=2.4, markersize=7,
                    label=f"{symbol} {words}", zorder=3)  # fmt: skip
            other = dict(shown.column("returns" if name == "values" else "values"))
            _figures(ax, [(t - 0.5, number, number > other.get(t, number - 1)) for t, number in points], shown)
    values = shown.column("values")
    if values and not shown.left_out:
        end = values[-1][0] + 0.5
        ax.plot([values[-1][0] - 0.5, end], [values[-1][1], shown.rollout.bootstrap], color=SKY, linewidth=1.4,
                linestyle=":", marker="o", markersize=7, markerfacecolor="white", markevery=[1], zorder=2)  # fmt: skip
    ax.margins(y=0.18)
    _name(ax, "V, R", sentence("tutor.state_panel", lang), legend=True)


def _action_panel(ax: Axes, shown: Shown, lang: str) -> None:
    """r as bars and A as a line, on the tokens."""
    rewards = shown.column("rewards")
    if rewards:
        ax.bar([t for t, _ in rewards], [reward for _, reward in rewards], 0.46, color="#c3c8d0", zorder=2,
               label=f"r_t {sentence('tutor.reward', lang)}")  # fmt: skip
        _under_bars(ax, rewards, shown)
    points = shown.column("advantages")
    if points:
        x, y = zip(*points, strict=True)
        _figures(ax, [(t, a, a >= 0) for t, a in points], shown, PURPLE)
        ax.plot(x, y, marker="D", color=PURPLE, linewidth=2.4, markersize=7, zorder=3,
                label=f"A_t {sentence('tutor.advantage', lang)}")  # fmt: skip
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.margins(y=0.18)
    _name(ax, "r, A", sentence("tutor.action_panel", lang), legend=True)


_PANELS = (
    (credit_panel, ("deltas",)),
    (_state_panel, ("values", "returns")),
    (_action_panel, ("rewards", "advantages")),
)


def _decay(settings: Mapping[str, Any]) -> float:
    """What a δ one token later counts for: γλ with GAE, γ otherwise."""
    gamma, spec = settings.get("gamma"), ESTIMATORS.get(settings.get("estimator") or "")
    lam = spec.effective_lambda(settings.get("lam")) if spec else None
    return float(1.0 if gamma is None else gamma) * (1.0 if lam is None else lam)


def _reach(settings: Mapping[str, Any]) -> int:
    """From how many tokens on a δ still counts."""
    spec, n = ESTIMATORS.get(settings.get("estimator") or ""), settings.get("n")
    if spec is not None and spec.fixed_lambda == 0:
        return 0
    return n - 1 if spec is not None and "n" in spec.settings and n else MOST_TOKENS


def _name(ax: Axes, symbol: str, words: str, legend: bool = False) -> None:
    ax.set_title(words, loc="left", fontsize=11, color=FAINT, pad=6)
    ax.set_ylabel(symbol, rotation=0, ha="right", va="center", labelpad=10)
    if legend:
        ax.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1)


def _token_axis(ax: Axes, shown: Shown, lang: str) -> None:
    """The tokens below the last panel, with their numbers; a hole is grey."""
    ax.set_xlim(-0.75, len(shown.slots) - 0.25)
    every = max(1, len(shown.slots) // 60)
    drawn = list(shown.slots)[::every]
    few = len(drawn) <= 24
    ax.set_xticks(drawn, [shown.texts[t].replace("$", r"\$") for t in drawn], fontsize=18 if few else 10)
    for t, text in zip(drawn, ax.get_xticklabels(), strict=True):
        text.set_color(INK if t in shown.chosen else FAINT)
        ax.annotate(str(t), (t, 0), xycoords=("data", "axes fraction"), xytext=(0, -34 if few else -22), ha="center",
                    va="top", textcoords="offset points", fontsize=10 if few else 7, color=FAINT)  # fmt: skip
    for panel in ax.figure.axes:
        panel.tick_params(axis="x", length=0, pad=6)
        for edge in range(len(shown.slots) + 1):
            panel.axvline(edge - 0.5, color="#e3e6ea", linewidth=0.8, zorder=0)


def _title(rollout: Rollout, lang: str) -> str:
    text = visible(f"{rollout.prompt} → {rollout.response}" if rollout.prompt else rollout.response)
    text = text if len(text) <= 60 else text[:40] + " … " + text[-16:]
    settings = rollout.settings.as_dict()
    known = [f"{symbol} = {settings[name]:g}" for name, symbol in SYMBOLS.items()
             if settings.get(name) is not None]  # fmt: skip
    return f"{text}     {'  '.join(known)}".replace("$", r"\$")
