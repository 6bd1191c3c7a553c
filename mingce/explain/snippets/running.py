"""Pasted code on the example at hand: every statement's numbers, computed by the safe evaluator.

The variables get the example's columns by their roles; what a line cannot be evaluated with is left out. Where the
example alone would show nothing (before the first update all ratios are 1, one response has no group and no padding), a
variant of it is taken that shows the difference, and the answer says so.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mingce.explain import example
from mingce.explain.snippets.environment import Environment, build, completed, evaluate
from mingce.explain.snippets.evaluator import Budget, Evaluator, Whole, variable_of
from mingce.explain.snippets.kinds import BY_ID, Kind
from mingce.explain.snippets.matching import Match, Reading
from mingce.explain.snippets.roles import GROUP_ROLES, candidates
from mingce.explain.snippets.shapes import names_in, targets_of, value_of
from mingce.explain.snippets.tensor import EvaluationError, Tensor, indexed, scalar, stacked, vector
from mingce.record.rollout import Rollout

VISIBLE = 1e-3
"""Numbers that differ by less look the same when they are printed."""
LONGEST_RUN, MOST_TURNS, MOST_STEPS, PADDING = 512, 600, 150_000, 2
NEEDED = ("response_mask", "rewards", "values", "old_log_probs")
SHIFT, MOVES, VALUE_MOVES = 0.5, (0.3, -0.3, 0.1), (0.7, -0.7, 0.2)
"""A variant's log-probs are lowered, so that none exceeds 0; then the new ones are moved by these in turn."""
_LOG_PROBS = ("old_log_probs", "new_log_probs", "ref_log_probs", "rollout_log_probs")
OTHER_TOTALS = (0.0, 1.0, 0.0)
"""The rewards of the other samples of a variant with a group."""
_SETTINGS = {
    "gamma": 1.0, "lam": 0.95, "beta": 0.1, "clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0, "value_clip": 0.5,
}  # fmt: skip
_COLUMNS = (
    "response_mask", "old_log_probs", "new_log_probs", "ref_log_probs", "rollout_log_probs", "scores", "kl", "rewards",
    "values", "new_values",
)  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """An environment of the example; `moved`, `padded` and `grouped` say how it differs from it."""

    environment: Environment
    moved: bool = False
    padded: bool = False
    grouped: bool = False


def about(rollout: Rollout) -> Rollout:
    """The rollout, or the worked example where it lacks what most lines read."""
    slots = [t for t, m in enumerate(rollout.columns["response_mask"]) if m]
    usable = slots and len(rollout.tokens) <= LONGEST_RUN and all(name in rollout.columns for name in NEEDED)
    return rollout if usable else example.worked()


@lru_cache(maxsize=64)
def scene(rollout: Rollout, moved: bool, padded: bool, grouped: bool, flat: bool = False) -> Scene:
    """The example's numbers, or a variant's."""
    mask = rollout.mask
    columns = {
        name: [0.0 if x is None else float(x) for x in rollout.columns[name]]
        for name in _COLUMNS
        if name in rollout.columns
    }
    columns["response_mask"] = [float(m) for m in mask]
    for name in ("values", "rewards", "scores"):
        if name in columns:
            columns[name] = [x * m for x, m in zip(columns[name], mask, strict=True)]
    if moved:
        columns |= {name: [x - SHIFT for x in columns[name]] for name in _LOG_PROBS if name in columns}
        columns["new_log_probs"] = _moved(columns["old_log_probs"], MOVES)
        columns["new_values"] = _moved(columns["values"], VALUE_MOVES)
    if padded:
        columns = {name: row + _pad(name) for name, row in columns.items()}
    matrices = {name: [row] for name, row in columns.items()}
    if grouped:
        matrices = _grouped(matrices)
    length = len(columns["response_mask"])
    matrices["token_ids"] = [[float(t) for t in range(length)] for _ in matrices["response_mask"]]
    made = build(matrices, _settings(rollout), flat, after=rollout.bootstrap)
    if grouped or rollout.row_inputs.get("greedy_score") is not None:
        score = rollout.row_inputs.get("greedy_score")
        made["greedy_score"] = vector([float(score or 0.0)] * len(matrices["response_mask"]))
    return Scene(completed(made), moved, padded, grouped)


def _settings(rollout: Rollout) -> dict[str, float]:
    known = rollout.settings.as_dict()
    found = {name: float(default if known.get(name) is None else known[name]) for name, default in _SETTINGS.items()}
    return {
        "gamma": found["gamma"], "lam": found["lam"], "beta": found["beta"], "eps_low": found["clip_low"],
        "eps_high": found["clip_high"], "eps": found["clip_low"], "dual_clip": found["dual_clip"],
        "eps_value": found["value_clip"], "tiny": 1e-6,
    }  # fmt: skip


def _moved(row: list[float], moves: Sequence[float]) -> list[float]:
    return [x + moves[t % len(moves)] for t, x in enumerate(row)]


def _pad(name: str) -> list[float]:
    """What padding holds: nothing where it is zeroed, some number where a model's output is left."""
    return [-1.0] * PADDING if name == "new_log_probs" else [0.5] * PADDING if name == "new_values" else [0.0] * PADDING


def _grouped(matrices: dict[str, list[list[float]]]) -> dict[str, list[list[float]]]:
    found = {name: [list(rows[0]) for _ in range(1 + len(OTHER_TOTALS))] for name, rows in matrices.items()}
    last = max(t for t, m in enumerate(matrices["response_mask"][0]) if m)
    for number, total in enumerate(OTHER_TOTALS, 1):
        for name in ("rewards", "scores"):
            if name in found:
                found[name][number] = [total if t == last else 0.0 for t in range(len(found[name][number]))]
    return found


def is_first_update(rollout: Rollout) -> bool:
    """Whether old and new policy are the same, so that every ratio is 1."""
    columns = rollout.columns
    return columns.get("new_log_probs") in (None, columns.get("old_log_probs"))


# ── running the statements ───────────────────────────────────────────────────────────────────────────────────────────


class Runner:
    """Runs what can be run of the statements; `values` has each statement's results by the statement's number."""

    def __init__(self, reading: Reading, shown: Scene) -> None:
        self.reading, self.environment = reading, shown.environment
        self.variables: dict[str, Any] = {}
        self.values: dict[int, list[Tensor]] = {}
        self.budget = Budget(MOST_STEPS)
        self.t: int | None = None
        self.carried: set[str] = set()
        self.slices = {
            id(match.line.node): self._sliced(match.line.node)
            for match in reading.matches
            if match.kind in ("slice_state", "slice_token")
        }

    def _sliced(self, node: ast.stmt) -> Tensor:
        """What a slice of the whole sequence should give: the column of the response."""
        for name in names_in(value_of(node)):
            role = (candidates(name) or ("",))[0]
            if role in self.environment and self.environment[role].shape:
                return self.environment[role]
        return scalar(0.0)

    def run(self) -> dict[int, list[Tensor]]:
        """All statements that stand in no loop, and those inside with their loop."""
        for match in self.reading.matches:
            if match.line.loop is None:
                self._execute(match.line.node)
        return self.values

    def _execute(self, node: ast.stmt) -> None:
        try:
            if isinstance(node, ast.For):
                self._loop(node)
            elif isinstance(node, ast.If | ast.With):
                for inner in node.body:
                    self._execute(inner)
            else:
                self._assign(node)
        except EvaluationError:
            return

    def _loop(self, node: ast.For) -> None:
        if not isinstance(node.target, ast.Name):
            return
        turns = self._turns(node.iter)
        self.carried = {name for inner in ast.walk(node) if isinstance(inner, ast.stmt) for name in targets_of(inner)}
        for self.t in turns:
            self.budget.spend()
            self.variables[node.target.id] = scalar(self.t)
            for inner in node.body:
                self._execute(inner)
        self.t, self.carried = None, set()

    def _turns(self, node: ast.expr) -> Sequence[int]:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) in (1, 2, 3):
            if node.func.id == "reversed":
                return self._turns(node.args[0])[::-1]
            if node.func.id == "range":
                turns = range(*(self._evaluator().whole(one) for one in node.args))
                if len(turns) > MOST_TURNS:
                    raise EvaluationError("too many turns")
                return turns
        raise EvaluationError("such a loop is not run")

    def _assign(self, node: ast.stmt) -> None:
        value = value_of(node)
        if value is None:
            return
        if isinstance(node, ast.Expr) and isinstance(value, ast.Call) and self._appended(value):
            return
        found = self._evaluator().value(value) if id(node) not in self.slices else self.slices[id(node)]
        if isinstance(found, Whole):
            found = found.value
        if isinstance(found, Tensor):
            self.values.setdefault(id(node), []).append(found)
        for place in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
            name = None if place is None else variable_of(place)
            if name is not None:
                self.variables[name] = found

    def _appended(self, call: ast.Call) -> bool:
        if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name) or len(call.args) != 1:
            return False
        row = self.variables.get(call.func.value.id)
        if call.func.attr != "append" or not isinstance(row, list):
            return False
        row.append(self._evaluator().value(call.args[0]))
        return True

    def _evaluator(self) -> Evaluator:
        return Evaluator(self._lookup, self.budget)

    def _lookup(self, name: str, bare: bool) -> Any:
        if name in self.variables:
            return self.variables[name]
        if name in ("axis", "dim"):
            return None
        role = self.reading.roles.get(name) or (candidates(name) or ("",))[0]
        if role not in self.environment:
            raise EvaluationError(f"{name} is not known")
        if self.t is not None and bare and name in self.carried and role.startswith("next_"):
            return scalar(0.0)  # what a loop carries starts at nothing
        if self.t is not None and bare and len(self.environment[role].shape) in (1, 2):
            return self._at(self.environment[role], self.t)
        if not bare and role in GROUP_ROLES:
            return Whole(self.environment[role])
        extended = self.environment.get(f"{role}_extended")
        if not bare and self.reading.flat and role == "values" and extended is not None:
            return extended
        return self.environment[role]

    def _at(self, column: Tensor, t: int) -> Tensor:
        """A column's numbers of one token, where a loop over tokens names it without an index."""
        if self.reading.flat:
            return indexed(column, [t]) if len(column.shape) == 1 and column.shape[0] > t else column
        return indexed(column, [slice(None), t]) if len(column.shape) == 2 and column.shape[1] > t else column


def results(reading: Reading, shown: Scene) -> list[Tensor | None]:
    """For each line its number, column or, in a loop, its numbers in the order they come; None if it has none."""
    ran = Runner(reading, shown).run()
    found: list[Tensor | None] = []
    for match in reading.matches:
        values = ran.get(id(match.line.node))
        if match.kind in ("slice_state", "slice_token") and values and not values[0].shape:
            values = None
        found.append(_joined(values) if values else _of_kind(match, shown))
    return found


def _joined(values: list[Tensor]) -> Tensor | None:
    if len(values) == 1:
        return values[0]
    first = [indexed(one, [0]) if one.shape else one for one in values]
    try:
        return stacked(first, 0)
    except EvaluationError:
        return None


def _of_kind(match: Match, shown: Scene) -> Tensor | None:
    """What a line of this kind gives, where the line itself cannot be run."""
    kind = BY_ID.get(match.kind or "")
    if kind is None or match.bug is not None:
        return None
    try:
        return evaluate(match.form or kind.forms[0], shown.environment)
    except EvaluationError:
        return None


# ── a bug's number and the right one ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Contrast:
    """What the wrong line gives and what the right one does, on a scene; derivatives if `gradient`."""

    wrong: list[float]
    right: list[float]
    scene: Scene
    gradient: bool = False


def contrast(match: Match, rollout: Rollout, scenes: Sequence[Scene], gradient: bool) -> Contrast | None:
    """On the first scene on which the two differ; None if they differ on none."""
    kind = BY_ID.get(match.kind or "")
    if kind is None or not match.form:
        return None
    for shown in scenes:
        right_form = _right_form(kind, match.form)
        try:
            wrong, right = (evaluate(form, shown.environment) for form in (match.form, right_form))
        except EvaluationError:
            continue
        pair = (wrong.slopes(), right.slopes()) if gradient else (wrong.numbers(), right.numbers())
        pair = (_chosen(pair[0], shown), _chosen(pair[1], shown))
        if len(pair[0]) == len(pair[1]) and any(abs(a - b) > VISIBLE for a, b in zip(*pair, strict=True)):
            return Contrast(pair[0], pair[1], shown, gradient)
    return None


def _chosen(row: list[float], shown: Scene) -> list[float]:
    """A column's numbers without those on padding."""
    mask = shown.environment["response_mask"].numbers()
    return [x for x, m in zip(row, mask, strict=True) if m] if len(row) == len(mask) else row


def _right_form(kind: Kind, form: str) -> str:
    """The form of the kind that reads the same columns, or its first."""
    return next((one for one in kind.forms if "kl_k" in one and _estimate(one) == _estimate(form)), kind.forms[0])


def _estimate(form: str) -> str:
    return next((one for one in ("kl_k3", "kl_k2") if one in form), "")
