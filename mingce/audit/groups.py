"""K8: advantages that compare the samples of one prompt: are they compared with the right rows, by a known formula?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mingce.audit import comparisons, factors
from mingce.audit.comparisons import Compared, Outcome, compare
from mingce.audit.credit import constant_rows
from mingce.audit.evidence import Evidence, Floats, finite
from mingce.audit.finding import Check, Fault, Finding, NotJudged, Severity, phrase
from mingce.audit.group_batch import Batch
from mingce.audit.group_changes import changed
from mingce.audit.group_reasons import other_baseline, other_outcome
from mingce.audit.group_scales import scales_differ
from mingce.audit.groupings import Words, groupings, prompts
from mingce.audit.misfits import ROWS_SWAPPED
from mingce.audit.steps_of_credit import SURE
from mingce.audit.trajectories import split
from mingce.audit.whitening import BASELINE, SCALE, SIGN
from mingce.record.dump import LOSS, unknown_estimator
from mingce.specs import ESTIMATORS
from mingce.specs.comparisons import (
    BASELINE_OF_PROMPT,
    BASELINE_OF_TOKEN,
    BATCH_BIASED,
    BATCH_STD,
    BIASED,
    DIVIDED,
    ITSELF,
    MEAN,
    MEANT,
    MEANT_ELSEWHERE,
    STD,
    SUMS_OF_REWARDS,
    WHITENED,
    WHITENED_ROWS,
    WITHIN,
    WITHIN_PROMPT,
)  # fmt: skip

MISFORMED = Fault.of("groups-misformed", "bug", (1,), "A_i = (x_i − mean_g)/std_g over the rows g that share a prompt")
DESYNC = Fault.of("rows-desynchronised", "bug", (37,), "A_i = f(x_i, group of i)")
INCOMPLETE = Fault.of(
    "group-statistics-of-missing-rows", "bug", (1, 37),
    "A_i = (x_i − mean_g)/std_g over the rows of g in the batch", "allenai/open-instruct/pull/1794",
)  # fmt: skip
MASKED_REWARD = Fault.of("group-counts-masked-reward", "bug", (10,), "x_i = Σ_t m_t·r_t", "verl-project/verl/pull/6362")
SINGLETON = Fault.of(
    "group-of-one", "note", (31,), "a group of one has nothing to compare with: A = 0", "rllm-org/rllm/pull/776"
)
HOW = Fault.of("group-advantage", "convention", (), "A_i = f(x_i, rows of the same prompt)")
OTHER_ESTIMATOR = Fault.of("estimator-differs", "suspicious", (1,), "A_i = f(x_i, rows of the same prompt)", "")
DUPLICATED = Fault.of("group-rows-copied", "bug", (37, 48), "A_i = f(x_i, rows of the same prompt)")
OTHER_OUTCOME = Fault.of("group-by-another-outcome", "note", (), "mean of A_i over the rows of a prompt")
ROWS_OFF = Fault.of("group-rows-off", "bug", (37, 1), "A_i = f(x_i, rows of the same prompt)")
FOREIGN_BASELINE = Fault.of("group-foreign-baseline", "suspicious", (1,), "A_i = x_i − mean of its group", "")
UNEXPLAINED = Fault.of("group-unexplained", "suspicious", (1, 33, 37), "A_i = (x_i − mean_g)/std_g", "")

STD_OVER = {"group": (STD, BIASED), "batch": (BATCH_STD, BATCH_BIASED), "none": (MEAN,)}
FEW_ROWS = 0.05
SHIFTS = (1, -1, 2, -2, 3, -3, 4, -4)


def groups(e: Evidence) -> Iterator[Finding]:
    """Row-constant advantages: with which rows, and how, was each compared?"""
    column = e[LOSS]
    spec = ESTIMATORS.get(e.settings.estimator or "")
    if e.has("values") and not (spec is not None and spec.grouped):
        raise NotJudged
    if unknown_estimator(e.dump) or (spec is not None and spec.kind == "share"):
        raise NotJudged  # constant in a row, and compared with no other
    if e.settings.estimator in BASELINE_OF_TOKEN or split(e):
        raise NotJudged  # compared token by token, constant only in answers of one token; or trajectory by trajectory
    everyone = prompts(e)
    used = np.flatnonzero(e.mask.any(axis=1))
    if everyone is None or len(used) < 4 or not np.isfinite(column[e.mask]).all():
        raise NotJudged
    if not constant_rows(e, column):
        own = e.settings.estimator in WITHIN_PROMPT
        if e.settings.estimator in SUMS_OF_REWARDS or not (own or _nearly_constant(e, column)):
            raise NotJudged  # sums of what is still paid, KL and all, are not one number a row
        if e.dump.source == "openrlhf" and e.settings.kl_in_reward:
            raise NotJudged  # which compares the scores, and then adds up what is still paid
        yield factors.varies(e, finite(column), finite(column))
        return
    first = used, e.mask.argmax(axis=1)[used]
    yield from _decide(Batch(e, used, everyone, column[first], e.error(LOSS)[first]))


def _nearly_constant(e: Evidence, column: Floats) -> bool:
    """Whether all but few of the rows hold one number each, more than one of them on several tokens, and not all 0."""
    high = np.where(e.mask, column, -np.inf).max(axis=1, initial=-np.inf)
    low = np.where(e.mask, column, np.inf).min(axis=1, initial=np.inf)
    rows = e.mask.sum(axis=1) >= 2
    same = high[rows] - low[rows] <= 1e-6 * (1 + np.abs(high[rows]))
    return bool(len(same) >= 8 and same.mean() >= 0.9 and len(np.unique(high[rows][same])) > 2)


def _decide(b: Batch) -> Iterator[Finding]:
    if b.found.any() and b.e.settings.estimator in BASELINE_OF_PROMPT and _baseline_of_prompt(b):
        yield Finding(BASELINE, b.column, phrase("how", "audit.baseline_of_prompt"))
        return
    fitting = [key for key, way in b.clean.items() if not b.misses(way).any()]
    telling = [key for key in fitting if b.clean[key].tells(b.found)]
    fitting = [key for key in fitting if key in telling or not key[0].endswith((WHITENED, WHITENED_ROWS))]
    alone = b.singles & (np.abs(b.found) > 1e-6)
    if not b.singles.all():
        if not fitting:
            yield from _wrong(b)
        elif telling:
            yield from _meant(b, telling)
        if not fitting:
            return
    elif telling:
        yield from _meant(b, telling)
    elif not any(_kept(b, x) for x in b.outcomes):
        return  # a baseline of its own for each row: nothing to hold it against
    if alone.any():
        yield Finding(SINGLETON, b.column, {"count": int(alone.sum())})


def _kept(b: Batch, x: Outcome) -> bool:
    """Whether the advantage is the outcome itself."""
    return not compare(x, b.part, ITSELF, b.lengths, b.e.coarse).misses(b.found, b.error).any()


def _meant(b: Batch, fitting: list[tuple[str, str]]) -> Iterator[Finding]:
    """How they were compared; and whether that is what the settings say, over the rewards that count."""
    declared = b.e.settings.estimator
    allowed = MEANT.get(declared or "")
    whole = len(b.used) == len(b.everyone) and not b.e.settings.rewards_apart
    if b.e.settings.std_over is not None and declared in (None, *DIVIDED) and whole:
        allowed = STD_OVER[b.e.settings.std_over]
    elif b.e.dump.source not in ("verl", "mingce"):
        allowed = MEANT_ELSEWHERE.get(declared or "", allowed)
        if b.e.dump.source != "trl_grpo" and allowed is not None:  # TRL's way, which a dump of TRL's may mean
            allowed = tuple(one for one in allowed if one not in (BATCH_STD, BATCH_BIASED))
    elif allowed is None:
        allowed = tuple(one for one in {key[0] for key in fitting} if one not in (BATCH_STD, BATCH_BIASED))
    named = [key for key in fitting if allowed is None or key[0] in allowed]
    formula, name = (named or fitting)[0]
    how = {"how": f"{formula}, x = {name}"}
    masked = next((x for x in b.outcomes if x.name == f"Σ m·{name.removeprefix('Σ ')}"), None)
    if name.startswith("Σ ") and masked is not None and name != masked.name:
        expected = b.clean[formula, masked.name]
        yield Finding(MASKED_REWARD, b.column, {}, b.places(expected.numbers, b.misses(expected)))
    elif not named and not b.singles.all() and not (declared is None and b.e.coarse):
        classes = (1, 30) if formula in (BATCH_STD, BATCH_BIASED) else None
        yield Finding(OTHER_ESTIMATOR, b.column, how | {"estimator": declared or b.e.dump.source}, classes=classes)
    else:
        yield Finding(HOW, b.column, how)


def _wrong(b: Batch) -> Iterator[Finding]:
    """No formula gives the advantages: other rows, another sign or scale, a few rows, or nothing known."""
    shares = {key: float(b.misses(way).mean()) for key, way in b.clean.items()}
    allowed = MEANT.get(b.e.settings.estimator or "")
    order = sorted(shares, key=lambda key: (shares[key], allowed is not None and key[0] not in allowed))
    best = order[0]
    way = b.clean[best]
    wrong = b.misses(way)
    places = b.places(way.numbers, wrong)
    copies = _copies(b)
    if copies is not None:
        yield copies
        return
    misformed = None if shares[best] <= 0.1 else _wrong_groups(b)
    if misformed is not None:
        said = {"by": misformed[1], "by_zh": misformed[0]}
        yield Finding(MISFORMED, b.column, said, places, shares[best])
        return
    few = shares[best] <= FEW_ROWS  # rows apart are told before a rule for all
    apart = b.e.settings.rewards_apart or (_of_unit_spread(b) and _within_prompts(b))  # the total says nothing then
    reason = None if apart else _line(b) or _rows_moved(b) or _exchanged(b) or other_baseline(b) or other_outcome(b)
    reason = reason or (None if few or apart or _of_one_prompt(b) else changed(b))
    if reason is None and b.e.settings.estimator is None and _baseline_of_prompt(b):
        how = phrase("how", "audit.baseline_of_prompt")
        # TRL's GRPO has none, and verl's ReMax keeps what the greedy answers got and other returns than advantages
        own = b.e.dump.source == "trl_grpo" or (b.e.dump.source == "verl" and _returns_are_advantages(b.e))
        reason = Finding(FOREIGN_BASELINE, b.column, {}, places) if own else Finding(BASELINE, b.column, how)
    off_rows = {"count": int(wrong.sum()), "how": f"{best[0]}, x = {best[1]}"}
    sure = shares[best] <= 0.2 and not b.e.coarse and not b.e.settings.rewards_apart and way.tells(b.found)
    if reason is None and sure and len(np.unique(b.part[~wrong & b.judged])) >= 3:
        reason = Finding(ROWS_OFF, b.column, off_rows, places, shares[best], _unsure(b))
    if reason is None and not apart:
        reason = scales_differ(b)
    if reason is None and _within_prompts(b):
        known = b.e.has("outcome") and b.e.settings.estimator in WITHIN_PROMPT
        # TRL's outcome is what it compares, but where several rewards are compared apart
        watched = known and b.e.dump.source == "trl_grpo" and not b.e.settings.rewards_apart
        reason = Finding(OTHER_OUTCOME, b.column, severity="suspicious" if watched else None)
    if reason is None and shares[best] <= 0.3 and not b.e.settings.rewards_apart:
        reason = Finding(ROWS_OFF, b.column, off_rows, places, shares[best], _unsure(b))
    residual = float(np.quantile(np.abs(way.numbers - b.found), 0.98))
    yield reason or Finding(UNEXPLAINED, b.column, {"residual": residual}, places, severity=_unsure(b))


def _unsure(b: Batch) -> Severity | None:
    """A note where one prompt alone, or rounded numbers of an estimator that is not named, leave too much open."""
    one = len(np.unique(b.part[~b.singles])) < 2
    return "note" if one or (b.e.coarse and b.e.settings.estimator is None) else None


def _copies(b: Batch) -> Finding | None:
    """Rows that are there twice, when the groups were compared without the copies."""
    ids = b.e.dump.columns.get("token_ids")
    if ids is None:
        return None
    seen = np.concatenate([b.part[:, None], np.where(b.e.mask[b.used], ids[b.used], -1)], axis=1)
    first = np.sort(np.unique(seen, axis=0, return_index=True)[1])
    if len(first) in (len(seen), 0):
        return None
    once = Batch(b.e, b.used[first], b.everyone, b.found[first], b.error[first])
    if once.singles.all() or not any(
        way.tells(once.found) and not once.misses(way).any() for way in once.clean.values()
    ):
        return None
    again = np.setdiff1d(np.arange(len(seen)), first)
    rows = ", ".join(str(int(b.used[i])) for i in again[:5])
    return Finding(DUPLICATED, b.column, {"count": len(again), "rows": rows}, (), len(again) / len(seen))


def _wrong_groups(b: Batch) -> Words | None:
    """By what the groups were formed instead of by prompt, if the advantages show it."""
    whole = np.zeros(len(b.e.mask), np.int64)
    whole[b.used] = b.part
    for x in b.outcomes:
        for number, (words, part) in enumerate(groupings(b.e, whole)):
            mine = np.unique(part[b.used], return_inverse=True)[1]
            for formula in (*WITHIN, ITSELF) if number == 0 else WITHIN:  # x itself only with each row alone
                if number == 0 and formula != ITSELF:
                    continue
                made = compare(x, mine, formula, b.lengths, b.e.coarse)
                if (
                    np.isfinite(made.room).mean() > 0.5
                    and made.tells(b.found)
                    and not made.misses(b.found, b.error).any()
                ):
                    return words
    return None


def _line(b: Batch) -> Finding | None:
    """A comparison times a factor: the sign, or the scale, is wrong. Of several that fit, the one declared, or whose
    factor is a round number."""
    allowed = MEANT.get(b.e.settings.estimator or "")
    fitting = []
    for key, way in b.clean.items():
        numbers = np.where(np.isfinite(way.room), way.numbers, 0.0)
        power = float(numbers @ numbers)
        factor = float(numbers @ b.found) / power if power else 0.0
        tells = (np.abs(numbers) > 3 * way.room) & b.judged
        few = b.e.settings.estimator is None and len(np.unique(b.part[tells])) < 2  # any pair of numbers is a line
        if factor == 0 or int(tells.sum()) < 3 or few:
            continue
        if not b.misses(Compared(factor * numbers, abs(factor) * way.room)).any():
            round_to = float(f"{factor:.0e}")
            fitting.append((allowed is not None and key[0] not in allowed, abs(factor / round_to - 1), key, factor))
    if not fitting:
        return None
    *_, key, factor = min(fitting, key=lambda one: (one[0], round(one[1], 3)))
    way = b.clean[key]
    places = b.places(way.numbers, b.misses(way))
    return Finding(SIGN if factor < 0 else SCALE, b.column, {"factor": factor}, places)


def _rows_moved(b: Batch) -> Finding | None:
    """From some row on the advantages are those of other rows; or only groups that lack rows are off.

    A dropped row leaves its group without its true mean, so that rows of whole groups alone are judged.
    """
    sizes = np.bincount(b.part)
    whole = sizes[b.part] == sizes.max()
    rows = np.arange(len(b.found))
    if _of_one_prompt(b):
        return None
    for way in b.clean.values():
        wrong = b.misses(way)
        places = b.places(way.numbers, wrong)
        for by in SHIFTS:
            other = np.clip(rows + by, 0, len(rows) - 1)
            judged = whole[other] & (rows + by == other)
            misses = judged & way.of(other).misses(b.found, b.error)
            before = np.concatenate([[0], np.cumsum(wrong & whole)])  # misses if the move begins at row k
            after = np.concatenate([np.cumsum(misses[::-1])[::-1], [0]])
            start = int(np.argmin(before + after))
            moved = judged & ~misses & wrong & (rows >= start)
            if before[start] + after[start] == 0 and moved.sum() >= 3:
                said = {"row": int(b.used[min(start, len(b.used) - 1)]), "by": by}
                return Finding(DESYNC, b.column, said, places, float(wrong.mean()))
        if not whole.all() and wrong[~whole].mean() > 0.5 and not wrong[whole].any():
            return Finding(INCOMPLETE, b.column, {}, places, float(wrong.mean()))
    return None


def _exchanged(b: Batch) -> Finding | None:
    """The rows that are off have one another's advantages."""
    for (formula, _), way in b.clean.items():
        rows = np.flatnonzero(b.misses(way))
        sure = np.isfinite(way.room[rows]).all()
        if len(rows) < 2 or not sure or formula not in WITHIN or len(np.unique(way.numbers[rows].round(6))) < 2:
            continue
        mine, true = rows[np.argsort(b.found[rows])], rows[np.argsort(way.numbers[rows])]
        if not (np.abs(b.found[mine] - way.numbers[true]) <= way.room[true] + SURE * b.error[mine]).all():
            continue
        pairs = ", ".join(f"{b.used[i]}←{b.used[j]}" for i, j in zip(mine[:4], true[:4], strict=True))
        said = {"column": b.column, "count": len(rows), "pairs": pairs}
        return Finding(ROWS_SWAPPED, b.column, said, b.places(way.numbers, b.misses(way)), len(rows) / len(b.found))
    return None


def _baseline_of_prompt(b: Batch) -> bool:
    """Whether what was taken off the outcomes is one number for each prompt: what its greedy answer got, say.

    Not their median: nobody means that one.
    """
    for x in b.outcomes:
        taken = Outcome(x.name, x.x - b.found, x.error + b.error)
        if b.misses(Compared(b.found + compare(taken, b.part, MEAN, b.lengths, False).numbers, _room(taken))).any():
            continue
        prompts_of = [np.flatnonzero(b.part == one) for one in np.unique(b.part[~b.singles])[:64]]
        middle = [
            (np.sort(x.x[rows])[(len(rows) - 1) // 2 : len(rows) // 2 + 1], taken.x[rows[0]]) for rows in prompts_of
        ]
        median = [min(abs(m.mean() - b_), abs(m[0] - b_)) <= 1e-5 * (1 + abs(b_)) for m, b_ in middle]
        return not (median and all(median)) or b.e.settings.estimator in BASELINE_OF_PROMPT
    return False


def _returns_are_advantages(e: Evidence) -> bool:
    return e.has("returns") and bool(np.allclose(finite(e["returns"])[e.mask], finite(e[LOSS])[e.mask], atol=1e-6))


def _within_prompts(b: Batch) -> bool:
    """Whether every prompt's advantages have the same mean and go with the outcome: they were compared within it.

    By something that is not in the dump: several rewards, each by itself.
    """
    g = comparisons.Groups(b.part)
    mean, most = g.mean(b.found), g.mean(np.abs(b.found))
    several = (g.size > 1) & (most > 1e-6 * most.max(initial=0.0))
    room = 3 * SURE * g.mean(b.error) + 1e-4 * most.max(initial=0.0)
    if len(np.unique(b.part[g.size > 1])) < 2 or not several.any():
        return False
    if not any((np.abs(mean - level) <= room)[several].all() for level in (0.0, float(np.median(mean[several])))):
        return False
    gaps = (compare(x, b.part, MEAN, b.lengths, False).numbers for x in b.outcomes)
    least = 0.0 if b.e.settings.rewards_apart else 0.2 if _of_unit_spread(b) else 0.6
    return any(_correlation(gap[several], (b.found - mean)[several]) > least for gap in gaps)


def _of_one_prompt(b: Batch) -> bool:
    """Whether but one prompt's advantages are not 0: too little to tell a rule from, or whose they are."""
    return len(np.unique(b.part[np.abs(b.found) > 1e-3 * np.abs(b.found).max(initial=0.0)])) < 2


def _of_unit_spread(b: Batch) -> bool:
    """Whether they may be TRL's of several rewards compared apart: it gives their sum the batch's deviation 1."""
    return b.e.dump.source == "trl_grpo" and abs(float(b.found.std(ddof=1)) - 1) < 0.01


def _correlation(x: Floats, y: Floats) -> float:
    return float(x @ y) / max(float(np.sqrt((x @ x) * (y @ y))), 1e-300)


def _room(x: Outcome) -> Floats:
    return 2 * SURE * x.error + 1e-5 * np.abs(x.x)


CHECKS = (
    Check.of("K8 groups", (LOSS, "rewards|scores|outcome", "prompt_ids|group|uid"), groups),
)  # fmt: skip
