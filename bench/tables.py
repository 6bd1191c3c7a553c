"""A benchmark's table: its rows, the figures that count with their targets, and what could not be measured."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from measuring import Spread


@dataclass(frozen=True)
class Check:
    """A figure that the summary tells, with its target if it has one."""

    what: str
    """The case."""
    found: float
    wanted: float | None
    unit: str
    more: bool
    """Whether more is better."""
    group: str = ""
    """The summary's line for this and its like."""
    peer: str = ""
    """Whom the figure is a ratio to."""
    why: str = ""
    """What the measurement says of the cause; told where the target is missed or the peer is better."""
    case: str = ""
    """The case that it was measured in."""

    @property
    def holds(self) -> bool:
        if self.wanted is None:
            return True
        return self.found >= self.wanted if self.more else self.found <= self.wanted

    @property
    def behind(self) -> bool:
        """Whether the peer is better."""
        return bool(self.peer) and (self.found < 1 if self.more else self.found > 1)

    @property
    def margin(self) -> float:
        """How many times the target is met."""
        assert self.wanted is not None
        return self.found / self.wanted if self.more else self.wanted / max(self.found, 1e-12)

    @property
    def target(self) -> str:
        return "" if self.wanted is None else f"{'≥' if self.more else '≤'} {number(self.wanted)}{self.unit}"

    @property
    def figure(self) -> str:
        shown = number(self.found)
        if not self.holds and self.wanted is not None and shown == number(self.wanted):
            shown = f"{self.found:.5g}"  # missed by less than three digits tell
        return shown + self.unit


@dataclass
class Table:
    """Rows of cells as they are printed and the raw numbers behind them."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    raw: list[dict[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)
    """The case of every row."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """When it was measured: day, minutes, load of the machine before and after."""
    now: str = ""
    """The case that is measured now."""

    def at_least(
        self, what: str, found: float, wanted: float | None, unit: str = "×", *,
        group: str = "", peer: str = "", why: str = "",
    ) -> None:  # fmt: skip
        """A figure that more is better for; without a target it is only told."""
        self.checks.append(Check(what, found, wanted, unit, True, group, peer, why, self.now))

    def at_most(
        self, what: str, found: float, wanted: float | None, unit: str = "", *,
        group: str = "", peer: str = "", why: str = "",
    ) -> None:  # fmt: skip
        """A figure that less is better for."""
        self.checks.append(Check(what, found, wanted, unit, False, group, peer, why, self.now))

    @contextmanager
    def case(self, what: str) -> Iterator[None]:
        """Says on the terminal what is measured now; an error costs this case and no other."""
        print(f"{time.strftime('%H:%M:%S')}  {self.name}: {what}", file=sys.stderr, flush=True)
        self.now = what
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.failures.append(f"{what}: {' '.join(str(error).split()) or type(error).__name__}")
        finally:
            self.now = ""
            self.cases += [what] * (len(self.rows) - len(self.cases))

    def joined(self, older: Table, order: Sequence[str]) -> Table:
        """This table with the older one's rows of the cases that were not measured now, in the given order.

        Notes are those of this table, for they say how it is measured.
        """
        kept = [row for row, case in enumerate(older.cases) if case not in self.cases]
        found = [
            *zip(self.cases, self.rows, self.raw, strict=True),
            *((older.cases[row], older.rows[row], older.raw[row]) for row in kept),
        ]
        found.sort(key=lambda one: order.index(one[0]) if one[0] in order else len(order))
        cases, rows, raw = [case for case, _, _ in found], [row for _, row, _ in found], [raw for _, _, raw in found]
        checks = [*self.checks, *(check for check in older.checks if check.case not in self.cases)]
        checks.sort(key=lambda check: order.index(check.case) if check.case in order else len(order))
        calls = older.calls + self.calls
        return replace(self, rows=rows, raw=raw, cases=cases, checks=checks, calls=calls)

    @property
    def circumstances(self) -> str:
        """When it was measured, and what else the machine did."""
        if not self.calls:
            return ""
        days, loads = [call["day"] for call in self.calls], [load for call in self.calls for load in call["loads"]]
        when = min(days) if min(days) == max(days) else f"{min(days)} to {max(days)}"
        often = f" and {len(self.calls)} calls" if len(self.calls) > 1 else ""
        minutes = sum(call["minutes"] for call in self.calls)
        return (
            f"Measured on {when} in {minutes:.1f} minutes{often}, at a load of {min(loads):.1f} to {max(loads):.1f} on "
            f"{self.calls[0]['cores']} cores."
        )


def number(value: float) -> str:
    """Three digits, thousands set apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.1e}"


def spread(values: Spread, unit: str = "×") -> str:
    """`1.82× (1.7–1.9)`"""
    return f"{number(values.median)}{unit} ({number(values.low)}–{number(values.high)})"


def percent(values: Spread) -> str:
    """`72 % (70–73)`"""
    return f"{100 * values.median:.0f} % ({100 * values.low:.0f}–{100 * values.high:.0f})"


def as_json(tables: list[Table], machine: dict[str, Any]) -> dict[str, Any]:
    return {"machine": machine, "tables": [asdict(table) for table in tables]}


def of_json(values: dict[str, Any]) -> tuple[list[Table], dict[str, Any]]:
    """What `as_json` made."""
    tables = [Table(**(one | {"checks": [Check(**check) for check in one["checks"]]})) for one in values["tables"]]
    return tables, values["machine"]
