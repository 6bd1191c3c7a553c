"""Commands as functions for code: what `mingce train` and the page do, without a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mingce.view.frames import LoadedRun


def load_run(path: Path | str) -> LoadedRun:
    """A run or a dump as frames, pandas if it is installed, else pyarrow:

    run = mingce.load_run("runs/demo")
    run.metrics(); run.rollouts(12); run.tokens(12); run.rollout(12, 0)
    """
    from mingce.view.frames import LoadedRun

    return LoadedRun(path)


def train(*settings: str, recipe: Path | str | None = None, quiet: bool = False) -> LoadedRun:
    """A new run to its end, as `mingce train [recipe] key=value …` makes it, opened for reading:

    run = mingce.train("steps=5", "estimator=grpo")
    """
    from rich.console import Console

    from mingce.training import start

    path = start.train(Console(quiet=quiet), None if recipe is None else Path(recipe), settings)
    assert path is not None
    return load_run(path)
