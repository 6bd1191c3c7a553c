"""What the live page shows, as lines of a given width: the run's course, where its time goes, and one answer."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.text import Text

from mingce.base.numbers import figure, percent
from mingce.progress.bars import progress_bar, split_bar, split_legend, stage_shares
from mingce.progress.base import PACE_STEPS
from mingce.progress.curves import Curve, sparkline
from mingce.progress.text import MUTED, STAGES, duration, padded
from mingce.progress.tokens import Answer, coloured, fold, scale

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
VALUE, RANGE = 8, 18
"""Cells of a curve's current value and of its range."""
ANSWER_LINES = 3


@dataclass(frozen=True)
class CurveKind:
    """A curve of the page: its phrase, the metric it follows, its colour, and limits of its scale where it has any."""

    phrase: str
    metric: str
    colour: str
    low: float | None = None
    high: float | None = None


CURVES = (
    CurveKind("curve_score", "critic/score/mean", "#2ebe6e"),
    CurveKind("curve_kl", "critic/kl", "#ffd166"),
    CurveKind("curve_entropy", "actor/entropy_loss", "#4ea8de"),
    CurveKind("curve_length", "response_length/mean", "#8d99ae"),
    # an untrained critic may be at −50; what is of interest happens between −1 and 1
    CurveKind("curve_explained", "critic/vf_explained_var", "#9d79d6", low=-1.0),
    CurveKind("curve_accuracy", "val/accuracy_sampled", "#e76f8a", low=0.0, high=1.0),
)


@dataclass
class Clockwork:
    """The times of one frame: seconds since the start, left, per step, and left of the stage (None: unknown)."""

    elapsed: float
    left: float | None
    pace: float | None
    stage_left: float | None = None


@dataclass
class Board:
    """The state of the page. `lines` draws it; nothing here knows of a terminal."""

    phrases: Mapping[str, str]
    before: int = 0
    step: int = 0
    steps: int = 0
    stage: str | None = None
    counted: tuple[int, int] | None = None
    curves: dict[str, Curve] = field(default_factory=dict)
    validation: dict[str, float] = field(default_factory=dict)
    timings: deque[Mapping[str, float]] = field(default_factory=lambda: deque(maxlen=PACE_STEPS))
    answer: Answer | None = None

    def begin(self, first_step: int, steps: int) -> None:
        """Steps `first_step` to `steps` are to come."""
        self.before = self.step = max(0, first_step - 1)
        self.steps = steps

    def add_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step's metrics, appended to the curves; accuracy stays what it was until it is measured again."""
        self.step = step
        self.timings.append(metrics)
        for kind in CURVES:
            known = {**self.validation, **metrics}
            if kind.metric in known or kind.metric in self.curves:
                self.curves.setdefault(kind.metric, Curve()).add(known.get(kind.metric))

    def add_validation(self, metrics: Mapping[str, float]) -> None:
        """Accuracy as measured now; it shows at once and enters the curve with the next step."""
        self.validation = dict(metrics)

    def lines(self, clockwork: Clockwork, width: int, height: int) -> list[Text]:
        """At most `height` lines of at most `width` cells; where there is no room for a part, it is left out."""
        parts = [self._head(clockwork, width), self._courses(width), self._split(width), self._answer(width)]
        chosen: list[Text] = []
        for part in parts:
            spaced = [Text(), *part] if part else []
            if len(chosen) + len(spaced) <= height:
                chosen += spaced
        return chosen

    # ── the parts ────────────────────────────────────────────────────────────────────────────────────────────────

    def _head(self, clockwork: Clockwork, width: int) -> list[Text]:
        """How far the run is, and what it is doing now."""
        words = self.phrases
        share = self.step / self.steps if self.steps else 0.0
        label = Text(words["step"].format(step=self.step, steps=self.steps), style="bold")
        times = Text(f"{100 * share:3.0f}%  {words['elapsed'].format(time=duration(clockwork.elapsed))}")
        if clockwork.left is not None and self.step < self.steps:
            times.append(f" · {words['left'].format(time=duration(clockwork.left))}", style="bold")
        bar = progress_bar(share, max(8, width - label.cell_len - times.cell_len - 4), "#2ebe6e")
        lines = [Text.assemble(label, "  ", bar, "  ", times)]
        if self.stage is not None:
            lines.append(self._now(clockwork, self.stage, width))
        return lines

    def _now(self, clockwork: Clockwork, stage: str, width: int) -> Text:
        words = self.phrases
        now = Text(SPINNER[int(clockwork.elapsed * 8) % len(SPINNER)] + " ", style="#4ea8de")
        now.append(words.get(stage, stage), style="#4ea8de")
        if self.counted is not None:
            done, total = self.counted
            now.append(f" {done}/{total} ").append_text(progress_bar(done / max(total, 1), 12, "#4ea8de"))
            if clockwork.stage_left is not None:
                now.append(f" {words['left'].format(time=duration(clockwork.stage_left))}", style=MUTED)
        if clockwork.pace is not None:
            pace = words["pace"].format(seconds=figure(clockwork.pace))
            now.append(padded(pace, max(0, width - now.cell_len), right=True), style=MUTED)
        return now

    def _courses(self, width: int) -> list[Text]:
        """One line per curve: label, course, current value, range."""
        shown = [kind for kind in CURVES if kind.metric in self.curves or kind.metric in self.validation]
        labels = max((cell_len(self.phrases[kind.phrase]) for kind in CURVES), default=0)
        room = max(8, width - labels - VALUE - RANGE - 6)
        # the curves grow with the run, from the left edge to the right; at first at least a cell per step
        done = self.step - self.before
        extent = max(min(done, room), room * done // max(self.steps - self.before, 1))
        lines = []
        for kind in shown:
            columns = self.curves[kind.metric].columns(extent) if kind.metric in self.curves else []
            finite = [value for value in columns if math.isfinite(value)]
            low = max(min(finite, default=0.0), -math.inf if kind.low is None else kind.low)
            high = max(finite, default=0.0)
            if kind.high is not None:
                low, high = kind.low or 0.0, kind.high
            line = Text(padded(self.phrases[kind.phrase], labels) + "  ")
            line.append(padded(sparkline(columns, low, high), room), style=kind.colour).append("  ")
            line.append_text(self._figures(kind, low, high))
            lines.append(line)
        return lines

    def _figures(self, kind: CurveKind, low: float, high: float) -> Text:
        """The current value, and beside it the range of the curve, or greedy accuracy."""
        if kind.metric == "val/accuracy_sampled":
            value, style = percent(self.validation.get(kind.metric, math.nan)), "bold"
            greedy = self.validation.get("val/accuracy_greedy")
            beside = "" if greedy is None else f"{self.phrases['greedy']} {percent(greedy)}"
        else:
            last = self.curves[kind.metric].last
            value, style = figure(last), "bold" if math.isfinite(last) else "bold red"
            beside = f"{figure(low)} … {figure(high)}" if low < high else ""
        return Text.assemble((padded(value, VALUE, right=True), style), ("  " + padded(beside, RANGE), MUTED))

    def _split(self, width: int) -> list[Text]:
        """Where the time of the last steps went."""
        shares = stage_shares(list(self.timings), STAGES)
        if not shares:
            return []
        label = Text(self.phrases["split"] + "  ")
        speed = Text()
        tokens = self.timings[-1].get("perf/tokens_per_second")
        if tokens is not None:
            speed.append("  " + self.phrases["speed"].format(tokens=f"{tokens:,.0f}"), style="bold")
        bar = split_bar(shares, max(8, width - label.cell_len - speed.cell_len))
        return [Text.assemble(label, bar, speed), split_legend(shares, self.phrases, self.stage, width)]

    def _answer(self, width: int) -> list[Text]:
        """One answer of the last step on the colours of its advantages."""
        answer = self.answer
        if answer is None:
            return []
        title = Text(self.phrases["answer"].format(step=answer.step))
        if answer.score is not None:
            colour = "green" if answer.score > 0 else "red" if answer.score < 0 else "bold"
            title.append("  ").append(self.phrases["answer_score"].format(score=f"{answer.score:.3g}"), style=colour)
        if answer.largest > 0:
            legend = scale(answer.largest, self.phrases["advantage"])
            if title.cell_len + legend.cell_len + 2 <= width:
                title.append(" " * (width - title.cell_len - legend.cell_len)).append_text(legend)
        prompt = Text(answer.prompt, style=MUTED)
        prompt.truncate(width, overflow="ellipsis")
        said = coloured(answer.pieces, answer.largest, ANSWER_LINES * (width - 1))
        return [title, *([prompt] if prompt else []), *fold(said, width)]
