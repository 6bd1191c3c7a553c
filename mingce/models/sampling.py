"""The decoder: prompts in, responses out, each with the log-probs of the distribution it was drawn from.

A prompt runs through the model once for all its samples; a row leaves the batch with its last token; a row's tokens
depend on its prompt, its seed and the model, not on the rows beside it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from mingce.errors import ModelError
from mingce.models import bare
from mingce.models.bare import BareModel
from mingce.models.batching import forward_inputs
from mingce.models.cache import drop_rows, roomy_cache
from mingce.models.drawing import Sampling, draw, seed_tensor
from mingce.models.lora import base_causal_lm

__all__ = ["Generation", "Sampling", "generate"]

Progress = Callable[[int, int], None]
"""Told after every token: rows finished so far, tokens drawn so far."""


@dataclass(frozen=True)
class Generation:
    """Responses `[B, T]`, right-padded; T is the length of the longest. Rows are prompt-major: all samples of prompt 0,
    then all of prompt 1.
    """

    token_ids: Tensor
    attention_mask: Tensor
    log_probs: Tensor
    """Of the distribution drawn from (temperature, truncation, renormalised); 0 on padding."""
    finish_reasons: list[str]
    """`stop`: ended with a stop id; `length`: cut at max_new_tokens or at the end of the model's window."""


class _Record:
    """What has been drawn so far, by row of the whole generation."""

    def __init__(self, rows: int, on_progress: Progress | None):
        self.steps: list[tuple[int, Tensor, Tensor, Tensor]] = []
        self.finish_reasons = ["length"] * rows
        self.on_progress = on_progress
        self.rows_done = self.tokens_done = 0

    def add(self, slot: int, rows: Tensor, tokens: Tensor, log_probs: Tensor, stopped: Tensor, ended: Tensor) -> None:
        """Tokens, log-probs and how it ended for the rows drawn in this slot, all `[rows]`."""
        if not bool(log_probs.isfinite().all()):
            raise ModelError(
                f"the model gave numbers that are not finite at response token {slot}; its weights have diverged, "
                "so go back to an earlier checkpoint and lower the learning rate."
            )
        self.steps.append((slot, rows, tokens, log_probs))
        for row in rows[stopped].tolist():
            self.finish_reasons[row] = "stop"
        self.tokens_done += len(rows)
        self.rows_done += int(ended.sum())
        if self.on_progress is not None:
            self.on_progress(self.rows_done, self.tokens_done)

    def generation(self, pad_id: int, device: torch.device) -> Generation:
        """Everything drawn as `[B, T]`."""
        shape = len(self.finish_reasons), 1 + max((slot for slot, *_ in self.steps), default=-1)
        token_ids = torch.full(shape, pad_id, dtype=torch.long, device=device)
        mask = torch.zeros(shape, dtype=torch.bool, device=device)
        log_probs = torch.zeros(shape, device=device)
        for slot, rows, tokens, drawn_log_probs in self.steps:
            token_ids[rows, slot], log_probs[rows, slot], mask[rows, slot] = tokens, drawn_log_probs, True
        return Generation(token_ids, mask, log_probs, self.finish_reasons)


@torch.no_grad()
def generate(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    seeds: Sequence[int],
    pad_id: int,
    n: int = 1,
    max_rows: int = 256,
    on_progress: Progress | None = None,
) -> Generation:
    """Draw `n` responses for every prompt, at most `max_rows` rows at a time; `seeds` holds one seed a row.

    The model is put into eval mode. Rows whose prompts are of like length are decoded together.
    """
    assert len(seeds) == len(prompts) * n, f"{len(seeds)} seeds for {len(prompts)} prompts of {n} samples"
    assert max_rows >= 1
    model.eval()
    device = next(model.parameters()).device
    limits = torch.tensor(_limits(model, prompts, sampling.max_new_tokens), device=device).repeat_interleave(n)
    every_seed = seed_tensor(seeds, device)
    record = _Record(len(seeds), on_progress)
    by_length = sorted(range(len(seeds)), key=lambda row: len(prompts[row // n]))
    for begin in range(0, len(seeds), max_rows):
        rows = torch.tensor(by_length[begin : begin + max_rows], device=device)
        batch = [tuple(prompts[row // n]) for row in rows.tolist()]
        _decode(model, batch, sampling, rows, every_seed[rows], limits[rows], pad_id, record)
    return record.generation(pad_id, device)


def _decode(
    model: nn.Module,
    prompts: Sequence[tuple[int, ...]],
    sampling: Sampling,
    rows: Tensor,
    seeds: Tensor,
    limits: Tensor,
    pad_id: int,
    record: _Record,
) -> None:
    """Decode one batch to its end; `rows`, `seeds` and `limits` (most tokens) are `[rows]`, as are `prompts`."""
    distinct = list(dict.fromkeys(prompts))
    place = {prompt: index for index, prompt in enumerate(distinct)}
    source = torch.tensor([place[prompt] for prompt in prompts], device=rows.device)
    none = rows.new_empty((len(distinct), 0))
    prefill = forward_inputs(distinct, none, none.bool(), pad_id)

    prompt_width = prefill.input_ids.shape[1]
    step = _Step(model, prompt_width + int(limits.max()))
    logits = step(prefill.input_ids, prefill.attention_mask, prefill.position_ids)[source]
    step.repeat_prompts(source)
    room = prefill.attention_mask.new_ones((len(rows), int(limits.max())))
    mask = torch.cat([prefill.attention_mask[source], room], dim=1)
    positions = prefill.position_ids[source, -1:] + 1
    stop_ids = torch.tensor(sampling.stop_ids, dtype=torch.long, device=rows.device)

    for slot in range(int(limits.max())):
        tokens, log_probs = draw(logits, sampling, seeds, slot)
        stopped = torch.isin(tokens, stop_ids)
        ended = stopped | (limits == slot + 1)
        record.add(slot, rows, tokens, log_probs, stopped, ended)
        if bool(ended.all()):
            return
        if bool(ended.any()):
            left = drop_rows(step.cache, ended)
            rows, seeds, limits, tokens = rows[left], seeds[left], limits[left], tokens[left]
            mask, positions = mask[left], positions[left]
        logits = step(tokens[:, None], mask[:, : prompt_width + slot + 1], positions)
        positions = positions + 1


class _Step:
    """The model's forward pass over one more piece of every row, with the cache of what came before."""

    def __init__(self, model: nn.Module, positions: int):
        """`positions`: how many a row may come to have."""
        inner = base_causal_lm(model)
        self.model, self.cache = model, roomy_cache(inner.config)
        self.bare = BareModel(model, positions) if bare.fits(model) else None
        self.takes_positions = "position_ids" in inspect.signature(inner.forward).parameters

    def repeat_prompts(self, source: Tensor) -> None:
        """Row i of the cache becomes a copy of row `source[i]`."""
        cast(Any, self.cache).reorder_cache(source)

    def __call__(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor) -> Tensor:
        """Logits `[rows, V]` of the token that follows; masks are 0 on the left, before a row's first token."""
        if self.bare is not None and input_ids.shape[1] == 1 and self.cache.get_seq_length():
            starts = (~attention_mask.bool()).sum(dim=1)
            return self.bare(input_ids[:, 0], position_ids[:, 0], starts, cast(Any, self.cache.layers))
        positions = {"position_ids": position_ids} if self.takes_positions else {}
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
            **positions,
        )
        logits: Tensor = output.logits[:, -1]
        return logits


def _limits(model: nn.Module, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[int]:
    """The most tokens each prompt may be given before the model's window is full."""
    window = getattr(base_causal_lm(model).config, "max_position_embeddings", None)
    if window is None:
        return [max_new_tokens] * len(prompts)
    for index, prompt in enumerate(prompts):
        if len(prompt) >= window:
            raise ModelError(
                f"prompt {index} has {len(prompt)} tokens and leaves no room in the model's window of {window}; "
                "shorten it or leave it out."
            )
    return [min(max_new_tokens, window - len(prompt)) for prompt in prompts]
