"""Every form of every kind and bug with its numbers, and when a result is one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from mingce.explain.snippets.environment import DERIVED, Environment, completed, evaluate, probe
from mingce.explain.snippets.kinds import BUGS, BY_ID, KINDS, Bug, Kind
from mingce.explain.snippets.tensor import EvaluationError, Tensor


@dataclass(frozen=True)
class Outcome:
    """A result; None where an index ran past the end."""

    shape: tuple[int, ...]
    numbers: tuple[float | None, ...]
    slopes: tuple[float | None, ...]


def outcome_of(x: Tensor) -> Outcome:
    return Outcome(squeezed(x.shape), tuple(x.numbers()), tuple(x.slopes()))


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def near(a: float | None, b: float | None) -> bool:
    return a is None or b is None or abs(a - b) <= 1e-3 * max(0.1, abs(b))


def agreement(found: Outcome, wanted: Outcome, mask: Sequence[float], repeated: bool = False) -> int:
    """3: the same everywhere; 2: where the mask is 1; one less if only the derivatives differ; 0: not the same.

    `repeated`: one number may stand in every row.
    """
    if (
        repeated
        and not wanted.shape
        and len(found.shape) == 1
        and all(near(a, found.numbers[0]) for a in found.numbers)
    ):
        count = len(found.numbers)  # one number for all rows, repeated
        wanted = Outcome(found.shape, wanted.numbers * count, wanted.slopes * count)
    if found.shape != wanted.shape:
        return 0
    per_token = len(mask) == len(found.numbers)
    pairs = list(zip(found.numbers, wanted.numbers, strict=True))
    same = [near(a, b) for a, b in pairs]
    kept = [bool(m) for m in mask] if per_token else [True] * len(pairs)
    if not all(one for one, m in zip(same, kept, strict=True) if m) or not any(a is not None for a, _ in pairs):
        return 0
    slopes = [near(a, b) for a, b in zip(found.slopes, wanted.slopes, strict=True)]
    level = 3 if all(same) else 2
    return level if all(one for one, m in zip(slopes, kept, strict=True) if m) else -level


@dataclass(frozen=True)
class Form:
    kind: Kind
    expression: str
    wanted: Outcome
    bug: Bug | None = None
    note: str | None = None


@cache
def all_forms(holes: bool, flat: bool) -> tuple[Form, ...]:
    """Every form of every kind and bug with its numbers on a made-up batch."""
    plain = probe(holes, flat)
    whitened = _with_whitened(plain)
    found = []
    for kind in KINDS:
        named: list[tuple[str, str | None]] = [(form, None) for form in kind.forms]
        named += list(kind.notes)
        for expression, note in named:
            for environment in (plain, whitened) if kind.twice else (plain,):
                found += _made(kind, expression, environment, None, note)
    for bug in BUGS:
        kind = BY_ID[bug.kind]
        for expression in bug.forms:
            for environment in (plain, whitened) if kind.twice else (plain,):
                found += _made(kind, expression, environment, bug, None)
    return tuple(found)


def _made(kind: Kind, expression: str, environment: Environment, bug: Bug | None, note: str | None) -> list[Form]:
    try:
        wanted = outcome_of(evaluate(expression, environment))
        return [Form(kind, expression, wanted, bug, note)] if any(abs(x or 0) > 1e-6 for x in wanted.numbers) else []
    except EvaluationError:
        return []


def _with_whitened(environment: Environment) -> Environment:
    kept = {name: value for name, value in environment.items() if name not in DERIVED}
    kept |= {name: environment[name] for name in ("whitened_advantages", "logits") if name in environment}
    kept["advantages"] = environment["whitened_advantages"]
    return completed(kept)
