"""Bytes that passes through a model need beside its weights: kept for the backward pass, or for a moment.

Counted from what the transformers code of the families keeps with scaled_dot_product_attention (never the scores
`[T, T]`) and from mingce's own log-probs, which make logits a block at a time. bench/plan.py measures the same.
"""

from __future__ import annotations

from mingce.plan.roles import RoleModel
from mingce.plan.shape import ModelShape

_OF_PARTS = ("gelu_new",)
"""Activations that are not one kernel, so that their parts are kept."""
_HEAD_ROWS, _HEAD_LOGITS = 128, 1 << 20
"""mingce.models.log_probs: rows of a block at the least, and logits of a block."""


def layer_bytes(role: RoleModel, compute: int) -> int:
    """Kept for the backward pass by one layer, per token. `compute` is the bytes of a number in passes."""
    shape = role.shape
    frozen = role.has_adapters
    return _norms(shape, frozen, compute) + _attention(shape, frozen, compute) + _mlp(role, compute)


def _norms(shape: ModelShape, frozen: bool, compute: int) -> int:
    """The norms of a layer. A frozen norm has no use for its normalised input later."""
    d = shape.hidden
    if shape.rms_norm:  # input in float32, normalised input, output; and the inverse root mean square
        return shape.norms * (4 * d + (1 if frozen else 2) * compute * d + 4)
    inputs = 1 if shape.parallel else shape.norms
    return compute * (inputs * d + shape.norms * (d + 2))


def _attention(shape: ModelShape, frozen: bool, compute: int) -> int:
    """Rotated queries and keys, values, the output, and each head's log-sum-exp."""
    a, kv = shape.attention_width, shape.kv_width
    size = compute * 2 * (a + kv) + 4 * shape.heads
    if shape.keeps_qkv:
        size += compute * 3 * a  # the rest of the product, and a copy of the output
    if shape.qk_norm:
        size += (4 + (0 if frozen else compute)) * (a + kv) + 4 * (shape.heads + shape.kv_heads)
    return size


def _mlp(role: RoleModel, compute: int) -> int:
    shape = role.shape
    wide = 4 if shape.gated else 5 if shape.activation in _OF_PARTS else 2
    narrow = sum(weight.size[0] for weight in role.layer if weight.name.endswith(".lora_A"))
    return compute * (wide * shape.inner + narrow)


def kept_bytes(role: RoleModel, tokens: int, scored: int, compute: int, *, checkpointing: bool) -> int:
    """Kept by the whole forward pass over `tokens`, of which `scored` predict a response token.

    With checkpointing a layer keeps its input only.
    """
    d = role.shape.hidden
    layer = compute * d if checkpointing else layer_bytes(role, compute)
    return tokens * role.shape.layers * layer + _end_bytes(role, tokens, scored, compute)


def _end_bytes(role: RoleModel, tokens: int, scored: int, compute: int) -> int:
    """The last norm, and what the head reads: scored positions, or for values every position in float32."""
    d = role.shape.hidden
    norm = (4 if role.shape.rms_norm else 0) + (0 if role.has_adapters else compute)
    return tokens * norm * d + (scored * compute * d if role.scores_tokens else tokens * 4 * d)


def backward_bytes(role: RoleModel, tokens: int, compute: int, *, checkpointing: bool) -> int:
    """For a moment in the backward pass of the uppermost layer, which checkpointing recomputes."""
    d, f = role.shape.hidden, role.shape.inner
    in_norm = 16 * d * tokens
    again = layer_bytes(role, compute) + compute * f * (3 if role.shape.activation in _OF_PARTS else 1)
    in_layer = tokens * again if checkpointing else 0
    return max(in_layer, in_norm)


def forward_bytes(role: RoleModel, tokens: int, scored: int, compute: int) -> int:
    """For a moment in a pass without a gradient: the feed-forward part, or the head."""
    d, f = role.shape.hidden, role.shape.inner
    wide = _wide(role.shape) + (1 if role.has_adapters else 0)
    return max(tokens * compute * (wide * f + 4 * d), head_bytes(role, scored, compute, backward=False))


def _wide(shape: ModelShape) -> int:
    """Tensors of the feed-forward's width that are there at once in a pass."""
    return 3 if shape.gated else 4 if shape.activation in _OF_PARTS else 2


def head_bytes(role: RoleModel, scored: int, compute: int, *, backward: bool) -> int:
    """Log-probs from hidden states: blocks of logits, and on the way back the output layer's gradient in float32.

    Three float32 blocks are there at once, of which parts are the block before; passes in 16 bits add their own.
    """
    shape = role.shape
    if not role.scores_tokens:
        return 0
    rows = min(scored, max(_HEAD_ROWS, _HEAD_LOGITS // shape.vocab))
    number = 12
    if compute < 4:
        several = scored > rows
        number = (16 if several else 10) if backward else (14 if several else 12)
    learns = backward and not role.has_adapters
    gradient = shape.output.count * (4 + (compute if compute < 4 else 0)) if learns else 0
    return rows * shape.vocab * number + gradient + scored * compute * shape.hidden


def cache_bytes(shape: ModelShape, rows: int, room: int, compute: int) -> int:
    """Keys and values of `rows` with room for `room` tokens each."""
    return 2 * shape.layers * rows * room * shape.kv_width * compute


def cache_rooms(prompt: int, longest: int) -> list[int]:
    """Tokens a row of mingce's cache has room for, as it grows from the prompt until `longest` fit."""
    rooms = [max(prompt + 32, prompt * 3 // 2)]
    while rooms[-1] < longest:
        end = rooms[-1] + 1
        rooms.append(max(end + 32, end * 3 // 2))
    return rooms


def sampling_bytes(
    shape: ModelShape, rows: int, prompts: int, prompt: int, response: int, compute: int
) -> tuple[int, int]:
    """(cache at its largest, what comes on top of it for a moment) when `rows` are decoded from `prompts`.

    The moments: reading the prompts; drawing, with logits, log-probs, probs and their sums in float64; a layer's cache
    moving to a larger place; attending where several queries share a key, which is repeated for each.
    """
    rooms = cache_rooms(prompt, prompt + response)
    cache = cache_bytes(shape, rows, rooms[-1], compute)
    reading = cache_bytes(shape, prompts, rooms[0], compute) + prompts * prompt * compute * (
        _wide(shape) * shape.inner + 4 * shape.hidden
    )
    drawing = rows * shape.vocab * (20 + (0 if compute == 4 else compute))
    moving = cache_bytes(shape, rows, rooms[-2], compute) // shape.layers if len(rooms) > 1 else 0
    repeats = shape.heads > shape.kv_heads
    attending = 2 * rows * (prompt + response) * shape.attention_width * compute if repeats else 0
    return cache, max(reading - cache, drawing, moving, attending)
