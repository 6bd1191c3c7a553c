"""Every reading under which a claim could be right, the likeliest first: which inputs, which γ, λ, β.

`readings(context, claim)` yields what the numbers should be under each. Settings that the text states come first; where
it states none, those of earlier questions and then, as guesses, the common ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, product

from mingce.explain.claims import truth
from mingce.explain.claims.context import Column, Context, matched
from mingce.explain.claims.names import CREDIT_KINDS
from mingce.explain.claims.quantities import Claim
from mingce.explain.claims.rounding import Slots
from mingce.explain.claims.truth import Rows

MOST_READINGS = 400
MOST_INPUTS = 6
MOST_OPEN = 2
MOST_UNITS, FEW_UNITS = 25.0, 1.0
WEAK = ("from_deltas", "return_minus_value", "advantage_plus_value")
"""Rules that rest on numbers which the text may have made from the claim itself."""


@dataclass(frozen=True)
class Reading:
    """What columns should be under one reading.

    `how` names the rule; `rows` are the numbers by kind, for GAE the inputs too, with `after`, the value behind each
    row's last token. `open` are the settings that the text does not state, `guessed` if they are only common ones.
    `off` is how far numbers may be off because the inputs are shown rounded, at most so many (`most`) units of the
    last digit: one where inputs show three digits, which are often exact. `section`: where the inputs stand, if in one.
    `slots` are the chosen tokens, where some are not.
    """

    rows: Mapping[str, Rows]
    how: str
    settings: Mapping[str, float] = field(default_factory=dict)
    open: frozenset[str] = frozenset()
    guessed: bool = False
    carried: bool = False
    lines: tuple[int, ...] = ()
    after: tuple[float, ...] = ()
    off: Mapping[str, Rows] = field(default_factory=dict)
    most: tuple[float, float] = (MOST_UNITS, 0.0)
    section: int = -1
    slots: Slots = None

    @property
    def gamma(self) -> float:
        return self.settings.get("gamma", 1.0)

    @property
    def lam(self) -> float:
        return self.settings.get("lam", 1.0)

    def slack(self, kind: str, row: int, t: int) -> float:
        return self.off[kind][row][t] if kind in self.off else 0.0


Rule = Callable[[Context, Claim, int | None], Iterator[Reading]]


def readings(context: Context, claim: Claim, width: int | None = None) -> Iterator[Reading]:
    """The readings of a claim about a column of `width` tokens (any width for a single number)."""
    rule = _credit if claim.kind in CREDIT_KINDS else _RULES.get(claim.kind)
    if rule is not None:
        yield from islice(rule(context, claim, width), MOST_READINGS)


def _from(rows: Rows, kind: str, how: str, *sources: Column, unit: float = 0.0, decay: float = 0.0) -> Reading:
    """A column that follows from others; `unit` is the last digit of what it is made of, 0 if that is exact."""
    sections = {source.section for source in sources}
    off = truth.discounted(tuple((unit / 2,) * len(row) for row in rows), decay)
    return Reading(
        {kind: rows}, how, lines=tuple(source.line for source in sources), off={kind: off} if unit else {},
        most=_most(unit), section=sections.pop() if len(sections) == 1 else -1,
        slots=next((source.slots for source in sources if source.slots), None),
    )  # fmt: skip


def _most(*units: float) -> tuple[float, float]:
    return FEW_UNITS if max(units) > 2e-4 else MOST_UNITS, max(units)


# ── credit ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Inputs:
    """Rewards and values that belong together; `after` is the value behind each row's last token."""

    rewards: Column
    values: Column
    after: tuple[float, ...]

    @property
    def carried(self) -> bool:
        return self.rewards.carried or self.values.carried

    def gae(self, gamma: float, lam: float) -> Reading:
        """What GAE makes of them."""
        rows = truth.credit(self.rewards.rows, self.values.rows, gamma, lam, self.after)
        units = self.rewards.unit, self.values.unit
        shape = tuple(len(row) for row in self.rewards.rows)
        return Reading(
            {"rewards": self.rewards.rows, "values": self.values.rows, **rows}, "recursion",
            {"gamma": gamma, "lam": lam}, carried=self.carried, lines=(self.rewards.line, self.values.line),
            after=self.after, section=self.rewards.section if self.rewards.section == self.values.section else -1,
            slots=self.rewards.slots or self.values.slots,
            off=truth.credit_slack(shape, gamma, lam, *units) if any(units) else {}, most=_most(*units),
        )  # fmt: skip


def _credit(context: Context, claim: Claim, width: int | None) -> Iterator[Reading]:
    inputs = list(_inputs(context, claim, width))
    here = [one for one in inputs if not one.carried]
    away = [one for one in inputs if one.carried]
    most = MOST_OPEN if Pairs.of(context, claim).open else MOST_INPUTS
    for one in here[:most]:
        yield from by_gae(context, claim, one)
    if not here:
        yield from _identities(context, claim, width)
    for one in away[:most]:
        yield from by_gae(context, claim, one)


def by_gae(context: Context, claim: Claim, inputs: Inputs) -> Iterator[Reading]:
    """GAE on these inputs under every pair (γ, λ) to try."""
    pairs = Pairs.of(context, claim, inputs.carried)
    for gamma, lam in pairs.known + pairs.guesses:
        settings = {"gamma": gamma} if claim.kind == "deltas" else {"gamma": gamma, "lam": lam}
        guessed = (gamma, lam) in pairs.guesses
        yield replace(inputs.gae(gamma, lam), settings=settings, open=pairs.open, guessed=guessed)


@dataclass(frozen=True)
class Pairs:
    """The pairs (γ, λ) to try for a claim of credit, the `open` ones of the two, and pairs that are mere guesses."""

    known: list[tuple[float, float]]
    guesses: list[tuple[float, float]]
    open: frozenset[str]

    @classmethod
    def of(cls, context: Context, claim: Claim, carried: bool = False) -> Pairs:
        gammas, common_gammas = _values_of("gamma", context, claim, carried, truth.COMMON_GAMMAS)
        if claim.kind == "deltas" or claim.monte_carlo:
            lams: list[float] = [0.0 if claim.kind == "deltas" else 1.0]
            common_lams: list[float] = []
        else:
            lams, common_lams = _values_of("lam", context, claim, carried, truth.COMMON_LAMS)
            lams += [1.0] if claim.kind == "returns" else []
        known = _distinct(gammas, lams)
        guesses = [pair for pair in _distinct(gammas + common_gammas, lams + common_lams) if pair not in known]
        names = {"gamma": common_gammas, "lam": common_lams}
        return cls(known, guesses, frozenset(name for name, common in names.items() if common))


def _values_of(
    name: str, context: Context, claim: Claim, carried: bool, common: tuple[float, ...]
) -> tuple[list[float], list[float]]:
    """The values of a setting that the text gives for a claim, and common ones if it states none.

    An example that is `carried` over from an earlier question brings the settings along.
    """
    own = dict(claim.settings)
    if name in own:
        return [own[name]], []
    implied = context.stated(name, claim.where, implied=True)
    if stated := context.stated(name, claim.where):
        return stated + implied, []
    earlier = context.stated_before(name, claim.where) + implied
    if carried and earlier:
        return earlier, []
    return earlier, list(common if context.searches_left > 0 else common[:2])


def _distinct(gammas: list[float], lams: list[float]) -> list[tuple[float, float]]:
    pairs = product(dict.fromkeys(gammas), dict.fromkeys(lams))
    return [(gamma, lam) for gamma, lam in pairs if 0 <= gamma <= 1 and 0 <= lam <= 1]


def _inputs(context: Context, claim: Claim, width: int | None) -> Iterator[Inputs]:
    """Rewards and values of one length near the claim; values may have one more, for the state behind the end."""
    seen: set[tuple[Rows, Rows]] = set()
    for earned, more in product(list(_rewards(context, claim, width)), (0, 1)):
        for worth in context.columns("values", claim.where, (earned.full or earned.width) + more, carried=True):
            ends = tuple(row[-1] for row in worth.rows)
            worth = replace(worth, rows=tuple(row[:-1] for row in worth.rows), slots=None) if more else worth
            pair = None if more and worth.section != earned.section else _chosen(context, claim, earned, worth)
            if pair is None or (pair[0].rows, pair[1].rows) in seen:
                continue
            rewards, values = pair
            seen.add((rewards.rows, values.rows))
            last = (rewards.slots or values.slots or range(rewards.width))[-1]
            own = [end for name, end in claim.settings if name == "after"]
            if more and not own:
                yield Inputs(rewards, values, ends)
                continue
            for end in own or context.values_after(claim.where, last + 1):
                yield Inputs(rewards, values, (end,) * len(rewards.rows))


def _chosen(context: Context, claim: Claim, rewards: Column, values: Column) -> tuple[Column, Column] | None:
    """Both at the tokens that a mask near them chooses, where the text gives one, and the lists do not leave holes."""
    pair = matched(rewards, values)
    if pair is None or pair[0].slots or pair[1].slots or len(pair[0].rows) > 1:
        return pair
    for mask in context.columns("mask", claim.where, rewards.width)[:1]:
        slots = tuple(t for t, chosen in enumerate(mask.rows[0]) if chosen)
        if 0 < len(slots) < rewards.width and set(mask.rows[0]) <= {0.0, 1.0}:
            one, other = rewards.at(slots, rewards.width), values.at(slots, rewards.width)
            return (one, other) if one is not None and other is not None else None
    return pair


def _rewards(context: Context, claim: Claim, width: int | None) -> Iterator[Column]:
    """Rewards near the claim: listed, or worked out from scores and KL."""
    listed = context.columns("rewards", claim.where, width, carried=True)
    yield from (column for column in listed if not column.carried)
    betas = context.stated("beta", claim.where)[:2]
    for scores in context.columns("scores", claim.where, width)[:2] if betas else ():
        for kl, beta in product(list(_kls(context, claim, scores)), betas):
            yield replace(scores, rows=truth.rewards(scores.rows, kl.rows, beta))
    yield from (column for column in listed if column.carried)


def _identities(context: Context, claim: Claim, width: int | None) -> Iterator[Reading]:
    """What can be said where rewards or values are missing."""
    kind = claim.kind
    pairs = Pairs.of(context, claim)
    if kind == "advantages":
        for deltas, (gamma, lam) in product(context.columns("deltas", claim.where, width), pairs.known + pairs.guesses):
            rows = truth.discounted(deltas.rows, gamma * lam)
            reading = _from(rows, kind, "from_deltas", deltas, unit=deltas.unit, decay=gamma * lam)
            settings, guessed = {"gamma": gamma, "lam": lam}, (gamma, lam) in pairs.guesses
            yield replace(reading, settings=settings, open=pairs.open, guessed=guessed)
        for returns, values in _paired(context, claim, "returns", "values", width):
            rows, unit = truth.plus(returns.rows, values.rows, -1), returns.unit + values.unit
            yield _from(rows, kind, "return_minus_value", returns, values, unit=unit)
    if kind == "returns":
        for rewards in context.columns("rewards", claim.where, width):
            gammas = dict.fromkeys(gamma for gamma, _ in pairs.known + pairs.guesses)
            afters = dict.fromkeys([*context.values_after(claim.where, rewards.width), 0.0])
            for gamma, after in product(gammas, afters):
                paid = tuple((*row[:-1], row[-1] + gamma * after) for row in rewards.rows)
                rows = truth.discounted(paid, gamma)
                reading = _from(rows, kind, "reward_to_go", rewards, unit=rewards.unit, decay=gamma)
                guessed = gamma not in {known for known, _ in pairs.known}
                yield replace(reading, settings={"gamma": gamma}, open=pairs.open - {"lam"}, guessed=guessed)
        for advantages, values in _paired(context, claim, "advantages", "values", width):
            rows, unit = truth.plus(advantages.rows, values.rows), advantages.unit + values.unit
            yield _from(rows, kind, "advantage_plus_value", advantages, values, unit=unit)


# ── rewards, KL, probabilities ───────────────────────────────────────────────────────────────────────────────────────


def _paired(context: Context, claim: Claim, one: str, other: str, width: int | None) -> Iterator[tuple[Column, Column]]:
    for a in context.columns(one, claim.where, width):
        for b in context.columns(other, claim.where, a.full or a.width):
            if (pair := matched(a, b)) is not None:
                yield pair


def _kls(context: Context, claim: Claim, scores: Column) -> Iterator[Column]:
    """KL of the tokens that `scores` is about: listed, from log-probabilities, or one number for all."""
    for listed in context.columns("kl", claim.where, scores.width):
        if listed.shape == scores.shape:
            yield listed
    for old, ref in _paired(context, claim, "old_log_probs", "ref_log_probs", scores.width):
        if old.shape == scores.shape:
            yield Column(truth.kl(old.rows, ref.rows), old.line, unit=old.unit + ref.unit)
    for number in context.stated("kl", claim.where)[:1]:
        yield Column(tuple((number,) * length for length in scores.shape), scores.line)


def _rewards_with_kl(context: Context, claim: Claim, width: int | None) -> Iterator[Reading]:
    betas = context.stated("beta", claim.where) or context.stated_before("beta", claim.where)
    for scores in context.columns("scores", claim.where, width):
        for kl, beta in product(list(_kls(context, claim, scores)), betas):
            rows, unit = truth.rewards(scores.rows, kl.rows, beta), scores.unit + beta * kl.unit
            reading = _from(rows, "rewards", "score_minus_kl", scores, kl, unit=unit)
            yield replace(reading, settings={"beta": beta})


def _kl(context: Context, claim: Claim, width: int | None) -> Iterator[Reading]:
    """KL by any estimator, or the one that the line names; |k1| where it cannot be k1 with its sign lost."""
    named = [name for name in truth.KL_ESTIMATORS if re.search(rf"(?<!\w){name}(?!\w)", claim.where.quote)]
    for old, ref in _paired(context, claim, "old_log_probs", "ref_log_probs", width):
        signs = {a > b for one, other in zip(old.rows, ref.rows, strict=True) for a, b in zip(one, other, strict=True)}
        for estimator in named or truth.KL_ESTIMATORS:
            if estimator == "abs" and not named and len(signs) == 1:
                continue
            yield _from(truth.kl(old.rows, ref.rows, estimator), "kl", estimator, old, ref, unit=old.unit + ref.unit)


def _probabilities(context: Context, claim: Claim, width: int | None) -> Iterator[Reading]:
    for logs in context.columns(claim.kind.replace("probs", "log_probs"), claim.where, width):
        yield _from(truth.probabilities(logs.rows), claim.kind, "exp", logs, unit=logs.unit)


def _ratios(context: Context, claim: Claim, width: int | None) -> Iterator[Reading]:
    for old, new in _paired(context, claim, "old_log_probs", "new_log_probs", width):
        rows = truth.probabilities(truth.plus(new.rows, old.rows, -1))
        yield _from(rows, "ratio", "ratio", old, new, unit=2 * (old.unit + new.unit))


def _next_values(context: Context, claim: Claim, width: int | None) -> Iterator[Reading]:
    for values in context.columns("values", claim.where, width):
        for after in context.values_after(claim.where, values.width):
            yield _from(tuple((*row[1:], after) for row in values.rows), claim.kind, "next", values)


_RULES: dict[str, Rule] = {
    "rewards": _rewards_with_kl,
    "kl": _kl,
    "old_probs": _probabilities,
    "ref_probs": _probabilities,
    "new_probs": _probabilities,
    "ratio": _ratios,
    "next_values": _next_values,
}
