"""Judging single numbers and the sums they come from: `A_5 = δ_5 + 0.95*A_6 = 0.13 + 0.375 = 0.505`.

Three things are held against each other: the number and what it should be by the twins; each sum and what it gives;
each number put in for a symbol and what that symbol is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mingce.explain.claims import truth, wording
from mingce.explain.claims.context import Context
from mingce.explain.claims.expected import Expected, expected
from mingce.explain.claims.expressions import (
    Number,
    Symbol,
    evaluate,
    shown,
    terms,
)
from mingce.explain.claims.facts import Equation, Scalar, Share
from mingce.explain.claims.formulas import formula, show
from mingce.explain.claims.names import CREDIT_KINDS
from mingce.explain.claims.rounding import LEAST_DECIMALS, agrees, fits, near
from mingce.explain.claims.series import FITS, LOOSE_UNITS, basis
from mingce.explain.claims.sums import last_sum, put_in, step_faults, written
from mingce.explain.claims.verdicts import Answer, Pair, Verdict

MOST_IN_BLOCK = 48
INPUT_KINDS = ("rewards", "values", "next_values")
Lookup = Callable[[Symbol], float | None]


@dataclass(frozen=True)
class Bound:
    """A reading of a single number: which column, and which token of it."""

    reading: Expected
    base: int
    token: int

    @property
    def truth(self) -> float:
        return self.reading.rows[0][self.token]

    def fits(self, number: Number, decimals: int = LEAST_DECIMALS) -> bool:
        """True if a number is the truth up to rounding."""
        off = self.reading.off
        return fits(number, self.truth, off[0][self.token] if off else 0.0, self.reading.most_units, decimals)


class Judge:
    """Judges the single numbers of a text; what was found out about a block of equations is remembered."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._readings: dict[object, list[Expected]] = {}
        self._blocks: dict[object, list[Scalar]] = {}
        self._scores: dict[object, tuple[int, int]] = {}
        for fact in context.facts:
            if isinstance(fact, Scalar):
                self._blocks.setdefault(self._block(fact), []).append(fact)

    # ── a number of a column ─────────────────────────────────────────────────────────────────────────────────────────

    def scalar(self, scalar: Scalar) -> Verdict | None:
        """The verdict on one number; None if it is simply given."""
        if scalar.kind not in CREDIT_KINDS and not self._has_sum(scalar):
            return self._given(scalar)
        bounds = list(self._bounds(scalar))
        decimals = max(LEAST_DECIMALS, scalar.number.decimals)
        if not bounds:
            return self._without_truth(scalar)
        best = max(bounds, key=lambda bound: self._score(scalar, bound)[0])
        fitting = [bound for bound in bounds if bound.fits(scalar.number, decimals)]
        if best.reading.inferred:  # numbers that stand together have one γ and one λ
            top = self._score(scalar, best)[0]
            fitting = [bound for bound in fitting if self._score(scalar, bound)[0] == top]
        if fitting:
            return self._checked(scalar, max(fitting, key=lambda bound: self._score(scalar, bound)[0]))
        if scalar.where.supposed or not self._convicts(scalar, best):
            return self._without_truth(scalar)
        if self._explained(scalar, best):
            return self._verdict(scalar, best, "right", (wording.LOOSE,), loose=True)
        hits, total = self._score(scalar, best)
        if best.reading.inferred & {"gamma", "lam"} and hits < FITS * total and total > 2:
            return self._verdict(scalar, best, "wrong", (wording.NO_COMMON_PAIR, *self._reasons(scalar, best)))
        return self._verdict(scalar, best, "wrong", self._reasons(scalar, best))

    def _has_sum(self, scalar: Scalar) -> bool:
        return scalar.chain is not None and any(
            evaluate(side) is not None and shown(side) is None for side in scalar.chain.sides
        )

    def _bounds(self, scalar: Scalar) -> Iterator[Bound]:
        """Every column and token that the number could be."""
        for reading in self._readings_of(scalar):
            width = len(reading.rows[0])
            bases = (0,) if scalar.from_zero else self.context.bases(scalar.where.question, width)
            for base in bases:
                if 0 <= scalar.index - base < width:
                    yield Bound(reading, base, scalar.index - base)

    def _readings_of(self, scalar: Scalar) -> list[Expected]:
        key = (self._block(scalar), scalar.kind, scalar.settings, scalar.monte_carlo)
        if key not in self._readings:
            found = [reading for reading in expected(self.context, scalar) if len(reading.rows) == 1]
            listed = self.context.columns(scalar.kind, scalar.where, carried=False)
            if not any(not reading.carried for reading in found) and not scalar.where.by_user:
                lists = [column for column in listed if len(column.rows) == 1 and not column.one_by_one]
                found = [*(Expected(scalar.kind, c.rows, "given", lines=(c.line,)) for c in lists), *found]
            self._readings[key] = found
        return self._readings[key]

    def _block(self, scalar: Scalar) -> tuple[object, ...]:
        """Equations that stand together, with no new rewards or values between them."""
        where = scalar.where
        places = tuple(self.context.place(kind, where) for kind in ("rewards", "values"))
        return (where.question, where.by_user, where.section, *places)

    def _score(self, scalar: Scalar, bound: Bound) -> tuple[int, int]:
        """How many numbers of the block agree with a reading, and out of how many; numbers put in count as well."""
        reading = bound.reading
        block = self._blocks[self._block(scalar)]
        if reading.inputs is None or ("lam" not in reading.settings and reading.kind != "deltas"):
            return int(agrees(scalar.number, bound.truth)), 1
        gamma, lam = reading.settings["gamma"], reading.settings.get("lam", 1.0)
        key = (self._block(scalar), reading.inputs, gamma, lam, bound.base)
        if key not in self._scores:
            lookup = self._lookup(bound)
            hits = total = 0
            for other in block[:MOST_IN_BLOCK]:
                should = lookup(Symbol("", other.kind, other.index, from_zero=other.from_zero))
                if other.kind in CREDIT_KINDS and should is not None:
                    total += 1
                    hits += agrees(other.number, should)
                for term, number in put_in(other.chain):
                    if not isinstance(term, Symbol) or term.kind not in INPUT_KINDS:
                        continue
                    if (should := lookup(term)) is not None:
                        hits += agrees(number, should)
                        total += 1
            self._scores[key] = (hits, max(total, 1))
        return self._scores[key]

    def _convicts(self, scalar: Scalar, bound: Bound) -> bool:
        """False if the reading's inputs may belong to another example."""
        reading = bound.reading
        if reading.how == "given":
            return True
        if reading.weak:
            return reading.section == scalar.where.section and reading.how != "return_minus_value"
        doubtful = reading.carried or (reading.inputs is not None and reading.inputs.scores_as_rewards)
        if not doubtful:
            return True
        hits, _ = self._score(scalar, bound)
        return hits >= 2 or (hits >= 1 and self._said_before(scalar))

    def _said_before(self, scalar: Scalar) -> bool:
        """True if every number of the block was claimed for the same column in an earlier question."""
        block = [other for other in self._blocks[self._block(scalar)] if other.kind == scalar.kind][:MOST_IN_BLOCK]
        earlier = {
            other.number.value
            for question in self.context.before(scalar.where.question)
            for other in self.context.scalars(question, scalar.kind)
        }
        return all(other.number.value in earlier for other in block)

    def _lookup(self, bound: Bound) -> Lookup:
        """What a symbol is under a reading."""
        reading, base = bound.reading, bound.base
        given, used = reading.inputs, reading.settings
        if given is None:
            width = len(reading.rows[0])

            def listed(symbol: Symbol) -> float | None:
                place = None if symbol.index is None else symbol.index - (0 if symbol.from_zero else base)
                same = symbol.kind == reading.kind and place is not None and 0 <= place < width
                return reading.rows[0][place] if same and place is not None else None

            return listed
        credit = truth.credit(given.rewards, given.values, used["gamma"], used.get("lam", 1.0), given.after)
        columns = {"rewards": given.rewards[0], "values": (*given.values[0], given.after[0])}
        columns |= {kind: credit[kind][0] for kind in CREDIT_KINDS}
        if "lam" not in used:
            del columns["advantages"], columns["returns"]

        def value(symbol: Symbol) -> float | None:
            if symbol.kind in ("gamma", "lam"):
                return used.get(symbol.kind)
            place = None if symbol.index is None else symbol.index - (0 if symbol.from_zero else base)
            column = columns.get(symbol.kind or "")
            if column is None or place is None or symbol.name in ("Q", "G"):
                return None
            return column[place] if 0 <= place < len(column) else None

        return value

    # ── verdicts ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _checked(self, scalar: Scalar, bound: Bound) -> Verdict:
        """The number is right; are the sums in front of it?"""
        faults = [*step_faults(scalar.chain, result_is_right=True), *self._term_faults(scalar, bound)]
        if faults:
            return self._verdict(scalar, bound, "wrong", tuple(faults))
        return self._verdict(scalar, bound, "right", ())

    def _explained(self, scalar: Scalar, bound: Bound) -> bool:
        """True if the number is what rounding on the way gives: its sum is right, and so are the numbers put in."""
        if scalar.chain is None or not near(scalar.number, bound.truth, LOOSE_UNITS):
            return False
        if not self._has_sum(scalar) or list(step_faults(scalar.chain)):
            return False
        return not list(self._term_faults(scalar, bound, LOOSE_UNITS))

    def _reasons(self, scalar: Scalar, bound: Bound) -> tuple[Pair, ...]:
        steps = list(step_faults(scalar.chain))
        put_in = list(self._term_faults(scalar, bound))
        notes: list[Pair] = [*steps, *put_in]
        if self._reward_for_delta(scalar, bound):
            notes.append(wording.REWARD_FOR_DELTA)
        elif not notes and self._has_sum(scalar):
            notes.append(wording.FOLLOWS)
        return tuple(notes)

    def _reward_for_delta(self, scalar: Scalar, bound: Bound) -> bool:
        """True if the sum of an advantage begins with the token's reward, which is not its TD error."""
        if scalar.kind != "advantages" or scalar.chain is None or bound.reading.inputs is None:
            return False
        lookup = self._lookup(bound)
        reward = lookup(Symbol("r", "rewards", scalar.index, from_zero=scalar.from_zero))
        delta = lookup(Symbol("δ", "deltas", scalar.index, from_zero=scalar.from_zero))
        if reward is None or delta is None:
            return False
        for side in scalar.chain.sides:
            found = terms(side)
            if len(found) == 2 and (number := shown(found[0][1])) is not None:
                return agrees(number, reward) and not agrees(number, delta)
        return False

    def _term_faults(self, scalar: Scalar, bound: Bound, units: float = 0.5) -> Iterator[Pair]:
        lookup = self._lookup(bound)
        for term, number in put_in(scalar.chain):
            should = evaluate(term, lookup)
            if should is not None and not near(number, should, max(units, 1.0)):
                yield wording.term_words(written(term), number.value, should)

    def _verdict(
        self, scalar: Scalar, bound: Bound, status: str, notes: tuple[Pair, ...], loose: bool = False
    ) -> Verdict:
        reading = bound.reading
        wrong = status == "wrong"
        worked = formula(reading, 0, bound.token, bound.base) if wrong else ""
        if reading.how == "given":
            line = reading.lines[0]
            notes = (*notes, wording.given_words(line, bound.truth) if wrong else wording.as_given(line))
        return Verdict(
            "wrong" if wrong else "right",
            scalar.where,
            scalar.kind,
            _claim(scalar),
            ((scalar.number,),),
            (Answer(("", ""), ((bound.truth,),)),),
            ((0, 0),) if wrong else (),
            (worked,) if worked else (),
            notes,
            basis(reading),
            loose,
        )

    def _without_truth(self, scalar: Scalar) -> Verdict | None:
        """Where nothing says what the number should be, only its sums can be checked."""
        faults = list(step_faults(scalar.chain))
        claimed = ((scalar.number,),)
        if faults:
            right = last_sum(scalar.chain)
            answers = () if right is None else (Answer(("", ""), ((right,),)),)
            return Verdict(
                "wrong", scalar.where, scalar.kind, _claim(scalar), claimed, answers, ((0, 0),), (), tuple(faults)
            )
        if self._has_sum(scalar):
            return Verdict("right", scalar.where, scalar.kind, _claim(scalar), claimed)
        if scalar.where.by_user or scalar.kind not in CREDIT_KINDS:
            return None
        return Verdict("unknown", scalar.where, scalar.kind, _claim(scalar), claimed, notes=(wording.NO_INPUTS,))

    def _given(self, scalar: Scalar) -> Verdict | None:
        """A number that is simply told, such as r_1 = −0.01: against the list of the same kind before it."""
        if scalar.where.supposed:
            return None
        close: list[tuple[float, int]] = []
        for column in self.context.columns(scalar.kind, scalar.where, carried=False):
            bases = (0,) if scalar.from_zero else self.context.bases(scalar.where.question, column.width)
            if len(column.rows) > 1 or column.line > scalar.where.line or column.one_by_one:
                continue
            for base in bases:
                if 0 <= scalar.index - base < column.width:
                    close.append((column.rows[0][scalar.index - base], column.line))
        if not close or any(agrees(scalar.number, value) for value, _ in close):
            return None
        value, line = close[0]
        if line == scalar.where.line:
            return None
        answers = (Answer(("", ""), ((value,),)),)
        return Verdict(
            "wrong", scalar.where, scalar.kind, _claim(scalar), ((scalar.number,),), answers, ((0, 0),),
            (), (wording.given_words(line, value),),
        )  # fmt: skip

    # ── sums and shares ──────────────────────────────────────────────────────────────────────────────────────────────

    def equation(self, equation: Equation) -> Verdict | None:
        """The verdict on plain arithmetic such as e^{−0.12} ≈ 0.887, with the symbols in it if the block knows them."""
        chain = equation.chain
        faults = list(step_faults(chain))
        checked = sum(evaluate(side) is not None for side in chain.sides)
        if checked < 2:
            return None
        claim = equation.where.quote
        number = shown(chain.sides[-1])
        claimed = ((number,),) if number else None
        if not faults:
            return Verdict("right", equation.where, "arithmetic", claim, claimed)
        right = last_sum(chain)
        answers = () if right is None else (Answer(("", ""), ((right,),)),)
        return Verdict("wrong", equation.where, "arithmetic", claim, claimed, answers, ((0, 0),), (), tuple(faults))

    def share(self, share: Share) -> Verdict | None:
        """The verdict on "90 % of the last reward": the weight (γλ)^k, or the advantage over the last reward."""
        scalar = Scalar("advantages", share.index, share.percent, share.where)
        block = self._blocks.get(self._block(scalar))
        if not block:
            return None
        bounds = [bound for bound in self._bounds(scalar) if bound.reading.inputs is not None]
        if not bounds or bounds[0].reading.inferred:
            return None
        best = max(bounds[:200], key=lambda bound: self._score(scalar, bound)[0])
        if not self._convicts(block[0], best):
            return None
        given, used = best.reading.inputs, best.reading.settings
        assert given is not None
        steps = len(given.rewards[0]) - 1 - best.token
        weight = truth.advantages_from_deltas(((*(0.0,) * steps, 1.0),), used["gamma"] * used.get("lam", 1.0))[0][0]
        last = given.rewards[0][-1]
        claim = f"{100 * share.percent.value:g}%"
        fine = agrees(share.percent, weight) or (last and agrees(share.percent, best.truth / last))
        if fine:
            return Verdict("right", share.where, "share", claim, ((share.percent,),))
        worked = f"(γλ)^{steps} = {show(used['gamma'] * used.get('lam', 1.0))}^{steps} = {show(weight)}"
        answers = (Answer(("", ""), ((weight,),)),)
        return Verdict(
            "wrong", share.where, "share", claim, ((share.percent,),), answers, ((0, 0),), (worked,),
            basis=basis(best.reading),
        )  # fmt: skip


def _claim(scalar: Scalar) -> str:
    name = {"advantages": "A", "deltas": "δ", "returns": "R", "rewards": "r", "values": "V"}.get(
        scalar.kind, scalar.kind
    )
    name = "G" if scalar.kind == "returns" and scalar.monte_carlo else name
    return f"{name}_{scalar.index} = {scalar.number.value:.{max(scalar.number.decimals, 0)}f}"
