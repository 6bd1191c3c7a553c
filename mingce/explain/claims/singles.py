"""Judging single numbers and the sums they come from: `A_5 = δ_5 + 0.95*A_6 = 0.13 + 0.375 = 0.505`.

Three things are held against each other: the number and what it should be by the twins; each sum and what it gives;
each number put in for a symbol and what that symbol is. Where the text states no γ or λ, only the sums are judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mingce.explain.claims.context import GLOBAL, Column, Context
from mingce.explain.claims.expected import WEAK, Reading, readings
from mingce.explain.claims.expressions import Number, Symbol, evaluate, shown, terms
from mingce.explain.claims.formulas import formula, show
from mingce.explain.claims.lists import LOOSE_UNITS, basis
from mingce.explain.claims.names import CREDIT_KINDS
from mingce.explain.claims.quantities import Equation, Scalar, Share
from mingce.explain.claims.rounding import LEAST_DECIMALS, agrees, fits, near
from mingce.explain.claims.sums import last_sum, put_in, step_faults, written
from mingce.explain.claims.verdicts import Answer, Pair, Status, Verdict, note

MOST_IN_BLOCK = 48
LAST = -1
INPUT_KINDS = ("rewards", "values", "next_values")
_NAMES = {"advantages": "A", "deltas": "δ", "returns": "R", "rewards": "r", "values": "V"}


@dataclass(frozen=True)
class Account:
    """A reading of single numbers: which columns, and what the text calls the first token."""

    reading: Reading
    base: int

    def value(self, symbol: Symbol) -> float | None:
        """What a symbol is under the reading."""
        if symbol.kind in ("gamma", "lam"):
            return self.reading.settings.get(symbol.kind)
        no_lam = self.reading.how == "recursion" and "lam" not in self.reading.settings
        hidden = no_lam and symbol.kind in ("advantages", "returns")
        column = self.reading.rows.get(symbol.kind or "", ((),))[0]
        if symbol.index is None or symbol.name in ("Q", "G") or hidden:
            return None
        if symbol.kind == "values":
            column += self.reading.after[:1]
        place = self._place(self._slot(symbol)) if symbol.index >= self.base or symbol.from_zero else None
        return column[place] if place is not None and place < len(column) else None

    def truth(self, scalar: Scalar) -> float:
        return self.reading.rows[scalar.kind][0][self.place(scalar)]

    def place(self, scalar: Scalar) -> int:
        place = self._place(self._slot(scalar))
        assert place is not None
        return place

    def holds(self, scalar: Scalar) -> bool:
        """True if there is such a token."""
        place = self._place(self._slot(scalar))
        return place is not None and place < len(self.reading.rows[scalar.kind][0])

    def _slot(self, one: Scalar | Symbol) -> int:
        index = one.index or 0
        return index if one.from_zero else max(index - self.base, LAST - 1)

    def _place(self, slot: int) -> int | None:
        """Which of the chosen tokens a slot is; −1 is the last one."""
        slots = self.reading.slots
        if slot == LAST:
            return len(next(iter(self.reading.rows.values()))[0]) - 1
        if slots is None or slot > slots[-1]:
            return slot - (0 if slots is None else slots[-1] + 1 - len(slots)) if slot >= 0 else None
        return slots.index(slot) if slot in slots else None

    def fits(self, scalar: Scalar) -> bool:
        """True if a number is the truth up to rounding."""
        off = self.reading.slack(scalar.kind, 0, self.place(scalar))
        decimals = max(LEAST_DECIMALS, scalar.number.decimals)
        return fits(scalar.number, self.truth(scalar), off, self.reading.most, decimals)


class Singles:
    """Judges the single numbers of a text; numbers that stand together, a block, are about one example."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._readings: dict[object, list[Reading]] = {}
        self._blocks: dict[object, list[Scalar]] = {}
        self._scores: dict[object, int] = {}
        for fact in context.facts:
            if isinstance(fact, Scalar):
                self._blocks.setdefault(self._block(fact), []).append(fact)
        self._last = {
            block: max((one.index for one in all_ if one.kind != "values"), default=0)
            for block, all_ in self._blocks.items()
        }
        """The largest index of each block."""

    def judge(self, scalar: Scalar) -> Verdict | None:
        """The verdict on one number; None if it is simply given."""
        if scalar.kind not in CREDIT_KINDS and not _has_sum(scalar):
            return self._against_lists(scalar)
        accounts = list(self._accounts(scalar))
        if not accounts:
            return _by_sums(scalar)
        fitting = [account for account in accounts if account.fits(scalar)]
        best = max(fitting or accounts, key=lambda account: self._score(scalar, account))
        if fitting:
            faults = [*step_faults(scalar.chain, result_is_right=True), *_term_faults(scalar, best)]
            return _verdict(scalar, best, "wrong" if faults else "right", tuple(faults))
        if scalar.where.supposed or not self._convicts(scalar, best):
            return _by_sums(scalar)
        if _explained(scalar, best):
            return _verdict(scalar, best, "right", (note("check_log.loose"),), loose=True)
        following = self._following(scalar, best)
        return _verdict(scalar, best, "wrong", _reasons(scalar, best, following), following=following)

    def _accounts(self, scalar: Scalar) -> Iterator[Account]:
        """Every column and token that the number could be."""
        for reading in self._readings_of(scalar):
            width = reading.slots[-1] + 1 if reading.slots else len(reading.rows[scalar.kind][0])
            bases = (0,) if scalar.from_zero else self.context.bases(scalar.where, width)
            accounts = (Account(reading, base) for base in bases if self._last[self._block(scalar)] < width + base)
            yield from (account for account in accounts if account.holds(scalar))

    def _readings_of(self, scalar: Scalar) -> list[Reading]:
        key = (self._block(scalar), scalar.kind, scalar.settings, scalar.monte_carlo)
        if key not in self._readings:
            all_readings = readings(self.context, scalar)
            sure = [one for one in all_readings if len(one.rows[scalar.kind]) == 1 and not one.guessed]
            sure = [one for one in sure if one.section in (scalar.where.section, GLOBAL)] or sure
            if all(one.carried for one in sure) and not scalar.where.by_user:
                listed = [
                    Reading({scalar.kind: c.rows}, "given", lines=(c.line,), slots=c.slots)
                    for c in self._listed(scalar)
                ]
                sure = [*listed, *sure]
            self._readings[key] = sure
        return self._readings[key]

    def _listed(self, scalar: Scalar) -> list[Column]:
        """The lists of the same kind in the question."""
        columns = self.context.columns(scalar.kind, scalar.where)
        return [column for column in columns if len(column.rows) == 1 and not column.one_by_one]

    def _block(self, scalar: Scalar) -> tuple[object, ...]:
        """Equations that stand together, with no new rewards or values between them."""
        where = scalar.where
        places = tuple(self.context.place(kind, where) for kind in ("rewards", "values"))
        return (where.question, where.by_user, where.section, *places)

    def _score(self, scalar: Scalar, account: Account) -> int:
        """How many numbers of the block agree with a reading; numbers put in count as well."""
        if account.reading.how != "recursion":
            return int(agrees(scalar.number, account.truth(scalar)))
        key = (self._block(scalar), id(account.reading), account.base)
        if key not in self._scores:
            pairs: list[tuple[Symbol, Number]] = []
            for other in self._blocks.get(self._block(scalar), [])[:MOST_IN_BLOCK]:
                if other.kind in CREDIT_KINDS:
                    pairs.append((Symbol("", other.kind, other.index, from_zero=other.from_zero), other.number))
                if other.kind == "advantages" and (first := _first_term(other)) is not None:
                    slot = other.index, "", other.from_zero
                    pairs += [(Symbol("", "rewards", *slot), first), (Symbol("", "deltas", *slot), first)]
                terms_of = ((term, number) for term, number in put_in(other.chain) if isinstance(term, Symbol))
                pairs += [(term, number) for term, number in terms_of if term.kind in INPUT_KINDS]
            truths = [(number, account.value(symbol)) for symbol, number in pairs]
            self._scores[key] = sum(truth is not None and agrees(number, truth) for number, truth in truths)
        return self._scores[key]

    def _following(self, scalar: Scalar, account: Account) -> float | None:
        """The advantage after this one by the block's own end, where that is worked out from numbers of its own."""
        reading = account.reading
        if scalar.kind != "advantages" or reading.how != "recursion" or reading.section == GLOBAL:
            return None
        deltas, place = reading.rows["deltas"][0], account.place(scalar)
        for one in self._blocks.get(self._block(scalar), [])[:MOST_IN_BLOCK]:
            ends = one.kind == "advantages" and account.holds(one) and account.place(one) + 1 == len(deltas)
            value = last_sum(one.chain) if ends and place + 1 < len(deltas) else None
            if value is None or not near(one.number, account.truth(one), 1.0) or [*step_faults(one.chain)]:
                continue
            for t in range(len(deltas) - 2, place, -1):
                value = deltas[t] + reading.gamma * reading.lam * value
            return value
        return None

    def _convicts(self, scalar: Scalar, account: Account) -> bool:
        """False if the reading may be about another example or case."""
        reading = account.reading
        if reading.open:
            return False
        if reading.how in WEAK:
            return reading.section == scalar.where.section and reading.how != "return_minus_value"
        return not reading.carried or self._score(scalar, account) >= 1

    def _against_lists(self, scalar: Scalar) -> Verdict | None:
        """A number that is simply told, such as r_1 = −0.01: against the list of the same kind before it."""
        close: list[tuple[float, int]] = []
        for column in self._listed(scalar) if not scalar.where.supposed else ():
            if column.section == GLOBAL and _subject_index(scalar) is None:
                continue
            slots = column.slots or tuple(range(column.width))
            bases = (0,) if scalar.from_zero else self.context.bases(scalar.where, slots[-1] + 1)
            places = [slots.index(scalar.index - base) for base in bases if scalar.index - base in slots]
            if column.line <= scalar.where.line:
                close += [(column.rows[0][place], column.line) for place in places]
        if not close or any(agrees(scalar.number, value) or line == scalar.where.line for value, line in close):
            return None
        value, line = close[0]
        return _plain_wrong(scalar, value, (note("check_log.line_gives", line=line, value=show(value)),))

    def judge_share(self, share: Share) -> Verdict | None:
        """The verdict on "90 % of the last reward": the weight (γλ)^k, or the advantage over the last reward."""
        scalar = Scalar("advantages", share.index, share.percent, share.where)
        block = self._blocks.get(self._block(scalar), [])
        if not block:
            return None
        accounts = [account for account in self._accounts(scalar) if account.reading.how == "recursion"]
        if not accounts or accounts[0].reading.open:
            return None
        best = max(accounts, key=lambda account: self._score(scalar, account))
        if not self._convicts(block[0], best):
            return None
        rewards = best.reading.rows["rewards"][0]
        decay, steps = best.reading.gamma * best.reading.lam, len(rewards) - 1 - best.place(scalar)
        shares = [decay**steps] + [best.truth(scalar) / last for last in rewards[-1:] if last]
        claim = f"{100 * share.percent.value:g}%"
        if any(agrees(share.percent, one) for one in shares):
            return Verdict("right", share.where, "share", claim, ((share.percent,),))
        worked = f"(γλ)^{steps} = {show(decay)}^{steps} = {show(shares[0])}"
        return Verdict(
            "wrong", share.where, "share", claim, ((share.percent,),), (Answer(((shares[0],),)),), ((0, 0),),
            (worked,), basis=basis(best.reading),
        )  # fmt: skip


def judge_equation(equation: Equation) -> Verdict | None:
    """The verdict on plain arithmetic such as e^{−0.12} ≈ 0.887."""
    chain, where = equation.chain, equation.where
    if sum(evaluate(side) is not None for side in chain.sides) < 2:
        return None
    number = shown(chain.sides[-1])
    claimed = ((number,),) if number else None
    if not (faults := tuple(step_faults(chain))):
        return Verdict("right", where, "arithmetic", where.quote, claimed)
    return Verdict("wrong", where, "arithmetic", where.quote, claimed, _sum_answers(equation), ((0, 0),), notes=faults)


def _sum_answers(claim: Scalar | Equation) -> tuple[Answer, ...]:
    right = last_sum(claim.chain)
    return () if right is None else (Answer(((right,),)),)


def _by_sums(scalar: Scalar) -> Verdict | None:
    """Where nothing says what the number should be, only its sums can be checked."""
    if faults := tuple(step_faults(scalar.chain)):
        return Verdict(
            "wrong", scalar.where, scalar.kind, _claim(scalar), ((scalar.number,),), _sum_answers(scalar), ((0, 0),),
            notes=faults,
        )  # fmt: skip
    if _has_sum(scalar):
        return Verdict("right", scalar.where, scalar.kind, _claim(scalar), ((scalar.number,),))
    if scalar.where.by_user or scalar.kind not in CREDIT_KINDS:
        return None
    why = (note("check_log.no_inputs"),)
    return Verdict("unknown", scalar.where, scalar.kind, _claim(scalar), ((scalar.number,),), notes=why)


def _plain_wrong(scalar: Scalar, right: float, notes: tuple[Pair, ...]) -> Verdict:
    answers = (Answer(((right,),)),)
    return Verdict(
        "wrong", scalar.where, scalar.kind, _claim(scalar), ((scalar.number,),), answers, ((0, 0),), notes=notes
    )


def _verdict(
    scalar: Scalar,
    account: Account,
    status: Status,
    notes: tuple[Pair, ...],
    loose: bool = False,
    following: float | None = None,
) -> Verdict:
    reading, wrong, right, place = account.reading, status == "wrong", account.truth(scalar), account.place(scalar)
    if following is not None:
        right = reading.rows["deltas"][0][place] + reading.gamma * reading.lam * following
    worked = formula(reading, scalar.kind, 0, place, account.base, following) if wrong else ""
    if reading.how == "given":
        key = "check_log.line_gives" if wrong else "check_log.as_in_line"
        notes = (*notes, note(key, line=reading.lines[0], value=show(right)))
    return Verdict(
        status, scalar.where, scalar.kind, _claim(scalar), ((scalar.number,),), (Answer(((right,),)),),
        ((0, 0),) if wrong else (), (worked,) if worked else (), notes, basis(reading), loose,
    )  # fmt: skip


def _subject_index(scalar: Scalar) -> int | None:
    """The index as the number's own symbol has it; None where only the line says which token it is about."""
    first = scalar.chain.sides[0] if scalar.chain else None
    return first.index if isinstance(first, Symbol) else scalar.index


def _has_sum(scalar: Scalar) -> bool:
    sides = scalar.chain.sides if scalar.chain else ()
    return any(evaluate(side) is not None and shown(side) is None for side in sides)


def _explained(scalar: Scalar, account: Account) -> bool:
    """True if the number is what rounding on the way gives: its sum is right, and so are the numbers put in."""
    if not _has_sum(scalar) or not near(scalar.number, account.truth(scalar), LOOSE_UNITS):
        return False
    return not [*step_faults(scalar.chain), *_term_faults(scalar, account, LOOSE_UNITS)]


def _reasons(scalar: Scalar, account: Account, following: float | None = None) -> tuple[Pair, ...]:
    notes = [*step_faults(scalar.chain), *_term_faults(scalar, account, following=following)]
    if _reward_for_delta(scalar, account):
        notes.append(note("check_log.reward_for_delta"))
    elif not notes and _has_sum(scalar):
        notes.append(note("check_log.follows"))
    return tuple(notes)


def _reward_for_delta(scalar: Scalar, account: Account) -> bool:
    """True if the sum of an advantage begins with the token's reward, which is not its TD error."""
    if scalar.kind != "advantages" or scalar.chain is None or account.reading.how != "recursion":
        return False
    reward, delta = (account.reading.rows[kind][0][account.place(scalar)] for kind in ("rewards", "deltas"))
    number = _first_term(scalar)
    return number is not None and agrees(number, reward) and not agrees(number, delta)


def _first_term(scalar: Scalar) -> Number | None:
    """The number that a sum of two begins with."""
    sides = scalar.chain.sides if scalar.chain else ()
    firsts = (shown(terms(side)[0][1]) for side in sides if len(terms(side)) == 2)
    return next((first for first in firsts if first is not None), None)


def _term_faults(
    scalar: Scalar, account: Account, units: float = 1.0, following: float | None = None
) -> Iterator[Pair]:
    """The numbers put in for symbols that are not what these are; `following` is the text's own next advantage."""

    def value(symbol: Symbol) -> float | None:
        is_next = symbol.kind == "advantages" and symbol.index == scalar.index + 1
        return following if is_next and following is not None else account.value(symbol)

    for term, number in put_in(scalar.chain):
        should = evaluate(term, value)
        if should is not None and not near(number, should, units):
            yield note("check_log.wrong_term", name=written(term), value=show(should), shown=show(number.value))


def _claim(scalar: Scalar) -> str:
    name = "G" if scalar.kind == "returns" and scalar.monte_carlo else _NAMES.get(scalar.kind, scalar.kind)
    index = "{T−1}" if scalar.index == LAST else scalar.index
    return f"{name}_{index} = {scalar.number.value:.{max(scalar.number.decimals, 0)}f}"
