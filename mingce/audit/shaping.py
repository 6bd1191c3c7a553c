"""What became of the score on its way into the reward: scaled, clipped, normalised, penalised for length, lost.

`relation` is given the scores as they were given and as the rewards hold them, a number each for rows or tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mingce.audit.composition import account
from mingce.audit.credit import last_rows_cut
from mingce.audit.evidence import Bools, Evidence, Floats, Ints
from mingce.audit.finding import Fault, Finding, Place, Severity
from mingce.audit.fitting import weighted_median
from mingce.audit.groupings import prompts

LOST = Fault.of("score-lost", "bug", (10,), "Σ_t r_t + β·k_t = score", "")
SIGN = Fault.of("score-sign", "bug", (), "Σ_t r_t + β·k_t = score")
OTHER_ROWS = Fault.of("score-of-another-row", "bug", (37,), "Σ_t r_t + β·k_t = score of the same row")
SCALED = Fault.of("score-scaled", "convention", (), "r_t = a·s_t − β·k_t")
NORMALISED = Fault.of("score-normalised", "convention", (), "r_t = (s_t − μ)/σ − β·k_t")
CLIPPED = Fault.of("score-clipped", "convention", (), "r_t = clip(s_t, low, high) − β·k_t")
CUT_PENALTY = Fault.of("score-of-cut-rows", "convention", (), "r_e = score − penalty where the response did not end")
LENGTH_PENALTY = Fault.of("score-length-penalty", "convention", (), "r_e = score − f·(length − L)/buffer")
COMPARED = Fault.of("score-compared", "convention", (), "r_e = score − mean of its group")
TWICE = Fault.of("score-counted-twice", "bug", (9, 24), "Σ_t r_t + β·k_t = score", "")
BY_LENGTH = Fault.of("score-over-length", "suspicious", (), "Σ_t r_t + β·k_t = score")
WHOLE = Fault.of("score-cut-to-integer", "suspicious", (), "Σ_t r_t + β·k_t = score")
DIFFERS = Fault.of("score-differs", "suspicious", (), "Σ_t r_t + β·k_t = score")
FEW = 4


def relation(
    e: Evidence, given: Floats, held: Floats, room: Floats, column: str, rows: Bools | None = None
) -> Iterator[Finding]:
    """How `held` follows from `given`; `rows` [B] says which rows the numbers belong to, None for tokens."""
    room = room + 1e-5 * np.abs(given) + 1e-9
    off = np.abs(held - given) > room
    if not off.any() or len(given) < FEW:
        return
    places = _places(given, held, off, rows)
    share = float(off.mean())
    for finding in _relation(e, given, held, room, off, column, rows, places, share):
        shaped = finding.fault.severity == "convention" and _undeclared(e, finding.fault, column)
        if shaped and finding.fault is SCALED and abs(finding.values["gain"] - 2) < 1e-3:
            yield Finding(TWICE, column, {"count": int(off.sum())}, places, share)
        else:
            yield replace(finding, severity="suspicious", places=places) if shaped else finding


def _undeclared(e: Evidence, fault: Fault, column: str) -> bool:
    """Whether the scores as the trainer dealt them out are in the dump, so that nothing but the KL lies between them
    and the rewards. OpenRLHF limits them there, and compares them there where it has no critic."""
    found, source = account(e), e.dump.source
    if column != "rewards" or found is None or found.moved is not None:
        return False
    if source == "openrlhf":
        return fault is not CLIPPED and e.has("values")
    return "scores" in e.dump.columns or source == "trl"


def _relation(
    e: Evidence, given: Floats, held: Floats, room: Floats, off: Bools, column: str, rows: Bools | None,
    places: tuple[Place, ...], share: float,
) -> Iterator[Finding]:  # fmt: skip
    if not (np.abs(held) > room)[off].any() and rows is not None:
        yield Finding(LOST, column, {"count": int(off.sum())}, places, share)
        return
    yield _for_all(given, held, room, column, places) or (
        Finding(DIFFERS, column, {"count": int(off.sum())}, places, share)
        if rows is None
        else _for_rows(e, given, held, room, off, rows, column, places)
    )


def _places(given: Floats, held: Floats, off: Bools, rows: Bools | None) -> tuple[Place, ...]:
    if rows is None:
        return ()
    numbers = np.flatnonzero(rows)
    return tuple(Place(int(numbers[i]), None, float(given[i]), float(held[i])) for i in np.flatnonzero(off)[:5])


def _for_all(given: Floats, held: Floats, room: Floats, column: str, places: tuple[Place, ...]) -> Finding | None:
    """One rule for every score: a factor, a factor and a shift, or limits."""
    gain = weighted_median(held, given)
    with np.errstate(all="ignore"):
        scaled = bool((np.abs(held - gain * given) <= room * (1 + abs(gain))).all())
    if gain and scaled:
        if gain < 0:
            return Finding(SIGN, column, {"gain": gain}, places)
        return Finding(SCALED, column, {"gain": gain})
    low, high = float(held.min()), float(held.max())
    inside = np.abs(np.clip(given, low, high) - held) <= room
    if inside.all() and low < high:
        return Finding(CLIPPED, column, {"low": low, "high": high})
    if len(np.unique(given)) >= 2:
        design = np.stack([given, np.ones_like(given)], axis=1)
        slope, level = np.linalg.lstsq(design, held, rcond=None)[0]
        if slope > 0 and (np.abs(held - slope * given - level) <= room * (1 + slope)).all():
            return Finding(NORMALISED, column, {"mean": float(-level / slope), "std": float(1 / slope)})
    return None


def _for_rows(
    e: Evidence, given: Floats, held: Floats, room: Floats, off: Bools, rows: Bools, column: str,
    places: tuple[Place, ...],
) -> Finding:  # fmt: skip
    """Rules that know the row: how it ended, how long it is, which prompt it answers, which row it is."""
    share, gap = float(off.mean()), held - given
    length = e.mask.sum(axis=1)[rows].astype(np.float64)
    if (np.abs(held * length - given) <= room * (1 + length)).all():
        return Finding(BY_LENGTH, column, {}, places, share)
    if any((np.abs(made(given) - held) <= room).all() for made in (np.trunc, np.floor, np.round)):
        return Finding(WHOLE, column, {}, places, share)
    if (np.abs(held - 2 * given) <= 2 * room)[off].all():
        return Finding(TWICE, column, {"count": int(off.sum())}, places, share)
    cut = unfinished(e)[rows]
    if cut[off].all() and off.sum() >= 2:
        fixed = np.ptp(gap[cut]) <= 2 * room.max() or np.ptp(held[cut]) <= 2 * room.max()
        gain = weighted_median(held[cut], given[cut])
        if fixed or (np.abs(held - gain * given) <= room)[cut].all():
            return Finding(CUT_PENALTY, column, {"penalty": float(-np.median(gap[cut]))}, (), share)
    if _by_length(length, gap, room, off):
        return Finding(LENGTH_PENALTY, column, {"largest": float(gap.min())}, (), share)
    if off.sum() >= 2 and _same_numbers(given[off], held[off], float(room.max())):
        return Finding(OTHER_ROWS, column, {"count": int(off.sum())}, places, share)
    groups = prompts(e)
    if groups is not None and _compared(given, held, room, groups[rows]):
        return Finding(COMPARED, column, {}, (), share)
    lost = np.abs(held) <= room
    if lost[off].all():
        return Finding(LOST, column, {"count": int(off.sum())}, places, share)
    level: Severity | None = "note" if "scores" not in e.dump.columns and share > 0.5 else None
    return Finding(DIFFERS, column, {"count": int(off.sum())}, places, share, severity=level)


def unfinished(e: Evidence) -> Bools:
    """[B] rows without a stop id, or that the limit ended."""
    cut = last_rows_cut(e)
    stops = e.stop_ids
    if not stops or not e.has("token_ids"):
        return cut
    ids = e.dump.columns["token_ids"]
    return np.asarray(cut | ~(np.isin(ids, sorted(stops)) & e.mask).any(axis=1))


def _by_length(length: Floats, gap: Floats, room: Floats, off: Bools) -> bool:
    """Whether a penalty grows with the length beyond some length, up to a largest one."""
    if off.sum() < 3 or (gap[off] > 0).any() or length[~off].max(initial=0.0) > length[off].min():
        return False
    inner = off & (gap > gap.min() + 2 * room)
    if inner.sum() < 2 or np.ptp(length[inner]) == 0:
        return False
    slope, level = np.polyfit(length[inner], gap[inner], 1)
    expected = np.maximum(np.minimum(slope * length + level, 0.0), gap.min())
    return bool(slope < 0 and (np.abs(expected - gap) <= 4 * room + 1e-5).all())


def _same_numbers(given: Floats, held: Floats, room: float) -> bool:
    """Whether one is a rearrangement of the other, of numbers that are not all the same."""
    one, two = np.sort(given), np.sort(held)
    return bool(np.ptp(one) > 4 * room and (np.abs(one - two) <= 2 * room).all())


def _compared(given: Floats, held: Floats, room: Floats, groups: Ints) -> bool:
    """Whether, within each group, what is held rises in proportion with what was given, around 0."""
    for group in np.unique(groups):
        at = groups == group
        x, y = given[at] - given[at].mean(), held[at] - held[at].mean()
        power = float(x @ x)
        slope = float(x @ y) / power if power > 0 else 0.0
        if (np.abs(y - slope * x) > 4 * room[at].max()).any() or slope < 0:
            return False
        if abs(float(held[at].mean())) > 4 * room[at].max() + 1e-3 * float(np.abs(held).max()):
            return False
    return True
