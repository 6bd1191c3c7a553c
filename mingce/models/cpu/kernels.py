"""What stands between a Llama-shaped layer's matrix products, as compiled loops over float32 arrays on the CPU.

Every loop goes through memory once and becomes vector instructions. States stand one below the other, `[S, …]`
(`mingce.models.cpu.layout`).
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mingce.base.compiled import FINITE, compiler

compiled = compiler(FINITE)
_inlined = compiler(FINITE, inlined=True)

_LOG2_E = np.float32(1 / math.log(2))
_E0, _E1, _E2, _E3, _E4, _E5 = (  # 2^f ≈ 1 + f·(E0 + f·(E1 + …)) for 0 ≤ f < 1: Chebyshev's fit of (2^f − 1)/f
    np.float32(coefficient) for coefficient in (0.69314718, 0.24022721, 0.05549594, 0.00965244, 0.00126894, 0.00020829)
)


@_inlined
def exp(x):  # type: ignore[no-untyped-def]
    """e^x of a float32: 2^y = 2^n · 2^f with n whole, written as the bits of a float32, and 2^f a polynomial."""
    y = min(max(x * _LOG2_E, np.float32(-126)), np.float32(126))
    whole = np.floor(y)
    f = y - whole
    power = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)
    return power * (np.float32(1) + f * (_E0 + f * (_E1 + f * (_E2 + f * (_E3 + f * (_E4 + f * _E5))))))


@intrinsic
def _prefetch(_typing, array, index):  # type: ignore[no-untyped-def]
    """Asks the processor to fetch array's memory at `index` into its caches."""

    def build(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, whole = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole])
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        to_read, to_all_caches, data_not_code = whole(0), whole(3), whole(1)
        tell = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        builder.call(tell, [place, to_read, to_all_caches, data_not_code])
        return context.get_dummy_value()

    return types.void(array, types.intp), build


@compiled
def prefetch(array, begin, count):  # type: ignore[no-untyped-def]
    """Fetches `count` numbers of a contiguous array from `begin` on into the caches, while others are computed with."""
    for i in range(begin, min(begin + count, array.size), 16):
        _prefetch(array, i)  # type: ignore[call-arg]


@compiled
def rms_norm(stream, added, weight, epsilon, total, normed, scales):  # type: ignore[no-untyped-def]
    """total = stream + added, scales `[N]` = 1 / √(mean of its squares + ε), normed = weight · total · scale."""
    rows, width = stream.shape
    for r in range(rows):
        x, more, out, y = stream[r], added[r], total[r], normed[r]
        squares = np.float32(0)
        for i in range(width):
            here = x[i] + more[i]
            out[i] = here
            squares += here * here
        scale = np.float32(1) / np.sqrt(squares / np.float32(width) + epsilon)
        scales[r] = scale
        for i in range(width):
            y[i] = weight[i] * (out[i] * scale)


@compiled
def rms_norm_backward(total, weight, scales, of_total, of_normed, grad, of_weight):  # type: ignore[no-untyped-def]
    """With x̂ = x·s and g = w·∂y: ∂x = s·(g − x̂·mean(g·x̂)) + what came past the norm; ∂w += Σ ∂y·x̂."""
    rows, width = total.shape
    for r in range(rows):
        x, past, y, out, scale = total[r], of_total[r], of_normed[r], grad[r], scales[r]
        product = np.float32(0)
        for i in range(width):
            product += y[i] * weight[i] * x[i]
        share = product * scale * scale * scale / np.float32(width)
        for i in range(width):
            out[i] = past[i] + scale * weight[i] * y[i] - x[i] * share
            of_weight[i] += y[i] * x[i] * scale


@_inlined
def act_times(x, up, linear, cubic):  # type: ignore[no-untyped-def]
    """x · σ(z) · up with z = linear · x + cubic · x³"""
    return x * up / (np.float32(1) + exp(-(linear * x + cubic * x * x * x)))


@compiled
def glu(x, up, linear, cubic, out):  # type: ignore[no-untyped-def]
    """out = x · σ(z) · up with z = linear · x + cubic · x³: silu(x) · up with 1 and 0, gelu's like in families.py."""
    rows, width = out.shape
    for r in range(rows):
        a, b, y = x[r], up[r], out[r]
        for i in range(width):
            y[i] = act_times(a[i], b[i], linear, cubic)


@compiled
def glu_backward(x, up, linear, cubic, grad, of_up, out):  # type: ignore[no-untyped-def]
    """`grad` of `glu` becomes that of x, in place; `out` is made anew. d x·σ(z) / dx = σ(z)·(1 + x·(1 − σ(z))·z′)."""
    rows, width = out.shape
    for r in range(rows):
        a, b, g, u, y = x[r], up[r], grad[r], of_up[r], out[r]
        for i in range(width):
            square = cubic * a[i] * a[i]
            sigma = np.float32(1) / (np.float32(1) + exp(-(linear * a[i] + square * a[i])))
            act = a[i] * sigma
            here = g[i]
            y[i] = act * b[i]
            u[i] = here * act
            slope = linear + np.float32(3) * square
            g[i] = here * b[i] * (sigma + act * (np.float32(1) - sigma) * slope)


@compiled
def rope(qkv, cos, sin, lengths, widths, states, query, key, value):  # type: ignore[no-untyped-def]
    """States `[S, heads + 2·kv_heads, 2, D/2]` as rows, queries and keys turned by position, 0 behind rows' ends.

    A row is `[heads, its width, 2, D/2]`; rows stand one behind the other in `query`, `key` and `value`.
    """
    total, half = widths.sum(), query.shape[2]
    heads, kv_heads, token, before = query.shape[0] // total, key.shape[0] // total, 0, 0
    for r in range(len(lengths)):
        width = widths[r]
        for t in range(lengths[r]):
            line = qkv[states[token]]
            for h in range(heads):
                out = query[before * heads + h * width + t]
                for i in range(half):
                    low, high = line[h, 0, i], line[h, 1, i]
                    out[0, i] = low * cos[t, 0, i] - high * sin[t, 0, i]
                    out[1, i] = high * cos[t, 1, i] + low * sin[t, 1, i]
            for g in range(kv_heads):
                at, k, v = before * kv_heads + g * width + t, heads + g, heads + kv_heads + g
                out, more = key[at], value[at]
                for i in range(half):
                    low, high = line[k, 0, i], line[k, 1, i]
                    out[0, i] = low * cos[t, 0, i] - high * sin[t, 0, i]
                    out[1, i] = high * cos[t, 1, i] + low * sin[t, 1, i]
                for i in range(half):
                    more[0, i] = line[v, 0, i]
                    more[1, i] = line[v, 1, i]
            token += 1
        for t in range(lengths[r], width):
            for h in range(heads):
                query[before * heads + h * width + t] = 0
            for g in range(kv_heads):
                key[before * kv_heads + g * width + t] = 0
                value[before * kv_heads + g * width + t] = 0
        before += width


@compiled
def rope_backward(of_qkv, cos, sin, lengths, widths, states, first, query, key, value):  # type: ignore[no-untyped-def]
    """Gradients of rows as those of states: keys' and values' added up, the query's of the first token in a state."""
    total, half = widths.sum(), query.shape[2]
    heads, kv_heads, token, before = query.shape[0] // total, key.shape[0] // total, 0, 0
    for r in range(len(lengths)):
        width = widths[r]
        for t in range(lengths[r]):
            line = of_qkv[states[token]]
            if first[token]:
                for h in range(heads):
                    grad = query[before * heads + h * width + t]
                    for i in range(half):
                        low, high = grad[0, i], grad[1, i]
                        line[h, 0, i] = low * cos[t, 0, i] + high * sin[t, 1, i]
                        line[h, 1, i] = high * cos[t, 1, i] - low * sin[t, 0, i]
                for j in range(heads, heads + 2 * kv_heads):
                    line[j] = 0
            for g in range(kv_heads):
                at, k, v = before * kv_heads + g * width + t, heads + g, heads + kv_heads + g
                grad, more = key[at], value[at]
                for i in range(half):
                    low, high = grad[0, i], grad[1, i]
                    line[k, 0, i] += low * cos[t, 0, i] + high * sin[t, 1, i]
                    line[k, 1, i] += high * cos[t, 1, i] - low * sin[t, 0, i]
                for i in range(half):
                    line[v, 0, i] += more[0, i]
                    line[v, 1, i] += more[1, i]
            token += 1
        before += width


@compiled
def rows_to_states(rows, lengths, widths, states, first, out):  # type: ignore[no-untyped-def]
    """Rows as states `[S, heads, D]`, each by the first token that is in it; rows stand as in `rope`, D as one."""
    heads, size = out.shape[1:]
    token = before = 0
    for r in range(len(lengths)):
        for t in range(lengths[r]):
            if first[token]:
                line = out[states[token]]
                for h in range(heads):
                    row = rows[before * heads + h * widths[r] + t]
                    for i in range(size):
                        line[h, i] = row[i]
            token += 1
        before += widths[r]


@compiled
def states_to_rows(values, lengths, widths, states, first, rows):  # type: ignore[no-untyped-def]
    """States as rows, 0 for tokens that are not the first in their state, and behind rows' ends."""
    heads, size = values.shape[1:]
    token = before = 0
    for r in range(len(lengths)):
        for t in range(widths[r]):
            counts = t < lengths[r] and first[token]
            line = values[states[token] if counts else 0]
            for h in range(heads):
                row = rows[before * heads + h * widths[r] + t]
                if counts:
                    for i in range(size):
                        row[i] = line[h, i]
                else:
                    for i in range(size):
                        row[i] = 0
            if t < lengths[r]:
                token += 1
        before += widths[r]


@compiled
def softmax(x, seen, scale):  # type: ignore[no-untyped-def]
    """Softmax of scale · the first `seen` numbers of x, in place."""
    top = x[0]
    for t in range(seen):
        top = max(top, x[t])
    for t in range(seen):
        x[t] = exp((x[t] - top) * scale)
    total = np.float32(0)
    for t in range(seen):
        total += x[t]
    share = np.float32(1) / total
    for t in range(seen):
        x[t] *= share


@compiled
def causal_softmax(scores, scale):  # type: ignore[no-untyped-def]
    """Softmax of scale · scores `[queries, W]` in place; query r stands at place r mod W and sees the keys up to it."""
    width = scores.shape[1]
    for r in range(scores.shape[0]):
        x, seen = scores[r], r % width + 1
        softmax(x, seen, scale)
        for t in range(seen, width):
            x[t] = 0


@compiled
def causal_softmax_backward(probs, grads, scale):  # type: ignore[no-untyped-def]
    """Gradients of the probabilities become those of the scores, in place: ∂s = scale · p·(∂p − Σ p·∂p)."""
    width = probs.shape[1]
    for r in range(probs.shape[0]):
        p, grad, seen = probs[r], grads[r], r % width + 1
        mean = np.float32(0)
        for t in range(seen):
            mean += p[t] * grad[t]
        for t in range(seen):
            grad[t] = p[t] * (grad[t] - mean) * scale
        for t in range(seen, width):
            grad[t] = 0
