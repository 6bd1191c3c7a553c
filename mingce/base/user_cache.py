"""Where mingce keeps what it can make again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_directory() -> Path:
    """MINGCE_CACHE, else the system's place for a user's caches."""
    if "MINGCE_CACHE" in os.environ:
        return Path(os.environ["MINGCE_CACHE"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mingce"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "mingce" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mingce"
