"""K4: how the KL penalty was taken off the score.

The reward of a token should be r_t = s_t − β·k_t on chosen tokens and s_t elsewhere. Which k and which β are fitted to
the numbers (composition.py); here the fit is compared with the settings, and what does not follow it is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mingce.audit.composition import FAIR, GOOD, Account, account, exceptions, leaks, nothing_scored, outcomes, reaches
from mingce.audit.credit import OTHER_SETTINGS
from mingce.audit.evidence import Bools, Evidence, Floats, either, finite, share_of_rows
from mingce.audit.finding import Check, Fault, Finding, Place, Severity, phrase
from mingce.audit.fitting import SPREADS, Sample, fit_beta
from mingce.audit.implied import Rewards
from mingce.audit.kl import STORED, Penalty, other_penalties, usual_penalties
from mingce.audit.row_scores import overwritten, row_kl
from mingce.specs import ESTIMATORS
from mingce.specs.comparisons import KL_OF_A_RESPONSE
from mingce.specs.kl import kl_name

LEAST_TOKENS = 16

TELLING = 8  # tokens from which a price is read

# ── what can be wrong ──────────────────────────────────────────────────────────────────────────────────────────────

KL_SIGN = Fault.of("kl-sign", "bug", (23,), "r_t = s_t − β·k_t with β > 0")
KL_ESTIMATOR = Fault.of("kl-estimator", "bug", (24,), "r_t = s_t − β·k_t with the k of the settings")
KL_OTHER = Fault.of("kl-of-something-else", "bug", (24,), "r_t = s_t − β·k(log π_old − log π_ref) of token t")
KL_CLAMP = Fault.of("kl-clamped", "convention", (24,), "r_t = s_t − β·clip(k_t, ±c)", "")
KL_IN_REWARD = Fault.of("kl-in-reward", "convention", (), "r_t = s_t − β·k_t")
REWARDS_WHITENED = Fault.of("rewards-whitened", "convention", (), "r_t = (s_t − β·k_t − μ)/σ + μ")
CENTRED = Fault.of("rewards-centred", "suspicious", (), "r_t = (s_t − β·k_t − μ)/σ + μ")
WHITENED_BY_ROW = Fault.of("rewards-whitened-by-row", "suspicious", (), "r_t = (s_t − β·k_t − μ)/σ + μ")
NOT_WHITENED = Fault.of("rewards-not-whitened", "suspicious", (), "std of r_t = 1 over the slots that have a value")
KL_TWICE = Fault.of("kl-coefficient", "suspicious", (25,), "r_t = s_t − β·k_t with the β of the settings")
KL_TWO_PRICES = Fault.of(
    "kl-coefficient-logged", "suspicious", (25, 43), "r_t = s_t − β·k_t with the β of the settings", ""
)
KL_ABSENT = Fault.of("kl-absent", "bug", (25,), "r_t = s_t − β·k_t with β > 0")
SCORE_BROADCAST = Fault.of("score-on-every-token", "bug", (9,), "s_t ≠ 0 only at t = e, the last slot with m_t = 1")
SCORE_SPREAD = Fault.of("score-spread", "convention", (), "r_t = score/Σm − β·k_t")
TOKEN_BONUS = Fault.of("reward-on-each-token", "convention", (), "r_t = s_t − β·k_t + c")
KL_ON_PADS = Fault.of("kl-on-pads", "bug", (15,), "r_t = s_t where m_t = 0")
KL_ON_TOOLS = Fault.of("kl-on-tool-tokens", "bug", (3, 15), "r_t = s_t where m_t = 0")
REWARD_MASKED = Fault.of("reward-on-masked-token", "bug", (10,), "r_t = s_t where m_t = 0")
REWARD_UNEXPLAINED = Fault.of("reward-unexplained", "suspicious", (), "r_t = s_t − β·k_t")
IMPLIED = Fault.of("rewards-implied", "note", (), "r_t = R_t − γ(1−λ)V_{t+1} − γλR_{t+1}")

_CLASSES = {
    "audit.kl_swapped": (24, 23), "audit.kl_of_next": (24, 18), "audit.kl_of_previous": (24, 18),
    "audit.kl_of_other_row": (24, 37), "audit.kl_of_sampler": (24,), "audit.kl_of_updated": (24,),
    "audit.kl_to_sampler": (24, 22),
}  # fmt: skip
"""What else a penalty of another column may come from."""
_RATIOS = {
    2.0: "audit.beta_twice", 0.5: "audit.beta_half", 1 / np.log(2.0): "audit.beta_base_two",
    1 / np.log(10.0): "audit.beta_base_ten", np.log(10.0): "audit.beta_base_ten",
}  # fmt: skip

# ── the composition ────────────────────────────────────────────────────────────────────────────────────────────────


def composition(e: Evidence) -> Iterator[Finding]:
    """r = s − β·k on chosen tokens and r = s elsewhere; which k, which β."""
    if nothing_scored(e):
        yield Finding(REWARDS_WHITENED, "rewards")
        return
    found = account(e)
    if found is None or not found.quiet.any():
        return
    if not found.rewards.stored:
        yield from _implied(e, found.rewards)
    if found.whitened:
        yield _as_whitened(e, found)
    elif e.settings.whiten_rewards and found.rewards.stored and np.ptp(found.rewards.column[e.mask]) > 0:
        yield from _not_whitened(e, found.rewards.column)
    if found.moved is not None and not found.whitened:
        yield from _on_every_token(e, found)
    if found.explained < FAIR and found.moved is None:
        if _unknown_reference(e):
            return
        yield _whitened_by_row(e, found) or _unexplained(e, found, found.quiet)
        return
    yield from _judge_penalty(e, found) if found.penalty is not None else _absent(e)
    yield from _exceptions(e, found)
    if found.moved is None:
        yield from _behind_the_mask(e, found)
    if found.weak or found.quiet.sum() < TELLING:
        return
    if found.beta is not None and found.doubt <= 0.5:
        e.infer("beta", abs(found.beta))
    if found.penalty is not None and found.penalty.kind != STORED and not found.penalty.way:
        e.infer("kl_estimator", found.penalty.kind)


def _as_whitened(e: Evidence, found: Account) -> Finding:
    """Whitened over the batch: with the mean put back, as TRL does, or without; by a trainer that has a setting for it,
    or by another."""
    assert found.reach is not None
    assert found.moved is not None
    seen, level = found.rewards.column[found.reach], float(np.abs(found.moved).max(initial=0.0))
    coarse = found.rewards.stored and e.grid("rewards")
    nothing, least, most = (2e-3, 0.05, 10.0) if coarse else (3e-7, 1e-3, 1e3)  # a mean put back would be c/(1 − a)
    if abs(float(seen.mean())) <= nothing and level > least and found.gain is not None and found.gain < most:
        return Finding(CENTRED, "rewards", {"level": level})
    other = e.dump.source in ("verl", "openrlhf", "mingce") or e.settings.whiten_rewards is False
    return Finding(REWARDS_WHITENED, "rewards", severity="suspicious" if other else None)


def _whitened_by_row(e: Evidence, found: Account) -> Finding | None:
    """Rewards whose standard deviation is 1 in each row by itself."""
    for reach in reaches(e):
        count = reach.sum(axis=1)
        rows = count >= 4
        kept = np.where(reach, found.rewards.column, 0.0)
        mean = kept.sum(axis=1) / np.maximum(count, 1)
        square = (np.where(reach, kept - mean[:, None], 0.0) ** 2).sum(axis=1)
        for bessel in (0, 1):
            unit = np.abs(np.sqrt(square / np.maximum(count - bessel, 1)) - 1) <= 2e-3
            if rows.sum() >= 4 and unit[rows].mean() > 0.9:
                return Finding(WHITENED_BY_ROW, "rewards")
    return None


def _not_whitened(e: Evidence, rewards: Floats) -> Iterator[Finding]:
    """Rewards that should be whitened and are not; log-probs may be too coarse to explain those that are."""
    slots = e.dump.columns["value_mask"].astype(bool) if e.has("value_mask") else e.attended
    deviation = float(rewards[slots].std())
    if slots.sum() >= 64 and abs(deviation - 1) > 0.05:
        yield Finding(NOT_WHITENED, "rewards", {"std": deviation})


def _implied(e: Evidence, rewards: Rewards) -> Iterator[Finding]:
    """That the rewards are derived, and with other γ and λ than the settings say if no others fit."""
    gamma, lam = either(rewards.gamma, 1.0), either(rewards.lam, 1.0)
    wanted = either(e.settings.gamma, gamma), either(e.settings.lam, lam) if e.has("values") else lam
    if max(abs(gamma - wanted[0]), abs(lam - wanted[1])) > 2e-3:
        said = {"gamma": gamma, "lam": lam, "wanted_gamma": wanted[0], "wanted_lam": wanted[1]}
        yield Finding(OTHER_SETTINGS, "returns", said)
    e.infer("gamma", gamma)
    if e.has("values"):
        e.infer("lam", lam)
    yield Finding(IMPLIED, "rewards", {"gamma": gamma, "lam": lam})


def _unexplained(e: Evidence, found: Account, where: Bools) -> Finding:
    y, left = found.taken[where], (found.taken - found.paid)[where]
    residual = float(np.sqrt((left @ left) / max(float(y @ y), 1e-300)))
    said = {"found": found.penalty.kind if found.penalty else "0", "residual": residual}
    held = found.taken + found.rewards.column
    places = e.places(where, held - found.paid, found.rewards.column)
    return Finding(REWARD_UNEXPLAINED, "rewards", said, places, share_of_rows(where, found.quiet))


def _judge_penalty(e: Evidence, found: Account) -> Iterator[Finding]:
    assert found.penalty is not None
    kind, way, wanted = found.penalty.kind, found.penalty.way, kl_name(e.settings.kl_estimator)
    beta = found.price if found.beta is None else found.beta
    said = {"beta": beta, "found": kind, "wanted": wanted}
    if found.weak or found.doubt > 0.5:
        return  # rounding hides it
    if way:
        classes = _CLASSES.get(way, KL_OTHER.classes)
        yield Finding(KL_OTHER, "rewards", said | phrase("way", way), _places(e, found), classes=classes)
    elif beta < 0:
        yield Finding(KL_SIGN, "rewards", said, _places(e, found))
    elif wanted and kind not in (wanted, STORED):
        same = _as_good(e, found, wanted)
        yield Finding(KL_ESTIMATOR, "rewards", said | {"found": " / ".join(same)})
    elif found.beta is not None and (given := _declared(e, beta, found.doubt)) is not None:
        yield _other_price(kind, beta, given)
    elif (gap := _two_prices(e)) is not None:
        yield Finding(KL_TWO_PRICES, "rewards", said | {"logged": gap[0], "wanted": gap[1]})
    else:
        yield Finding(KL_IN_REWARD, "rewards", said)


def _places(e: Evidence, found: Account) -> tuple[Place, ...]:
    """Tokens that hold the wrong penalty, and what they would with the KL of their own at the same price."""
    assert found.penalty is not None
    scores = finite(e["scores"]) if "scores" in e.dump.columns else np.zeros_like(found.taken)
    wrong = found.quiet & (np.abs(found.taken) > found.room)
    usual = usual_penalties(e)
    own = next((one for one in usual if one.kind == found.penalty.kind), usual[0] if usual else found.penalty)
    return e.places(wrong, scores - abs(found.price) * own.column, found.rewards.column)


def _as_good(e: Evidence, found: Account, wanted: str) -> list[str]:
    """The kinds that explain the rewards as well as the one that was chosen, at most three."""
    assert found.penalty is not None
    named = [found.penalty.kind]
    for one in usual_penalties(e):
        fit = fit_beta(Sample.of(found.taken, one, found.quiet, found.error), found.slack)
        if one.kind not in (wanted, STORED, *named) and fit.explained >= found.explained - 2e-3:
            named.append(one.kind)
    return named[:3]


def _declared(e: Evidence, beta: float, doubt: float) -> float | None:
    """The β that was given, if it is another one than the rewards show."""
    known = [x for x in (e.dump.scalars.get("kl_coef"), e.settings.beta) if x]
    return None if not known or any(abs(beta / x - 1) <= 0.01 + 2 * doubt for x in known) else float(known[-1])


def _two_prices(e: Evidence) -> tuple[float, float] | None:
    """The logged β and that of the settings, where they differ and no controller that moves it is declared."""
    logged, given = e.dump.scalars.get("kl_coef"), e.dump.settings.beta
    if not logged or not given or e.settings.kl_target is not None or e.settings.kl_horizon is not None:
        return None
    return None if abs(logged / given - 1) <= 0.01 else (logged, given)


def _other_price(kind: str, beta: float, given: float) -> Finding:
    ratio = beta / given
    why = next((key for x, key in _RATIOS.items() if abs(ratio / x - 1) < 5e-3), "audit.beta_other")
    classes = (25, 24) if why != "audit.beta_other" else None
    said = {"beta": beta, "wanted": given, "ratio": ratio, "found": kind}
    return Finding(KL_TWICE, "rewards", said | phrase("why", why), classes=classes)


# ── a KL that is declared and not there ────────────────────────────────────────────────────────────────────────────


def declared_absent(e: Evidence) -> bool:
    """Whether the settings price a KL in the reward, it would show, and the rewards hold none."""
    found, beta = account(e), e.dump.settings.beta
    if found is None or found.penalty is not None or found.moved is not None or found.weak or not beta or beta < 0:
        return False
    in_loss = bool(e.settings.kl_loss_coef) or bool(e.dump.scalars.get("kl_loss"))
    if in_loss or e.settings.kl_in_reward is False:
        return False
    wanted = kl_name(e.settings.kl_estimator)
    usual = usual_penalties(e)
    one = next((penalty for penalty in usual if penalty.kind == wanted), usual[0] if usual else None)
    if one is None:
        return False
    room = SPREADS * (found.error + beta * one.room)
    return int((found.quiet & (np.abs(beta * one.column) > room)).sum()) >= LEAST_TOKENS


def _absent(e: Evidence) -> Iterator[Finding]:
    if (summed := row_kl(e)) is not None:
        yield _row_kl(e, *summed)
        return
    if not declared_absent(e):
        return
    spec = ESTIMATORS.get(e.settings.estimator or "")
    level: Severity | None = "suspicious" if spec is not None and spec.grouped else None
    yield Finding(KL_ABSENT, "rewards", {"beta": e.dump.settings.beta}, severity=level)


def _row_kl(e: Evidence, penalty: Penalty, beta: float) -> Finding:
    """A row's KL on its last token: what estimators of whole responses do, and a mistake beside a critic."""
    meant = e.settings.estimator in KL_OF_A_RESPONSE or (e.settings.estimator is None and e.dump.source == "trl")
    level: Severity = "convention" if meant and not e.has("values") else "bug" if e.has("values") else "suspicious"
    values = {"beta": beta, "found": penalty.kind, **phrase("way", "audit.kl_on_last")}
    return Finding(KL_OTHER, "rewards", values, severity=level)


# ── rows and tokens apart from the rest ────────────────────────────────────────────────────────────────────────────


def _exceptions(e: Evidence, found: Account) -> Iterator[Finding]:
    """Tokens that do not follow the law of the others: what they follow instead."""
    off = exceptions(e, found)
    if (alone := overwritten(e)) is not None:  # said of the scores
        off = off & ~(alone[:, None] & (np.arange(e.mask.shape[1]) == e.last[:, None]))
    if not off.any() or found.moved is not None or _unknown_reference(e):
        return
    yield _unexplained(e, found, off) if found.penalty is None else _exception(e, found, off)


def _exception(e: Evidence, found: Account, off: Bools) -> Finding:
    assert found.penalty is not None
    share, places = share_of_rows(off, found.quiet), e.places(off, -found.paid, -found.taken)
    said = {"beta": found.price, "found": found.penalty.kind, "wanted": found.penalty.kind}
    clean = SPREADS * found.error + 1e-12
    if _most(np.abs(found.taken) <= clean, off):
        return Finding(KL_ABSENT, "rewards", {"beta": found.price}, places, share)
    if _most(np.abs(found.taken + found.paid) <= found.room, off):
        return Finding(KL_SIGN, "rewards", said | {"beta": -found.price}, places, share)
    held = np.abs(found.taken[off]) / abs(found.price)
    limit = float(np.median(held))
    if np.ptp(held) <= 1e-2 * limit and (np.abs(found.penalty.column[off]) > limit).all():
        return _clamped(e, found, limit, off)
    rows = off.any(axis=1, keepdims=True) & found.quiet
    where = rows if off.sum() > 0.5 * rows.sum() else off
    for one in (*usual_penalties(e), *other_penalties(e)):
        fit = fit_beta(Sample.of(found.taken, one, where, found.error))
        if where.sum() >= 4 and fit.explained >= GOOD and fit.beta:
            return _of_other(found, one, fit.beta, places, share)
    whole = off.sum() > 0.8 * rows.sum() and share <= 0.25  # rows whose log-probs or rewards are not theirs
    return replace(_unexplained(e, found, off), classes=(37, 22, 24)) if whole else _unexplained(e, found, off)


def _unknown_reference(e: Evidence) -> bool:
    """Whether the rewards may hold a KL and scores that nothing in the dump tells from each other."""
    return not usual_penalties(e) and "scores" not in e.dump.columns and e.settings.beta != 0


def _most(fits: Bools, off: Bools) -> bool:
    return bool(fits[off].mean() > 0.95)


def _clamped(e: Evidence, found: Account, limit: float, off: Bools) -> Finding:
    given = e.settings.kl_clamp
    other = given is not None and abs(limit / given - 1) > 0.02 if given else False
    own = given is None and e.dump.source in ("verl", "trl", "openrlhf")  # which have no such limit
    level: Severity | None = "suspicious" if other or own else None
    values = {"limit": limit, "found": found.penalty.kind if found.penalty else ""}
    return Finding(KL_CLAMP, "rewards", values, (), share_of_rows(off, found.quiet), severity=level)


def _of_other(found: Account, one: Penalty, beta: float, places: tuple[Place, ...], share: float) -> Finding:
    assert found.penalty is not None
    said = {"beta": beta, "found": one.kind, "wanted": found.penalty.kind}
    if one.way:
        classes = _CLASSES.get(one.way, KL_OTHER.classes)
        return Finding(KL_OTHER, "rewards", said | phrase("way", one.way), places, share, classes=classes)
    if one.kind == found.penalty.kind:
        return Finding(KL_TWICE, "rewards", _other_price(one.kind, beta, found.price).values, places, share)
    return Finding(KL_ESTIMATOR, "rewards", said, places, share)


def _on_every_token(e: Evidence, found: Account) -> Iterator[Finding]:
    """A number on every token of a row: its score, its score over its length, or one for all rows."""
    assert found.moved is not None
    moved, rows = found.moved[:, 0], found.quiet.sum(axis=1) >= 3
    room = 1e-4 * float(np.abs(moved).max(initial=0.0)) + 2 * float(np.median(found.room[found.quiet]))
    scores = outcomes(e)
    if scores is None and "scores" in e.dump.columns:
        scores = finite(e["scores"]).sum(axis=1)
    count = np.maximum(e.mask.sum(axis=1), 1)
    # where the scores of the tokens are stored, nothing but the KL should lie between them and the rewards
    level: Severity | None = "suspicious" if "scores" in e.dump.columns and e["scores"].any() else None
    if np.ptp(moved[rows]) <= 2 * room:
        yield Finding(TOKEN_BONUS, "rewards", {"level": float(np.median(moved[rows]))}, severity=level)
    elif scores is not None and (np.abs(moved - scores / count) <= room)[rows].mean() > 0.95:
        yield Finding(SCORE_SPREAD, "rewards", severity=level)
    else:
        places = e.places(found.quiet & rows[:, None], -found.paid, found.rewards.column)
        yield Finding(SCORE_BROADCAST, "rewards", {}, places)


def _behind_the_mask(e: Evidence, found: Account) -> Iterator[Finding]:
    stray = found.rewards.known & ~e.mask & (np.abs(found.taken) > _grain(found))
    scores = np.zeros_like(found.taken)
    if "scores" in e.dump.columns:
        scores, stray = finite(e["scores"]), stray & np.isfinite(e["scores"])
    else:  # a reward may be a score there
        stray = stray & leaks(e, found)
    if not stray.any():
        return
    fault = REWARD_MASKED
    if (leaks(e, found) | ~stray).mean(where=stray) > 0.9:
        pads = stray & ~e.attended & ~e.holes
        fault = KL_ON_PADS if pads.any() else KL_ON_TOOLS
    places = e.places(stray, scores, found.rewards.column)
    # one number everywhere, or one of the two log-probs: fills stand there
    filled = fault is KL_ON_PADS and (
        np.ptp(found.taken[stray]) <= 1e-6 * np.abs(found.taken[stray]).max()
        or any(np.ptp(e[name][stray]) == 0 for name in ("old_log_probs", "ref_log_probs") if name in e.dump.columns)
    )
    classes = (15, 28) if filled else None
    yield Finding(fault, "rewards", {}, places, float(stray.any(axis=1).mean()), classes=classes)


def _grain(found: Account) -> Floats:
    """Below this, a reward behind the mask is its score."""
    largest = float(np.abs(found.rewards.column[found.rewards.known]).max(initial=1e-12))
    return np.asarray(SPREADS * found.error + 2e-6 * largest)


CHECKS = (Check.of("K4 reward", ("rewards|returns", "old_log_probs|kl|scores|outcome"), composition),)
