"""The command line: `main` runs `mingce …`. A file per group of commands; app has the whole and its errors.

Commands import what they need when they run, so that `mingce --help` starts at once.
"""

from __future__ import annotations

from mingce.cli.app import app, main

__all__ = ["app", "main"]
