"""Bytes that real passes of small models need on this machine, tensor by tensor, for bench/plan.py and its tests."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, PretrainedConfig

from mingce.algorithms.losses import batch_totals, ppo_loss, value_loss
from mingce.ledger import Ledger
from mingce.models.loading import without_dropout
from mingce.models.log_probs import response_log_probs
from mingce.models.lora import LoraSettings, add_adapters
from mingce.models.sampling import Sampling, generate
from mingce.models.value_head import ValueModel
from mingce.roles.actor import row_seed

PAD = 0


class Live(TorchDispatchMode):
    """Adds up the storages of all tensors that operations make while it is on, and remembers the most there were."""

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: dict[int, int] = {}
        self.now = self.peak = 0
        self.ignored = {tensor.untyped_storage()._cdata for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if isinstance(made, Tensor):
                self._add(made.untyped_storage())
        self.peak = max(self.peak, self.now)
        return result

    def _add(self, storage: Any) -> None:
        key = storage._cdata
        if key in self.sizes or key in self.ignored:
            return
        self.sizes[key] = storage.nbytes()
        self.now += self.sizes[key]
        weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.now -= self.sizes.pop(key)


@dataclass(frozen=True)
class Rows:
    """Random rows, all of one length."""

    rows: int
    prompt: int
    response: int


@dataclass(frozen=True)
class Measured:
    """Bytes of one model."""

    parameters: int
    weights: int
    gradients: int
    optimizer: int
    kept: int
    """For the backward pass, by the tensors autograd saved."""
    update: int
    """The most that an update adds to weights, gradients and moments."""
    forward: int
    """The most that a pass without a gradient adds."""


def build(config: PretrainedConfig, *, rank: int = 0) -> Any:
    """A random policy, with adapters if a rank is given."""
    torch.manual_seed(0)
    model = without_dropout(cast(Any, AutoModelForCausalLM).from_config(config)).eval()
    return add_adapters(model, LoraSettings(rank=rank)) if rank else model


def as_on_gpus() -> ExitStack:
    """Passes by torch's and transformers' own operations: what is compiled for CPUs needs less memory."""

    def never(given: object) -> bool:  # a Mock would remember what it was given, and so keep logits alive
        return False

    stack = ExitStack()
    for name in ("supports", "vocabulary.supports_logits"):
        stack.enter_context(mock.patch(f"mingce.models.cpu.{name}", never))
    return stack


def measure(model: nn.Module, rows: Rows, vocabulary: int, *, checkpointing: bool = False) -> Measured:
    """What learning from two micro-batches of such rows needs; a ValueModel is a critic, anything else a policy."""
    with as_on_gpus():
        return _measure(model, rows, vocabulary, checkpointing)


def _measure(model: nn.Module, rows: Rows, vocabulary: int, checkpointing: bool) -> Measured:
    if checkpointing:
        inner = cast(Any, model.backbone if isinstance(model, ValueModel) else model)
        inner.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        inner.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, foreach=True)
    ledger, loss = random_ledger(rows, vocabulary), loss_of(model)

    def learn() -> None:
        optimizer.zero_grad(set_to_none=True)
        for _ in range(2):
            loss(ledger).backward()
        optimizer.step()

    learn()
    moments = [t for state in optimizer.state.values() for t in state.values()]
    for parameter in parameters:
        assert parameter.grad is not None
    held = _bytes(p.grad for p in parameters)
    optimizer.zero_grad(set_to_none=True)
    static = [*model.parameters(), *model.buffers(), *moments]
    with Live(static) as live:
        learn()
    kept: dict[int, Any] = {}
    known = {p.untyped_storage()._cdata for p in static}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            kept[storage._cdata] = storage
        return tensor

    optimizer.zero_grad(set_to_none=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        graph = loss(ledger)
    saved = sum(storage.nbytes() for storage in kept.values())
    del graph
    with Live(static) as forward, torch.no_grad():
        loss(ledger)
    return Measured(
        parameters=sum(p.numel() for p in model.parameters()),
        weights=_bytes(model.parameters()),
        gradients=held,
        optimizer=_bytes(t for t in moments if t.dim()),
        kept=saved,
        update=live.peak - held,
        forward=forward.peak,
    )


def measure_sampling(model: nn.Module, prompts: int, samples: int, rows: Rows, vocabulary: int) -> int:
    """The most that drawing responses adds to the weights."""
    live = Live([*model.parameters(), *model.buffers()])
    with live:
        sample(model, prompts, samples, rows, vocabulary)
    return live.peak


def sample(model: nn.Module, prompts: int, samples: int, rows: Rows, vocabulary: int) -> None:
    """Draws responses to random prompts, which are ragged as prompts are, so that there is a mask."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, vocabulary, (prompts, rows.prompt), generator=generator).tolist()
    sampling, seeds = Sampling(max_new_tokens=rows.response), [row_seed(0, 1, i) for i in range(prompts * samples)]
    ragged = [row[i % 2 :] for i, row in enumerate(ids)]
    with as_on_gpus():
        generate(model, ragged, sampling, seeds=seeds, pad_id=PAD, n=samples)


def _bytes(tensors: Iterable[Tensor | None]) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors if tensor is not None)


def random_ledger(rows: Rows, vocabulary: int) -> Ledger:
    """Rows of random tokens."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(rows.rows, rows.response, dtype=torch.bool)
    ids = torch.randint(3, vocabulary, (rows.rows, rows.prompt + rows.response), generator=generator)
    prompts = ids[:, : rows.prompt].tolist()
    return Ledger(ids[:, rows.prompt :].contiguous(), mask, mask, {"prompt_ids": prompts})


def loss_of(model: nn.Module) -> Callable[[Ledger], Tensor]:
    """The loss of a micro-batch: of values for a ValueModel, else of the policy."""
    return _value_loss(model) if isinstance(model, ValueModel) else _policy_loss(model)


def _policy_loss(model: nn.Module) -> Callable[[Ledger], Tensor]:
    def loss(ledger: Ledger) -> Tensor:
        mask = ledger.loss_mask
        old = torch.full(mask.shape, -4.0)
        new, _ = response_log_probs(
            model, ledger.row("prompt_ids"), ledger["token_ids"], ledger["attention_mask"], pad_id=PAD
        )
        return ppo_loss(old, new, old, mask, **batch_totals(mask)).loss

    return loss


def _value_loss(model: ValueModel) -> Callable[[Ledger], Tensor]:
    def loss(ledger: Ledger) -> Tensor:
        mask = ledger.loss_mask
        values, _ = model.values(ledger.row("prompt_ids"), ledger["token_ids"], ledger["attention_mask"], PAD)
        old = torch.zeros_like(values)
        return value_loss(values, old + 1, old, mask, None, **batch_totals(mask))[0]

    return loss
