"""Arrays in an .npz file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np


def save_npz(file: Path | IO[bytes], columns: Mapping[str, np.ndarray], *, compressed: bool = False) -> None:
    arrays: dict[str, Any] = dict(columns)  # numpy declares keywords that are no arrays beside those that are
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
