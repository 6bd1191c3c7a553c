"""The policy losses that trainers have, as token terms [B, T]: PPO's, those under other names, and wrong ones.

Names are verl's and TRL's. What needs a setting that no dump has is computed with the framework's default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from mingce.audit.aggregation import LOSS_TYPES, Terms, Way, Words, clip_range, number
from mingce.audit.aggregation import rounding as rounding_of
from mingce.audit.evidence import Bools, Evidence, Floats, either, finite, shift
from mingce.base.texts import sentence_pair
from mingce.record.dump import LOSS, RAW

MAX_LOG_RATIO, MAX_SEQUENCE_LOG_RATIO = 20.0, 10.0
DUAL_CLIP, DIVERGENCE_CAP = 3.0, 20.0  # verl's defaults
CLIPS = ((0.2, 0.2), (0.2, 0.28), (0.1, 0.1), (0.3, 0.3))  # usual ε, where no setting tells
LOWER, UPPER = (0.1, 0.15, 0.2, 0.25, 0.3), (0.1, 0.15, 0.2, 0.22, 0.24, 0.25, 0.28, 0.3, 0.35, 0.4)
SEQUENCE_CLIPS = ((3e-4, 4e-4), *CLIPS)
SOFT = (1.0, 1.05)  # SAPO's temperatures of good and of bad tokens
COVARIANCE = 2e-4  # the share of tokens that KL-Cov prices
OWN_TYPES = ("cispo", "vespo", "sapo", "luspo")  # TRL's types that are another loss, not only another average
PPO = ("ppo", "vanilla", "cpi", *(name for name in LOSS_TYPES if name not in OWN_TYPES))  # one loss of several names


EXACT = ("gspo", "cispo")  # losses of TRL's beside PPO's of which its settings tell all


def exact(e: Evidence) -> bool:
    """Whether the settings are a TRL trainer's own, so that each loss is one formula and not one of several."""
    return e.dump.source == "trl_grpo" and e.settings.policy_loss is not None


@dataclass(frozen=True)
class Objective:
    """One policy loss of the dump's columns."""

    name: str  # in the trainers' settings
    words: Words
    terms: Terms
    mode: str | None = None  # the only aggregation that it is made with
    classes: tuple[int, ...] = ()  # of a wrong one


class Inputs:
    """What the losses are made of."""

    def __init__(self, e: Evidence, seen: Mapping[str, Bools]):
        self.e, self.seen, self.mask = e, seen, seen["loss"]
        self.new, self.old, self.advantages = finite(e["new_log_probs"]), finite(e["old_log_probs"]), finite(e[LOSS])
        self.kept = high_entropy(e, self.mask)
        self.coarse = any(rounding_of(e, name) > 1e-4 for name in ("new_log_probs", "old_log_probs", LOSS))
        self.rounding: Floats = (
            rounding_of(e, LOSS)
            + rounding_of(e, "old_log_probs") * np.abs(self.old)
            + rounding_of(e, "new_log_probs") * np.abs(self.new)
        )
        self.log_ratio = np.clip(self.new - self.old, -MAX_LOG_RATIO, MAX_LOG_RATIO)
        self.ratio: Floats = np.exp(self.log_ratio)
        low, high = clip_range(e)
        told = low is not None or high is not None
        counted = () if told else self._counted()
        self.given = told or bool(counted)
        self.clips = ((either(low, 0.2), either(high, 0.2)),) if told else tuple(dict.fromkeys((*counted, *CLIPS)))

    def _counted(self) -> tuple[tuple[float, float], ...]:
        """The bounds that give the logged share of clipped tokens; none where nothing was clipped."""
        found, total = self.e.dump.scalars.get("pg_clipfrac", 0.0), int(self.mask.sum())
        if not 0 < found < 1 or not total:
            return ()
        up, down = (self.ratio * (self.mask & side) for side in (self.advantages > 0, self.advantages < 0))
        above = {high: int((up > 1 + high).sum()) for high in UPPER}
        below = {low: int(((down < 1 - low) & (down > 0)).sum()) for low in LOWER}
        return tuple(
            (low, high) for low in LOWER for high in UPPER if abs((above[high] + below[low]) / total - found) < 1e-6
        )

    def terms(self, matrix: Floats) -> Terms:
        kept = matrix if self.kept is None else np.where(self.kept, matrix, 0.0)
        return Terms(kept, np.abs(kept) * self.rounding, self.seen)

    def clipped(self, ratio: Floats, low: float, high: float, advantages: Floats | None = None) -> Floats:
        """max(−Â·ρ, −Â·clip(ρ))."""
        a = self.advantages if advantages is None else advantages
        kept: Floats = np.maximum(-a * ratio, -a * np.clip(ratio, 1 - low, 1 + high))
        return kept

    def row_mean(self, x: Floats) -> Floats:
        """[B, 1] over the loss's tokens."""
        count = np.maximum(self.mask.sum(axis=1, keepdims=True), 1)
        mean: Floats = np.where(self.mask, x, 0.0).sum(axis=1, keepdims=True) / count
        return mean


def high_entropy(e: Evidence, mask: Bools) -> Bools | None:
    """[B, T] the tokens of the highest entropies of their micro-batch, where the loss keeps a share of them only."""
    share = e.settings.entropy_share or 1.0
    if share >= 1 or not e.has("entropy"):
        return None
    entropy, kept = finite(e["entropy"]), np.zeros_like(mask)
    parts = e.row("micro_batch") if "micro_batch" in e.dump.rows else [0] * len(mask)
    for part in set(parts):
        rows = np.array([one == part for one in parts])[:, None] & mask
        if rows.any():
            kept |= rows & (entropy >= np.quantile(entropy[rows], 1 - share))
    return kept


def usual(given: Inputs) -> Iterator[Objective]:
    """PPO's loss: the one that the settings tell, or with the second clip or without, weighted or not clipped."""
    if exact(given.e):
        yield Objective("ppo", sentence_pair("audit.clipped"), given.terms(_declared(given)))
        return
    e, a = given.e, given.advantages
    weights = e["importance_weights"] if e.has("importance_weights") else None
    for low, high in given.clips:
        clipped = given.clipped(given.ratio, low, high)
        if e.settings.ratio_cap:
            held = np.minimum(given.ratio, e.settings.ratio_cap)
            both = np.maximum(-a * held, -a * np.clip(given.ratio, 1 - low, 1 + high))
            yield Objective("ppo", sentence_pair("audit.clipped"), given.terms(both))
        dual = np.where(a < 0, np.minimum(clipped, -(e.settings.dual_clip or DUAL_CLIP) * a), clipped)
        yield Objective("ppo", sentence_pair("audit.clipped"), given.terms(clipped))
        yield Objective("ppo", sentence_pair("audit.dual_clipped"), given.terms(dual))
        if weights is not None:
            yield Objective("ppo", sentence_pair("audit.clipped_weighted"), given.terms(clipped * weights))
            yield Objective("ppo", sentence_pair("audit.clipped_weighted"), given.terms(dual * weights))
    yield Objective("cpi", sentence_pair("audit.not_clipped"), given.terms(-a * given.ratio))


def _declared(given: Inputs, ratio: Floats | None = None, weighted: bool = True, capped: bool = True) -> Floats:
    """PPO's terms with all that TRL's settings say: both clips, the largest ratio, the weights."""
    e, a, ratio = given.e, given.advantages, given.ratio if ratio is None else ratio
    (low, high), cap = given.clips[0], e.settings.ratio_cap
    held = np.minimum(ratio, cap) if cap and capped else ratio
    made: Floats = np.maximum(-a * held, -a * np.clip(ratio, 1 - low, 1 + high))
    return made * e["importance_weights"] if weighted and e.has("importance_weights") else made


def dual_clip_alone(given: Inputs) -> Objective:
    """The second clip without the first."""
    a = given.advantages
    plain = -a * given.ratio
    dual = np.where(a < 0, np.minimum(plain, -(given.e.settings.dual_clip or DUAL_CLIP) * a), plain)
    return Objective("ppo", sentence_pair("audit.not_clipped"), given.terms(dual))


def called(given: Inputs, name: str) -> Iterator[Objective]:
    """The losses of that name."""
    return (one for one in (*others(given), *one_dropped(given)) if one.name == name)


def others(given: Inputs) -> Iterator[Objective]:
    """The losses that are not PPO's own, and may be meant."""
    made = [*_of_tokens(given), *_of_sequences(given)]
    e = given.e
    if not (exact(e) and e.has("importance_weights")):
        yield from (_named(given, name, matrix, mode) for name, matrix, mode in made)
    if e.has("importance_weights"):
        weights = e["importance_weights"]
        yield from (_named(given, name, matrix * weights, mode) for name, matrix, mode in made)
    if e.has("rollout_log_probs"):  # verl's bypass mode: the sampler's log-probs are the old ones
        ratio = np.exp(np.clip(given.new - finite(e["rollout_log_probs"]), -MAX_LOG_RATIO, MAX_LOG_RATIO))
        for low, high in given.clips:
            yield _named(given, "bypass_mode", given.clipped(ratio, low, high), None)
    price = number(e, "kl_loss_coef") or number(e, "beta")
    if price and e.has("ref_log_probs"):  # TRL's loss has the KL in it
        x = np.clip(finite(e["ref_log_probs"]) - given.new, -MAX_LOG_RATIO, MAX_LOG_RATIO)
        kl = price * (np.expm1(x) - x)
        for objective in usual(given):
            words = sentence_pair("audit.with_kl", loss=objective.words)
            yield Objective("ppo", words, given.terms(objective.terms.matrix + kl))
        yield from (_named(given, name, matrix + kl, mode) for name, matrix, mode in made)
    yield from _soft_divergence(given)


def _soft_divergence(given: Inputs) -> Iterator[Objective]:
    """DRO's loss, whose β no dump has: it is recognised where it comes out as a number that people write."""
    found, log_ratio = given.e.dump.scalars.get("pg_loss"), given.new - given.old
    if found is None:
        return
    plain, square = -given.advantages * given.new, 0.5 * log_ratio**2
    base, slope = (np.where(given.mask, x, 0.0).sum(axis=1) for x in (plain, square))
    count = np.maximum(given.mask.sum(axis=1), 1).astype(np.float64)
    rows = float(max(int(given.mask.any(axis=1).sum()), 1))
    for weights in (1 / (count.sum() + 0 * count), 1 + 0 * count, 1 / (rows + 0 * count), 1 / (rows * count)):
        weight = float(weights @ slope)
        beta = (found - float(weights @ base)) / weight if weight > 1e-9 else 0.0
        if beta <= 0:
            continue
        written, size = float(f"{beta:.1e}"), float(weights @ np.abs(base))
        room = 3e-6 * size / weight + 1e-6 * beta
        apart = 10.0 ** (np.floor(np.log10(beta)) - 1)  # between two numbers that people write
        sure = given.e.settings.policy_loss == "dro" or room < 1e-4 * apart
        if sure and abs(beta - written) < min(2e-3 * beta, room):
            yield _named(given, "dro", plain + written * square, None)


@dataclass
class Dropped(Terms):
    """Terms of which one is left out, no one knows which: Clip-Cov draws among those of a middle covariance."""

    candidates: Bools = field(default_factory=lambda: np.zeros((0, 0), bool))

    def fits(self, way: Way, logged: float) -> bool:
        if super().fits(way, logged):
            return True
        rows, slots = np.nonzero(self.candidates)
        without = self.number(way) - way.weights[rows] * self.matrix[rows, slots]
        return bool((np.abs(without - logged) <= 3e-6 * self.size(way) + 1e-6 * abs(logged)).any())


def one_dropped(given: Inputs) -> Iterator[Objective]:
    """Clip-Cov of a batch in which it leaves out one token."""
    mask, a, new = given.mask, given.advantages, given.new
    if not 0 < int(mask.sum()) * COVARIANCE < 2:
        return
    covariance = (a - a[mask].mean()) * (new - new[mask].mean())
    middle = mask & (covariance > 1.0) & (covariance < 5.0)
    for low, high in given.clips:
        matrix = given.clipped(given.ratio, low, high)
        terms = Dropped(matrix, np.abs(matrix) * given.rounding, given.seen, candidates=middle)
        yield Objective("clip_cov", ("clip_cov", "clip_cov"), terms)


def _named(given: Inputs, name: str, matrix: Floats, mode: str | None) -> Objective:
    return Objective(name, (name, name), given.terms(matrix), mode)


def _of_tokens(given: Inputs) -> Iterator[tuple[str, Floats, str | None]]:
    new, a, ratio = given.new, given.advantages, given.ratio
    yield "gpg", -a * new, None
    if exact(given.e):
        yield "cispo", -a * new * np.minimum(ratio, given.clips[0][1]), None  # TRL's is no distance from 1
        return
    yield "cispo", -a * new * ratio, None  # TRL's bound lies far above
    for low, high in given.clips:
        yield "cispo", -a * new * np.clip(ratio, 1 - low, 1 + high), None
        yield "cispo", -a * new * np.minimum(ratio, 1 + high), None
        yield "cispo", -a * new * np.minimum(ratio, max(high, 1.0)), None
        for name, kept in _within(given, low, high):
            yield name, -a * np.minimum(ratio, DIVERGENCE_CAP) * new * kept, None
    soft = np.where(a > 0, *SOFT)
    yield "sapo", -a * 4 / soft / (1 + np.exp(-soft * (ratio - 1))), "seq-mean-token-mean"
    for coefficient in (0.1, 1.0):
        yield "kl_cov", _priced(given, coefficient), None


def _within(given: Inputs, low: float, high: float) -> Iterator[tuple[str, Bools]]:
    """The tokens that DPPO keeps: those whose probability has not moved too far in the direction of Â."""
    p, before, good = np.exp(given.new), np.exp(given.old), given.advantages > 0
    yield "dppo_tv", np.where(good, p - before <= high, p - before >= -low)
    with np.errstate(all="ignore"):
        kl = before * (given.old - given.new) + (1 - before) * np.log((1 - before + 1e-8) / (1 - p + 1e-8))
    yield "dppo_kl", np.where(good, (kl <= high) | (p <= before), (kl <= low) | (p >= before))


def _priced(given: Inputs, coefficient: float) -> Floats:
    """KL-Cov: |log ρ| is paid on the tokens whose advantage and log-prob go together most."""
    mask, a, new = given.mask, given.advantages, given.new
    matrix: Floats = -a * given.ratio
    total = int(mask.sum())
    if not total:
        return matrix
    covariance = np.where(mask, (a - a[mask].mean()) * (new - new[mask].mean()), -np.inf)
    top = np.argpartition(-covariance.ravel(), max(1, int(total * COVARIANCE)) - 1)[: max(1, int(total * COVARIANCE))]
    matrix.ravel()[top] += coefficient * np.abs(given.new - given.old).ravel()[top]
    return matrix


def _of_sequences(given: Inputs) -> Iterator[tuple[str, Floats, str | None]]:
    new, a, spread = given.new, given.advantages, np.ones_like(given.new)
    mean = given.row_mean(given.new - given.old)
    whole = np.exp(np.minimum(mean, MAX_SEQUENCE_LOG_RATIO)) * spread
    if exact(given.e):
        yield "gspo", _declared(given, whole, weighted=False), None
        return
    for low, high in given.clips if given.given else SEQUENCE_CLIPS:
        yield "gspo", given.clipped(whole, low, high), None
        sign, log_ratio = np.sign(a), given.new - given.old
        held = sign * np.minimum(sign * log_ratio, sign * np.clip(log_ratio, -low, high))
        yield "geo_mean", -given.row_mean(a) * np.exp(given.row_mean(held)) * spread, "seq-mean-token-mean"
    soft = np.where(a > 0, *SOFT)
    yield "sapo", -a * 4 / soft / (1 + np.exp(-soft * (whole - 1))), "seq-mean-token-mean"
    total = np.clip(np.where(given.mask, given.log_ratio, 0.0).sum(axis=1, keepdims=True), np.log(1e-8), 20.0)
    k, rate = np.where(a >= 0, 2.0, 3.0), np.where(a >= 0, 3.0, 2.0)
    yield "vespo", -a * new * np.exp(rate + k * total - rate * np.exp(total)), "token-mean"


def wrong(given: Inputs) -> Iterator[Objective]:
    """Losses that nobody means: another ratio, other bounds, another sign."""
    e, a = given.e, given.advantages
    for key, matrix, classes in _mistakes(given):
        capped = np.where(a < 0, np.minimum(matrix, -(e.settings.dual_clip or DUAL_CLIP) * a), matrix)
        for one in (matrix, capped):
            yield Objective("", sentence_pair(key), given.terms(one), classes=classes)
    if exact(e):
        for key, matrix, classes in _left_out(given):
            yield Objective("", sentence_pair(key), given.terms(matrix), classes=classes)
    if given.kept is not None:
        for key, matrix in (("left_out", _declared(given)), ("turned", np.where(given.kept, 0.0, _declared(given)))):
            terms = Terms(matrix, np.abs(matrix) * given.rounding, given.seen)
            yield Objective("", sentence_pair(f"audit.entropy_mask_{key}"), terms)


def _left_out(given: Inputs) -> Iterator[tuple[str, Floats, tuple[int, ...]]]:
    """The loss of the settings without one of its parts."""
    e, weights = given.e, given.e["importance_weights"] if given.e.has("importance_weights") else 1.0
    yield "audit.not_clipped", -given.advantages * given.ratio * weights, ()
    if e.settings.ratio_cap:
        yield "audit.cap_left_out", _declared(given, capped=False), ()
    if e.has("importance_weights"):
        yield "audit.weights_left_out", _declared(given, weighted=False), (39,)


def _mistakes(given: Inputs) -> Iterator[tuple[str, Floats, tuple[int, ...]]]:
    """(the sentence, the terms without a second clip, the classes) of each mistake."""
    e, a, ratio = given.e, given.advantages, given.ratio
    for low, high in given.clips:
        right, near = given.clipped(ratio, low, high), -a * np.clip(ratio, 1 - low, 1 + high)
        if low != high:
            yield "audit.bounds_swapped", given.clipped(ratio, high, low), ()
        yield "audit.sign_turned", -right, ()
        yield "audit.sign_turned", np.where(a < 0, -np.minimum(right, -DUAL_CLIP * a), -right), ()
        yield "audit.sign_turned", given.clipped(ratio, low, high, -a), ()
        yield "audit.smaller_taken", np.minimum(-a * ratio, near), ()
        yield "audit.always_clipped", near, ()
        yield "audit.clip_of_log", np.maximum(-a * ratio, -a * np.exp(np.clip(given.log_ratio, -low, high))), ()
        yield "audit.ratio_inverted", given.clipped(1 / ratio, low, high), (39,)
        yield "audit.ratio_without_exp", given.clipped(given.log_ratio, low, high), ()
        yield "audit.ratio_linearised", given.clipped(1 + given.log_ratio, low, high), ()
        yield "audit.ratio_squared", given.clipped(ratio**2, low, high), ()
        yield "audit.ratio_root", given.clipped(np.sqrt(ratio), low, high), ()
        yield "audit.clip_above_only", np.maximum(-a * ratio, -a * np.minimum(ratio, 1 + high)), ()
        yield "audit.clip_below_only", np.maximum(-a * ratio, -a * np.maximum(ratio, 1 - low)), ()
        yield "audit.advantages_magnitude", given.clipped(ratio, low, high, np.abs(a)), ()
        for by, key in ((1, "audit.advantages_of_next"), (-1, "audit.advantages_of_previous")):
            yield key, given.clipped(ratio, low, high, shift(a, by)), (18,)
        if e.has("rollout_log_probs"):
            away = np.exp(np.clip(given.new - finite(e["rollout_log_probs"]), -MAX_LOG_RATIO, MAX_LOG_RATIO))
            yield "audit.ratio_to_sampler", given.clipped(away, low, high), (20,)
        if e.has("ref_log_probs"):
            away = np.exp(np.clip(given.new - finite(e["ref_log_probs"]), -MAX_LOG_RATIO, MAX_LOG_RATIO))
            yield "audit.ratio_to_reference", given.clipped(away, low, high), (20,)
        if e.dump.name_of(RAW) not in ("", e.dump.name_of(LOSS)):
            yield "audit.raw_advantages_used", given.clipped(ratio, low, high, finite(e[RAW])), ()
    yield "audit.ratio_of_one", -a, ()
    yield "audit.log_prob_loss", -a * given.new, ()
    if e.has("returns"):
        low, high = given.clips[0]
        yield "audit.returns_for_advantages", given.clipped(ratio, low, high, finite(e["returns"])), (33,)
