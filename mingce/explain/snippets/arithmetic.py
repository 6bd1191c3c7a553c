"""Sums, products, extremes and means of small tensors with their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mingce.explain.snippets.tensor import (
    EvaluationError,
    Pair,
    Tensor,
    elementwise,
    reduced,
    scalar,
    stacked,
)

LIMIT = 1e300


def _fits(x: float) -> float:
    if not abs(x) < LIMIT:
        raise EvaluationError("not a finite number")
    return x


def add_pairs(a: Pair, b: Pair) -> Pair:
    return _fits(a[0] + b[0]), a[1] + b[1]


def _sub(a: Pair, b: Pair) -> Pair:
    return _fits(a[0] - b[0]), a[1] - b[1]


def _mul(a: Pair, b: Pair) -> Pair:
    return _fits(a[0] * b[0]), a[1] * b[0] + a[0] * b[1]


def _div(a: Pair, b: Pair) -> Pair:
    if b[0] == 0:
        raise EvaluationError("division by zero")
    return _fits(a[0] / b[0]), (a[1] * b[0] - a[0] * b[1]) / (b[0] * b[0])


def power(a: Pair, b: Pair) -> Pair:
    if abs(b[0]) > 16 or abs(a[0]) > 1e6 or (a[0] < 0 and b[0] != int(b[0])) or (a[0] == 0 and b[0] < 1):
        raise EvaluationError("such a power is not computed")
    return _fits(a[0] ** b[0]), b[0] * a[0] ** (b[0] - 1) * a[1] if b[0] else 0.0


def _exp(a: Pair) -> Pair:
    if a[0] > 600:
        raise EvaluationError("not a finite number")
    return math.exp(a[0]), math.exp(a[0]) * a[1]


def logarithm(a: Pair) -> Pair:
    if a[0] <= 0:
        raise EvaluationError("logarithm of nothing")
    return math.log(a[0]), a[1] / a[0]


def larger(a: Pair, b: Pair) -> Pair:
    return a if a[0] >= b[0] else b


def smaller(a: Pair, b: Pair) -> Pair:
    return a if a[0] <= b[0] else b


def _truth(test: Callable[[float, float], bool]) -> Callable[[Pair, Pair], Pair]:
    return lambda a, b: (float(test(a[0], b[0])), 0.0)


BINARY: dict[str, Callable[[Pair, Pair], Pair]] = {
    "Add": add_pairs, "Sub": _sub, "Mult": _mul, "Div": _div, "Pow": power,
    "BitAnd": lambda a, b: (float(bool(a[0]) and bool(b[0])), 0.0),
    "BitOr": lambda a, b: (float(bool(a[0]) or bool(b[0])), 0.0),
    "Lt": _truth(lambda a, b: a < b), "LtE": _truth(lambda a, b: a <= b), "Gt": _truth(lambda a, b: a > b),
    "GtE": _truth(lambda a, b: a >= b), "Eq": _truth(lambda a, b: a == b), "NotEq": _truth(lambda a, b: a != b),
}  # fmt: skip
"""By the name of the operator in Python's grammar."""


def add(a: Tensor, b: Tensor) -> Tensor:
    return elementwise(add_pairs, a, b)


def sub(a: Tensor, b: Tensor) -> Tensor:
    return elementwise(_sub, a, b)


def mul(a: Tensor, b: Tensor) -> Tensor:
    return elementwise(_mul, a, b)


def div(a: Tensor, b: Tensor) -> Tensor:
    return elementwise(_div, a, b)


def neg(x: Tensor) -> Tensor:
    return elementwise(lambda a: (-a[0], -a[1]), x)


def exp(x: Tensor) -> Tensor:
    return elementwise(_exp, x)


def detach(x: Tensor) -> Tensor:
    return elementwise(lambda a: (a[0], 0.0), x)


def square(x: Tensor) -> Tensor:
    return elementwise(lambda a: _mul(a, a), x)


def whole(x: Any) -> int:
    if isinstance(x, Tensor):
        x = x.number()
    if isinstance(x, list | tuple):
        if len(x) != 1:
            raise EvaluationError("more than one dimension")
        return whole(x[0])
    if x != int(x) or abs(x) > 1e6:
        raise EvaluationError("not a whole number")
    return int(x)


def dim_of(rest: Sequence[Any], named: dict[str, Any], default: int | None = None) -> int | None:
    given = named.get("dim", named.get("axis", named.get("dims", rest[0] if rest else None)))
    return default if given is None else whole(given)


def keeps(named: dict[str, Any]) -> bool:
    return bool(plain(named.get("keepdim", named.get("keepdims", 0.0))))


def plain(x: Any) -> float:
    return x.number() if isinstance(x, Tensor) else float(x)


def as_tensor(x: Any) -> Tensor:
    """A number or a list of tensors as a tensor."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, list | tuple):
        return stacked([as_tensor(one) for one in x], 0)
    if isinstance(x, int | float):
        return scalar(x)
    raise EvaluationError("not a tensor")


# ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────────────


def total(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    return reduced(
        x, dim_of(rest, named), keeps(named), lambda row: (math.fsum(a for a, _ in row), math.fsum(b for _, b in row))
    )


def _mean_of(row: list[Pair]) -> Pair:
    if not row:
        raise EvaluationError("the mean of nothing")
    return math.fsum(a for a, _ in row) / len(row), math.fsum(b for _, b in row) / len(row)


def mean(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    return reduced(x, dim_of(rest, named), keeps(named), _mean_of)


def variance(x: Tensor, *rest: Any, ddof: float = 1.0, **named: Any) -> Tensor:
    """torch's: over n − 1 unless told otherwise."""
    biased = not plain(named.get("unbiased", 1.0)) or plain(named.get("correction", 1.0)) == 0
    less = 0.0 if biased else plain(ddof)

    def of(row: list[Pair]) -> Pair:
        middle = _mean_of(row)
        if len(row) <= less:
            raise EvaluationError("the variance of one number")
        squares = [_mul(_sub(a, middle), _sub(a, middle)) for a in row]
        return math.fsum(a for a, _ in squares) / (len(row) - less), math.fsum(b for _, b in squares)

    return reduced(x, dim_of(rest, named), keeps(named), of)


def root(x: Tensor) -> Tensor:
    return elementwise(lambda a: power(a, (0.5, 0.0)), x)


def rsqrt(x: Tensor) -> Tensor:
    return elementwise(lambda a: power(a, (-0.5, 0.0)), x)


def std(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    return root(variance(x, *rest, **named))


def extreme(pick: Callable[[Pair, Pair], Pair]) -> Callable[..., Tensor]:
    def function(x: Tensor, *rest: Any, **named: Any) -> Tensor:
        if rest and isinstance(rest[0], Tensor) and (rest[0].shape or not x.shape):
            return elementwise(pick, x, rest[0])
        if rest and not named and not isinstance(rest[0], Tensor):
            return elementwise(pick, x, as_tensor(rest[0]))
        if not named and not rest:

            def of(row: list[Pair]) -> Pair:
                best = row[0]
                for one in row:
                    best = pick(best, one)
                return best

            return reduced(x, None, False, of)
        if rest and isinstance(rest[0], Tensor) and rest[0].number() != int(rest[0].number()):
            return elementwise(pick, x, rest[0])
        raise EvaluationError("an extreme along a dimension")

    return function


def elementwise_extreme(pick: Callable[[Pair, Pair], Pair]) -> Callable[..., Tensor]:
    return lambda a, b: elementwise(pick, as_tensor(a), as_tensor(b))


def clip(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    low = named.get("min", named.get("a_min", rest[0] if rest else None))
    high = named.get("max", named.get("a_max", rest[1] if len(rest) > 1 else None))
    done = x if low is None else elementwise(larger, x, as_tensor(low))
    return done if high is None else elementwise(smaller, done, as_tensor(high))


def where(test: Tensor, a: Any, b: Any) -> Tensor:
    return elementwise(lambda c, x, y: x if c[0] else y, test, as_tensor(a), as_tensor(b))
