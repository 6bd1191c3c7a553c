"""Trying an equation: in general, under conditions, in expectation with an exact critic; and how its sides differ."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mingce.explain.equations.evaluation import Evaluation
from mingce.explain.equations.names import SETTINGS, STATE
from mingce.explain.equations.parser import parse
from mingce.explain.equations.reading import Equation, free_of_index
from mingce.explain.equations.tokens import plain, tokens
from mingce.explain.equations.tree import (
    Call,
    Mean,
    Minus,
    Node,
    Num,
    Op,
    Series,
    Sum,
    Sym,
    Unknown,
    Var,
    has,
    nodes,
    symbols,
)  # fmt: skip
from mingce.explain.equations.worlds import CONDITIONS, Row, exact_rows, random_rows

CLOSE = 1e-9
PAIRS = (
    ("lam1", "gamma1"), ("lam0", "gamma1"), ("lam1", "beta0"), ("gamma1", "beta0"), ("lam0", "beta0"), ("first", "raw"),
    ("gamma1", "last"), ("beta0", "last"), ("first", "beta0"), ("no_clip", "raw"), ("lam1", "gamma1", "beta0"),
    ("lam1", "gamma1", "beta0", "sparse"), ("lam1", "beta0", "sparse"), ("gamma1", "beta0", "sparse"),
    ("sparse", "beta0"),
)  # fmt: skip
"""Conditions that are tried together where one alone is not enough."""
MOST_PLACES, HEAD = 64, 3
"""Of a longer row both ends are tried."""
_IN_LOSSES = ("policy_loss", "objective")


@dataclass(frozen=True)
class Trial:
    """An equation ready to be tried; `spread` if a sum without bounds runs from t on."""

    left: Node
    right: Node
    relation: str
    free: bool
    lengths: tuple[int, ...]
    estimator: str
    fixed: tuple[str, ...] = ()
    spread: bool = True
    room: float = CLOSE

    def values(self, row: Row, t: int | None) -> tuple[float, float]:
        """Both sides at a token; raises Unknown."""
        env = {} if t is None else {"t": t}
        evaluation = Evaluation(row, self.spread)
        sides = evaluation.value(self.left, env), evaluation.value(self.right, env)
        if not all(map(math.isfinite, sides)):
            raise Unknown("infinite")
        return sides

    def places(self, row: Row, conditions: Sequence[str] = ()) -> Sequence[int | None]:
        """The tokens it speaks of."""
        if not self.free:
            return (None,)
        if "last" in (*conditions, *self.fixed):
            return (row.count - 1,)
        return range(row.count) if row.count <= MOST_PLACES else (*range(HEAD), *range(row.count - HEAD, row.count))

    def holds_in(self, row: Row, conditions: Sequence[str] = ()) -> bool | None:
        """Whether it holds at every token of a row; None where no token can tell."""
        seen = False
        for t in self.places(row, conditions):
            try:
                a, b = self.values(row, t)
            except Unknown:
                continue
            seen = True
            if not related(a, b, self.relation, self.room):
                return False
        return True if seen else None

    def holds(self, conditions: Sequence[str] = (), cut: bool = False) -> bool:
        """Whether it holds in all random rows under these conditions."""
        every = tuple(dict.fromkeys((*self.fixed, *conditions)))
        results = [self.holds_in(row, every) for row in random_rows(every, self.lengths, self.estimator, cut)]
        return bool(results) and all(results)

    def holds_in_expectation(self, conditions: Sequence[str] = ()) -> bool:
        """Whether both sides have the same mean given the state (with the choice, where it speaks of one)."""
        if self.relation not in ("=", "≈"):
            return False
        state = has(self.left, Mean) or has(self.right, Mean) or self._about_states()
        sums: dict[tuple[int, int], float] = defaultdict(float)
        scale = 0.0
        every = (*self.fixed, *conditions)
        for row in exact_rows(every, self.estimator):
            for t in self.places(row):
                try:
                    a, b = self.values(row, t)
                except Unknown:
                    return False
                at = 0 if t is None else t
                sums[at, row.groups[at if state else at + 1]] += row.weight * (a - b)
                scale += row.weight * (abs(a) + abs(b))
        return bool(sums) and scale > 0 and all(abs(x) <= 1e-9 * max(1.0, scale) for x in sums.values())

    def about_values(self) -> bool:
        """Whether it says what V is, or speaks of Q or an expectation: then its meaning is a mean."""
        sides = (self.left, self.right)
        of_value = any(isinstance(side, Sym) and side.kind == "values" for side in sides)
        return of_value or any(has(side, Mean) or any(s.kind == "q" for s in symbols(side)) for side in sides)

    def _about_states(self) -> bool:
        sides = [side.kind for side in (self.left, self.right) if isinstance(side, Sym)]
        return any(kind in STATE for kind in sides)


def related(a: float, b: float, relation: str, room: float = CLOSE) -> bool:
    """Whether the relation holds between two numbers, up to the last bits."""
    same = abs(a - b) <= room * (1 + abs(a) + abs(b))
    match relation:
        case "<":
            return a < b and not same
        case ">":
            return a > b and not same
        case "≤":
            return a <= b or same
        case "≥":
            return a >= b or same
        case "≠":
            return not same
    return same


# ── making a trial ───────────────────────────────────────────────────────────────────────────────────────────────────


def trial_of(equation: Equation, estimator: str, fixed: tuple[str, ...], count: int) -> Trial:
    """The equation with its symbols read in its own context; `count` is how many tokens the rollout at hand has."""
    left, right = equation.left, _running(equation)
    left, right = _with_hats(left, right)
    kinds = {sym.kind for side in (left, right) for sym in symbols(side)}
    if kinds & set(_IN_LOSSES):
        left, right = (_changed(side, {"advantages": "used"}) for side in (left, right))
    if "value_loss" in kinds:
        left, right = (_updated(side, "new_values" in kinds) for side in (left, right))
    free = free_of_index(left) or free_of_index(right)
    last = _largest_index((left, right))
    lengths = (
        (max(last + 1, count),) * 6 if last >= 0 and not free else tuple(max(last + 1, 3) + k % 3 for k in range(6))
    )
    room = 1e-5 if "whitened" in kinds else CLOSE  # people leave out the 10⁻⁸ below the root
    lengths = tuple(min(n, 200) for n in lengths)
    return Trial(left, right, equation.relation, free, lengths, estimator, fixed, room=room)


def _with_hats(left: Node, right: Node) -> tuple[Node, Node]:
    """Where Â and A both occur, Â is the whitened one."""
    plain = [
        not sym.text.startswith("Â") for side in (left, right) for sym in symbols(side) if sym.kind == "advantages"
    ]
    if all(plain) or not any(plain):
        return left, right

    def put(sym: Sym) -> Node:
        return replace(sym, kind="whitened") if sym.text.startswith("Â") else sym

    return _mapped(left, put), _mapped(right, put)


def _running(equation: Equation) -> Node:
    """`lastgaelam = delta + gamma*lam*lastgaelam`: what a loop had before stands on the right, the next token's."""
    left = equation.left
    if not isinstance(left, Sym) or left.index is not None or left.kind in SETTINGS:
        return equation.right
    step = Op("+", Var("t"), Num(1.0))

    def next_one(sym: Sym) -> Node:
        return replace(sym, index=step) if sym.text == left.text else sym

    running = any(sym.text == left.text for sym in symbols(equation.right))
    return _mapped(equation.right, next_one) if running else equation.right


def _changed(node: Node, kinds: dict[str, str]) -> Node:
    return _mapped(node, lambda sym: replace(sym, kind=kinds.get(sym.kind, sym.kind)))


def _updated(node: Node, there: bool) -> Node:
    """In the critic's loss V' is the value being updated, and so is V where V' does not occur."""

    def put(sym: Sym) -> Node:
        if sym.kind == "values" and sym.text.startswith("V'"):
            return Sym("new_values", None, sym.text)
        return replace(sym, kind="new_values") if sym.kind == "values" and not there else sym

    prime = any(sym.kind == "values" and sym.text.startswith("V'") for sym in symbols(node))
    if prime:
        return _mapped(node, lambda sym: Sym("new_values", None) if sym.text.startswith("V'") else sym)
    return _mapped(node, put)


def _mapped(node: Node, change: Callable[[Sym], Node]) -> Node:
    """The tree with every symbol changed."""
    match node:
        case Sym():
            return change(node)
        case Op(sign, left, right):
            return Op(sign, _mapped(left, change), _mapped(right, change))
        case Minus(of):
            return Minus(_mapped(of, change))
        case Mean(of):
            return Mean(_mapped(of, change))
        case Call(name, arguments):
            return Call(name, tuple(_mapped(one, change) for one in arguments))
        case Sum(variable, lower, upper, body):
            return Sum(variable, lower, upper, _mapped(body, change))
        case Series(terms, last):
            return Series(tuple(_mapped(one, change) for one in terms), None if last is None else _mapped(last, change))
    return node


def with_whitened(trial: Trial) -> Trial:
    """The same of whitened advantages."""
    kinds = {"advantages": "whitened"}
    return replace(trial, left=_changed(trial.left, kinds), right=_changed(trial.right, kinds))


def _largest_index(sides: Sequence[Node]) -> int:
    indices = [one.index for side in sides for one in nodes(side) if isinstance(one, Sym)]
    numbers = [one.value for index in indices if index is not None for one in nodes(index) if isinstance(one, Num)]
    whole = [int(x) for x in numbers if 0 <= x < 10_000]
    fixed = [index for index in indices if index is not None and not has(index, Var)]
    return max(whole) if fixed and whole else -1


# ── what it takes ────────────────────────────────────────────────────────────────────────────────────────────────────


def conditions_for(trial: Trial) -> list[tuple[str, ...]]:
    """The fewest conditions under which it holds: single ones, else several together."""
    idle = _idle(trial)
    usable = [name for name in CONDITIONS if name not in (*trial.fixed, *idle) and (trial.free or name != "last")]
    single: list[tuple[str, ...]] = [(name,) for name in usable if trial.holds((name,))]
    if any(name != "last" for (name,) in single):
        return single
    for together in PAIRS:
        if set(together) <= set(usable) and not ("last" in together and single) and trial.holds(together):
            return [together, *single]
    return [] if _looks_ahead(trial) else single


def _idle(trial: Trial) -> set[str]:
    """Conditions that only switch off what the equation itself says: β = 0 does not mend a wrong sign before β."""
    sides = (trial.left, trial.right)
    kinds = {sym.kind for side in sides for sym in symbols(side)}
    idle = {name for name, kind in (("lam0", "lam"), ("beta0", "beta")) if kind in kinds}
    if "ratio" in kinds and ({"new_log_probs", "old_log_probs"} <= kinds or {"new_probs", "old_probs"} <= kinds):
        idle.add("first")
    if kinds & {"ratio", "log_ratio", "policy_loss", "objective", "value_loss"}:
        idle.add("last")
    clips = any(isinstance(one, Call) and one.name == "clip" for side in sides for one in nodes(side))
    return idle | ({"first", "no_clip"} if clips else set())


def _looks_ahead(trial: Trial) -> bool:
    """Whether it speaks of the next token, so that the last one, which has none, says little."""
    indices = [sym.index for side in (trial.left, trial.right) for sym in symbols(side)]
    return any(index is not None and has(index, Op) for index in indices)


MEANS = ((), ("gamma1",), ("lam1",), ("lam0",), ("gamma1", "lam1"))
"""Conditions under which both sides may have the same mean."""


def mean_conditions(trial: Trial) -> tuple[str, ...] | None:
    """What it takes for both sides to have the same mean; None where nothing of MEANS does."""
    found = (one for one in MEANS if not set(one) & set(trial.fixed) and trial.holds_in_expectation(one))
    return next(found, None)


_DIFFERENCES = (
    "A_t", "δ_t", "γ*λ*A_{t+1}", "V_t", "V_{t+1}", "γ*V_{t+1}", "(1-γ)*V_{t+1}", "r_t", "β*k_t", "score_t",
    "R_t", "A_t - r_t", "γ*V_{t+1} - V_t", "V_{t+1} - V_t", "A_t - δ_t", "γ*λ*A_{t+1} + (γ-1)*V_{t+1}",
    "G_t - R_t", "G_t - V_t", "λ*γ*R_{t+1}", "γ*(1-λ)*(R_{t+1} - V_{t+1})", "(1-γ)*A_{t+1}", "γ*(1-λ)*A_{t+1}",
    "2*V_t", "2*β*k_t", "k_t", "(1-β)*k_t", "(1-λ)*γ*A_{t+1}", "(1-γ*λ)*A_{t+1}", "A_{t+1}", "γ*A_{t+1}",
    "R_t - r_t", "G_t - r_t", "γ*G_{t+1}", "V_t - r_t",
)  # fmt: skip


def difference_of(trial: Trial) -> Node | None:
    """What the left side has more than the right in general, if it is something that has a name."""
    if trial.relation != "=" or not trial.free:
        return None
    rows = random_rows(trial.fixed, trial.lengths, trial.estimator)
    for text in _DIFFERENCES:
        node = parse(tokens(plain(text)))
        for signed in (node, Minus(node)):
            moved = replace(trial, right=Op("+", trial.right, signed))
            if all(moved.holds_in(row) for row in rows):
                return signed
    return None


def factor_of(trial: Trial) -> float | None:
    """How many times the right side the left one is, where that is the same everywhere."""
    ratios = []
    for row in random_rows(trial.fixed, trial.lengths, trial.estimator):
        for t in trial.places(row):
            try:
                a, b = trial.values(row, t)
            except Unknown:
                continue
            if abs(b) < 1e-9:
                return None
            ratios.append(a / b)
    same = bool(ratios) and all(abs(x - ratios[0]) <= 1e-9 * abs(ratios[0]) for x in ratios)
    return ratios[0] if same and ratios[0] in (-1.0, 2.0, 0.5, -2.0, -0.5) else None
