"""The live page of a terminal. The trainer's calls only note what happened; a thread of its own draws."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from mingce.progress.base import Clock, Progress, Summary
from mingce.progress.board import Board, Clockwork
from mingce.progress.summary import print_summary
from mingce.progress.text import MUTED, padded
from mingce.progress.tokens import sampled_answer

if TYPE_CHECKING:
    from mingce.ledger import Ledger

FRAMES_PER_SECOND = 8
LARGEST_SHARE = 0.01
"""Of the time, what drawing may take: on a slow machine the page is drawn less often."""
LONGEST_PAUSE = 1.0
"""Seconds; one frame that cost much, as the first of its kind does, must not make the page look dead."""
WIDEST = 120
HOLD, SHOW = "\x1b[?2026h", "\x1b[?2026l"
"""Around a frame: a terminal that knows these shows it only when it is whole, without flicker; others ignore them."""


class LiveProgress(Progress):
    """Facts and notes scroll by above; below them a page of at most 24 lines is redrawn until the run ends."""

    def __init__(self, console: Console, lang: str, clock: Clock = time.monotonic):
        super().__init__(console, lang, clock)
        self.frames = 0
        self._page = Group()
        self._board = Board(self.text)
        self._lock = RLock()  # re-entrant: a signal handler of the trainer may leave a note at any moment
        self._over = Event()
        self._thread = Thread(target=self._draw, name="mingce-progress", daemon=True)
        self._live = Live(
            console=console, auto_refresh=False, get_renderable=self._frame, vertical_overflow="crop", transient=False
        )

    def begin(self, title: str, facts: list[tuple[str, str]], first_step: int, steps: int) -> None:
        super().begin(title, facts, first_step, steps)
        self.console.print(Text(title, style="bold #2ebe6e"))
        width = max((cell_len(label) for label, _ in facts), default=0)
        for label, value in facts:
            self.console.print(Text.assemble((f"  {padded(label, width)}  ", MUTED), value), soft_wrap=True)
        with self._lock:
            self._board.begin(first_step, steps)
        self._live.start(refresh=True)
        self._thread.start()

    def note(self, sentence: str, warning: bool = False) -> None:
        mark = f"! {self.text['warning'].format(note='')}" if warning else "· "
        style = "yellow" if warning else MUTED
        self.console.print(Text.assemble((mark, "bold yellow" if warning else MUTED), (sentence, style)))

    def stage(self, name: str, step: int) -> None:
        super().stage(name, step)
        with self._lock:
            self._board.stage, self._board.counted = name, None

    def progress(self, done: int, total: int, share: float | None = None) -> None:
        with self._lock:
            super().progress(done, total, share)
            self._board.counted = done, total

    def step(
        self, step: int, metrics: dict[str, float], ledger: Ledger | None, tokens: Callable[[int], list[str]] | None
    ) -> None:
        answer = sampled_answer(step, ledger, tokens) if ledger is not None and tokens is not None else None
        with self._lock:
            super().step(step, metrics, ledger, tokens)
            self._board.add_step(step, metrics)
            self._board.answer = answer or self._board.answer

    def validated(self, step: int, metrics: dict[str, float]) -> None:
        with self._lock:
            self._board.add_validation(metrics)

    def end(self, summary: Summary) -> None:
        with self._lock:
            self._board.stage = None
        self.close()
        print_summary(self.console, summary, self.text)

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._live.stop()

    # ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _draw(self) -> None:
        """The drawing thread: a frame, then a pause long enough for the frame's CPU time to be a small share."""
        pause = 1 / FRAMES_PER_SECOND
        while not self._over.wait(pause):
            before = time.thread_time()
            self.console.file.write(HOLD)
            self._live.refresh()
            self.console.file.write(SHOW)
            self.console.file.flush()
            pause = pause_after(time.thread_time() - before)

    def _frame(self) -> Group:
        """The page as it is now; as it was, if the trainer is changing it: the one who draws must never wait for it."""
        if self._lock.acquire(blocking=False):
            try:
                width, height = self.console.size
                now = Clockwork(self.clock() - self.began, self.time_left(), self.pace.seconds, self.stage_left())
                # one column and one line less: a terminal that wraps or scrolls at its edge would garble the page
                lines = self._board.lines(now, min(width - 1, WIDEST), height - 1)
                for line in lines:
                    line.no_wrap, line.overflow = True, "crop"
                self._page = Group(*lines)
                self.frames += 1
            finally:
                self._lock.release()
        return self._page


def pause_after(cost: float) -> float:
    """Seconds until the next frame, if the last one took `cost` seconds of CPU time."""
    return min(LONGEST_PAUSE, max(1 / FRAMES_PER_SECOND, cost / LARGEST_SHARE))
