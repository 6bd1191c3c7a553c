"""K3 and K4: where the score was put, and how the KL penalty was taken off it.

The reward of a token should be r_t = s_t − β·k_t on chosen tokens and s_t elsewhere, with a response's score on its
last chosen token. Which k and which β are fitted to the numbers; where the score sits is read off them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit.evidence import Bools, Evidence, Floats, Ints, finite, rows_with
from mingce.audit.finding import Check, Fault, Finding, phrase
from mingce.audit.geometry import chosen_pads
from mingce.audit.kl import kl_estimates
from mingce.specs.kl import kl_name

# ── what can be wrong ──────────────────────────────────────────────────────────────────────────────────────────────

SCORE_INDEX = Fault.of(
    "score-index", "bug", (9,), "s_t ≠ 0 only at t = e, the last slot with m_t = 1", "EleutherAI/gpt-neox/pull/1285"
)
SCORE_AFTER_LAST = Fault.of("score-after-last", "convention", (9,), "A_e = r_e + γ·((1−λ)·V_{e+1} + λ·score) − V_e")
SCORE_MASKED = Fault.of("score-on-masked-token", "bug", (10,), "Σ_t s_t·(1 − m_t) = 0")
SCORE_EMPTY_ROW = Fault.of("score-in-empty-row", "bug", (11,), "Σ_t m_t = 0  ⇒  s_t = 0")
KL_SIGN = Fault.of("kl-sign", "bug", (23,), "r_t = s_t − β·k_t with β > 0")
KL_ESTIMATOR = Fault.of("kl-estimator", "bug", (24,), "r_t = s_t − β·k_t with the k of the settings")
KL_IN_REWARD = Fault.of("kl-in-reward", "convention", (), "r_t = s_t − β·k_t")
REWARDS_WHITENED = Fault.of("rewards-whitened", "convention", (), "r_t = (s_t − β·k_t)/σ")
KL_TWICE = Fault.of("kl-coefficient", "suspicious", (25,), "r_t = s_t − β·k_t with the β of the settings")
KL_ON_PADS = Fault.of("kl-on-pads", "bug", (15,), "r_t = s_t where m_t = 0")
KL_ON_TOOLS = Fault.of("kl-on-tool-tokens", "bug", (3, 15), "r_t = s_t where m_t = 0")
REWARD_MASKED = Fault.of("reward-on-masked-token", "bug", (10,), "r_t = s_t where m_t = 0")
REWARD_UNEXPLAINED = Fault.of("reward-unexplained", "suspicious", (), "r_t = s_t − β·k_t")

# ── K4 how the reward is composed ──────────────────────────────────────────────────────────────────────────────────


def _penalties(e: Evidence) -> dict[str, Floats]:
    """The KL estimators of the dumped log-probs, or the dumped KL itself."""
    if not e.has("old_log_probs", "ref_log_probs"):
        return {"kl": e["kl"]}
    with np.errstate(all="ignore"):
        return kl_estimates(e["old_log_probs"] - e["ref_log_probs"], clamp=True)


def _fit(y: Floats, k: Floats) -> tuple[float, float]:
    """(β, what β·k leaves of y, relative to y), by least squares."""
    power = float(k @ k)
    beta = float(y @ k) / power if power > 0 else 0.0
    left = y - beta * k
    return beta, float(np.sqrt((left @ left) / max(float(y @ y), 1e-300)))


def composition(e: Evidence) -> Iterator[Finding]:
    """r = s − β·k on chosen tokens and r = s elsewhere; which k, which β."""
    if e.settings.whiten_rewards:
        yield Finding(REWARDS_WHITENED, "rewards")
        return
    penalties = _penalties(e)
    there = np.isfinite(e["rewards"])
    for penalty in penalties.values():
        there &= np.isfinite(penalty)
    if e.has("scores"):
        there &= np.isfinite(e["scores"])
        taken = np.where(there, e["scores"] - e["rewards"], 0.0)
        judged = e.mask & there
    else:  # the score is somewhere near the end of the row: the tokens before it hold the penalty alone
        taken = np.where(there, -e["rewards"], 0.0)
        judged = e.mask & there & (np.arange(e.mask.shape[1]) < e.last[:, None])
    size = np.abs(np.where(there, e["rewards"], 0.0)).max(initial=0.0)
    grain = max(size, 1e-12) * (1e-2 if e.coarse else 2e-6)
    y = taken[judged]
    explained, beta, name = np.zeros_like(taken), 0.0, ""
    if len(y) and np.abs(y).max() > grain * (0.1 if e.coarse else 1.0):
        fits = {one: _fit(y, np.where(there, k, 0.0)[judged]) for one, k in penalties.items()}
        name = min(fits, key=lambda one: fits[one][1])
        wanted = kl_name(e.settings.kl_estimator)
        enough = 0.5 if e.coarse else 2e-3 + grain / np.sqrt((y @ y) / len(y))
        if wanted in fits and fits[wanted][1] <= max(enough if not e.coarse else 0.3, 1.5 * fits[name][1]):
            name = wanted
        elif (plain := next(iter(fits))) and fits[plain][1] <= 1.01 * fits[name][1]:
            name = plain
        beta, residual = fits[name]
        if residual > enough:
            yield Finding(REWARD_UNEXPLAINED, "rewards", {"found": name, "residual": residual})
            return
        explained = beta * np.where(there, penalties[name], 0.0)
        yield from _judge_penalty(e, name, wanted, beta, judged, taken)
    if e.has("scores"):
        yield from _behind_the_mask(e, taken, explained, there, grain)
    e.infer("beta", abs(beta))


def _judge_penalty(e: Evidence, name: str, wanted: str, beta: float, judged: Bools, taken: Floats) -> Iterator[Finding]:
    said = {"beta": beta, "found": name, "wanted": wanted}
    given = e.settings.beta
    scores = e["scores"] if e.has("scores") else np.zeros_like(taken)
    if beta < 0:
        yield Finding(KL_SIGN, "rewards", said, e.places(judged & (taken != 0), scores + taken, e["rewards"]))
    elif wanted and name != wanted and name != "kl":
        yield Finding(KL_ESTIMATOR, "rewards", said)
    elif given and abs(beta / float(given) - 1) > (0.2 if e.coarse else 0.01):
        yield Finding(KL_TWICE, "rewards", {"beta": beta, "wanted": float(given), "ratio": beta / float(given)})
    else:
        yield Finding(KL_IN_REWARD, "rewards", said)


def _behind_the_mask(e: Evidence, taken: Floats, explained: Floats, finite: Bools, grain: float) -> Iterator[Finding]:
    stray = finite & ~e.mask & (np.abs(taken) > grain)
    if not stray.any():
        return
    close = np.abs(taken - explained) <= np.maximum(
        0.2 * np.abs(explained) if e.coarse else 2e-3 * np.abs(explained), grain
    )
    fault = REWARD_MASKED
    if explained.any() and (close | ~stray).mean(where=stray) > 0.9:
        pads = stray & ~e.attended & ~e.holes
        fault = KL_ON_PADS if pads.any() else KL_ON_TOOLS
    places = e.places(stray, e["scores"], e["rewards"])
    filled = (
        fault is KL_ON_PADS and np.ptp(taken[stray]) <= grain
    )  # one number everywhere: the log-probs there are fills
    classes = (15, 28) if filled else None
    yield Finding(fault, "rewards", {}, places, float(stray.any(axis=1).mean()), classes=classes)


# ── K3 where the score sits ────────────────────────────────────────────────────────────────────────────────────────


def _scores(e: Evidence) -> Floats:
    """The scores, or what is left of the rewards when the penalty is added back; 0 where not finite."""
    if e.has("scores"):
        return finite(e["scores"])
    rewards = finite(e["rewards"])
    if not e.has("old_log_probs|kl", "ref_log_probs|kl") or not e.settings.beta:
        return rewards
    penalties = _penalties(e)
    known = kl_name(e.settings.kl_estimator)
    k = finite(penalties.get(known, next(iter(penalties.values()))))
    left = rewards + e.settings.beta * np.where(e.mask, k, 0.0)
    noise = (0.1 if e.coarse else 1e-3) * max(np.abs(left).max(initial=0.0), 1e-12)
    return np.where(np.abs(left) > noise, left, 0.0)


def placement(e: Evidence) -> Iterator[Finding]:
    """A response's one score belongs on its last chosen token."""
    if e.settings.whiten_rewards and not e.has("scores"):
        return  # whitening has moved every reward: the score's place can no longer be told
    scores = _scores(e)
    there = scores != 0
    empty = ~rows_with(e.mask)
    wrong = there & empty[:, None]
    if wrong.any():
        places = e.places(wrong, np.zeros_like(scores), scores)
        yield Finding(SCORE_EMPTY_ROW, "scores", {}, places, float(wrong.any(axis=1).sum() / max(empty.sum(), 1)))
    count = there.sum(axis=1)
    rows = np.flatnonzero(
        (count == 1) & ~empty & ~rows_with(chosen_pads(e))
    )  # where padding counts as chosen, e is not the end
    if len(rows) == 0 or (count[~empty] > 1).mean() > 0.1:  # dense scores have no one place
        stray = there & ~e.mask & ~empty[:, None]
        if stray.any():
            where = phrase("where", "audit.amid_dense_scores")
            places = e.places(stray, np.zeros_like(scores), scores)
            yield Finding(SCORE_MASKED, "scores", where, places, float(stray.any(axis=1).mean()))
        return
    slot = there.argmax(axis=1)[rows]
    offset = slot - e.last[rows]
    off = offset != 0
    if not off.any():
        return
    yield _misplaced(e, scores, rows, slot, offset, off)


def _misplaced(e: Evidence, scores: Floats, rows: Ints, slot: Ints, offset: Ints, off: Bools) -> Finding:
    width = e.mask.shape[1]
    wrong = np.zeros_like(e.mask)
    wrong[rows[off], slot[off]] = True
    places = e.places(wrong, np.zeros_like(scores), scores)
    share = float(off.mean())
    short = e.last[rows] < width - 1
    if off[short].all() and (offset[short] == 1).all() and _lives_on_after(e, rows[short]):
        e.infer("score_after_last", True)
        return Finding(SCORE_AFTER_LAST, "scores", {}, (), share)
    on_token = e.attended[rows, slot] & ~e.mask[rows, slot]
    if (on_token[off]).all():
        where = phrase("where", "audit.at_last_attended")
        unknown = "attention_mask" not in e.dump.columns
        return Finding(SCORE_MASKED, "scores", where, places, share, classes=(9, 10) if unknown else None)
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
    return Finding(SCORE_INDEX, "scores", where, places, share, classes=(9, 10) if behind else None)


def _lives_on_after(e: Evidence, rows: Ints) -> bool:
    """Whether values and returns are kept one slot past the last token, as a score there needs."""
    if e.has("value_mask"):
        return bool(e.dump.columns["value_mask"][rows, e.last[rows] + 1].astype(bool).all())
    if not e.has("values", "returns"):
        return e.dump.source == "trl"
    after = e.last[rows] + 1
    alive = (e["values"][rows, after] != 0) & (e["returns"][rows, after] != 0)
    return bool(len(alive) and alive.mean() > 0.9)


CHECKS = (
    Check.of("K4 reward", ("rewards", "old_log_probs|kl", "ref_log_probs|kl"), composition),
    Check.of("K3 score", ("scores|rewards",), placement),
)  # fmt: skip
