"""K1 and K2: masks and rows that are wrong in the same way in every row, told by ids, ends and log-probs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from mingce.audit import geometry, hotspots
from mingce.audit.evidence import Bools, Evidence, Floats, Ints, last_slot, once
from mingce.audit.finding import Check, Fault, Finding, NotJudged, Place, phrase
from mingce.audit.precision import MAKING
from mingce.record.dump import Dump

EVERY = 0.95  # of the rows: what a trainer does to every row, but for odd ones
COMMON = 0.8  # of the rows: an id that ends so many is a stop token
LEAST_ROWS = 8
Cells = TypeVar("Cells", Bools, Floats)
CHANCE = -30.0  # log of the odds below which nobody drew these tokens

FIRST_MASKED = Fault.of("first-token-masked", "bug", (), "m_0 = 1 where y_0 was drawn", "")
LAST_MASKED = Fault.of("last-token-masked", "bug", (7,), "m_e = 1 where y_e is the last token of the row")
NOT_DRAWN = Fault.of("template-tokens-chosen", "bug", (3,), "m_t = 0 where y_t was not drawn from the policy")
AFTER_STOP = Fault.of("tokens-after-stop", "bug", (8, 36), "m_t = 0 behind the token that ended the response")
UNFINISHED = Fault.of("truncated-row-chosen", "bug", (27, 34), "m_t = 0 on every token of a row that the limit cut", "")
EXCHANGED = Fault.of("rows-exchanged", "bug", (37,), "a column's row i is about row i")
TIME_MAJOR = Fault.of("time-major", "bug", (), "column[i, t] is about token t of row i", "")
DUPLICATED = Fault.of("rows-duplicated", "suspicious", (37, 48), "every row is a rollout of its own", "")


# ── the first and the last token ───────────────────────────────────────────────────────────────────────────────────


def ends_masked(e: Evidence) -> Iterator[Finding]:
    """The first or the last token of every row, masked although the policy drew it."""
    rows = np.flatnonzero(e.mask.any(axis=1))
    if len(rows) < LEAST_ROWS or e.mask.shape[1] < 3 or geometry.chosen_pads(e).any():
        return
    ids = e.dump.columns.get("token_ids")
    first = e.attended[rows, 0] & ~e.mask[rows, 0] & e.mask[rows, 1]
    if first.mean() >= EVERY and ids is not None and _share(ids[rows, 0]) < 0.5:
        places = tuple(Place(int(row), 0, 1.0, 0.0) for row in rows[:5])
        yield Finding(FIRST_MASKED, "response_mask", {"share": float(first.mean())}, places, float(first.mean()))
    if "attention_mask" not in e.dump.columns:
        return
    short = rows[~_cut(e)[rows]]
    last = e.last_attended[short] - e.last[short] == 1
    one_id = ids is None or len(short) < LEAST_ROWS or _share(ids[short, e.last_attended[short]]) >= COMMON
    if len(short) < LEAST_ROWS or not one_id:
        short = rows
        last = e.last_attended[rows] - e.last[rows] == 1
    stopped = ids is not None and _share(ids[rows, e.last[rows]]) >= COMMON  # a template's token follows the stop
    if last.mean() >= EVERY and not stopped and len(np.unique(e.last[rows])) > 1 and not _eos_tells(e):
        places = tuple(Place(int(row), int(e.last[row]) + 1, 1.0, 0.0) for row in short[:5])
        yield Finding(LAST_MASKED, "response_mask", {"share": float(last.mean())}, places, float(last.mean()))


def _cut(e: Evidence) -> Bools:
    """[B] rows that the limit ended, as far as the dump says so."""
    if "finish_reason" in e.dump.rows:
        return np.array([reason == "length" for reason in e.row("finish_reason")], bool)
    return np.asarray(e.last_attended >= e.mask.shape[1] - 1)


def _eos_tells(e: Evidence) -> bool:
    """Whether the check of row ends can name it, with the stop ids at hand."""
    return bool(e.stop_ids) and "token_ids" in e.dump.columns


def _share(ids: Ints) -> float:
    """How many of them the most frequent one is."""
    return float(np.unique(ids, return_counts=True)[1].max() / max(len(ids), 1)) if len(ids) else 0.0


# ── tokens that nobody drew ────────────────────────────────────────────────────────────────────────────────────────


@once
def not_drawn(e: Evidence) -> Bools:
    """[B, T] chosen tokens at the beginning of turns that are the same in all rows, at odds at which none is drawn."""
    found = np.zeros(e.mask.shape, bool)
    name = next((one for one in ("old_log_probs", "rollout_log_probs") if one in e.dump.columns), None)
    if name is None or "token_ids" not in e.dump.columns or not e.mask.shape[1]:
        return found
    ids, log_probs = e.dump.columns["token_ids"], e[name]
    begins = e.mask & ~np.pad(e.mask, ((0, 0), (1, 0)))[:, :-1]
    rows, starts = np.nonzero(begins)
    for back in range(min(16, e.mask.shape[1])):
        inside = starts + back < e.mask.shape[1]
        rows, starts = rows[inside], starts[inside]
        here = e.mask[rows, starts + back]
        rows, starts = rows[here], starts[here]
        slots = starts + back
        odds = log_probs[rows, slots]
        if len(rows) < LEAST_ROWS or not np.isfinite(odds).all() or _share(ids[rows, slots]) < 1:
            break
        if float(odds.sum()) < CHANCE and float(np.median(odds)) < -2.0:
            found[rows, slots] = True
    return found


def template(e: Evidence) -> Iterator[Finding]:
    """The same unlikely ids at the beginning of every turn: the template's, not the policy's."""
    found = not_drawn(e)
    if not found.any():
        return
    row = int(np.flatnonzero(found.any(axis=1))[0])
    slots = np.flatnonzero(found[row])
    ids = ", ".join(f"{int(e.dump.columns['token_ids'][row, slot])}" for slot in slots[:8])
    places = e.places(found, np.zeros(found.shape), np.ones(found.shape))
    share = float(found.any(axis=1).mean())
    yield Finding(NOT_DRAWN, "response_mask", {"ids": ids, "count": len(slots)}, places, share)


@once
def behind_stop(e: Evidence) -> Bools:
    """[B, T] chosen tokens right behind a stop token, where that is no accident of a row or two."""
    behind = np.zeros(e.mask.shape, bool)
    if "token_ids" not in e.dump.columns or not e.mask.shape[1]:
        return behind
    ids = e.dump.columns["token_ids"]
    ends = list(e.stop_ids or _common_before_end(e))
    stops = np.isin(ids, ends) & e.mask
    follows = stops[:, :-1] & e.mask[:, 1:] & ~np.isin(ids[:, 1:], ends)
    if "turn" in e.dump.columns:  # a turn that nothing was said to is followed by the next one
        follows &= e["turn"][:, 1:] == e["turn"][:, :-1]
    follows |= _stop_again(e)
    rows = follows.any(axis=1)
    least = 1 if e.stop_ids and np.isin(ids, ends)[e.mask].any() else max(2, 0.05 * int(e.mask.any(axis=1).sum()))
    if not geometry.chosen_pads(e).any() and rows.sum() >= least:
        behind[:, 1:] = follows
    return behind


def after_stop(e: Evidence) -> Iterator[Finding]:
    """Chosen tokens right behind a stop token: what follows the end is no response."""
    behind = behind_stop(e)
    rows = behind.any(axis=1)
    if rows.any():
        places = e.places(behind, np.zeros(behind.shape), np.ones(behind.shape))
        yield Finding(AFTER_STOP, "response_mask", {"count": int(rows.sum())}, places, float(rows.mean()))


def _stop_again(e: Evidence) -> Bools:
    """[B, T − 1] stop tokens that the same stop token follows, both chosen, where the padding is known as another."""
    ids, pad, both = e.dump.columns["token_ids"], hotspots.pad_id(e), e.mask[:, :-1] & e.mask[:, 1:]
    ends = set(e.stop_ids)
    rows = np.flatnonzero(e.mask.any(axis=1))
    if not ends and len(rows) >= LEAST_ROWS:
        found, counts = np.unique(ids[rows, e.last[rows]], return_counts=True)
        ends = {int(found[counts.argmax()])} if counts.max() >= COMMON * len(rows) else set()
        before = e.mask & (np.arange(ids.shape[1])[None, :] < e.last[:, None] - 1)
        if np.isin(ids, list(ends))[before].any():
            ends = set()  # an id that rows go on behind is no stop token
    if pad is None or pad in ends:
        return np.zeros_like(both)
    return np.asarray(both & np.isin(ids[:, :-1], list(ends)) & (ids[:, :-1] == ids[:, 1:]))


def _common_before_end(e: Evidence) -> set[int]:
    """The id that stands at one distance before the end of nearly all rows, where their last tokens are all kinds."""
    rows = np.flatnonzero(e.last >= 4)
    if len(rows) < 2 * LEAST_ROWS or len(np.unique(e.last[rows])) < 4:
        return set()
    ids, last = e.dump.columns["token_ids"], e.last[rows]
    if _share(ids[rows, last]) >= 0.5:
        return set()
    for back in range(1, 5):
        found, counts = np.unique(ids[rows, last - back], return_counts=True)
        if counts.max() >= COMMON * len(rows):
            return {int(found[counts.argmax()])}
    return set()


# ── whole rows ─────────────────────────────────────────────────────────────────────────────────────────────────────


def layouts(x: Cells) -> tuple[Cells, Cells]:
    """The array as it was before it was stored time-major and read row by row, or the other way round."""
    rows, width = x.shape
    return x.reshape(width, rows).T, x.T.reshape(rows, width)


def row_major(dump: Dump) -> tuple[Dump, bool]:
    """The dump with a row a rollout, and whether it had to be turned for it: its masks went down, not along."""
    mask = dump.columns["response_mask"].astype(bool)
    if dump.rows or min(mask.shape) < 4:
        return dump, False
    down, along = (~(np.diff(mask.astype(np.int8), axis=axis) > 0).any(axis=axis) for axis in (0, 1))
    if not down.all() or along.all() or len(np.unique(mask.sum(axis=0))) < 3:
        return dump, False
    turned = {name: np.ascontiguousarray(column.T) for name, column in dump.columns.items()}
    return replace(dump, columns=turned), True


def time_major(e: Evidence) -> Iterator[Finding]:
    """Columns whose numbers stand where the mask is only when they are read in the other layout."""
    if e.memo.get("turned"):
        yield Finding(TIME_MAJOR, "response_mask", phrase("columns", "audit.every_column"), severity="suspicious")
        return
    if geometry.chosen_pads(e).any() or min(e.mask.shape) < 4:
        return
    wrong = []
    for name in (one for one in MAKING if e.dump.holds(one)):
        held = e.dump.column(name) != 0
        in_place = any((held == seen).mean() > 0.9 for seen in (e.mask, e.attended))
        if in_place or held.mean() < 0.5 * e.mask.mean():
            continue
        if any((other == seen).mean() > 0.995 for other in layouts(held) for seen in (e.mask, e.attended)):
            wrong.append(name)
    if wrong:
        e.broken |= set(wrong)
        e.blamed |= set(wrong)
        names = ", ".join(e.dump.name_of(name) for name in wrong)
        yield Finding(TIME_MAJOR, e.dump.name_of(wrong[0]), {"columns": names, "columns_zh": names})


def exchanged(e: Evidence) -> Iterator[Finding]:
    """Columns whose rows end where other rows do: the same lengths, in another order."""
    if geometry.chosen_pads(e).any():
        return
    wanted = (e.last, e.last_attended)
    for name in (one for one in MAKING if e.dump.holds(one)):
        column = e.dump.column(name)
        with np.errstate(invalid="ignore"):
            found = last_slot((column != 0) & np.isfinite(column))
        for last in wanted:
            moved = found != last
            if moved.sum() < 2 or moved.mean() < 0.02 or not np.array_equal(np.sort(found), np.sort(last)):
                continue
            e.broken.add(name)
            e.blamed.add(name)
            row = int(np.flatnonzero(moved)[0])
            values = {"column": e.dump.name_of(name), "row": row, "count": int(moved.sum())}
            values |= {"length": int(last[row]) + 1, "found": int(found[row]) + 1}
            off = np.flatnonzero(moved)[:5]
            places = tuple(Place(int(i), None, float(last[i] + 1), float(found[i] + 1)) for i in off)
            yield Finding(EXCHANGED, e.dump.name_of(name), values, places, float(moved.mean()))
            break


def fingerprints(e: Evidence) -> dict[int, tuple[float, ...]]:
    """row → numbers that tell its tokens and log-probs from any other's, for rows that nobody draws twice."""
    name = next((one for one in ("rollout_log_probs", "old_log_probs") if one in e.dump.columns), None)
    if name is None or "token_ids" not in e.dump.columns:
        return {}
    drawn = np.where(e.mask, e[name], 0.0)
    ids = np.where(e.mask, e.dump.columns["token_ids"], 0).astype(np.float64)
    weights = np.cos(np.arange(e.mask.shape[1]))  # the same tokens in another order are another row
    sums = np.stack([drawn.sum(axis=1), (drawn * weights).sum(axis=1), (ids * weights).sum(axis=1)], axis=1)
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero((sums[:, 0] < CHANCE) & np.isfinite(sums).all(axis=1) & (np.ptp(drawn, axis=1) > 0))
    return {int(row): tuple(sums[row].tolist()) for row in rows}


def duplicated(e: Evidence) -> Iterator[Finding]:
    """Rows with the same tokens and the same log-probs, where it is unlikely to draw them twice."""
    seen: dict[tuple[float, ...], int] = {}
    twins = [(seen[key], row) for row, key in fingerprints(e).items() if seen.setdefault(key, row) != row]
    if twins:
        values = {"count": len(twins), "first": twins[0][0], "second": twins[0][1]}
        places = tuple(Place(row, None, float("nan"), float(first)) for first, row in twins[:5])
        yield Finding(DUPLICATED, "token_ids", values, places, len(twins) / len(e.mask))


def unfinished(e: Evidence) -> Iterator[Finding]:
    """Rows that no stop token ended, where the settings say that such rows are masked out."""
    ends = e.stop_ids | ({e.settings.pad_id} if e.settings.pad_id is not None else set())
    if not e.settings.mask_truncated or not e.stop_ids:
        raise NotJudged
    rows = np.flatnonzero(e.mask.any(axis=1))
    cut = rows[~np.isin(e.dump.columns["token_ids"][rows, e.last_attended[rows]], list(ends))]
    if len(cut):
        places = tuple(Place(int(row), int(e.last_attended[row]), 0.0, 1.0) for row in cut[:5])
        yield Finding(UNFINISHED, "response_mask", {"count": len(cut)}, places, len(cut) / len(rows))


CHECKS: tuple[Check, ...] = (
    Check.of("K1 edges", (), ends_masked),
    Check.of("K1 template", ("token_ids", "old_log_probs|rollout_log_probs"), template),
    Check.of("K2 after the end", ("token_ids",), after_stop),
    Check.of("K2 cut rows", ("token_ids",), unfinished),
    Check.of("K1 layout", (), time_major),
    Check.of("K1 rows", (), exchanged),
    Check.of("K16 duplicates", ("token_ids", "old_log_probs|rollout_log_probs"), duplicated),
)  # fmt: skip
