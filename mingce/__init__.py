"""mingce 明策: PPO for language models with every token's account open."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from mingce.view.frames import LoadedRun

__version__ = "0.1.0"


def load_run(path: Path | str) -> LoadedRun:
    """A run or a dump as frames, pandas if it is installed, else pyarrow:

    run = mingce.load_run("runs/demo")
    run.metrics(); run.rollouts(12); run.tokens(12); run.rollout(12, 0)
    """
    from mingce.view import frames

    return frames.load_run(path)
