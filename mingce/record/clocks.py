"""When the turns of conversations were decoded and environments stepped, beside the ledger of a step.

    clocks/step-000012.json     {"rows": [[[turn, decoded from, to, stepped from, to], …], …]}

Seconds count from the beginning of the rollouts. They differ from one time to the next, as timings do, so they are in
no column and no checksum.
"""

from __future__ import annotations

import json
import math
from dataclasses import astuple, dataclass
from pathlib import Path

from mingce.base import atomic
from mingce.base.places import step_name, steps_in
from mingce.base.reading import MAX_JSON, read_regular

_SUFFIX = ".json"
DIGITS = 6


@dataclass(frozen=True)
class TurnClock:
    """One turn of a row: when it was decoded, and when the environment stepped; None where it did not."""

    turn: int
    decoded_from: float
    decoded_to: float
    stepped_from: float | None = None
    stepped_to: float | None = None


Clocks = list[list[TurnClock]]
"""Of every row of a ledger, in order."""


def write_clocks(directory: Path, step: int, clocks: Clocks, hint: atomic.Hint = atomic.try_again) -> None:
    """Write those of one step."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = [[[None if x is None else round(x, DIGITS) for x in astuple(turn)] for turn in row] for row in clocks]
    content = json.dumps({"rows": rows}, separators=(",", ":")).encode()
    atomic.atomic_write(directory / f"{step_name(step)}{_SUFFIX}", content, durable=False, hint=hint)


def read_clocks(directory: Path, step: int) -> Clocks:
    """Those of a step; none where there is no such file, or none that can be read."""
    try:
        found = json.loads(read_regular(directory / f"{step_name(step)}{_SUFFIX}", MAX_JSON, follow=False))
        return [[_turn(turn) for turn in row] for row in found["rows"]]
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return []


def drop_clocks(directory: Path, after: int) -> None:
    """Delete those of later steps."""
    for step in steps_in(directory, _SUFFIX):
        if step > after:
            (directory / f"{step_name(step)}{_SUFFIX}").unlink(missing_ok=True)


def _turn(stored: list[int | float | None]) -> TurnClock:
    turn, *times = stored
    if not isinstance(turn, int) or len(times) != 4 or any(x is None for x in times[:2]):
        raise ValueError(f"{stored} are no times of a turn")
    seconds = [None if x is None else float(x) for x in times]
    if not all(x is None or math.isfinite(x) for x in seconds):
        raise ValueError(f"{stored} are no times of a turn")
    first, last, *step = seconds
    assert first is not None
    assert last is not None
    return TurnClock(turn, first, last, *step)
