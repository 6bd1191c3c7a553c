"""K10, the trainer against itself: the first mini-batch's ratio, importance weights, and the reference policy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit import edges, geometry, precision
from mingce.audit.alignment import align
from mingce.audit.evidence import Bools, Evidence, Floats, finite, once
from mingce.audit.finding import Check, Fault, Finding, phrase
from mingce.audit.identities import SURE, explained
from mingce.audit.strays import Stray, other_policies, strays
from mingce.audit.transforms import Transform, transform
from mingce.record.dump import LOSS

SAME = 1e-4  # log-probs this close are the same number
QUIET = 2e-3  # two forward passes of one model agree to about this
FEW_ROWS = 0.1  # of the rows: when more are out of line, the batch is
FEW = 20  # tokens from which a comparison that should be exact says something

# ── what can be wrong ──────────────────────────────────────────────────────────────────────────────────────────────

FIRST_RATIO = Fault.of("first-ratio", "bug", (17, 41), "ρ_t = 1 before the first update")
RATIO_PAIR = Fault.of("ratio-of-another-pair", "bug", (20,), "ρ_t = exp(log π − log π_old)")
IDLE_UPDATES = Fault.of("ratio-always-one", "suspicious", (20,), "ρ_t ≠ 1 once the policy has moved")
WEIGHT_PAIR = Fault.of("importance-weight-pair", "bug", (39,), "w_t = exp(log π_old(a_t) − log q(a_t)), cut from above")
TWO_CORRECTIONS = Fault.of(
    "corrected-twice", "bug", (39,), "ρ_t·w_t = π/π_old · π_old/q", "PrimeIntellect-ai/verifiers/pull/462"
)
REFERENCE_FOLLOWS = Fault.of(
    "reference-equals-policy", "suspicious", (22,),
    "log π_ref(a_t) ≠ log π_old(a_t) once the policy has moved", "huggingface/trl/issues/3194",
)  # fmt: skip
REFERENCE_OTHER = Fault.of("reference-is-another-model", "bug", (22,), "log π_ref(a_t) = log π_old(a_t) at step 0")
REFERENCE_SHIFTED = Fault.of(
    "reference-out-of-line", "bug", (18, 40), "log π_ref(a_t) and log π_old(a_t) are about the same token"
)


def comparable(e: Evidence, *names: str) -> Bools:
    """[B, T] chosen tokens on which every one of the columns holds a log-prob, without the few rows out of line."""
    use = _filled(e, *names)
    for found in stray_rows(e).values():
        use[[stray.row for stray in found]] = False
    return use


def _filled(e: Evidence, *names: str) -> Bools:
    """[B, T] chosen tokens on which every one of the columns holds a log-prob: finite, and no fill value."""
    use: Bools = e.mask & ~edges.not_drawn(e) & ~geometry.chosen_pads(e).any(axis=1, keepdims=True)
    for name in names:
        column = e[name]
        use &= np.isfinite(column) & (np.abs(column) < -precision.FARTHEST) & ~precision.fills(e, name)
        if not column[e.mask].any():
            use[:] = False
    return use


OTHERS = ("rollout_log_probs", "new_log_probs", "ref_log_probs")


@once
def transformed(e: Evidence) -> tuple[str, str, Transform] | None:
    """A column of log-probs that is a known function of another, and no log-prob itself: (column, other, function)."""
    if "old_log_probs" not in e.dump.columns or geometry.retokenised(e):
        return None
    present = [name for name in OTHERS if name in e.dump.columns]
    found: list[tuple[str, str, Transform]] = []
    for other in present:
        use = _filled(e, "old_log_probs", other)
        for column, by in (("old_log_probs", other), (other, "old_log_probs")):
            how = transform(only(e, column, use), only(e, by, use), use, other == "rollout_log_probs")
            if how is not None:
                found.append((column, by, how))
    mine = [one for one in found if one[0] == "old_log_probs"]
    if mine and (len(present) == 1 or len(mine) > 1):
        return mine[0]
    return next((one for one in found if one[0] != "old_log_probs"), mine[0] if mine else None)


@once
def stray_rows(e: Evidence) -> dict[str, list[Stray]]:
    """Where the old log-probs of a few rows are of other tokens than those of a column; none where many rows are."""
    found: dict[str, list[Stray]] = {}
    if "old_log_probs" not in e.dump.columns or geometry.retokenised(e) or transformed(e):
        return found
    ids = e.dump.columns.get("token_ids")
    for other in OTHERS:
        if other not in e.dump.columns:
            continue
        use = _filled(e, "old_log_probs", other)
        old, theirs = only(e, "old_log_probs", use), only(e, other, use)
        few = strays(old, theirs, use, ids)
        if not few and other == "rollout_log_probs":
            few = other_policies(old, theirs, use)
        if other == "ref_log_probs" or (other == "new_log_probs" and not _all_first(e)):
            # another policy: where it has moved far, nothing but an explanation counts
            few = [stray for stray in few if stray.kind in ("shift", "row", "order") or stray.shift]
        if few:
            lie = align(old, theirs, use)
            if lie.kind == "aligned" or lie.rows.sum() <= max(1.0, FEW_ROWS * int(use.any(axis=1).sum())):
                found[other] = few
    return found


def only(e: Evidence, name: str, use: Bools) -> Floats:
    """The column where `use`, 0 elsewhere: what stands there may be anything."""
    kept: Floats = np.where(use, e[name], 0.0)
    return kept


# ── first mini-batch ───────────────────────────────────────────────────────────────────────────────────────────────


def first_rows(e: Evidence) -> Bools | None:
    """[B] rows of the first mini-batch of the first epoch; None when the dump does not say."""
    if "minibatch" in e.dump.rows:
        first = np.array([one == 0 for one in e.row("minibatch")], bool)
        return first & np.array([one == 0 for one in e.row("epoch")], bool) if "epoch" in e.dump.rows else first
    return np.ones(len(e.mask), bool) if e.settings.first_minibatch else None


def _all_first(e: Evidence) -> bool:
    """Whether the dump says that no update came before any of its rows was gone through."""
    first = first_rows(e)
    return first is not None and bool(first.all())


def _first(e: Evidence) -> Bools | None:
    """[B, T] tokens of the first mini-batch on which the ratio must be 1."""
    if "new_log_probs" not in e.dump.columns or "old_log_probs" not in e.dump.columns:
        return None
    rows = first_rows(e)
    use = comparable(e, "old_log_probs", "new_log_probs") & rows[:, None] if rows is not None else None
    return use if use is not None and use.sum() >= FEW else None


def first_gap(e: Evidence) -> float:
    """Mean |log π − log π_old| on the first mini-batch; 0 when the dump does not say which it is."""
    use = _first(e)
    return float(np.abs(e["new_log_probs"][use] - e["old_log_probs"][use]).mean()) if use is not None else 0.0


def ratio_idle(e: Evidence) -> bool:
    """Whether the ratio is 1 on every token."""
    if "new_log_probs" in e.dump.columns and "old_log_probs" in e.dump.columns:
        use = comparable(e, "old_log_probs", "new_log_probs")
        return bool(use.sum() >= FEW and np.abs(e["new_log_probs"][use] - e["old_log_probs"][use]).max() < SAME)
    if "ratio" in e.dump.columns:
        return bool(e.mask.sum() >= FEW and np.abs(e["ratio"][e.mask] - 1).max() < SAME)
    return False


def first_ratio(e: Evidence) -> Iterator[Finding]:
    """The ratio on the first mini-batch, and what makes it differ from 1."""
    use = _first(e)
    if use is None or _blamed(e):
        return
    old, new = only(e, "old_log_probs", use), only(e, "new_log_probs", use)
    d = new - old
    size = np.abs(d[use])
    rounded = (e.grid("old_log_probs"), e.grid("new_log_probs"))
    slack = 0.003 * float(np.abs(old[use]).mean()) if any(rounded) else 0.0  # two roundings to 8 bits
    if size.mean() <= QUIET + slack:
        return
    e.blamed.add("new_log_probs")
    off = use & (np.abs(d) > 0.02)
    values = {"size": float(size.mean()), "largest": float(size.max())}
    places = e.places(off, old, new)
    if size.mean() <= 0.02 + slack and np.quantile(size, 0.99) <= 0.2 + 3 * slack:
        yield Finding(FIRST_RATIO, "new_log_probs", values | phrase("why", "audit.like_noise"), places, severity="note")
        return
    classes, why = _why(e, use, d)
    share = float(off.any(axis=1).sum() / use.any(axis=1).sum())
    yield Finding(FIRST_RATIO, "new_log_probs", values | phrase("why", why), places, share, classes=classes)


def _why(e: Evidence, use: Bools, d: Floats) -> tuple[tuple[int, ...], str]:
    """The classes, and the name of the sentence that says why."""
    old, new = only(e, "old_log_probs", use), only(e, "new_log_probs", use)
    lie = align(new, old, use)
    if lie.kind == "shift":
        return (17, 18), "audit.one_token_apart"
    if lie.kind in ("layout", "blocks", "rows", "unrelated"):
        return (17, 40), "audit.another_order"
    if padding(e, np.abs(d), use):
        return (13, 17), "audit.with_left_padding"
    causes = [old[use], np.exp(old[use])] + ([e["entropy"][use]] if e.has("entropy") else [])
    if use.sum() >= 200 and explained(d[use], *causes) > 0.6:
        return (2, 17), "audit.one_temperature"
    return (17, 41), "audit.like_dropout"


def _blamed(e: Evidence) -> bool:
    """Whether the trainer's own log-probs are already known to be of other tokens (K10 rollout runs first)."""
    return transformed(e) is not None or bool(e.blamed & {"old_log_probs", "ref_log_probs"})


def _left_pads(e: Evidence) -> Floats | None:
    """[B] slots before the prompt: as stored, or as a batch of these prompts has them when it is padded on the left."""
    if "left_pad" in e.dump.rows:
        return np.array([float(one) if one is not None else np.nan for one in e.row("left_pad")])
    if any(one is None for one in e.dump.rows.get("prompt_ids", [None])):
        return None
    lengths = np.array([float(len(one)) for one in geometry.unpadded_prompts(e)])
    return np.asarray(lengths.max(initial=0.0) - lengths)


def padding(e: Evidence, size: Floats, use: Bools) -> dict[str, float] | None:
    """Whether a gap follows the row's left padding: small without, several times as large with much of it."""
    pads = _left_pads(e)
    if pads is None:
        return None
    count = use.sum(axis=1)
    rows = (count >= 8) & np.isfinite(pads)
    if rows.sum() < 8 or len(np.unique(pads[rows])) < 3:
        return None
    level, pads = np.where(use, size, 0.0).sum(axis=1)[rows] / count[rows], pads[rows]
    r = float(np.corrcoef(level, pads)[0, 1]) if level.std() > 0 else 0.0
    z = r * np.sqrt(len(pads) - 2) / np.sqrt(max(1 - r * r, 1e-9))
    low, high = np.quantile(pads, [1 / 3, 2 / 3])
    small, large = float(level[pads <= low].mean()), float(level[pads >= high].mean())
    if z > SURE and r > 0.5 and large > 0.05 and large > 3 * small:
        return {"small": small, "large": large, "r": r, "z": float(z)}
    return None


def ratio_pair(e: Evidence) -> Iterator[Finding]:
    """A stored ratio that is not π/π_old: of which pair it is, if that can be told."""
    use = comparable(e, "new_log_probs", "old_log_probs") & e.loss_mask & np.isfinite(e["ratio"])
    use &= np.abs(finite(e["new_log_probs"]) - finite(e["old_log_probs"])) > 2e-3  # tokens that can tell
    if use.sum() < FEW or _blamed(e):
        return
    new, old = only(e, "new_log_probs", use), only(e, "old_log_probs", use)
    found, right = e["ratio"], new - old
    candidates: dict[str, tuple[Floats, tuple[int, ...]]] = {"exp(log π_old − log π)": (np.exp(-right), (39,))}
    candidates["log π − log π_old"] = (right, ())
    for other, symbol, classes in (("ref_log_probs", "log π_ref", (20,)), ("rollout_log_probs", "log q", (20, 39))):
        if other in e.dump.columns:
            theirs = only(e, other, use)
            candidates[f"exp(log π − {symbol})"] = (np.exp(np.clip(new - theirs, -20, 20)), classes)
            candidates[f"exp(log π_old − {symbol})"] = (np.exp(np.clip(old - theirs, -20, 20)), classes)

    def fits(wanted: Floats) -> float:
        return float((np.abs(found - wanted) < 2e-3 * (1 + np.abs(wanted)))[use].mean())

    if fits(np.exp(right)) > 0.5:
        return
    best = max(candidates, key=lambda name: fits(candidates[name][0]))
    if fits(candidates[best][0]) > 0.95:
        wanted = np.exp(right)
        places = e.places(use & (np.abs(found - wanted) > 0.01), wanted, found)
        yield Finding(RATIO_PAIR, "ratio", {"found": best}, places, classes=candidates[best][1])


def idle(e: Evidence) -> Iterator[Finding]:
    """A ratio of 1 on every token of a step that made several updates: its denominator moves along."""
    several = (e.settings.ppo_epochs or 1) > 1 or len({str(one) for one in e.dump.rows.get("minibatch", [])}) > 1
    step = e.dump.step if e.settings.step is None else e.settings.step
    early = step is not None and int(step) <= 1  # a warm-up from 0 moves nothing
    moves = e.dump.holds(LOSS) and bool(e[LOSS][e.mask].any())
    first = first_rows(e)
    early |= first is not None and bool(first.all())  # nothing was updated before
    early |= e.dump.source == "trl_grpo" and "epoch" not in e.dump.rows  # may be the first pass over its answers
    if several and moves and not early and e.dump.source != "mingce" and ratio_idle(e):
        yield Finding(IDLE_UPDATES, "new_log_probs")


# ── importance weights ─────────────────────────────────────────────────────────────────────────────────────────────


def weights(e: Evidence) -> Iterator[Finding]:
    """Which log-probs the importance weight is made of; a cut from above (or below) and a common factor are fine."""
    names = ["old_log_probs", "rollout_log_probs"] + ["new_log_probs"] * ("new_log_probs" in e.dump.columns)
    use = comparable(e, *names)
    w = e["importance_weights"]
    use &= np.isfinite(w) & (w > 0)
    if use.sum() < FEW:
        return
    w, old, drawn = (only(e, name, use) for name in ("importance_weights", "old_log_probs", "rollout_log_probs"))
    new = only(e, "new_log_probs", use) if len(names) == 3 else old
    use &= (w < w[use].max() - SAME) & (w > w[use].min() + SAME)  # what a cut left alone
    candidates = {"exp(log π_old − log q)": old - drawn, "exp(log q − log π_old)": drawn - old}
    if len(names) == 3:
        candidates |= {"exp(log π − log q)": new - drawn, "exp(log π − log π_old)": new - old}
    right = old - drawn
    found = np.log(np.where(use, w, 1.0))
    slack = (
        (0.01 + 0.01 * np.abs(old))
        if e.grid("importance_weights") or e.grid("old_log_probs")
        else np.full(w.shape, 1e-3)
    )
    best, best_fit, right_fit = "", 0.0, _fit(found, right, use, slack)
    for name, candidate in list(candidates.items())[1:]:
        apart = use & (np.abs(candidate - right) > 4 * slack)  # only these can tell the two from one another
        fit = _fit(found, candidate, apart, slack) if apart.sum() >= FEW else 0.0
        if fit > best_fit and _fit(found, right, apart, slack) < 0.5:
            best, best_fit = name, fit
    if best_fit >= 0.9:
        wrong = use & (np.abs(found - right) > 4 * slack)
        places = e.places(wrong, np.exp(np.clip(right, -50, 50)), w)
        yield Finding(WEIGHT_PAIR, "importance_weights", {"fit": best_fit, "found": best}, places)
    elif right_fit >= 0.9 and len(names) == 3 and "ratio" in e.dump.columns:
        seen = use & (np.abs(right) > 4 * slack) & (e["ratio"] > 0)
        ratio = np.log(np.where(seen, e["ratio"], 1.0))
        if seen.sum() >= FEW and _fit(ratio, new - drawn, seen, slack, False) >= 0.95:
            yield Finding(TWO_CORRECTIONS, "ratio")


def _fit(found: Floats, wanted: Floats, use: Bools, slack: Floats, scaled: bool = True) -> float:
    """Share of tokens on which `found` is `wanted`, up to one common constant if `scaled`."""
    rest = (found - wanted)[use]
    if not len(rest):
        return 0.0
    plain = float((np.abs(rest) < slack[use]).mean())
    return max(plain, float((np.abs(rest - np.median(rest)) < slack[use]).mean())) if scaled else plain


# ── reference ──────────────────────────────────────────────────────────────────────────────────────────────────────


def reference(e: Evidence) -> Iterator[Finding]:
    """Whether the reference can be the policy as it was when training began."""
    use = comparable(e, "old_log_probs", "ref_log_probs")
    if use.sum() < FEW or _blamed(e) or geometry.retokenised(e):
        return
    old, ref = only(e, "old_log_probs", use), only(e, "ref_log_probs", use)
    lie = align(old, ref, use)
    if lie.kind in ("shift", "blocks"):
        e.blamed.add("ref_log_probs")
        shift = lie.kind == "shift"
        what = phrase("what", "audit.a_shift" if shift else "audit.moving_blocks", by=lie.shift)
        values = {"before": lie.correlation, "after": lie.repaired, **what}
        places = e.places(use & (np.abs(old - ref) > 0.3), old, ref)
        yield Finding(REFERENCE_SHIFTED, "ref_log_probs", values, places, classes=(18,) if shift else (40,))
        return
    step = e.dump.step if e.settings.step is None else e.settings.step
    if step is None or lie.kind != "aligned":
        return
    step = int(step)
    size = np.abs(old - ref)[use]
    moving = "new_log_probs" in e.dump.columns and not ratio_idle(e)
    if step > 1 and size.max() < 1e-6 and moving and not of_the_first_policy(e):
        yield Finding(REFERENCE_FOLLOWS, "ref_log_probs", {"step": step})
    elif step <= 1 and size.mean() > 0.1:
        values = {"step": step, "size": float(size.mean())}
        places = e.places(use & (np.abs(old - ref) > 0.3), old, ref)
        yield Finding(
            REFERENCE_OTHER,
            "ref_log_probs",
            values,
            places,
            severity=None if step == 0 and size.mean() > 0.3 else "suspicious",
        )


def of_the_first_policy(e: Evidence) -> bool:
    """Whether the rows were drawn before any update: a later step may go through them again."""
    versions = e.dump.rows.get("policy_version")
    return versions is not None and all(one == 0 for one in versions)


CHECKS: tuple[Check, ...] = (
    Check.of("K10 first ratio", ("old_log_probs", "new_log_probs", "minibatch|first_minibatch"), first_ratio),
    Check.of("K10 ratio", ("ratio", "new_log_probs", "old_log_probs"), ratio_pair),
    Check.of("K10 idle", ("old_log_probs", "new_log_probs"), idle),
    Check.of("K10 weights", ("importance_weights", "old_log_probs", "rollout_log_probs"), weights),
    Check.of("K10 reference", ("old_log_probs", "ref_log_probs"), reference),
)  # fmt: skip
