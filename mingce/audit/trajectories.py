"""K8 where a trajectory is several rows, a turn or a segment each: its group compares trajectories, not rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import numpy as np

from mingce.audit.composition import outcomes
from mingce.audit.credit import constant_rows
from mingce.audit.evidence import Evidence, Floats, Ints, finite, part_numbers, rows_with
from mingce.audit.finding import Check, Fault, Finding, NotJudged, Place
from mingce.record.dump import LOSS

GROUPS_OF_TURNS = Fault.of(
    "group-statistics-over-turns", "suspicious", (1,), "mean_g and std_g over the trajectories of a prompt"
)
NEAR = 1e-3
LEAST_ROWS = 4


class Trajectories(NamedTuple):
    """The rows that have a token: their prompt and trajectory by number, and the last row of each trajectory."""

    rows: Ints
    prompt: Ints
    trajectory: Ints
    last: Ints  # for each of `rows` the place in `rows` of its trajectory's last row


def split(e: Evidence) -> bool:
    """Whether some trajectory of the dump is several rows."""
    if "conversation" not in e.dump.rows:
        return False
    names = [str(one) for one, used in zip(e.row("conversation"), rows_with(e.mask), strict=True) if used]
    return len(set(names)) < len(names)


def over_turns(e: Evidence) -> Iterator[Finding]:
    """Whether advantages are against the group's trajectories, or against its rows."""
    if not split(e) or not constant_rows(e, e[LOSS]):
        raise NotJudged
    t = _trajectories(e)
    own = e[LOSS][t.rows, e.mask.argmax(axis=1)[t.rows]]
    if len(t.rows) < LEAST_ROWS or not np.isfinite(own).all() or not own.any():
        raise NotJudged
    once = np.unique(t.last)
    for outcome in _outcomes(e):
        x = outcome[t.rows]
        whole = x[t.last]  # a trajectory's outcome is that of its last row
        right = _compared(whole, t.prompt, once)
        if any(_near(way, own) for way in right.values()):
            return
        every = np.arange(len(t.rows))
        for numbers in (x, whole):
            for how, way in _compared(numbers, t.prompt, every).items():
                if _near(way, own) and not _near(right[how], own):
                    off = np.abs(right[how] - own) > NEAR * (1 + np.abs(own))
                    places = tuple(
                        Place(int(t.rows[i]), None, float(right[how][i]), float(own[i]))
                        for i in np.flatnonzero(off)[:5]
                    )
                    values = {"rows": len(t.rows), "trajectories": len(once), "how": how}
                    yield Finding(GROUPS_OF_TURNS, "advantages", values, places, float(off.mean()))
                    return
    raise NotJudged


def _trajectories(e: Evidence) -> Trajectories:
    rows = np.flatnonzero(e.mask.any(axis=1))
    names: list[Hashable] = [e.row("group" if "group" in e.dump.rows else "uid")[row] for row in rows]
    prompt = part_numbers(names)
    trajectory = part_numbers(e.row("conversation")[row] for row in rows)
    order = np.array([e.row("segment")[row] for row in rows]) if "segment" in e.dump.rows else np.arange(len(rows))
    last = np.zeros(len(rows), dtype=np.int64)
    for one in np.unique(trajectory):
        mine = np.flatnonzero(trajectory == one)
        last[mine] = mine[order[mine].argmax()]
    return Trajectories(rows, prompt, trajectory, last)


def _outcomes(e: Evidence) -> Iterator[Floats]:
    """What a row may have been compared by."""
    for name in ("rewards", "scores"):
        if name in e.dump.columns:
            yield np.where(e.mask, finite(e[name]), 0.0).sum(axis=1)
    given = outcomes(e)
    if given is not None:
        yield given


def _compared(x: Floats, prompt: Ints, among: Ints) -> dict[str, Floats]:
    """Each row's number against those of its prompt that stand at `among`, by the usual formulae."""
    ways = {
        name: np.zeros_like(x) for name in ("(x − mean)/std", "(x − mean)/std, biased", "x − mean", "leave one out")
    }
    for one in np.unique(prompt):
        mine, peers = prompt == one, x[among][prompt[among] == one]
        gap, count = x[mine] - peers.mean(), len(peers)
        ways["x − mean"][mine] = gap
        ways["leave one out"][mine] = gap * count / max(count - 1, 1)
        for name, bessel in (("(x − mean)/std", 1), ("(x − mean)/std, biased", 0)):
            spread = float(peers.std(ddof=bessel)) if count > bessel else 0.0
            ways[name][mine] = gap / (spread + 1e-6) if spread > 1e-7 else 0.0
    return ways


def _near(way: Floats, found: Floats) -> bool:
    return bool((np.abs(way - found) <= NEAR * (1 + np.abs(found))).all())


CHECKS = (Check.of("K8 trajectories", ("conversation", "group|uid", LOSS, "rewards|scores|outcome"), over_turns),)
