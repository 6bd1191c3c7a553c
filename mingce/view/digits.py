"""JSON of long columns. A rollout has tens of thousands of float32 numbers; writing each as a double takes five times
as long as all the rest of an answer, so they are written in the fewest digits that read back to the same float32.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

_MARK = secrets.token_hex(8)  # nobody's text can be taken for a placeholder
_PLACEHOLDER = re.compile(rf'"{_MARK}:(\d+)"')


class Digits(Sequence[float]):
    """Finite float32 numbers that know their JSON; otherwise a list."""

    def __init__(self, values: list[float]):
        self._values = values

    @overload
    def __getitem__(self, place: int) -> float: ...
    @overload
    def __getitem__(self, place: slice) -> list[float]: ...
    def __getitem__(self, place: int | slice) -> float | list[float]:
        return self._values[place]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[float]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def json(self) -> str:
        """`[0.1,-2,…]`"""
        texts = pa.array(self._values, pa.float32()).cast(pa.string())
        rows = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
        return f"[{pc.binary_join(rows, ',')[0].as_py()}]"


def encode(value: Any) -> bytes:
    """JSON as bytes; a number that JSON cannot hold is a programmer's mistake."""
    columns: list[str] = []

    def put(found: Any) -> str:
        if not isinstance(found, Digits):
            raise TypeError(f"{type(found).__name__} is not JSON")
        columns.append(found.json())
        return f"{_MARK}:{len(columns) - 1}"

    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=put)
    if columns:
        text = _PLACEHOLDER.sub(lambda found: columns[int(found[1])], text)
    return text.encode("utf-8", "replace")
