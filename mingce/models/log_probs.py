"""The log-probs and entropies of responses that are already there, in memory that does not grow with the vocabulary.

The logits of a step, `[tokens, V]`, are by far its largest tensor. Here only positions that predict a response token
reach the output head, a block at a time, and the backward pass recomputes a block's logits instead of keeping them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mingce.ledger import Batcher, Ledger
from mingce.models import cpu
from mingce.models.batching import joined_rows, places
from mingce.models.cpu import vocabulary
from mingce.models.cpu.products import add_of_weight, linear
from mingce.models.forward import hidden_states
from mingce.models.loading import backbone
from mingce.models.lora import base_causal_lm, has_adapters
from mingce.models.micro_batches import batcher

SHARDED_METHOD = "sharded_log_probs"
"""The name under which a sharded model has `gathered_log_probs` as its own method (mingce.engine.sharding)."""
_LEAST_ROWS = 128
"""Rows of a block at the least: adding a block to the gradient of the weight costs as much for one row as for many."""
_BLOCK = 1 << 20
"""Logits of one block: 4 MB, which stays in the cache of a CPU core."""


def response_log_probs(
    model: nn.Module,
    prompt_ids: Sequence[Sequence[int]],
    token_ids: Tensor,
    attention_mask: Tensor,
    *,
    pad_id: int,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """log π(y_t | x, y_<t) and the entropy of the distribution y_t comes from, both `[B, T]` float32.

    Both are of the logits divided by `temperature`, without truncation, and 0 outside `attention_mask`. Gradients flow
    as for the plain computation unless torch.no_grad() is on.
    """
    if hasattr(model, SHARDED_METHOD):  # its hooks gather the weights around this very computation
        method = getattr(model, SHARDED_METHOD)
        return cast(
            tuple[Tensor, Tensor], method(prompt_ids, token_ids, attention_mask, pad_id=pad_id, temperature=temperature)
        )
    return gathered_log_probs(model, prompt_ids, token_ids, attention_mask, pad_id=pad_id, temperature=temperature)


def ledger_log_probs(model: nn.Module, ledger: Ledger, pad_id: int, temperature: float) -> tuple[Tensor, Tensor]:
    """`response_log_probs` of a ledger's rows."""
    rows = ledger.row("prompt_ids"), ledger["token_ids"], ledger["attention_mask"]
    return response_log_probs(model, *rows, pad_id=pad_id, temperature=temperature)


def gathered_log_probs(
    model: nn.Module,
    prompt_ids: Sequence[Sequence[int]],
    token_ids: Tensor,
    attention_mask: Tensor,
    *,
    pad_id: int,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """`response_log_probs` of a model whose weights are all here."""
    assert temperature > 0, "a policy of temperature 0 has no log-probs"
    mask = attention_mask.bool()
    log_probs = torch.zeros(mask.shape, device=token_ids.device)
    entropy = torch.zeros(mask.shape, device=token_ids.device)
    if not bool(mask.any()):
        return log_probs, entropy
    joined = joined_rows(prompt_ids, token_ids, mask, pad_id)
    rows, slots = mask.nonzero(as_tuple=True)
    columns, targets = joined.columns[rows, slots], token_ids[rows, slots]
    if has_plain_head(model):
        hidden = hidden_states(backbone(model), joined.input_ids, places(joined.input_ids, rows, columns))
        head = _output_layer(model)
        flat = cast(Any, _HeadLogProbs).apply(hidden, head.weight, head.bias, targets, temperature)
    else:
        logits = model(input_ids=joined.input_ids, use_cache=False).logits[rows, columns]
        flat = _of_logits(logits, targets, temperature)
    return log_probs.index_put((rows, slots), flat[0]), entropy.index_put((rows, slots), flat[1])


def _of_logits(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs of `targets [N]` and entropies `[N]` of logits `[N, V]`."""
    log_probs = (logits.float() / temperature).log_softmax(-1)
    return log_probs.gather(-1, targets[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)


class _HeadLogProbs(torch.autograd.Function):
    """`_of_logits(hidden @ weight.T + bias)` by blocks of rows, logits never kept.

    With p = softmax(l / τ) and H its entropy, ∂ log p_y / ∂l = (1_y − p) / τ and ∂H / ∂l = −p (log p + H) / τ.
    Where the output layer is frozen (adapters learn) ∂ log p_y / ∂hidden is made with the logits at hand, and the
    backward pass needs no logits unless the entropy has a gradient too.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """`hidden [N, D]`, `weight [V, D]`, `bias [V]` → log-probs and entropies `[N]` float32."""
        norms, log_probs, entropy = (hidden.new_empty(len(hidden), dtype=torch.float32) for _ in range(3))
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        frozen = wants_hidden and not wants_weight and not wants_bias and vocabulary.supports_logits(hidden)
        slope = torch.empty_like(hidden) if frozen else None
        for block in _blocks(hidden, weight):
            logits = _scaled_logits(hidden[block], weight, bias, temperature)
            norms[block], entropy[block], log_probs[block] = _log_softmax_parts(logits, targets[block])
            if slope is not None:
                one, none = torch.ones(len(logits)), torch.zeros(len(logits))
                grad = _log_softmax_backward(logits, targets[block], norms[block], entropy[block], one, none)
                slope[block] = linear(grad, weight.T)
        ctx.save_for_backward(hidden, weight, bias, targets, norms, entropy, slope)
        ctx.temperature = temperature
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor, grad_entropy: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden states, weight and bias, from those of the log-probs and entropies `[N]`."""
        hidden, weight, bias, targets, norms, entropy, slope = ctx.saved_tensors
        if slope is not None and not bool(grad_entropy.any()):
            return slope * (grad_log_probs / ctx.temperature)[:, None], None, None, None, None
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden) if wants_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if wants_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if wants_bias else None
        for block in _blocks(hidden, weight):
            logits = _scaled_logits(hidden[block], weight, bias, ctx.temperature)
            of_both = grad_log_probs[block] / ctx.temperature, grad_entropy[block] / ctx.temperature
            grad = _log_softmax_backward(logits, targets[block], norms[block], entropy[block], *of_both)
            if grad_bias is not None:
                grad_bias += grad.sum(0)
            grad = grad.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[block] = linear(grad, weight.T)
            if grad_weight is not None:
                add_of_weight(grad_weight, grad, hidden[block])
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(weight.dtype),
            None,
            None,
        )


def _log_softmax_parts(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log Σ exp, entropies and log-probs of `targets`, all `[N]`, of logits `[N, V]`, which are spent."""
    if vocabulary.supports_logits(logits):
        return vocabulary.log_softmax_parts(logits, targets)
    largest = logits.amax(-1, keepdim=True)
    weights = logits.sub_(largest).exp()
    total = weights.sum(-1)
    entropy = total.log() - torch.linalg.vecdot(weights, logits) / total
    return largest[:, 0] + total.log(), entropy, logits.gather(-1, targets[:, None])[:, 0] - total.log()


def _log_softmax_backward(
    logits: Tensor, targets: Tensor, norms: Tensor, entropy: Tensor, of_log_probs: Tensor, of_entropy: Tensor
) -> Tensor:
    """The logits' gradient in their place, from those of log-probs and entropies `[N]`."""
    if vocabulary.supports_logits(logits):
        return vocabulary.log_softmax_backward(logits, targets, norms, entropy, of_log_probs, of_entropy)
    of_log_probs = of_log_probs[:, None]
    log_probs = logits.sub_(norms[:, None])
    probs = log_probs.exp()
    grad = log_probs.add_(entropy[:, None]).mul_(of_entropy[:, None]).add_(of_log_probs).mul_(probs).neg_()
    return grad.scatter_add_(-1, targets[:, None], of_log_probs)


def _blocks(hidden: Tensor, weight: Tensor) -> list[slice]:
    size = max(_LEAST_ROWS, _BLOCK // weight.shape[0])
    return [slice(begin, begin + size) for begin in range(0, len(hidden), size)]


def _scaled_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    logits = linear(hidden, weight, bias).float()
    return logits if temperature == 1 else logits.div_(temperature)


def _output_layer(model: nn.Module) -> nn.Linear:
    return cast(nn.Linear, cast(Any, base_causal_lm(model)).get_output_embeddings())


def log_probs_batcher(model: nn.Module, max_tokens: int) -> Batcher:
    """Which rows this model scores together."""
    packed = has_plain_head(model) and cpu.supports(backbone(model))
    return batcher(max_tokens, packed=packed, small=has_adapters(model))


_plain_heads: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def has_plain_head(model: nn.Module) -> bool:
    """Whether the model's logits are its output layer of its last hidden state and nothing else.

    Found by trying, once a model: some families scale or cap their logits, and an adapter may sit on the output layer.
    """
    inner = base_causal_lm(model)
    if inner not in _plain_heads:
        head = _output_layer(inner)
        _plain_heads[inner] = type(head) is nn.Linear and _logits_are_of(head, inner)
    return _plain_heads[inner]


@torch.no_grad()
def _logits_are_of(head: nn.Linear, model: nn.Module) -> bool:
    seen: list[Tensor] = []
    hook = backbone(model).register_forward_hook(lambda _module, _inputs, output: seen.append(output.last_hidden_state))
    try:
        logits = model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=head.weight.device), use_cache=False).logits
    finally:
        hook.remove()
    return len(seen) == 1 and torch.equal(head(seen[0]), logits)
