"""Every reading under which a claimed column could be right, the likeliest first: which inputs, which γ, λ, β.

`expected(context, claim)` yields what the numbers should be under each reading. Readings with settings that the text
states come first; where it states none, those of earlier questions and then the common ones are tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from mingce.explain.claims import truth
from mingce.explain.claims.context import Column, Context
from mingce.explain.claims.inputs import Claim, Inputs, inputs, kls, paired
from mingce.explain.claims.names import CREDIT_KINDS
from mingce.explain.claims.truth import Rows

MOST_READINGS = 400
MOST_OPEN = 2


@dataclass(frozen=True)
class Expected:
    """What a column should be under one reading. `how` names the rule; `inferred` are the settings that the text does
    not state; `carried` if the inputs are another question's."""

    kind: str
    rows: Rows
    how: str
    settings: dict[str, float] = field(default_factory=dict)
    inferred: frozenset[str] = frozenset()
    carried: bool = False
    inputs: Inputs | None = None
    lines: tuple[int, ...] = ()
    off: Rows | None = None
    """How far each number may be off because the inputs are shown rounded."""
    most_units: float = 25.0
    """At most so many units of a claim's last digit; one where three digits are shown, which are often exact."""
    section: int = -1
    """Where all that it rests on stands, if that is one section."""

    @property
    def weak(self) -> bool:
        """True if it rests on numbers that the text may have made from the claim itself."""
        return self.how in ("from_deltas", "return_minus_value", "advantage_plus_value")


def expected(context: Context, claim: Claim, width: int | None = None) -> Iterator[Expected]:
    """The readings of a claim about a column of `width` tokens (any width for a single number)."""
    yield from islice(_readings(context, claim, width), MOST_READINGS)


def _readings(context: Context, claim: Claim, width: int | None) -> Iterator[Expected]:
    kind = claim.kind
    if kind in CREDIT_KINDS:
        here, away = _split(inputs(context, claim, width))
        if settings_of(context, claim)[1]:
            here, away = here[:MOST_OPEN], away[:MOST_OPEN]
        for given in here:
            yield from by_gae(context, claim, given)
        if not here:
            yield from _without_inputs(context, claim, width)
        for given in away:
            yield from by_gae(context, claim, given)
    elif kind == "rewards":
        yield from _kl_rewards(context, claim, width)
    elif kind == "kl":
        for old, ref in paired(context, claim, "old_log_probs", "ref_log_probs", width):
            for estimator in truth.KL_ESTIMATORS:
                yield Expected(
                    kind,
                    truth.kl(old.rows, ref.rows, estimator),
                    estimator,
                    lines=(old.line, ref.line),
                    off=_off(old.rows, old.unit + ref.unit),
                    most_units=_most_units(old.unit + ref.unit),
                )
    elif kind in ("old_probs", "ref_probs", "new_probs"):
        for logs in context.columns(kind.replace("probs", "log_probs"), claim.where, width, carried=False):
            yield Expected(
                kind,
                truth.probabilities(logs.rows),
                "exp",
                lines=(logs.line,),
                off=_off(logs.rows, logs.unit),
                most_units=_most_units(logs.unit),
            )
    elif kind == "ratio":
        for old, new in paired(context, claim, "old_log_probs", "new_log_probs", width):
            yield Expected(
                kind,
                truth.ratios(old.rows, new.rows),
                "ratio",
                lines=(old.line, new.line),
                off=_off(old.rows, 2 * (old.unit + new.unit)),
                most_units=_most_units(2 * (old.unit + new.unit)),
            )
    elif kind == "next_values":
        for values in context.columns("values", claim.where, width, carried=False):
            after = context.value_after(claim.where.question, values.width)
            yield Expected(kind, tuple((*row[1:], after) for row in values.rows), "next", lines=(values.line,))


def _split(found: Iterable[Inputs]) -> tuple[list[Inputs], list[Inputs]]:
    here: list[Inputs] = []
    away: list[Inputs] = []
    for given in found:
        (away if given.carried else here).append(given)
    return here, away


# ── readings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def settings_of(
    context: Context, claim: Claim, carried: bool = False
) -> tuple[list[tuple[float, float]], frozenset[str]]:
    """The pairs (γ, λ) to try for a claim of credit, and which of the two the text leaves open.

    An example that is `carried` over from an earlier question brings the settings along.
    """
    own = dict(claim.settings)
    inferred = set()
    patient = context.searches_left > 0  # a text that fails again and again is tried with less
    gammas = [own["gamma"]] if "gamma" in own else context.stated("gamma", claim.where)
    if not gammas:
        gammas = context.stated_before("gamma", claim.where)
        if not (carried and gammas):
            inferred.add("gamma")
            gammas = [*gammas, *(truth.COMMON_GAMMAS if patient else truth.COMMON_GAMMAS[:2])]
    if claim.kind == "deltas":
        lams = [0.0]
    elif claim.monte_carlo:
        lams = [1.0]
    elif "lam" in own:
        lams = [own["lam"]]
    else:
        lams = context.stated("lam", claim.where)
        implied = context.stated("lam", claim.where, implied=True)
        if lams:
            lams = [*lams, *implied]
        else:
            lams = [*context.stated_before("lam", claim.where), *implied]
            if not (carried and lams):
                inferred.add("lam")
                lams = [*lams, *(truth.COMMON_LAMS if patient else truth.COMMON_LAMS[:2])]
        if claim.kind == "returns":
            lams = [*lams, 1.0]
    if inferred and (found := context.found_pairs.get(claim.where.question)):
        gammas, lams = [found[0], *gammas], [*([found[1]] if claim.kind != "deltas" else []), *lams]
    pairs = [(g, lam) for g in dict.fromkeys(gammas) for lam in dict.fromkeys(lams) if 0 <= g <= 1 and 0 <= lam <= 1]
    return pairs, frozenset(inferred)


def by_gae(context: Context, claim: Claim, given: Inputs) -> Iterator[Expected]:
    """GAE on given inputs under every pair (γ, λ) to try."""
    pairs, inferred = settings_of(context, claim, given.carried)
    for gamma, lam in pairs:
        rows = truth.credit(given.rewards, given.values, gamma, lam, given.after)[claim.kind]
        used = {"gamma": gamma} if claim.kind == "deltas" else {"gamma": gamma, "lam": lam}
        off = None
        if any(given.units):
            shape = tuple(len(row) for row in rows)
            off = truth.credit_slack(shape, gamma, lam, *given.units)[claim.kind]
        yield Expected(claim.kind, rows, "recursion", used, inferred, given.carried, given, given.lines, off,
            _most_units(*given.units))  # fmt: skip


def _without_inputs(context: Context, claim: Claim, width: int | None) -> Iterator[Expected]:
    """What can be said where rewards or values are missing."""
    kind, where = claim.kind, claim.where
    pairs, inferred = settings_of(context, claim)
    if kind == "advantages":
        for deltas in context.columns("deltas", where, width, carried=False):
            for gamma, lam in pairs:
                rows = truth.advantages_from_deltas(deltas.rows, gamma * lam)
                yield Expected(
                    kind,
                    rows,
                    "from_deltas",
                    {"gamma": gamma, "lam": lam},
                    inferred,
                    lines=(deltas.line,),
                    section=deltas.section,
                )
        for returns, values in paired(context, claim, "returns", "values", width):
            rows = truth.plus(returns.rows, values.rows, -1)
            yield Expected(
                kind, rows, "return_minus_value", lines=(returns.line, values.line), section=_one(returns, values)
            )
    if kind == "returns":
        for rewards in context.columns("rewards", where, width, carried=False):
            for gamma in dict.fromkeys(gamma for gamma, _ in pairs):
                rows = truth.monte_carlo_returns(rewards.rows, gamma)
                only = inferred - {"lam"}
                yield Expected(
                    kind,
                    rows,
                    "reward_to_go",
                    {"gamma": gamma},
                    only,
                    lines=(rewards.line,),
                    off=_off(rows, rewards.unit, gamma),
                    most_units=_most_units(rewards.unit),
                )
        for advantages, values in paired(context, claim, "advantages", "values", width):
            rows = truth.plus(advantages.rows, values.rows)
            yield Expected(
                kind,
                rows,
                "advantage_plus_value",
                lines=(advantages.line, values.line),
                section=_one(advantages, values),
            )


def _most_units(*units: float) -> float:
    return 1.0 if max(units) > 2e-4 else 25.0


def _off(rows: Rows, unit: float, decay: float = 0.0) -> Rows | None:
    """How far sums of numbers shown to one `unit` may be off, each adding `decay` times the next."""
    return truth.advantages_from_deltas(tuple((unit / 2,) * len(row) for row in rows), decay) if unit else None


def _one(a: Column, b: Column) -> int:
    return a.section if a.section == b.section else -1


def _kl_rewards(context: Context, claim: Claim, width: int | None) -> Iterator[Expected]:
    betas, inferred = context.stated("beta", claim.where), frozenset[str]()
    if not betas:
        betas, inferred = [*context.stated_before("beta", claim.where), *truth.COMMON_BETAS], frozenset({"beta"})
    for scores in context.columns("scores", claim.where, width, carried=False):
        for kl, lines in kls(context, claim, scores):
            for beta in betas:
                rows = truth.rewards(scores.rows, kl.rows, beta)
                yield Expected(
                    "rewards",
                    rows,
                    "score_minus_kl",
                    {"beta": beta},
                    inferred,
                    lines=(scores.line, *lines),
                    off=_off(rows, scores.unit + beta * kl.unit),
                    most_units=_most_units(scores.unit + beta * kl.unit),
                )
