"""Small tensors of plain Python numbers, each with its derivative, for the safe evaluator of pasted code.

An element is (number, derivative along the parameters being trained): `detach` sets the derivative to 0, which is how
code that differs only in its gradient is told apart. Sizes are bounded; nothing here is fast and nothing needs to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

MOST_ELEMENTS = 20_000
Pair = tuple[float, float]
Shape = tuple[int, ...]
Index = int | slice | None


class EvaluationError(Exception):
    """The pasted code asks for something that is not evaluated: it is explained without numbers."""


@dataclass(frozen=True)
class Tensor:
    """Elements in row-major order. A number is a tensor of shape ()."""

    shape: Shape
    data: tuple[Pair, ...]

    def numbers(self) -> list[float]:
        """The elements without their derivatives."""
        return [value for value, _ in self.data]

    def slopes(self) -> list[float]:
        """The derivatives."""
        return [slope for _, slope in self.data]

    def number(self) -> float:
        """The only element."""
        if len(self.data) != 1:
            raise EvaluationError("not one number")
        return self.data[0][0]


def tensor(rows: Sequence[Sequence[float]], slope: float = 0.0) -> Tensor:
    """A matrix; `slope` is the derivative of every element."""
    return Tensor((len(rows), len(rows[0])), tuple((float(x), slope) for row in rows for x in row))


def vector(row: Sequence[float], slope: float = 0.0) -> Tensor:
    """One dimension."""
    return Tensor((len(row),), tuple((float(x), slope) for x in row))


def scalar(x: float, slope: float = 0.0) -> Tensor:
    """One number."""
    return Tensor((), ((float(x), slope),))


def size_of(shape: Shape) -> int:
    """How many elements; too many are refused."""
    size = math.prod(shape)
    if size > MOST_ELEMENTS:
        raise EvaluationError("too large")
    return size


def _strides(shape: Shape, wide: Shape) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(0 if size == 1 else step)
        step *= size
    strides += [0] * (len(wide) - len(shape))
    return strides[::-1]


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """The shape that all of them are stretched to."""
    wide = []
    for k in range(1, max((len(shape) for shape in shapes), default=0) + 1):
        sizes = {shape[-k] for shape in shapes if len(shape) >= k} - {1}
        if len(sizes) > 1:
            raise EvaluationError("shapes do not fit")
        wide.append(sizes.pop() if sizes else 1)
    return tuple(wide[::-1])


def elementwise(function: Callable[..., Pair], *operands: Tensor) -> Tensor:
    """`function` of the elements that stand at the same place."""
    shape = broadcast_shape([one.shape for one in operands])
    size_of(shape)
    if all(one.shape == shape for one in operands):
        return Tensor(shape, tuple(map(function, *(one.data for one in operands))))
    strides = [_strides(one.shape, shape) for one in operands]
    data = []
    for place in product(*map(range, shape)):
        at = [sum(i * s for i, s in zip(place, steps, strict=True)) for steps in strides]
        data.append(function(*(one.data[k] for one, k in zip(operands, at, strict=True))))
    return Tensor(shape, tuple(data))


def dimension(x: Tensor, dim: int) -> int:
    """A dimension counted from the end, as one from the start."""
    place = dim + len(x.shape) if dim < 0 else dim
    if not 0 <= place < len(x.shape):
        raise EvaluationError("no such dimension")
    return place


def lanes(x: Tensor, dim: int) -> tuple[Shape, list[list[Pair]], Shape]:
    """The shape before `dim`, the elements along it for every place of the other dimensions, the shape after it."""
    dim = dimension(x, dim)
    before, size, after = x.shape[:dim], x.shape[dim], x.shape[dim + 1 :]
    inner = math.prod(after)
    found = [
        [x.data[(outer * size + k) * inner + rest] for k in range(size)]
        for outer in range(math.prod(before))
        for rest in range(inner)
    ]
    return before, found, after


def reduced(x: Tensor, dim: int | None, keep: bool, function: Callable[[list[Pair]], Pair]) -> Tensor:
    """`function` of all elements, or along a dimension."""
    if dim is None:
        return Tensor((), (function(list(x.data)),))
    before, rows, after = lanes(x, dim)
    return Tensor(before + ((1,) if keep else ()) + after, tuple(function(row) for row in rows))


def along(x: Tensor, dim: int, function: Callable[[list[Pair]], list[Pair]]) -> Tensor:
    """The elements along a dimension replaced by as many others."""
    before, rows, after = lanes(x, dim)
    done = [function(row) for row in rows]
    size, inner = (len(done[0]) if done else 0), math.prod(after)
    data = [
        done[outer * inner + rest][k]
        for outer in range(math.prod(before))
        for k in range(size)
        for rest in range(inner)
    ]
    return Tensor((*before, size, *after), tuple(data))


def indexed(x: Tensor, indices: Sequence[Index]) -> Tensor:
    """x[indices] with numbers, slices and None; an index past the end is an error."""
    used = sum(one is not None for one in indices)
    if used > len(x.shape):
        raise EvaluationError("too many indices")
    places: list[list[int]] = []
    shape: list[int] = []
    for one in [*indices, *[slice(None)] * (len(x.shape) - used)]:
        if one is None:
            shape.append(1)
            continue
        size = x.shape[len(places)]
        if isinstance(one, slice):
            picked = list(range(*one.indices(size)))
            shape.append(len(picked))
        else:
            if not -size <= one < size:
                raise EvaluationError("index past the end")
            picked = [one % size]
        places.append(picked)
    data = []
    for place in product(*places):
        at = 0
        for k, size in zip(place, x.shape, strict=True):
            at = at * size + k
        data.append(x.data[at])
    return Tensor(tuple(shape), tuple(data))


def stacked(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Tensors of one shape as one with a new dimension."""
    if not parts or any(one.shape != parts[0].shape for one in parts):
        raise EvaluationError("cannot be stacked")
    whole = Tensor((len(parts), *parts[0].shape), tuple(pair for one in parts for pair in one.data))
    size_of(whole.shape)
    dim = dim + len(whole.shape) if dim < 0 else dim
    if dim == 0:
        return whole
    if dim != 1 or len(whole.shape) > 2:
        raise EvaluationError("cannot be stacked")
    return transposed(whole) if len(whole.shape) == 2 else whole


def transposed(x: Tensor) -> Tensor:
    """Rows as columns."""
    rows, columns = x.shape
    return Tensor((columns, rows), tuple(x.data[b * columns + t] for t in range(columns) for b in range(rows)))


def reshaped(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements in another shape; one size may be −1."""
    sizes = list(shape)
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        if known <= 0 or len(x.data) % known:
            raise EvaluationError("cannot be reshaped")
        sizes[sizes.index(-1)] = len(x.data) // known
    if any(size < 0 for size in sizes) or math.prod(sizes) != len(x.data):
        raise EvaluationError("cannot be reshaped")
    return Tensor(tuple(sizes), x.data)
