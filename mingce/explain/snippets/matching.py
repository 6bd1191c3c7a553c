"""Which kind each line of pasted code is: tried on made-up batches, its numbers and derivatives tell.

A line is evaluated with its variables in the roles their names suggest; if the numbers are those of a kind, it is one,
however it is written. Where a name may play several roles, the likeliest reading under which the line is of a known
kind is taken; a right reading that is nearly as likely wins over a wrong one, so that right code is not called wrong.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from mingce.explain.snippets.environment import evaluate, probe
from mingce.explain.snippets.evaluator import Budget, Evaluator, Whole, variable_of
from mingce.explain.snippets.forms import Form, Outcome, agreement, all_forms, outcome_of, squeezed
from mingce.explain.snippets.reading import Line
from mingce.explain.snippets.roles import GROUP_ROLES, INDICES, candidates, cheapest
from mingce.explain.snippets.shapes import Shape, names_in, shape_of, targets_of, value_of
from mingce.explain.snippets.tensor import EvaluationError, Tensor, elementwise, indexed, scalar
from mingce.explain.snippets.written import written

CHARITY = 2
"""A right reading so unlikely loses to a wrong one that takes every name for what it most likely is."""
MOST_READINGS, MOST_TRIALS, MOST_STEPS = 400, 600, 60_000
"""Readings of a line, trials of all lines, and steps of evaluation in all of them."""
_ANY_ROLE = (
    "rewards", "values", "next_values", "deltas", "advantages", "next_advantages", "returns", "new_log_probs",
    "old_log_probs", "ref_log_probs", "ratio", "kl", "response_mask", "gamma", "lam", "beta", "eps", "scores",
    "new_values",
)  # fmt: skip
UNKNOWN_COST = 3
_EITHER = ("new_log_probs", "old_log_probs")
_UNSET = {"axis", "dim"}
"""Arguments that are passed on: without a value, all elements are meant."""


@dataclass(frozen=True)
class Match:
    """A line with its kind, its bug if it has one, and the roles of its variables."""

    line: Line
    kind: str | None = None
    bug: str | None = None
    form: str = ""
    note: str | None = None
    shape: Shape | None = None


@dataclass
class Reading:
    """What all lines are, and what their variables stand for."""

    matches: list[Match]
    roles: dict[str, str] = field(default_factory=dict)
    flat: bool = False

    @property
    def count(self) -> int:
        """How many lines are recognised."""
        return sum(match.kind is not None for match in self.matches)


def read_lines(lines: Sequence[Line]) -> Reading:
    """The lines as code over rows and tokens, or over the tokens of one row if more is recognised so."""
    readings = [_Matcher(lines, flat=False).read()]
    if any(_has_plain_index(line.node) for line in lines):
        readings.append(_Matcher(lines, flat=True).read())
    return max(readings, key=lambda one: one.count)


def _has_plain_index(node: ast.stmt) -> bool:
    nodes = ast.walk(node.iter) if isinstance(node, ast.For) else ast.walk(node)
    found = [one for one in nodes if isinstance(one, ast.Subscript)]
    return any(not isinstance(one.slice, ast.Tuple) and not isinstance(one.slice, ast.Constant) for one in found)


def _is_bare(value: ast.expr, targets: list[str]) -> bool:
    """A name alone, or with an index and assigned to nothing: `returns[t]` in a question computes nothing."""
    if variable_of(value) is not None:
        return True
    parts = list(ast.walk(value))
    if any(isinstance(one, ast.operator | ast.Call | ast.unaryop) for one in parts):
        return False
    return not targets or not any(isinstance(one, ast.Subscript) for one in parts)


# ── one reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _Index(EvaluationError):
    """An index variable was met: the expression is evaluated token by token."""


class _Matcher:
    def __init__(self, lines: Sequence[Line], flat: bool) -> None:
        self.lines, self.flat = list(lines), flat
        self.environments = [probe(False, flat), probe(True, flat)]
        self.length = int(self.environments[0]["length"].number())
        self.assigned: dict[str, tuple[Tensor, Tensor]] = {}
        self.roles: dict[str, str] = {}
        self.made: dict[str, str] = {}
        self.trials = 0
        self.budget = Budget(MOST_STEPS)
        names = {name for line in lines for name in (*targets_of(line.node), *names_in(value_of(line.node)))}
        self.has_new = any(candidates(name) == ("new_log_probs",) for name in names)
        self.indices = {line.loop for line in lines if line.loop}

    def read(self) -> Reading:
        """All lines in order."""
        matches: list[Match] = []
        for number, line in enumerate(self.lines):
            shape = shape_of(line, self.lines[:number], self.lines) or written(line, self.lines)
            if shape is not None:
                matches.append(Match(line, shape.kind, shape.bug, note=shape.note, shape=shape))
                self._after_shape(line, shape)
            else:
                matches.append(self._match(line, number))
        return Reading(matches, self.roles, self.flat)

    def _after_shape(self, line: Line, shape: Shape) -> None:
        """What a line seen by its writing leaves behind: the right thing, so that later lines are not blamed."""
        known = {"stack_reversed": "advantages", "value_clip": "value_clip"}
        for name in targets_of(line.node):
            role = known.get(shape.kind)
            if role is None and shape.kind == "mask_column":
                continue
            if role is not None:
                self._assign(name, role)

    def _assign(self, name: str, role: str) -> None:
        if all(role in environment for environment in self.environments):
            self.assigned[name] = (self.environments[0][role], self.environments[1][role])
            self.made[name] = role

    # ── readings of a line

    def _match(self, line: Line, number: int) -> Match:
        value, targets = value_of(line.node), targets_of(line.node)
        if value is None or _is_bare(value, targets):
            return Match(line)
        hints = tuple(role for name in targets for role in candidates(name))
        best = self._best(value, hints, line, number) or self._afresh(value, hints, line, number)
        if best is None:
            self._keep(value, targets)
            return Match(line)
        form, roles = best
        self.roles |= roles
        for name in targets:
            self._assign(name, form.kind.role)
            if form.note is not None and form.kind.role in self.environments[0]:
                both = [evaluate(form.expression, environment) for environment in self.environments]
                self.assigned[name] = (both[0], both[1])
        return Match(line, form.kind.id, form.bug.id if form.bug else None, form.expression, form.note)

    def _best(
        self, value: ast.expr, hints: tuple[str, ...], line: Line, number: int
    ) -> tuple[Form, dict[str, str]] | None:
        """The reading of a line to be taken, right or wrong."""
        right: tuple[int, Form, dict[str, str]] | None = None
        wrong: tuple[int, Form, dict[str, str]] | None = None
        for cost, roles in self._readings(value, bool(hints)):
            if (right and cost > right[0]) or self.trials > MOST_TRIALS or (wrong and not wrong[0] and cost > CHARITY):
                break
            form = self._form_of(value, roles, hints, line, number, cost < UNKNOWN_COST)
            if form is None:
                continue
            if form.bug is None and (right is None or cost < right[0]):
                right = (cost, form, roles)
            if form.bug is not None and (wrong is None or cost < wrong[0]):
                wrong = (cost, form, roles)
        best = right if right and (wrong is None or wrong[0] or right[0] <= CHARITY) else wrong
        return None if best is None else best[1:]

    def _afresh(
        self, value: ast.expr, hints: tuple[str, ...], line: Line, number: int
    ) -> tuple[Form, dict[str, str]] | None:
        """A right reading of the line by itself: what stands above may be another branch of an if."""
        if not self.assigned:
            return None
        before = self.assigned, self.made, self.roles
        self.assigned, self.made, self.roles = {}, {}, {}
        best = self._best(value, hints, line, number)
        self.assigned, self.made, self.roles = before
        return (best[0], {}) if best is not None and best[0].bug is None and best[0].note is None else None

    def _keep(self, value: ast.expr, targets: list[str]) -> None:
        """A line of no known kind: later lines use what it computes, if that can be told."""
        roles = {name: (candidates(name) or ("",))[0] for name in names_in(value) if name not in self.assigned}
        try:
            both = [self._run(value, roles | self.roles, which) for which in (0, 1)]
        except EvaluationError:
            return
        for name in targets:
            if all(None not in one.numbers for one in both) and len(both[0].numbers) == len(both[1].numbers):
                made = [self._tensor_of(value, roles | self.roles, which) for which in (0, 1)]
                if made[0] is not None and made[1] is not None:
                    self.assigned[name] = (made[0], made[1])

    def _tensor_of(self, value: ast.expr, roles: dict[str, str], which: int) -> Tensor | None:
        try:
            return self._evaluator(roles, which, None).tensor(value)
        except EvaluationError:
            return None

    def _readings(self, value: ast.expr, hinted: bool) -> Iterator[tuple[int, dict[str, str]]]:
        """Roles for the line's variables, the likeliest first."""
        open_names = [
            name
            for name in names_in(value)
            if name not in self.assigned and name not in _UNSET and not self._is_index(name)
        ]
        options: list[list[tuple[int, str]]] = []
        unknown = 0
        for name in open_names:
            if name in self.roles:
                options.append([(0, self.roles[name])])
                continue
            known = candidates(name)
            if known[:2] == _EITHER and self.has_new:
                known = (known[1], known[0], *known[2:])
            if not known:
                unknown += 1
                known = _ANY_ROLE
                options.append([(UNKNOWN_COST, role) for role in known])
            else:
                options.append(list(enumerate(known)))
        if unknown > 1 or (unknown and not (hinted and len(open_names) > 1)):
            return
        for cost, picked in islice(cheapest(options), MOST_READINGS):
            if self.trials > MOST_TRIALS:
                return
            yield cost, dict(zip(open_names, picked, strict=True))

    def _is_index(self, name: str) -> bool:
        return name in self.indices or (name in INDICES and name not in self.assigned and name != "k")

    # ── numbers

    def _form_of(
        self, value: ast.expr, roles: dict[str, str], hints: tuple[str, ...], line: Line, number: int, sure: bool
    ) -> Form | None:
        self.trials += 1
        try:
            found = self._run(value, roles, 0)
        except EvaluationError:
            return None
        mask = self.environments[0]["response_mask"].numbers()
        played = {self.made.get(name, "") if name in self.assigned else roles.get(name, "") for name in names_in(value)}
        near = []
        for place, form in enumerate(all_forms(False, self.flat)):
            if not sure and (form.bug is not None or form.note is not None or form.kind.role not in hints):
                continue
            level = agreement(found, form.wanted, mask, form.kind.role in GROUP_ROLES)
            if level and self._fits(form, hints, level, line, number, played):
                near.append((place, form, level))
        if not near:
            return None
        if len(near) > 1:
            near = self._sharper(value, roles, near)
        return max(near, key=lambda one: self._rank(one[1], one[2], hints))[1]

    def _fits(self, form: Form, hints: tuple[str, ...], level: int, line: Line, number: int, played: set[str]) -> bool:
        kind, bug = form.kind, form.bug
        first = hints[:1] or ("",)
        if kind.reads and bug is None and not played & set(kind.reads):
            return False
        one_sided = "max=" in line.text and "min=" not in line.text and kind.id != "rollout_weight"
        if bug is not None and (bug.word not in line.text or one_sided):
            return False
        if bug is None:
            if kind.targets and not set(kind.targets) & {*hints, *(("",) if not hints else ())}:
                return False
            return not set(kind.unless) & set(first) or self._reassigned(line, number)
        if level < 0 or (bug.targets and not set(bug.targets) & set(first)):
            return False
        return not (bug.targets and self._reassigned(line, number))

    def _reassigned(self, line: Line, number: int) -> bool:
        """Whether a later line makes something else of what this one assigns: `ratio = a - b; ratio = ratio.exp()`."""
        targets = targets_of(line.node)
        for later in self.lines[number + 1 :]:
            if set(targets) & set(targets_of(later.node)) and set(targets) & set(names_in(value_of(later.node))):
                return True
        return False

    def _sharper(
        self, value: ast.expr, roles: dict[str, str], near: list[tuple[int, Form, int]]
    ) -> list[tuple[int, Form, int]]:
        """Of several kinds those that also agree where the mask has holes; all if none does."""
        try:
            found = self._run(value, roles, 1)
        except EvaluationError:
            return near
        mask = self.environments[1]["response_mask"].numbers()
        by_place = {(form.kind.id, form.expression, form.note): form.wanted for form in all_forms(True, self.flat)}
        kept = []
        for place, form, level in near:
            wanted = by_place.get((form.kind.id, form.expression, form.note))
            there = 0 if wanted is None else agreement(found, wanted, mask)
            if there or form.kind.twice:
                kept.append((place, form, min(level, there) if there else level))
        return kept or near

    def _rank(self, form: Form, level: int, hints: tuple[str, ...]) -> tuple[int, ...]:
        gradient = form.bug is not None and form.bug.gradient
        exact = level > 0
        return (
            3
            if exact and form.bug is None and form.note is None
            else 2
            if exact and (gradient or form.note)
            else 1
            if exact
            else 0,
            abs(level),
            int(bool(form.kind.targets) and form.kind.targets[0] in hints),
            int(form.kind.role in hints),
            int(form.kind.role in hints[:1]),
        )

    def _run(self, value: ast.expr, roles: dict[str, str], which: int) -> Outcome:
        """The result on a made-up batch: at once, or token by token where an index is used."""
        try:
            return outcome_of(self._evaluator(roles, which, None).tensor(value))
        except _Index:
            pass
        found: list[Tensor | None] = []
        for t in range(self.length):
            try:
                found.append(self._evaluator(roles, which, t).tensor(value))
            except _Index:
                raise EvaluationError("an index of an index") from None
            except EvaluationError:
                found.append(None)
        return self._joined(found)

    def _joined(self, found: list[Tensor | None]) -> Outcome:
        there = [one for one in found if one is not None]
        if len(there) < len(found) - 1 or not there:
            raise EvaluationError("past the end")
        shape = max((one.shape for one in there), key=len)
        if len(shape) > 1:
            raise EvaluationError("more than a number a row")
        rows = shape[0] if shape else 1
        wide = [
            None if one is None else elementwise(lambda a, b: a, one, Tensor((rows,), ((0.0, 0.0),) * rows))
            for one in found
        ]
        pairs = [None if one is None else one.data[b] for b in range(rows) for one in wide]
        size = (rows, self.length)
        return Outcome(
            squeezed(size),
            tuple(None if p is None else p[0] for p in pairs),
            tuple(None if p is None else p[1] for p in pairs),
        )

    def _evaluator(self, roles: dict[str, str], which: int, t: int | None) -> Evaluator:
        environment = self.environments[which]

        def lookup(name: str, bare: bool) -> Any:
            if name in _UNSET and name not in self.assigned:
                return None
            if name in self.assigned:
                value: Tensor = self.assigned[name][which]
                role = self.made.get(name, "")
            else:
                role = roles.get(name) or self.roles.get(name, "")
                if not role and (name in self.indices or self._is_index(name)):
                    if t is None:
                        raise _Index("an index")
                    return scalar(t)
                if role not in environment:
                    raise EvaluationError(f"{name} is not known")
                value = environment[role]
            if not bare and role in GROUP_ROLES:
                return Whole(value)
            return self._at(value, t) if bare and t is not None else value

        return Evaluator(lookup, self.budget)

    def _at(self, value: Tensor, t: int) -> Tensor:
        if self.flat:
            return indexed(value, [t]) if value.shape == (self.length,) else value
        return indexed(value, [slice(None), t]) if len(value.shape) == 2 and value.shape[1] == self.length else value
