"""Conversations of many turns: who wrote a token, what a step over tool output carries, what a trajectory is.

What stored rewards show of tool output is judged with them (`credit.py`, `rewards.py`, `scores.py`); here is the rest:
roles beside masks, returns over tool output where no rewards are stored, advantages behind another turn's mask, the
text that was scored, and groups that count turns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.composition import GOOD, account
from mingce.audit.credit import HOLE_CUTS, THROUGH_HOLES
from mingce.audit.evidence import Bools, Evidence, Floats, finite, share_of_rows
from mingce.audit.finding import Check, Fault, Finding, NotJudged, Place
from mingce.audit.geometry import ASSISTANT, turn_of
from mingce.audit.recursion import Columns, one_step
from mingce.audit.rewards import KL_ON_TOOLS
from mingce.record.dump import LOSS

LEAST_ROWS, LEAST_STEPS = 3, 8
EVERY = 0.95
HALF, SURELY = 0.5, 10.0  # of the variance left; log of the odds from which one count of tokens explains it better

OBSERVED = Fault.of("observation-chosen", "bug", (3,), "m_t = 1 only where who_t = assistant")
UNCHOSEN = Fault.of("assistant-tokens-masked", "suspicious", (7,), "m_t = 1 where who_t = assistant", "")
TURNS = Fault.of("turns-out-of-order", "bug", (37,), "turn_t ≤ turn_{t+1} within a row", "")
OTHER_MASK = Fault.of(
    "advantages-behind-another-mask", "bug", (37,),
    "A_t = A of the trajectory where the row's own m_t = 1", "NovaSky-AI/SkyRL/pull/1507",
)  # fmt: skip
SCORED_TOOLS = Fault.of("scored-tool-output", "suspicious", (46,), "reward_text = decode(y_t where m_t = 1)")
WOULD_DRIFT = Fault.of("text-encodes-otherwise", "note", (12,), "token_ids = encode(decode(token_ids))")

# ── who wrote it ───────────────────────────────────────────────────────────────────────────────────────────────────


def roles(e: Evidence) -> Iterator[Finding]:
    """The mask beside the roles, and turns one after another."""
    role = e["role"]
    told = e.mask & (role != ASSISTANT) & (role != 0)
    zero, one = np.zeros(e.mask.shape), np.ones(e.mask.shape)
    if told.any():
        values = {"count": int(told.sum())}
        yield Finding(OBSERVED, "response_mask", values, e.places(told, zero, one), share_of_rows(told, e.attended))
    lost = ~e.mask & (role == ASSISTANT) & e.mask.any(axis=1, keepdims=True)
    if lost.any():
        values = {"count": int(lost.sum())}
        yield Finding(UNCHOSEN, "response_mask", values, e.places(lost, one, zero), share_of_rows(lost, e.attended))


def turns(e: Evidence) -> Iterator[Finding]:
    """Turns are numbered in the order of the tokens."""
    turn = np.where(e.attended, e["turn"], np.inf)
    back = np.zeros_like(e.mask)
    back[:, 1:] = e.attended[:, 1:] & e.attended[:, :-1] & (turn[:, 1:] < turn[:, :-1])
    if back.any():
        expected = np.where(e.attended, np.maximum.accumulate(np.where(e.attended, turn, 0.0), axis=1), 0.0)
        yield Finding(TURNS, "turn", {}, e.places(back, expected, e["turn"]), share_of_rows(back, e.attended))


def drift(e: Evidence) -> Iterator[Finding]:
    """Rows whose text, encoded anew, would be other ids: what training on texts would have got wrong."""
    at = [-1 if one is None else int(one) for one in e.row("drift")]
    rows = [row for row, token in enumerate(at) if 0 <= token < e.mask.shape[1]]
    if not rows:
        return
    first = rows[0]
    values = {"count": len(rows), "row": first, "token": at[first], "turn": turn_of(e, first, at[first])}
    yield Finding(WOULD_DRIFT, "token_ids", values, (), len(rows) / len(at))


# ── over tool output, without stored rewards ───────────────────────────────────────────────────────────────────────


def over_holes(e: Evidence) -> Iterator[Finding]:
    """Returns say what a step over tool output carried, once those between neighbours have given γ, λ and the KL."""
    found = None if "rewards" in e.dump.columns else account(e)
    if found is None or found.rewards.gamma is None or found.moved is not None or found.weak:
        raise NotJudged
    before = e.mask.copy()
    before[:, :-1] &= ~e.mask[:, 1:]
    before &= np.arange(e.mask.shape[1]) < e.last[:, None]
    if before.sum() < LEAST_STEPS or found.explained < GOOD or (found.penalty is not None and found.penalty.way):
        raise NotJudged
    gamma = found.rewards.gamma
    decay = gamma * (1.0 if found.rewards.lam is None else found.rewards.lam)
    values = finite(e["values"]) if e.has("values") else np.zeros(e.mask.shape)
    advantages = finite(e["returns"]) - values
    paid = np.where(e.attended, -found.paid, 0.0)
    room = 4 * found.room + 1e-4 * e.scale(values, advantages)

    def fits(rewards: Floats, holes: str) -> float:
        expected = one_step(Columns(rewards, values, advantages), e.mask, gamma, decay, holes, "end")
        return float((np.abs(expected - advantages) <= room)[before].mean())

    own = np.where(e.mask, paid, 0.0)
    if fits(own, "skip") >= 1 - EVERY:  # some steps carry what they should: the others hold a turn's reward
        return
    ways = {"cut": fits(own, "cut"), "zero": fits(own, "zero"), "raw": fits(own, "raw"), "kl": fits(paid, "raw")}
    best = max(ways, key=lambda way: ways[way])
    if ways[best] < EVERY:
        return
    expected = one_step(Columns(own, values, advantages), e.mask, gamma, decay, "skip", "end")
    places = e.places(before, expected, advantages)
    if best == "kl":
        yield Finding(KL_ON_TOOLS, "returns", {}, places)
    if best == "cut":
        yield Finding(HOLE_CUTS, "returns", {}, places)
    elif best != "kl" or decay < 1 or values.any():
        yield Finding(THROUGH_HOLES, "returns", {"how": "V = r = 0" if best == "zero" else "V, r as they are"}, places)


# ── a turn a row ───────────────────────────────────────────────────────────────────────────────────────────────────


def other_masks(e: Evidence) -> Iterator[Finding]:
    """A row's one advantage, standing where another row has its tokens and not where this one has them."""
    column = finite(e[LOSS])
    there = column != 0
    high, low = np.where(there, column, -np.inf).max(axis=1), np.where(there, column, np.inf).min(axis=1)
    single = there.any(axis=1) & (high - low <= 1e-6 * np.abs(high))
    sound = single & (there == e.mask).all(axis=1)
    odd = np.flatnonzero(single & ((there != e.mask) & e.mask).any(axis=1))
    if len(odd) < LEAST_ROWS or not sound.any():
        raise NotJudged
    owners: dict[float, list[int]] = {}
    for row in np.flatnonzero(sound):
        owners.setdefault(round(float(high[row]), 6), []).append(int(row))
    told: list[int] = []
    for mask, found in ((e.mask, there), (_to_the_right(e.mask, e.attended), _to_the_right(there, e.attended))):
        mine = [int(i) for i in odd if _stands_elsewhere(mask, found, int(i), owners.get(round(float(high[i]), 6), []))]
        told = max(told, mine, key=len)
    if len(told) < max(LEAST_ROWS, EVERY * len(odd)):
        return
    wrong = np.zeros_like(e.mask)
    wrong[told] = e.mask[told] & ~there[told]
    expected = np.broadcast_to(high[:, None], column.shape)
    values = {"count": len(told), "share": float(wrong.sum() / max(int(e.mask[told].sum()), 1))}
    yield Finding(OTHER_MASK, "advantages", values, e.places(wrong, expected, column), len(told) / len(e.mask))


def _to_the_right(where: Bools, attended: Bools) -> Bools:
    """The rows with their last tokens at the right edge, as some trainers lay responses out."""
    width = where.shape[1]
    ends = np.where(attended.any(axis=1), width - attended[:, ::-1].argmax(axis=1), 0)
    at = np.arange(width)[None, :] - (width - ends)[:, None]
    return np.asarray(np.take_along_axis(where, np.maximum(at, 0), axis=1) & (at >= 0))


def _stands_elsewhere(masks: Bools, there: Bools, row: int, owners: list[int]) -> bool:
    """Whether the advantage stands behind the mask of one of these rows, all of it or where both have tokens."""
    theirs = masks[owners]
    whole = (theirs == there[row]).all(axis=1)
    shared = ((theirs & masks[row]) == there[row]).all(axis=1)
    return bool((whole | shared).any())


# ── what the scorer read ───────────────────────────────────────────────────────────────────────────────────────────


def scored_tokens(e: Evidence) -> Iterator[Finding]:
    """Whether the text that was scored is as long as all tokens together, or as those that the policy chose."""
    told = e.attended & ~e.mask
    texts = ["" if text is None else str(text) for text in e.row("reward_text")]
    length = np.array([len(text) for text in texts], dtype=np.float64)
    chosen, every = e.mask.sum(axis=1).astype(np.float64), e.attended.sum(axis=1).astype(np.float64)
    rows = (length > 0) & (chosen > 0)
    if rows.sum() < LEAST_STEPS or np.ptp((every - chosen)[rows]) < 2 or told[rows].sum() < 0.1 * every[rows].sum():
        raise NotJudged
    own, whole = (_unexplained(length[rows], count[rows]) for count in (chosen, every))
    if whole > HALF or 0.5 * rows.sum() * np.log(own / max(whole, 1e-12)) < SURELY:
        return
    holding = np.flatnonzero(rows & told.any(axis=1))
    per_token = float(length[rows].sum() / every[rows].sum())
    places = tuple(Place(int(i), None, float(round(per_token * chosen[i])), float(length[i])) for i in holding[:5])
    yield Finding(SCORED_TOOLS, "reward_text", {"count": len(holding)}, places, len(holding) / len(texts))


def _unexplained(length: Floats, count: Floats) -> float:
    """The share of the texts' variance that a number of characters a token leaves."""
    slope = float(length @ count / (count @ count))
    left = length - slope * count
    spread = length - length.mean()
    return float(left @ left / max(float(spread @ spread), 1e-12))


CHECKS = (
    Check.of("K1 roles", ("role",), roles),
    Check.of("K1 turns", ("turn",), turns),
    Check.of("K16 drift", ("drift",), drift),
    Check.of("K16 scored tokens", ("reward_text",), scored_tokens),
    Check.of("K5 tool output", ("returns",), over_holes),
    Check.of("K8 turns", (LOSS,), other_masks),
)  # fmt: skip
