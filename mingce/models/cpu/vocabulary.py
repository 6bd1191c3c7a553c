"""Softmax over a vocabulary on the CPU, a row of logits read as often as it must be and no more.

By torch's operations a block of logits goes through memory six times forward and nine times backward.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mingce.base.compiled import REORDERED, compiler
from mingce.models.cpu.kernels import compiled, exp

_PIECE = 1024
"""Numbers of a row that are summed in float32 before the sum goes on in float64."""
_NEVER = np.float32(-87)
"""Below it e^x is 0 in float32."""
_with_nan = compiler(REORDERED)


def supports_logits(logits: Tensor) -> bool:
    """Whether the loops here compute with these logits."""
    return logits.dtype == torch.float32 and logits.device.type == "cpu" and logits.is_contiguous()


def draw(logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens `[N]` at the places `uniforms [N]` (float64 in [0, 1)) of the distributions, and their log-probs.

    A row with a NaN has log-prob NaN.
    """
    tokens, log_probs = torch.empty_like(uniforms, dtype=torch.long), logits.new_empty(len(logits))
    _draw(*(tensor.numpy() for tensor in (logits, uniforms, tokens, log_probs)))
    return tokens, log_probs


def log_softmax_parts(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log Σ exp, entropies and log-probs of `targets`, all `[N]`, of logits `[N, V]`."""
    norms, entropy, log_probs = (logits.new_empty(len(logits)) for _ in range(3))
    _log_softmax_parts(*(tensor.detach().numpy() for tensor in (logits, targets, norms, entropy, log_probs)))
    return norms, entropy, log_probs


def log_softmax_backward(
    logits: Tensor, targets: Tensor, norms: Tensor, entropy: Tensor, of_log_probs: Tensor, of_entropy: Tensor
) -> Tensor:
    """The logits' gradient in their place, from those of log-probs and entropies `[N]`."""
    inputs = (logits, targets, norms, entropy, of_log_probs.contiguous(), of_entropy.contiguous())
    _log_softmax_backward(*(tensor.detach().numpy() for tensor in inputs))
    return logits


@_with_nan
def _draw(logits, uniforms, tokens, log_probs):  # type: ignore[no-untyped-def]
    rows, size = logits.shape
    weights, sums = np.empty(size, np.float32), np.empty((size + _PIECE - 1) // _PIECE, np.float64)
    for r in range(rows):
        row = logits[r]
        top, broken = row[0], 0
        for i in range(size):
            top = max(top, row[i])
            broken += row[i] != row[i]
        total = 0.0
        for piece in range(len(sums)):
            x, w = row[piece * _PIECE : (piece + 1) * _PIECE], weights[piece * _PIECE : (piece + 1) * _PIECE]
            for i in range(len(x)):
                here = x[i] - top
                w[i] = exp(here) if here > _NEVER else np.float32(0)
            part = np.float32(0)
            for i in range(len(x)):
                part += w[i]
            sums[piece] = part
            total += sums[piece]
        left, piece = uniforms[r] * total, 0
        while piece + 1 < len(sums) and left >= sums[piece]:
            left -= sums[piece]
            piece += 1
        chosen = piece * _PIECE
        for i in range(chosen, min(chosen + _PIECE, size)):
            if weights[i] > 0:  # where rounding leaves nothing to the right, the last token that may be drawn
                chosen = i
                if left < weights[i]:
                    break
                left -= weights[i]
        tokens[r] = chosen
        log_probs[r] = np.float32(np.nan) if broken else row[chosen] - top - np.float32(np.log(total))


@compiled
def _log_softmax_parts(logits, targets, norms, entropy, log_probs):  # type: ignore[no-untyped-def]
    rows, size = logits.shape
    for r in range(rows):
        row = logits[r]
        top = row[0]
        for i in range(size):
            top = max(top, row[i])
        total, product = 0.0, 0.0  # float64 over pieces: a sum over a large vocabulary in float32 loses digits
        for begin in range(0, size, _PIECE):
            x = row[begin : begin + _PIECE]
            part, dot = np.float32(0), np.float32(0)
            for i in range(len(x)):
                here = x[i] - top
                weight = exp(here)
                part += weight
                dot += weight * here
            total += float(part)
            product += float(dot)
        norm = np.log(total)
        norms[r] = top + norm
        entropy[r] = norm - product / total
        log_probs[r] = row[targets[r]] - top - norm


@compiled
def _log_softmax_backward(logits, targets, norms, entropy, of_log_probs, of_entropy):  # type: ignore[no-untyped-def]
    """grad = a·(1_y − p) − b·p·(log p + H)"""
    rows, size = logits.shape
    for r in range(rows):
        row, norm, a, b = logits[r], norms[r], of_log_probs[r], of_entropy[r]
        shift = entropy[r] - norm
        for i in range(size):
            row[i] = -exp(row[i] - norm) * (a + b * (row[i] + shift))
        row[targets[r]] += a
