"""JSON of the answers. A rollout has tens of thousands of float32 numbers; writing each as a double takes five times
as long as all the rest of an answer, so they are written in the fewest digits that read back to the same float32.
"""

from __future__ import annotations

import json
import re
import secrets
from array import array
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MARK = secrets.token_hex(8)  # nobody's text can be taken for a placeholder
_PLACEHOLDER = re.compile(rf'"{_MARK}:(\d+)"')


def encode(value: Any) -> bytes:
    """JSON as bytes; a number that JSON cannot hold is a programmer's mistake."""
    columns: list[str] = []

    def put(item: Any) -> Any:
        if isinstance(item, array):
            columns.append(_digits(item))
            return f"{_MARK}:{len(columns) - 1}"
        if is_dataclass(item):
            return {one.name: part for one in fields(item) if not _left_out(one, part := getattr(item, one.name))}
        raise TypeError(f"{type(item).__name__} is not JSON")

    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=put)
    if columns:
        text = _PLACEHOLDER.sub(lambda found: columns[int(found[1])], text)
    return text.encode("utf-8", "replace")


def _left_out(one: Any, value: Any) -> bool:
    """A field marked as brief does without its default."""
    return "brief" in one.metadata and value == one.default


def _digits(column: array[float]) -> str:
    """`[0.1,-2,…]`"""
    texts = pa.array(np.frombuffer(column, np.float32) if column else [], pa.float32()).cast(pa.string())
    rows = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    return f"[{pc.binary_join(rows, ',')[0].as_py()}]"
