"""What a person sees while training runs: a live page in a terminal, plain lines anywhere else.

    with watch_for(console, lang="zh") as watch:
        watch.begin("arithmetic", [("model", "tiny"), …], first_step=1, steps=60)
        watch.stage("generate", 1)
        watch.progress(128, 256)
        …
        watch.step(1, metrics, ledger, tokens)
        watch.end(Summary(…))

The trainer makes the same calls in both cases (mingce.watch.base), and none of them waits for the terminal to draw.
"""

from __future__ import annotations

import os

from rich.console import Console

from mingce.watch.base import Summary, Watch

__all__ = ["Summary", "Watch", "watch_for"]


def watch_for(console: Console, lang: str = "en") -> Watch:
    """The live page where someone can watch it, plain lines in a pipe, a file, CI or a terminal that cannot redraw."""
    # rich takes FORCE_COLOR for a terminal; a file full of cursor movements would help nobody
    if console.is_interactive and console.file.isatty() and not os.environ.get("CI"):
        from mingce.watch.live import LiveWatch

        return LiveWatch(console, lang)
    from mingce.watch.plain import PlainWatch

    return PlainWatch(console, lang)
