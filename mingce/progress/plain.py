"""Plain lines for pipes, files and CI: few enough to read, often enough to know that it lives, no control codes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from mingce.base.numbers import figure, percent, rounded
from mingce.progress.base import Clock, Progress, Summary
from mingce.progress.summary import print_summary
from mingce.progress.text import duration, padded

if TYPE_CHECKING:
    from mingce.ledger import Ledger

QUIET = 2.0
"""Seconds between two step lines at least, and of silence before a line of progress."""
LONGEST_QUIET = 30.0

STEP_FIGURES = (
    ("curve_score", "critic/score/mean", ".3f"),
    ("curve_kl", "critic/kl", ".4f"),
    ("curve_entropy", "actor/entropy_loss", ".3f"),
    ("curve_length", "response_length/mean", ".1f"),
    ("curve_explained", "critic/vf_explained_var", "+.2f"),
)


class PlainProgress(Progress):
    """At most one line per step and per two seconds, the first, the last and every validation always."""

    def __init__(self, console: Console, lang: str, clock: Clock = time.monotonic):
        super().__init__(console, lang, clock)
        self._stage, self._stage_step = "", 0
        self._any_step = False
        self._step_line = self._any_line = self.began
        self._quiet = QUIET

    def begin(self, title: str, facts: list[tuple[str, str]], first_step: int, steps: int) -> None:
        super().begin(title, facts, first_step, steps)
        width = max((cell_len(label) for label, _ in facts), default=0)
        self._line(title)
        for label, value in facts:
            self._line(f"  {padded(label, width)}  {value}")

    def note(self, sentence: str, warning: bool = False) -> None:
        self._line(self.text["warning"].format(note=sentence) if warning else sentence)

    def stage(self, name: str, step: int) -> None:
        super().stage(name, step)
        self._stage, self._stage_step = self.text.get(name, name), step
        self._say_where("")

    def progress(self, done: int, total: int, share: float | None = None) -> None:
        super().progress(done, total, share)
        left = self.stage_left()
        rest = "" if left is None else f"  {self.text['left'].format(time=duration(left))}"
        self._say_where(f" {done}/{total}{rest}")

    def step(
        self, step: int, metrics: dict[str, float], ledger: Ledger | None, tokens: Callable[[int], list[str]] | None
    ) -> None:
        super().step(step, metrics, ledger, tokens)
        now = self.clock()
        self._quiet = QUIET
        if self._any_step and step < self.steps and now - self._step_line < QUIET:
            return
        self._any_step, self._step_line = True, now
        parts = [self._numbered(step)]
        for name, metric, form in STEP_FIGURES:
            if metric in metrics:
                parts.append(f"{self.text[name]} {metrics[metric]:{form}}")
        if self.pace.seconds is not None:
            parts.append(self.text["pace"].format(seconds=figure(self.pace.seconds)))
        left = self.time_left()
        if left is not None and step < self.steps:
            parts.append(self.text["left"].format(time=duration(left)))
        self._line("  ".join(parts))

    def validated(self, step: int, metrics: dict[str, float]) -> None:
        parts = [
            f"{self.text[kind]} {percent(metrics[f'val/accuracy_{kind}'])}"
            for kind in ("sampled", "greedy")
            if f"val/accuracy_{kind}" in metrics
        ]
        if "val/score_mean" in metrics:
            parts.append(f"{self.text['curve_score']} {rounded(metrics['val/score_mean'], 3)}")
        self._line("  ".join([self.text["validation"].format(step=step), *parts]))

    def end(self, summary: Summary) -> None:
        print_summary(self.console, summary, self.text)
        self.console.file.flush()

    def close(self) -> None:
        """Every line is out already."""

    def _numbered(self, step: int) -> str:
        return self.text["step"].format(step=f"{step:>{len(str(self.steps))}}", steps=self.steps)

    def _say_where(self, count: str) -> None:
        """A line of progress after a silence, ever rarer within a step; none if the step's own line is near."""
        now = self.clock()
        if now - self._any_line < self._quiet:
            return
        left_of_step = self.pace.left(1)
        if left_of_step is not None and 0 < left_of_step < QUIET:
            return
        self._quiet = min(2 * self._quiet, LONGEST_QUIET)
        elapsed = self.text["elapsed"].format(time=duration(now - self.began))
        self._line(f"{self._numbered(self._stage_step)}  {self._stage}{count}  {elapsed}")

    def _line(self, line: str) -> None:
        self._any_line = self.clock()
        self.console.print(Text(line), soft_wrap=True)
        self.console.file.flush()
