"""What a person sees while training runs: a live page in a terminal, plain lines anywhere else.

    with progress_for(console, lang="zh") as progress:
        progress.begin("arithmetic", [("model", "tiny"), …], first_step=1, steps=60)
        progress.stage("generate", 1)
        progress.progress(128, 256)
        …
        progress.step(1, metrics, ledger, tokens)
        progress.end(Summary(…))

The trainer makes the same calls in both cases (mingce.progress.base), and none of them waits for the terminal to draw.
"""

from __future__ import annotations

import os

from rich.console import Console

from mingce.progress.base import Progress, Summary

__all__ = ["Progress", "Summary", "progress_for"]


def progress_for(console: Console, lang: str = "en") -> Progress:
    """The live page where someone can watch it, plain lines in a pipe, a file, CI or a terminal that cannot redraw."""
    # rich takes FORCE_COLOR for a terminal; a file full of cursor movements would help nobody
    if console.is_interactive and console.file.isatty() and not os.environ.get("CI"):
        from mingce.progress.live import LiveProgress

        return LiveProgress(console, lang)
    from mingce.progress.plain import PlainProgress

    return PlainProgress(console, lang)
