"""The functions that the evaluator of pasted code knows, by their names in torch, NumPy and the trainers.

Each takes and gives tensors with derivatives; a name that is not in FUNCTIONS is not evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mingce.explain.snippets import arithmetic as do
from mingce.explain.snippets.arithmetic import (
    BINARY,
    add,
    as_tensor,
    clip,
    detach,
    div,
    exp,
    mean,
    mul,
    neg,
    root,
    rsqrt,
    square,
    std,
    sub,
    total,
    variance,
    where,
)
from mingce.explain.snippets.tensor import (
    EvaluationError,
    Pair,
    Tensor,
    along,
    elementwise,
    reduced,
    reshaped,
    scalar,
    size_of,
    stacked,
)

# ── what the trainers call ───────────────────────────────────────────────────────────────────────────────────────────


def masked_sum(x: Tensor, mask: Tensor, *rest: Any, **named: Any) -> Tensor:
    return total(where(mask, x, scalar(0.0)), *rest, **named)


def masked_mean(x: Tensor, mask: Any = None, *rest: Any, **named: Any) -> Tensor:
    if mask is None:
        return mean(x, *rest, **named)
    return div(masked_sum(x, mask, *rest, **named), total(where(mask, scalar(1.0), scalar(0.0)), *rest, **named))


def masked_var(x: Tensor, mask: Tensor, unbiased: Any = 1.0) -> Tensor:
    found = masked_mean(square(sub(x, masked_mean(x, mask))), mask)
    count = total(mask).number()
    return mul(found, scalar(count / (count - 1))) if do.plain(unbiased) and count > 1 else found


def masked_whiten(x: Tensor, mask: Tensor, shift_mean: Any = 1.0) -> Tensor:
    middle, spread = masked_mean(x, mask), masked_var(x, mask)
    done = mul(sub(x, middle), rsqrt(add(spread, scalar(1e-8))))
    return done if do.plain(shift_mean) else add(done, middle)


def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return where(mask, as_tensor(value), x)


def log_sum_exp(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    def of(row: list[Pair]) -> Pair:
        top = max(a for a, _ in row)
        weights = [math.exp(a - top) for a, _ in row]
        slope = math.fsum(w * b for w, (_, b) in zip(weights, row, strict=True)) / math.fsum(weights)
        return top + math.log(math.fsum(weights)), slope

    return reduced(x, do.dim_of(rest, named, -1), do.keeps(named), of)


def log_softmax(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    return sub(x, log_sum_exp(x, -1, keepdim=1.0))


def softmax(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    return exp(log_softmax(x))


def entropy(logits: Tensor) -> Tensor:
    return sub(log_sum_exp(logits, -1), total(mul(softmax(logits), logits), -1))


def gather(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    index = named.get("index", rest[-1] if rest else None)
    if not isinstance(index, Tensor) or len(index.shape) != len(x.shape) or index.shape[-1] != 1:
        raise EvaluationError("such a gather is not computed")
    size = x.shape[-1]
    picked = [do.whole(a) for a in index.numbers()]
    if any(not 0 <= k < size for k in picked):
        raise EvaluationError("index past the end")
    return Tensor(index.shape, tuple(x.data[row * size + k] for row, k in enumerate(picked)))


def log_probs_of(logits: Tensor, labels: Tensor, *rest: Any, **named: Any) -> Tensor:
    return squeeze(gather(log_softmax(logits), -1, unsqueeze(labels, -1)), -1)


def absolute(x: Tensor) -> Tensor:
    return elementwise(lambda a: (abs(a[0]), a[1] if a[0] >= 0 else -a[1]), x)


# ── shapes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _cumsum(row: list[Pair]) -> list[Pair]:
    sums, done = (0.0, 0.0), []
    for one in row:
        sums = do.add_pairs(sums, one)
        done.append(sums)
    return done


def cumsum(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    return along(x, do.dim_of(rest, named, -1) or 0, _cumsum)


def flip(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    return along(x, do.dim_of(rest, named, -1) or 0, lambda row: row[::-1])


def roll(x: Tensor, shifts: Any = 0, *rest: Any, **named: Any) -> Tensor:
    by = do.whole(named.get("shifts", shifts))
    dim = do.dim_of(rest, named, -1)
    return along(x, -1 if dim is None else dim, lambda row: [row[(k - by) % len(row)] for k in range(len(row))])


def unsqueeze(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    dim = do.dim_of(rest, named, -1)
    place = -1 if dim is None else dim
    place = place + len(x.shape) + 1 if place < 0 else place
    return Tensor((*x.shape[:place], 1, *x.shape[place:]), x.data)


def squeeze(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    if x.shape and x.shape[-1] == 1 and len(x.shape) > 1:
        return Tensor(x.shape[:-1], x.data)
    return x


def stack(parts: Any, *rest: Any, **named: Any) -> Tensor:
    dim = do.dim_of(rest, named, 0)
    if isinstance(parts, Tensor):
        return parts
    return stacked([as_tensor(one) for one in parts], 0 if dim is None else dim)


def repeat_interleave(x: Tensor, times: Any, *rest: Any, **named: Any) -> Tensor:
    count = do.whole(times)
    x = x if x.shape else reshaped(x, [1])
    size_of((len(x.data), max(count, 0)))
    return along(x, 0, lambda row: [one for one in row for _ in range(count)])


def view(x: Tensor, *shape: Any, **named: Any) -> Tensor:
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
    return reshaped(x, [do.whole(one) for one in sizes])


def _like(value: float) -> Callable[..., Tensor]:
    return lambda x, *rest, **named: elementwise(lambda a: (value, 0.0), x)


def same(x: Tensor, *rest: Any, **named: Any) -> Tensor:
    """What changes neither numbers nor derivatives: .float(), .contiguous(), .to(device) …"""
    return x


def append(x: Any, *rest: Any, **named: Any) -> Tensor:
    """np.append and torch.cat of one dimension."""
    parts = [as_tensor(one) for one in ((x, *rest) if not isinstance(x, list | tuple) else x)]
    parts = [one if one.shape else reshaped(one, [1]) for one in parts if one.shape or len(parts) > 1]
    if any(len(one.shape) != 1 for one in parts):
        raise EvaluationError("such a join is not computed")
    size_of((sum(len(one.data) for one in parts),))
    return Tensor((sum(len(one.data) for one in parts),), tuple(pair for one in parts for pair in one.data))


def last_dimension(x: Tensor, *rest: Any) -> Tensor:
    return scalar(x.shape[do.whole(rest[0])] if rest else len(x.data))


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "exp": exp, "log": lambda x: elementwise(do.logarithm, x), "abs": absolute,
    "sqrt": root, "rsqrt": rsqrt, "square": square, "neg": neg, "negative": neg,
    "pow": lambda a, b: elementwise(do.power, a, as_tensor(b)),
    "sum": total, "nansum": total, "mean": mean, "nanmean": mean, "var": variance, "std": std, "nanstd": std,
    "max": do.extreme(do.larger), "min": do.extreme(do.smaller), "maximum": do.elementwise_extreme(do.larger),
    "minimum": do.elementwise_extreme(do.smaller), "clamp": clip, "clip": clip, "clip_by_value": clip,
    "clamp_min": lambda x, low: clip(x, min=low),
    "where": where, "masked_sum": masked_sum, "masked_mean": masked_mean, "masked_var": masked_var,
    "masked_whiten": masked_whiten, "whiten": masked_whiten, "masked_fill": masked_fill,
    "logsumexp": log_sum_exp, "log_softmax": log_softmax, "softmax": softmax, "entropy_from_logits": entropy,
    "gather": gather, "logprobs_from_logits": log_probs_of, "selective_log_softmax": log_probs_of,
    "log_probs_from_logits": log_probs_of,
    "cumsum": cumsum, "flip": flip, "roll": roll, "unsqueeze": unsqueeze, "squeeze": squeeze, "stack": stack,
    "repeat_interleave": repeat_interleave, "view": view, "reshape": view, "append": append, "cat": append,
    "concatenate": append, "zeros_like": _like(0.0), "ones_like": _like(1.0), "size": last_dimension,
    "numel": lambda x: scalar(len(x.data)), "detach": detach,
    "gt": lambda a, b: elementwise(BINARY["Gt"], a, as_tensor(b)),
    "lt": lambda a, b: elementwise(BINARY["Lt"], a, as_tensor(b)),
    "sigmoid": lambda x: div(scalar(1.0), add(scalar(1.0), exp(neg(x)))),
    **dict.fromkeys(
        ("float", "contiguous", "to", "clone", "item", "double", "cpu", "type", "tensor", "array", "asarray", "long",
         "bool", "int", "nan_to_num", "cuda"), same,
    ),
}  # fmt: skip
