"""The picture of an account: which later surprise pays which earlier token, and the curves of the columns.

A state's numbers (V, R) stand at the left edge of their token, for they are about the moment before it; an action's
(r, δ, A) stand on the token. Colours can be told apart by colour-blind readers and differ in shape as well. No text
lies on another: axes leave room for the numbers beyond their data, and long tokens are broken into lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mingce.algorithms import reference
from mingce.base.errors import SettingError
from mingce.base.numbers import figure as figure_of
from mingce.base.numbers import number as shown_number
from mingce.base.texts import sentence
from mingce.explain.picture_style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    Width,
    fitted,
    plain,
    remarks,
    ruler,
    save,
    style,
)
from mingce.progress.tokens import END, visible
from mingce.record.rollout import Rollout
from mingce.specs import ESTIMATORS
from mingce.specs.settings import SYMBOLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TOKENS = 120
MOST_ARROWS = 60
MOST_FIGURES = 12
MOST_CHARACTERS = 11
FEW_LABELS = 24
LEAST_SHARE = 0.02
"""An arrow thinner than this share of the thickest is left out."""
TITLE, NUMBER = 16, 10
"""Font sizes."""
MARGINS = 1.4
"""Inches left and right of the axes, at most."""
TALL = 100.0
"""Points from the lowest to the highest number of a panel, at least; room for texts beyond them is reckoned with it."""
LINES = 3
"""A long token is broken into so many lines, at most."""


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
        measure = ruler(figure)
        axes: Sequence[Axes] = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
        title = _title(rollout, 72 * (width - 0.4), measure)
        figure.suptitle(title, fontsize=TITLE, x=0.01, ha="left", color=INK)
        for ax, draw in zip(axes, panels, strict=True):
            draw(ax, shown, lang)
        more = _token_axis(axes[-1], shown, 72 * (width - MARGINS) / (len(shown.slots) + 1), measure)
        figure.set_figheight(2.5 * len(panels) + 1.5 + (more + TITLE * 1.3 * title.count("\n")) / 72)
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
    figures = _under_bars(ax, deltas.items(), shown)
    ax.axhline(0, color=INK, linewidth=0.8)
    below = ROW_HEIGHT if figures else 0.0 if bottom == 0 else 6.0
    _limit(ax, bottom, max(highest, bottom + span), below, 6.0)
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


ROW_HEIGHT = 22.0
"""Points that a number beside its point takes, with the gap between them."""


def _limit(ax: Axes, low: float, high: float, below: float, above: float) -> None:
    """The axis from the lowest to the highest number, with so many points of room beyond them."""
    span = high - low or abs(high) or 1.0
    point = span / TALL
    ax.set_ylim(low - point * below, high + point * above)


def _written(number: float) -> str:
    """As everywhere, but short enough for a token's width."""
    text = shown_number(number)
    return text if len(text) <= MOST_CHARACTERS else figure_of(number).replace("-", "−")


def _has_figures(shown: Shown) -> bool:
    return len(shown.slots) <= MOST_FIGURES


def _figures(ax: Axes, points: Iterable[tuple[float, float, bool]], shown: Shown, colour: str = INK) -> None:
    """Numbers above their points or below, where there is room for them, in a white seam so that lines do not cross."""
    from matplotlib.patheffects import withStroke

    if not _has_figures(shown):
        return
    for x, number, above in points:
        ax.annotate(
            _written(number), (x, number), xytext=(0, 8 if above else -8), ha="center",
            textcoords="offset points", va="bottom" if above else "top", fontsize=NUMBER, color=colour, zorder=9,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip


def _under_bars(ax: Axes, points: Iterable[tuple[int, float]], shown: Shown) -> bool:
    """Numbers below their bars: below 0 for a positive one. Says whether there are any."""
    if _has_figures(shown):
        for t, number in points:
            ax.annotate(_written(number), (t, min(number, 0.0)), xytext=(0, -4), ha="center", va="top",
                        fontsize=NUMBER, zorder=9, textcoords="offset points")  # fmt: skip
    return _has_figures(shown)


def _bottom_row(ax: Axes, symbol: str, points: Iterable[tuple[int, float]]) -> None:
    """Numbers along the lower edge of the panel, behind the symbol of their column."""
    look: dict[str, Any] = {"va": "bottom", "fontsize": NUMBER, "color": FAINT, "zorder": 9}
    ax.annotate(symbol, (0, 0), xycoords="axes fraction", xytext=(5, 4), textcoords="offset points", **look)
    for t, number in points:
        ax.annotate(_written(number), (t, 0), xycoords=("data", "axes fraction"), xytext=(0, 4), ha="center",
                    textcoords="offset points", **look)  # fmt: skip


def _state_panel(ax: Axes, shown: Shown, lang: str) -> None:
    """V and R at the left edge of their tokens, and what follows the last one."""
    numbers = {name: dict(shown.column(name)) for name in ("values", "returns")}
    for name, symbol, words, colour, marker in (
        ("values", "V(s_t)", sentence("tutor.value", lang), SKY, "o"),
        ("returns", "R_t", sentence("tutor.return", lang), GREEN, "s"),
    ):
        points = numbers[name]
        if points:
            ax.plot([t - 0.5 for t in points], list(points.values()), marker=marker, color=colour, linewidth=2.4,
                    markersize=7, label=f"{symbol} {words}", zorder=3)  # fmt: skip
            other, ties = numbers["returns" if name == "values" else "values"], name == "returns"
            above = {t: x > other[t] or (ties and x == other[t]) if t in other else True for t, x in points.items()}
            _figures(ax, [(t - 0.5, x, above[t]) for t, x in points.items()], shown)
    every = [x for points in numbers.values() for x in points.values()]
    if numbers["values"] and not shown.left_out:
        last, value = list(numbers["values"].items())[-1]
        every.append(shown.rollout.bootstrap)
        ax.plot([last - 0.5, last + 0.5], [value, shown.rollout.bootstrap], color=SKY, linewidth=1.4,
                linestyle=":", marker="o", markersize=7, markerfacecolor="white", markevery=[1], zorder=2)  # fmt: skip
    room = ROW_HEIGHT if _has_figures(shown) else 10.0
    _limit(ax, min(every), max(every), room, room)
    _name(ax, "V, R", sentence("tutor.state_panel", lang), legend=True)


def _action_panel(ax: Axes, shown: Shown, lang: str) -> None:
    """r as bars, its numbers along the lower edge, and A as a line, on the tokens."""
    rewards, points = shown.column("rewards"), shown.column("advantages")
    if rewards:
        ax.bar([t for t, _ in rewards], [reward for _, reward in rewards], 0.46, color="#c3c8d0", zorder=2,
               label=f"r_t {sentence('tutor.reward', lang)}")  # fmt: skip
        if _has_figures(shown):
            _bottom_row(ax, "r_t", rewards)
    if points:
        x, y = zip(*points, strict=True)
        _figures(ax, [(t, a, a >= 0) for t, a in points], shown, PURPLE)
        ax.plot(x, y, marker="D", color=PURPLE, linewidth=2.4, markersize=7, zorder=3,
                label=f"A_t {sentence('tutor.advantage', lang)}")  # fmt: skip
    ax.axhline(0, color=INK, linewidth=0.8)
    every = [0.0, *(number for _, number in (*rewards, *points))]
    rows = (bool(rewards) + any(a < 0 for _, a in points)) if _has_figures(shown) else 0
    _limit(ax, min(every), max(every), rows * ROW_HEIGHT or 10.0, ROW_HEIGHT if _has_figures(shown) else 10.0)
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


def _token_axis(ax: Axes, shown: Shown, slot: float, measure: Width) -> float:
    """The tokens below the last panel, under their numbers t; a hole is grey. `slot` is a token's width in points.

    Gives the points by which the labels are taller than one line of the largest font.
    """
    ax.set_xlim(-1.0, len(shown.slots))
    every = max(1, len(shown.slots) // 60)
    drawn = list(shown.slots)[::every]
    few = len(drawn) <= FEW_LABELS
    labels, size = _labels([shown.texts[t] for t in drawn], slot * every - 5, (18, 14, 11) if few else (10, 8), measure)
    ax.set_xticks(drawn, [plain(text) for text in labels], fontsize=size)
    small = NUMBER if few else 7
    for t, text in zip(drawn, ax.get_xticklabels(), strict=True):
        text.set_color(INK if t in shown.chosen else FAINT)
        ax.annotate(str(t), (t, 0), xycoords=("data", "axes fraction"), xytext=(0, -5), ha="center",
                    va="top", textcoords="offset points", fontsize=small, color=FAINT)  # fmt: skip
    for panel in ax.figure.axes:
        panel.tick_params(axis="x", length=0, pad=small * 1.4 + 8)
        for edge in range(len(shown.slots) + 1):
            panel.axvline(edge - 0.5, color="#e3e6ea", linewidth=0.8, zorder=0)
    return max(0.0, size * 1.3 * (1 + max(label.count("\n") for label in labels)) - 24)


def _labels(texts: Sequence[str], room: float, sizes: Sequence[int], measure: Width) -> tuple[list[str], int]:
    """The tokens' labels in lines that fit: large in one line, smaller in two, or in the smallest font in LINES."""
    for size in sizes:
        lines = [fitted(text, room, size, measure, LINES) for text in texts]
        if max(map(len, lines)) <= (1 if size == sizes[0] else 2):
            break
    return ["\n".join(one) for one in lines], size


def _title(rollout: Rollout, room: float, measure: Width) -> str:
    """The pair and the settings, in one line where they fit, else in two."""
    text = visible(f"{rollout.prompt} → {rollout.response}" if rollout.prompt else rollout.response)
    text = text if len(text) <= 60 else text[:40] + " … " + text[-16:]
    settings = rollout.settings.as_dict()
    known = "  ".join(
        f"{symbol} = {shown_number(settings[name])}" for name, symbol in SYMBOLS.items()
        if settings.get(name) is not None
    )  # fmt: skip
    whole = f"{text}     {known}".rstrip()
    parts = [whole] if measure(whole, TITLE) <= room else [*fitted(text, room, TITLE, measure), known]
    return plain("\n".join(part for part in parts if part))
