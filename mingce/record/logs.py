"""Files that grow by a line of JSON at a time, each line there whole or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mingce.base.atomic import Hint, disk_errors, try_again
from mingce.base.errors import RunError
from mingce.base.places import NOT_THERE
from mingce.base.reading import MAX_LINE, open_written


def append_line(path: Path, line: bytes, hint: Hint = try_again) -> None:
    """One whole line more, or none."""
    with disk_errors(path, needs=len(line), hint=hint):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
        try:
            before = os.fstat(handle).st_size
            try:
                while line:
                    line = line[os.write(handle, line) :]
            except OSError:
                os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)


def as_line(values: Mapping[str, Any]) -> bytes:
    """The line that a log holds for it."""
    return json.dumps(dict(values), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def each_line(path: Path) -> Iterator[bytes]:
    """The lines of a log one by one, the last perhaps unfinished; none if there is no such file.

    Of a line that is longer than any that a run writes come pieces, so that no file takes more memory than its lines.
    """
    try:
        with open_written(path) as file:
            yield from iter(lambda: file.readline(MAX_LINE), b"")
    except OSError as error:
        if error.errno in NOT_THERE and not os.path.lexists(path):
            return
        raise RunError(f"{path} cannot be read ({error.strerror}); make it a file that can be read") from error


def finished_lines(path: Path) -> list[tuple[int, bytes]]:
    """The lines of a log with their numbers from 1, without a last one that a killed process did not finish."""
    return [(number, line) for number, line in enumerate(each_line(path), 1) if line.endswith(b"\n")]


def cut_unfinished_line(path: Path) -> None:
    """Takes away what a killed process wrote of a line."""
    size = finished = 0
    for line in each_line(path):
        size += len(line)
        finished = size if line.endswith(b"\n") else finished
    if finished < size:
        os.truncate(path, finished)


def step_of(line: bytes, path: Path, number: int) -> int:
    """The step that a line is of."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise RunError(f"line {number} of {path} is damaged; delete that line") from error


def numbers_of(line: bytes, path: Path, number: int) -> dict[str, float]:
    """The numbers of a line, by name."""
    try:
        values = json.loads(line)
        numbers = {name: float(value) if isinstance(value, str) else value for name, value in values.items()}
        return numbers | {"step": int(values["step"])}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise RunError(f"line {number} of {path} is damaged; delete that line") from error


def plain_number(value: float) -> float | str:
    """As JSON can hold it: JSON has no NaN or infinity, so these are written as words that float() reads back."""
    if isinstance(value, int):
        return int(value)
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
