"""Every decidable bug of the catalogue, planted one at a time into a batch that was clean.

A plant takes a `Case` and puts the wrong code where the catalogue says it stands; what comes after is computed from its
numbers by the trainer's own functions. `PLANTS` holds them all, in the order of the catalogue; several flavours of a
class are several plants. Those with `seed` are the known defects of verl 0.1.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from audit_case import Case

from mingce.record.dump import Dump

YES = (1, 2, 3, 5, 7, 8, 9, 10, 11, 14, 15, 16, 18, 20, 21, 23, 28, 29, 30, 31, 32, 33, 34, 37, 38, 40, 42)
PARTLY = (4, 6, 12, 13, 17, 19, 22, 24, 25, 26, 27, 36, 39, 41, 43, 44, 45, 47)


class NotHere(Exception):
    """The bug leaves no trace on this batch: no hole in it, no row that was cut …"""


@dataclass(frozen=True)
class Plant:
    """A bug's class, how it happens, and the function that plants it; `case` holds what the batch must be like."""

    number: int
    flavour: str
    make: Callable[[Case], list[Case] | None]  # further cases if the bug shows over several steps
    case: dict[str, Any] = field(default_factory=dict)
    also: tuple[int, ...] = ()  # classes whose name is as right on this dump
    choice: bool = False  # a choice rather than a bug: a finding of any severity tells of it
    holes: bool | None = None  # only with, only without tool output
    coarse: bool = True  # visible in a dump of 16 bits
    makers: tuple[str, ...] = ("own", "verl")
    seed: bool = False  # of verl 0.1
    nameless: bool = False  # noticed by a finding that is of no class

    @property
    def name(self) -> str:
        return f"{self.number:02} {self.flavour}"


PLANTS: list[Plant] = []


def plant(
    number: int, flavour: str, **how: Any
) -> Callable[[Callable[[Case], list[Case] | None]], Callable[[Case], list[Case] | None]]:
    """Registers a plant; arguments that are not the plant's own are the batch's."""
    own = {name: how.pop(name) for name in list(how) if name in Plant.__dataclass_fields__}

    def register(make: Callable[[Case], list[Case] | None]) -> Callable[[Case], list[Case] | None]:
        PLANTS.append(Plant(number, flavour, make, how, **own))
        return make

    return register


TRIES = 25


def planted(chosen: Plant, seed: int, maker: str = "own", holes: bool = True, coarse: bool = False) -> list[Dump]:
    """The dump with the bug (several if it needs several steps); empty where it cannot show."""
    return dumps_of(chosen, batch_with(chosen, seed, maker, holes), coarse)


def batch_with(chosen: Plant, seed: int, maker: str = "own", holes: bool = True) -> list[Case]:
    """The batch with the bug, all its stages run."""
    if maker not in chosen.makers or chosen.holes not in (None, holes):
        return []
    for attempt in range(TRIES):
        rng = np.random.default_rng([seed, attempt, chosen.number])
        given: dict[str, Any] = {"rows": int(rng.integers(16, 65)), "width": int(rng.integers(32, 129))}
        given |= {"estimator": "gae"} | chosen.case
        case = Case(int(rng.integers(2**31)), maker, holes, **given)
        try:
            cases = [case, *(chosen.make(case) or [])]
            for one in cases:
                one.run()
        except NotHere:
            continue
        return cases
    return []


def dumps_of(chosen: Plant, cases: list[Case], coarse: bool) -> list[Dump]:
    """The batch as it is written, in 32 or in 16 bits; empty where the bug cannot be seen in them."""
    if coarse and not chosen.coarse:
        return []
    dumps = [case.written(coarse) for case in cases]
    for dump in dumps:
        if dump.source == "mingce":  # not what our trainer writes
            dump.source = "generic"
    return dumps


def here(condition: Any) -> None:
    """Tries another batch unless the bug would show on this one."""
    if not bool(condition):
        raise NotHere


def load() -> list[Plant]:
    """All plants, in the catalogue's order."""
    parts = "rewards credit whitening groups losses sampling tokens log_probs reports seeds"
    for part in parts.split():
        importlib.import_module(f"audit_plants.{part}")
    return sorted(PLANTS, key=lambda p: (p.seed, p.number))
