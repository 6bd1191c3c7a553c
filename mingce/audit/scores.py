"""K3: where the score sits, and whether the rewards hold the score that the row was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mingce.audit.composition import FAIR, Account, account, held_scores, nothing_scored, outcomes
from mingce.audit.credit import ACROSS_ROWS
from mingce.audit.evidence import Bools, Evidence, Floats, Ints, finite, rows_with
from mingce.audit.finding import Check, Fault, Finding, Place, Severity, phrase
from mingce.audit.geometry import chosen_pads
from mingce.audit.recursion import Columns, of_next_row
from mingce.audit.rewards import SCORE_BROADCAST
from mingce.audit.row_scores import RowScores, dense, legible, overwritten, row_kl, row_scores
from mingce.audit.shaping import relation

SCORE_INDEX = Fault.of(
    "score-index", "bug", (9,), "s_t ≠ 0 only at t = e, the last slot with m_t = 1", "EleutherAI/gpt-neox/pull/1285"
)
SCORE_AFTER_LAST = Fault.of("score-after-last", "convention", (9,), "A_e = r_e + γ·((1−λ)·V_{e+1} + λ·score) − V_e")
SCORE_MASKED = Fault.of("score-on-masked-token", "bug", (10,), "Σ_t s_t·(1 − m_t) = 0")
KL_OVERWRITTEN = Fault.of("kl-overwritten", "bug", (25, 24), "r_e = s_e − β·k_e", "")
CLIPPED_AFTER = Fault.of("rewards-clipped", "suspicious", (24,), "r_t = s_t − β·k_t", "")
FEW_ROWS, MOST = 3, 0.95
SCORE_EMPTY_ROW = Fault.of("score-in-empty-row", "bug", (11,), "Σ_t m_t = 0  ⇒  s_t = 0")

# ── K3 where the score sits ────────────────────────────────────────────────────────────────────────────────────────


def _held(e: Evidence) -> Floats | None:
    """The scores that the rewards hold, 0 where there is none; None where they cannot be told from the KL."""
    found, held = account(e), held_scores(e)
    if found is None or held is None or (found.explained < FAIR and found.moved is None):
        return None
    if found.moved is not None and found.reach is None:  # something on every token
        return None
    if not found.quiet.any() and e.has("old_log_probs|kl", "ref_log_probs|kl"):
        return None  # with single tokens score and KL cannot be told apart
    return np.where(np.abs(held[0]) > held[1], held[0], 0.0)


def _scores(e: Evidence) -> Floats | None:
    """The stored scores, or those that the rewards hold; 0 where not finite."""
    if "scores" in e.dump.columns:
        return finite(e["scores"])
    held = _held(e)
    if held is None and "rewards" in e.dump.columns and not e.has("old_log_probs|kl", "ref_log_probs|kl"):
        return finite(e["rewards"])
    return held


def placement(e: Evidence) -> Iterator[Finding]:
    """A response's one score belongs on its last chosen token."""
    scores = None if nothing_scored(e) else _scores(e)
    if scores is None:
        return
    misplaced = list(_placed(e, scores, "scores" if "scores" in e.dump.columns else "rewards"))
    yield from misplaced
    if "scores" in e.dump.columns:
        held = _held(e)
        if held is not None and not misplaced and _elsewhere(held, scores):
            yield from _placed(e, held, "rewards")


def _elsewhere(held: Floats, scores: Floats) -> bool:
    """Whether rows that hold one score each hold it on another slot in the rewards."""
    one = ((held != 0).sum(axis=1) == 1) & ((scores != 0).sum(axis=1) == 1)
    return bool(((held != 0) != (scores != 0))[one].any())


def _placed(e: Evidence, scores: Floats, column: str) -> Iterator[Finding]:
    there = scores != 0
    empty = ~rows_with(e.mask)
    wrong = there & empty[:, None]
    if wrong.any():
        places = e.places(wrong, np.zeros_like(scores), scores)
        yield Finding(SCORE_EMPTY_ROW, column, {}, places, float(wrong.any(axis=1).sum() / max(empty.sum(), 1)))
    count = there.sum(axis=1)
    # where padding counts as chosen, e is not the end
    rows = np.flatnonzero((count == 1) & ~empty & ~rows_with(chosen_pads(e)))
    if len(rows) == 0 or (count[~empty] > 1).mean() > 0.1:  # dense scores have no one place
        yield from _dense(e, scores, column, there & ~empty[:, None])
        return
    slot = there.argmax(axis=1)[rows]
    offset = slot - e.last[rows]
    off = (offset != 0) & ~_pays_a_turn(e, rows, slot)
    if off.any():
        yield _misplaced(e, scores, column, rows, slot, offset, off)


def _pays_a_turn(e: Evidence, rows: Ints, slot: Ints) -> Bools:
    """Whether a row's score is what a turn earned: on its last token, in conversations whose turns are paid."""
    numbered = "turn" in e.dump.columns
    turn = e["turn"] if numbered else np.zeros(e.mask.shape)
    turns_end = e.mask.copy()
    turns_end[:, :-1] &= ~e.mask[:, 1:] | (turn[:, 1:] != turn[:, :-1])
    inner = turns_end[rows, slot] & (slot < e.last[rows])
    of_several = turns_end[rows].sum(axis=1) > 1
    paid = numbered or bool((of_several & (slot == e.last[rows])).any() and inner.any())
    orderly = ((slot == e.last[rows]) | inner)[of_several].all()
    return np.asarray(inner & (paid and bool(orderly)))


def _dense(e: Evidence, scores: Floats, column: str, there: Bools) -> Iterator[Finding]:
    if _broadcast(e, scores):
        level: Severity | None = None if e.has("values|returns") else "suspicious"
        places = e.places(there & e.mask, np.zeros_like(scores), scores)
        yield Finding(SCORE_BROADCAST, column, {}, places, severity=level)
        return
    stray = there & ~e.mask
    if not stray.any():
        return
    after = np.argwhere(stray)
    rows = np.flatnonzero(stray.any(axis=1))
    if (after[:, 1] == e.last[after[:, 0]] + 1).all() and _lives_on_after(e, rows):
        e.infer("score_after_last", True)
        yield Finding(SCORE_AFTER_LAST, column)
        return
    where = phrase("where", "audit.amid_dense_scores")
    places = e.places(stray, np.zeros_like(scores), scores)
    yield Finding(SCORE_MASKED, column, where, places, float(stray.any(axis=1).mean()))


def _broadcast(e: Evidence, scores: Floats) -> bool:
    """Whether rows hold one number on every chosen token, and not all rows the same."""
    rows = e.mask.sum(axis=1) >= 2
    high = np.where(e.mask, scores, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(e.mask, scores, np.inf).min(axis=1, initial=np.inf)
    same = (high == low) & rows
    return bool(rows.any() and same.sum() >= 0.95 * rows.sum() and (high[same] != 0).any())


def _misplaced(e: Evidence, scores: Floats, column: str, rows: Ints, slot: Ints, offset: Ints, off: Bools) -> Finding:
    width = e.mask.shape[1]
    wrong = np.zeros_like(e.mask)
    wrong[rows[off], slot[off]] = True
    places = e.places(wrong, np.zeros_like(scores), scores)
    share = float(off.mean())
    short = e.last[rows] < width - 1
    if off[short].all() and (offset[short] == 1).all() and _lives_on_after(e, rows[short]):
        e.infer("score_after_last", True)
        return Finding(SCORE_AFTER_LAST, column, {}, (), share)
    on_token = e.attended[rows, slot] & ~e.mask[rows, slot]
    if (on_token[off]).all():
        where = phrase("where", "audit.at_last_attended")
        unknown = "attention_mask" not in e.dump.columns
        return Finding(SCORE_MASKED, column, where, places, share, classes=(9, 10) if unknown else None)
    if (slot[off] == width - 1).all():
        where = phrase("where", "audit.at_last_column")
    elif len(set(offset[off].tolist())) == 1:
        by = int(offset[off][0])
        one, more = ("audit.slot_after", "audit.slots_after") if by > 0 else ("audit.slot_before", "audit.slots_before")
        where = phrase("where", one if abs(by) == 1 else more, by=abs(by))
    else:
        where = phrase("where", "audit.at_other_offsets")
    masked = ~e.mask[rows[off], slot[off]]
    behind = masked.any() and "attention_mask" not in e.dump.columns
    return Finding(SCORE_INDEX, column, where, places, share, classes=(9, 10) if behind else None)


def _lives_on_after(e: Evidence, rows: Ints) -> bool:
    """Whether values and returns are kept one slot past the last token, as a score there needs."""
    if e.has("value_mask"):
        return bool(e.dump.columns["value_mask"][rows, e.last[rows] + 1].astype(bool).all())
    if not e.has("values", "returns"):
        return e.dump.source == "trl"
    after = e.last[rows] + 1
    alive = (e["values"][rows, after] != 0) & (e["returns"][rows, after] != 0)
    return bool(len(alive) and alive.mean() > 0.9)


# ── the score itself ───────────────────────────────────────────────────────────────────────────────────────────────


def worth(e: Evidence) -> Iterator[Finding]:
    """The score that the rewards hold beside the one that the row was given: the same, shaped, or another."""
    found, both = legible(e), held_scores(e)
    if found is None or both is None or row_kl(e) is not None:
        return
    if "scores" in e.dump.columns and dense(scores := finite(e["scores"])):
        where = e.mask & found.rewards.known & ((scores != 0) | (np.abs(both[0]) > both[1]))
        yield from relation(e, scores[where], both[0][where], both[1][where], "rewards")
        return
    row = row_scores(e)
    if row is None:
        return
    special = (
        _kl_overwritten(e, found, row)
        or _clipped_after(e, found, row)
        or _across_rows(e, found, row)
        or _behind_tools(e, found, row)
    )
    if special is not None:
        yield special
        return
    rows = row.rows
    yield from relation(e, row.given[rows], row.held[rows], row.room[rows], "rewards", rows)


def _kl_overwritten(e: Evidence, found: Account, row: RowScores) -> Finding | None:
    alone = overwritten(e)
    if alone is None:
        return None
    slot = np.where(row.slot == e.last + 1, np.maximum(e.last, 0), row.slot)
    given = np.where(row.slot == e.last + 1, 0.0, row.given)
    places = tuple(
        Place(int(i), int(at := slot[i]), float(given[i] - found.paid[i, at]), float(found.rewards.column[i, at]))
        for i in np.flatnonzero(alone)[:5]
    )
    return Finding(KL_OVERWRITTEN, "rewards", {}, places)


def _clipped_after(e: Evidence, found: Account, row: RowScores) -> Finding | None:
    """Whether rewards are held within limits after the KL was taken off; limits of the scores leave it to be seen."""
    rewards, at = found.rewards.column, np.arange(len(row.slot))
    whole = -found.paid
    whole[at, row.slot] += row.given
    where = e.mask & found.rewards.known & row.rows[:, None]
    if found.moved is not None or not where.any():
        return None
    low, high = float(rewards[where].min()), float(rewards[where].max())
    room = found.room + row.room[:, None]
    off = where & (np.abs(whole - rewards) > room)
    if off.sum() < 3 or low >= high or not (np.abs(np.clip(whole, low, high) - rewards) <= room)[where].all():
        return None
    return Finding(CLIPPED_AFTER, "rewards", {"low": low, "high": high}, (), float(off.any(axis=1).mean()))


def _across_rows(e: Evidence, found: Account, row: RowScores) -> Finding | None:
    """Whether rewards that returns and values imply hold, beside the score, what the next row begins with."""
    rewards = found.rewards
    if rewards.stored or rewards.gamma is None or not e.has("values") or found.moved is not None:
        return None
    gamma, decay = rewards.gamma, rewards.gamma * (1.0 if rewards.lam is None else rewards.lam)
    values = np.where(e.mask, finite(e["values"]), 0.0)
    columns = Columns(rewards.column, values, finite(e["returns"]) - values)
    for by in (1, -1):
        leaked = of_next_row(columns, e.mask, gamma, decay, by)
        at_last = row.rows & (row.slot == e.last) & (np.abs(leaked) > 4 * row.room + 1e-4)
        room = 2 * row.room + 1e-4 * np.abs(leaked) + 1e-5
        if at_last.sum() >= 4 and (np.abs(row.held - row.given - leaked) <= room)[at_last].all():
            return Finding(ACROSS_ROWS, "returns", {}, (), float(at_last.mean()))
    return None


def _behind_tools(e: Evidence, found: Account, row: RowScores) -> Finding | None:
    """Whether rows that end in tool output have their score on its last token, as the return there says."""
    ends = e.mask.shape[1] - 1 - e.attended[:, ::-1].argmax(axis=1)
    behind = row.rows & (ends > e.last)
    off = row.rows & (np.abs(row.held - row.given) > row.room)
    if found.rewards.stored or not e.has("returns") or not off.any() or (off & ~behind).any():
        return None
    at = np.arange(len(ends))
    there, room = finite(e["returns"])[at, ends], 4 * row.room + 1e-4 * np.abs(row.given) + 1e-5
    fits = (np.abs(there - row.given) <= room) | (np.abs(there - row.given + found.paid[at, ends]) <= room)
    if behind.sum() < FEW_ROWS or fits[behind].mean() < MOST:
        return None
    places = tuple(Place(int(i), int(ends[i]), 0.0, float(there[i])) for i in np.flatnonzero(behind)[:5])
    where = phrase("where", "audit.at_last_attended")
    return Finding(SCORE_MASKED, "returns", where, places, float(behind.sum() / max(row.rows.sum(), 1)))


def outcome(e: Evidence) -> Iterator[Finding]:
    """The stored scores beside the rows' outcomes."""
    scores, given = finite(e["scores"]), outcomes(e)
    rows = rows_with(e.mask)
    if given is None or dense(scores) or rows.sum() < 4:
        return
    room = np.abs(e.error("scores")).max(axis=1, initial=0.0) + 2.0**-8 * np.abs(given) * e.grid("scores")
    held = scores.sum(axis=1)
    for finding in relation(e, given[rows], held[rows], 4 * room[rows], "scores", rows):
        few = finding.share <= 0.25 or finding.fault.code != "score-differs"
        yield finding if few else replace(finding, severity="note")


CHECKS = (
    Check.of("K3 score", ("scores|rewards|returns",), placement),
    Check.of("K4 score", ("rewards|returns", "scores|outcome"), worth),
    Check.of("K4 outcome", ("scores", "outcome"), outcome),
)  # fmt: skip
