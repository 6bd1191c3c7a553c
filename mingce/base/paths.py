"""Paths as people write them. Unlike pathlib's methods these have no path that they cannot take."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: str | Path) -> Path:
    """`~` is one's home, `~name` that of another; a name that nobody has stays as it is."""
    return Path(os.path.expanduser(path))


def resolved(path: Path) -> Path:
    """The place itself, without links; of links that lead in a circle the first one."""
    return Path(os.path.realpath(path))
