"""K15: what shows only when the steps of a run stand beside each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mingce.audit import edges
from mingce.audit.evidence import Evidence, Floats
from mingce.audit.finding import Fault, Finding, Place, Severity
from mingce.audit.kl_places import REFERENCE_HERE
from mingce.base.texts import sentence_pair
from mingce.record.dump import Dump
from mingce.specs.settings import DumpSettings

GROWTH = 4.0  # times: below it, a gap between sampler and trainer may grow as the policy sharpens
LEAST_FIRST = 8  # first tokens that two steps have in common
MANY = 3  # steps after which a policy has left its reference
LEAST_GAP = 0.01  # nats, mean |old − rollout|

GAP_JUMP = Fault.of(
    "rollout-gap-jump", "suspicious", (6,), "mean_m |log π_old − log π_rollout| ≈ engine noise at every step"
)
GAP_TREND = Fault.of(
    "rollout-gap-trend", "suspicious", (6,), "mean_m |log π_old − log π_rollout| ≈ engine noise at every step"
)
WEIGHTS_STUCK = Fault.of(
    "rollout-weights-stuck", "bug", (6,), "version of the sampler follows the learner's", "NovaSky-AI/SkyRL/issues/1680"
)
IDLE_CLIP = Fault.of("idle-clip-growth", "suspicious", (20,), "ρ = π_new / π_behaviour")
REF_ALIAS = Fault.of(
    "reference-follows-policy", "suspicious", (22,),
    "log π_old − log π_ref ≠ 0 once the policy has moved", "huggingface/trl/issues/3194",
)  # fmt: skip
ADAPTIVE_KL = Fault.of(
    "adaptive-kl", "bug", (43,), "β' = β·(1 + clip(KL/target − 1, ±0.2)·n/horizon), KL = mean_m x, n = rows"
)
ADAPTIVE_KL_UNKNOWN = Fault.of(
    "adaptive-kl-no-fit", "suspicious", (43,),
    "β' = β·(1 + clip(KL/target − 1, ±0.2)·n/horizon), KL = mean_m x, n = rows",
)  # fmt: skip
STUCK_BATCH = Fault.of(
    "stuck-batch", "suspicious", (48,), "prompts of step k ≠ prompts of step k+1", "google/tunix/issues/2288"
)
SAME_ROLLOUTS = Fault.of("rollouts-repeated", "suspicious", (48,), "rollouts of step k ≠ rollouts of step j")
UPDATE_LOST = Fault.of("update-lost", "suspicious", (6,), "log π_old of step k + 1 = log π after step k", "")
RESTARTED = Fault.of("data-restarted", "suspicious", (48,), "the order of prompts goes on after a resume")


@dataclass(frozen=True)
class Step:
    """What of one step is needed beside the others; the dump itself need not stay in memory."""

    number: int
    rollout_gap: float | None  # mean |old − rollout| over chosen tokens
    moved: float | None  # mean |new − old|
    ref_gap: float | None  # mean |old − ref|
    sampled: float | None  # version of the weights that sampled
    settings: DumpSettings
    scalars: dict[str, float]
    kls: dict[str, float]  # numbers that a controller may receive, by their names in the texts; _MASKED are right
    counts: dict[str, float]
    coarse: bool
    prompts: Counter[Any] | None
    first_tokens: dict[tuple[Any, ...], float]  # log-prob of a first token, by prompt and token
    rollouts: frozenset[tuple[float, ...]]  # what nobody draws twice: rows by their tokens and log-probs

    @classmethod
    def of(cls, number: int, dump: Dump) -> Step:
        e = Evidence(dump)
        logs = [n for n in ("old_log_probs", "ref_log_probs", "kl") if n in dump.columns]
        with np.errstate(all="ignore"):
            return cls(
                number,
                _mean_gap(e, "old_log_probs", "rollout_log_probs"),
                _mean_gap(e, "new_log_probs", "old_log_probs"),
                _mean_gap(e, "old_log_probs", "ref_log_probs"),
                _sampling_version(e),
                dump.settings,
                dict(dump.scalars),
                _kls(e),
                {_ROLLOUTS: float(len(e.mask)), "audit.count_steps": 1.0, "audit.count_tokens": float(e.mask.sum())},
                any(e.grid(name) for name in logs),
                _prompts(dump),
                _first_tokens(e),
                frozenset(edges.fingerprints(e).values()),
            )


def audit_steps(dumps: Iterable[Dump]) -> list[Finding]:
    """What a run's steps say together; a dump is let go before the next. Of two dumps of a step the first counts."""
    steps: dict[int, Step] = {}
    for place, dump in enumerate(dumps):
        own_number = dump.step if dump.step is not None else dump.settings.step
        number = int(own_number) if isinstance(own_number, int | float) and np.isfinite(own_number) else place
        if number not in steps:
            steps[number] = Step.of(number, dump)
    return judge_steps(steps)


def judge_steps(steps: Mapping[int, Step]) -> list[Finding]:
    """What steps say together, by their numbers."""
    run = [steps[number] for number in sorted(steps)]
    families = (rollout_gap, versions, standing_still, reference, adaptive_kl, repeated_prompts, repeated_rollouts)
    return [finding for family in families for finding in family(run)]


def _mean_gap(e: Evidence, one: str, two: str) -> float | None:
    if not e.has(one, two):
        return None
    gap = np.abs(e[one] - e[two])[e.mask]
    gap = gap[np.isfinite(gap)]
    return float(gap.mean()) if len(gap) else None


# ── 6, 20: sampler against trainer ─────────────────────────────────────────────────────────────────────────────────


def rollout_gap(run: list[Step]) -> Iterator[Finding]:
    """A jump of mean |old − rollout| that stays, or its growth."""
    measured = [(step, step.rollout_gap) for step in run if step.rollout_gap is not None]
    if len(measured) < 4:
        return
    gaps = np.array([gap for _, gap in measured])
    logs = np.log(np.maximum(gaps, 1e-9))
    idle = all(step.moved is not None and step.moved < 1e-6 for step, _ in measured)
    cut = max(range(2, len(gaps) - 1), key=lambda k: _separation(logs, k))
    before, after = float(np.median(gaps[:cut])), float(np.median(gaps[cut:]))
    if (
        _separation(logs, cut) > 6
        and gaps[cut:].min() > GROWTH / 2 * gaps[:cut].max()
        and after > max(GROWTH * before, LEAST_GAP)
        and logs[cut] - logs[cut - 1] > 0.6 * (np.median(logs[cut:]) - np.median(logs[:cut]))
    ):
        values = {"step": measured[cut][0].number, "before": before, "after": after}
        yield Finding(GAP_JUMP, "rollout_log_probs", values, (Place(None, None, before, float(gaps[cut])),))
        return
    third = len(gaps) // 3
    if len(gaps) >= 6 and _rank_correlation(gaps) > 0.9:
        before, after = float(gaps[:third].mean()), float(gaps[-third:].mean())
        if after > max(GROWTH * before, LEAST_GAP):
            fault = IDLE_CLIP if idle else GAP_TREND
            values = {"before": before, "after": after}
            yield Finding(fault, "rollout_log_probs", values, (Place(None, None, before, after),))


def _separation(logs: Floats, cut: int) -> float:
    """How many spreads the levels before and after lie apart; a level's own noise is taken as 15 % at least."""
    left, right = logs[:cut], logs[cut:]
    spread = np.sqrt((left.var() * len(left) + right.var() * len(right)) / len(logs))
    return float((right.mean() - left.mean()) / max(spread, 0.15))


def _rank_correlation(values: Floats) -> float:
    ranks = np.argsort(np.argsort(values)).astype(np.float64)
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])


def versions(run: list[Step]) -> Iterator[Finding]:
    """Sampling weights whose version stands still while the learner's goes on."""
    versions: list[tuple[float, float]] = []
    for step in run:
        learner = step.settings.learner_version
        if learner is not None and step.sampled is not None:
            versions.append((float(learner), step.sampled))
    if len(versions) < 4:
        return
    learners, samplers = [x for x, _ in versions], [x for _, x in versions]
    if all(a < b for a, b in pairwise(learners)) and len(set(samplers[1:])) == 1:
        values = {"version": samplers[-1], "first": learners[0], "last": learners[-1]}
        place = Place(None, None, learners[-1], samplers[-1])
        yield Finding(WEIGHTS_STUCK, "weight_versions", values, (place,))


def _sampling_version(e: Evidence) -> float | None:
    if "weight_versions" in e.dump.columns:
        chosen = e["weight_versions"][e.mask]
        return float(chosen.max()) if len(chosen) else None
    versions = [v for v in e.dump.rows.get("policy_version", []) if isinstance(v, int | float)]
    return float(max(versions)) if versions else None


def standing_still(run: list[Step]) -> Iterator[Finding]:
    """The policy says the same of a prompt's first token after an update as before, though the update moved it."""
    still: list[int] = []
    for before, after in pairwise(run):
        common = before.first_tokens.keys() & after.first_tokens.keys()
        if len(common) < LEAST_FIRST or before.moved is None or before.moved < 1e-3:
            continue
        if max(abs(before.first_tokens[key] - after.first_tokens[key]) for key in common) > 1e-6:
            return
        still.append(after.number)
    if still:
        values = {"first": still[0], "last": still[-1], "moved": float(run[0].moved or 0.0)}
        yield Finding(UPDATE_LOST, "old_log_probs", values)


# ── 22: the reference ──────────────────────────────────────────────────────────────────────────────────────────────


def reference(run: list[Step]) -> Iterator[Finding]:
    """A reference that is the policy at every step. One that is far from it at the first shows in that dump alone."""
    measured = [(step, step.ref_gap) for step in run if step.ref_gap is not None]
    if len(measured) < 2:
        return
    moved = _moved([step for step, _ in measured])
    if moved is None:
        yield from _never_apart(measured)
    elif moved > 1e-3 and max(x for _, x in measured[1:]) < min(0.02 * moved, 1e-3):
        settings = measured[0][0].settings
        paid = any(price is not None and price > 0 for price in (settings.beta, settings.kl_loss_coef))
        place = Place(None, None, moved, measured[-1][1])
        level: Severity | None = "bug" if paid else None
        yield Finding(REF_ALIAS, "ref_log_probs", {"moved": moved}, (place,), severity=level)


def _never_apart(measured: list[tuple[Step, float]]) -> Iterator[Finding]:
    """Many steps in which policy and reference are one, though the difference is priced; no column says if it moves."""
    prices = [max(step.settings.beta or 0.0, step.settings.kl_loss_coef or 0.0) for step, _ in measured]
    if len(measured) >= MANY and min(prices) > 0 and max(gap for _, gap in measured) < 1e-7:
        yield Finding(REFERENCE_HERE, "ref_log_probs", {"beta": prices[0]}, severity="suspicious")


def _moved(run: list[Step]) -> float | None:
    """How far a step moves the policy: |new − old|, or the change of one first token's log-prob between steps."""
    gaps = [step.moved for step in run[:-1] if step.moved is not None]
    if gaps:
        return float(np.median(gaps))
    seen: dict[tuple[Any, ...], list[float]] = {}
    for step in run:
        for key, value in step.first_tokens.items():
            seen.setdefault(key, []).append(value)
    changes = [abs(b - a) for values in seen.values() for a, b in pairwise(values)]
    return float(np.median(changes)) if len(changes) >= 8 else None


def _first_tokens(e: Evidence) -> dict[tuple[Any, ...], float]:
    if not e.has("prompt_ids", "token_ids", "old_log_probs") or not e.mask.shape[1]:
        return {}
    first = e.dump.columns["token_ids"][:, 0]
    return {
        (*ids, int(first[row])): float(e["old_log_probs"][row, 0])
        for row, ids in enumerate(e.row("prompt_ids"))
        if ids is not None and e.mask[row, 0]
    }


# ── 43: the adaptive coefficient ───────────────────────────────────────────────────────────────────────────────────


_ROLLOUTS = "audit.count_rollouts"
_MASKED = ("audit.kl_by_rows", "audit.kl_by_tokens", "audit.kl_row_sums")


def _kls(e: Evidence) -> dict[str, float]:
    """The numbers a controller may receive as the KL of a step: three that are right, and wrong ones."""
    if not (e.has("kl") or e.has("old_log_probs", "ref_log_probs")) or not e.mask.any():
        return {}
    x = e["kl"] if e.has("kl") else e["old_log_probs"] - e["ref_log_probs"]
    rows, sums, counts = len(e.mask), np.where(e.mask, x, 0.0).sum(axis=1), e.mask.sum(axis=1)
    return {
        "audit.kl_by_rows": float((sums[counts > 0] / counts[counts > 0]).mean()),
        "audit.kl_by_tokens": sums.sum() / counts.sum(),
        "audit.kl_row_sums": sums.sum() / rows,
        "audit.kl_mean_with_pads": float(x.mean()),
        "audit.kl_sum_with_pads": float(x.sum() / rows),
        "audit.kl_over_all_slots": float(sums.sum() / x.size),
        "audit.kl_batch_sum": float(sums.sum()),
        "audit.kl_negative": float(-sums.sum() / counts.sum()),
    }


def adaptive_kl(run: list[Step]) -> Iterator[Finding]:
    """β from one step to the next, against the KL of the columns and the number of rollouts."""
    logged = [step for step in run if step.scalars.get("kl_coef", 0.0) > 0]
    pairs = [(a, b) for a, b in pairwise(logged) if b.number == a.number + 1 and a.kls and b.kls]
    settings = logged[0].settings if logged else DumpSettings()
    target, horizon = settings.kl_target, settings.kl_horizon
    if not (pairs and target and horizon):
        return
    ratios = np.array([b.scalars["kl_coef"] / a.scalars["kl_coef"] - 1 for a, b in pairs])
    if not np.isfinite(ratios).all() or not np.abs(ratios).max() > 1e-9:
        return  # a fixed coefficient

    def changes(at: int, kl: str, count: str) -> Floats:
        """β'/β − 1 of each pair, by the KL of its first step or (β logged after its own update) of its second."""
        with np.errstate(all="ignore"):
            errors = [np.clip(p[at].kls[kl] / target - 1, -0.2, 0.2) * p[at].counts[count] / horizon for p in pairs]
        return np.array(errors, dtype=np.float64)

    def fits(change: Floats) -> bool:
        room = (0.05 if logged[0].coarse else 1e-3) * max(float(np.abs(change).max()), 1e-9) + 3e-7
        return bool(np.all(np.abs(ratios - change) <= room))

    if any(fits(changes(at, kl, _ROLLOUTS)) for at in (0, 1) for kl in _MASKED):
        return
    first = pairs[0][0]
    found = [
        (kl, count)
        for at in (0, 1)
        for kl in first.kls
        for count in first.counts
        if fits(changes(at, kl, count))
    ]  # fmt: skip
    before, after = first.scalars["kl_coef"], pairs[0][1].scalars["kl_coef"]
    expected = before * (1 + float(changes(0, _MASKED[0], _ROLLOUTS)[0]))
    place = (Place(None, None, expected, after),)
    if found:
        ways = [
            sentence_pair("audit.kl_with_n", kl=sentence_pair(kl), n=sentence_pair(count)) for kl, count in found[:2]
        ]
        way = ways[0] if len(ways) == 1 else sentence_pair("audit.either_way", one=ways[0], other=ways[1])
        yield Finding(ADAPTIVE_KL, "kl_coef", {"way_zh": way[0], "way": way[1]}, place)
    elif np.isfinite(expected):
        values = {"before": before, "after": after, "expected": expected}
        yield Finding(ADAPTIVE_KL_UNKNOWN, "kl_coef", values, place)


# ── 48: the data ───────────────────────────────────────────────────────────────────────────────────────────────────


def repeated_prompts(run: list[Step]) -> Iterator[Finding]:
    """A batch that stays, or an order that starts again. Epochs over little data repeat prompts too, and are fine."""
    batches = [step.prompts for step in run if step.prompts is not None and len(step.prompts) >= 2]
    if len(run) < 3 or len(batches) < len(run):
        return
    total = len(set().union(*batches))
    begin = 0
    for end in range(1, len(batches) + 1):
        if end < len(batches) and batches[end] == batches[begin]:
            continue
        if end - begin >= 2 and _by_chance(len(run), total, batches[begin], end - begin - 1) < 1e-3:
            values = {"first": run[begin].number, "last": run[end - 1].number}
            yield Finding(STUCK_BATCH, "prompt_ids", values, share=(end - begin) / len(run))
            return
        begin = end
    yield from _restart(run, batches, total)


def repeated_rollouts(run: list[Step]) -> Iterator[Finding]:
    """The very rollouts of an earlier step. Several epochs over one batch may be dumped as steps, and are fine."""
    seen: dict[tuple[float, ...], int] = {}
    for later in run:
        earlier = Counter(seen[key] for key in later.rollouts if key in seen)
        number, shared = earlier.most_common(1)[0] if earlier else (0, 0)
        several = (later.settings.ppo_epochs or 1) > 1 and later.number == number + 1
        if shared >= max(2, 0.5 * len(later.rollouts)) and not several:
            values = {"first": number, "last": later.number, "count": shared}
            yield Finding(SAME_ROLLOUTS, "token_ids", values, share=shared / len(later.rollouts))
            return
        seen |= dict.fromkeys(later.rollouts, later.number)


def _by_chance(steps: int, total: int, batch: Counter[Any], times: int) -> float:
    """How many such repetitions shuffled data would show; many where the batch is all of the data, or nearly."""
    size = len(batch)
    draws = math.lgamma(total + 1) - math.lgamma(size + 1) - math.lgamma(total - size + 1)
    return steps * math.exp(-draws * times)


def _restart(run: list[Step], batches: list[Counter[Any]], total: int) -> Iterator[Finding]:
    """The first batches again, in order, before the data was used up: prompts never seen before come later."""
    for at in range(2, len(batches) - 1):
        same = 0
        while at + same < len(batches) and same < at and batches[at + same] == batches[same]:
            same += 1
        if same < 2 or _by_chance(len(run), total, batches[0], same) > 1e-3:
            continue
        seen = set().union(*batches[:at])
        if any(set(batch) - seen for batch in batches[at + same :]):
            values = {"step": run[at].number, "count": same}
            yield Finding(RESTARTED, "prompt_ids", values, share=same / len(batches))
        return


def _prompts(dump: Dump) -> Counter[Any] | None:
    """The prompts of a step, each as often as it stands there."""
    for name in ("prompt_ids", "prompt"):
        if name in dump.rows and all(value is not None for value in dump.rows[name]):
            return Counter(tuple(v) if name == "prompt_ids" else repr(v) for v in dump.rows[name])
    return None
