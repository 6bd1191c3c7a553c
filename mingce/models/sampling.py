"""The decoder: prompts in, responses out, each with the log-probs of the distribution it was drawn from.

A prompt runs through the model once for all its samples; a row leaves the batch with its last token; a row's tokens
depend on its prompt, its seed and the model, not on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from mingce.base.errors import ModelError
from mingce.models import cpu
from mingce.models.cache import CachedDecoder
from mingce.models.drawing import Sampling, draw, seed_tensor
from mingce.models.lora import base_causal_lm
from mingce.models.stopping import StopTexts

__all__ = ["Generation", "Sampling", "generate"]

Progress = Callable[[int, int], None]
"""Called after every token with the rows finished so far and the tokens drawn so far."""


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
    """`stop`: ended with a stop id or text; `length`: cut at max_new_tokens or at the end of the model's window."""

    def texts(self, tokenizer: PreTrainedTokenizerBase) -> list[str]:
        """The responses as text, without special tokens."""
        rows = zip(self.token_ids.tolist(), self.attention_mask.sum(1).tolist(), strict=True)
        return [cast(str, tokenizer.decode(ids[:length], skip_special_tokens=True)) for ids, length in rows]


class _Record:
    """What has been drawn so far, by row of the whole generation."""

    def __init__(self, rows: int, on_progress: Progress | None):
        self.rows, self.on_progress = rows, on_progress
        self.steps: list[tuple[int, Tensor, Tensor, Tensor]] = []
        self.rows_done = self.tokens_done = 0

    def add(self, slot: int, rows: Tensor, tokens: Tensor, log_probs: Tensor, ended: int) -> None:
        """Tokens and log-probs of the rows drawn in this slot, all `[rows]`, and how many of them end with it."""
        expect_finite(log_probs, slot)
        self.steps.append((slot, rows, tokens, log_probs))
        self.tokens_done += len(rows)
        self.rows_done += ended
        if self.on_progress is not None:
            self.on_progress(self.rows_done, self.tokens_done)

    def generation(self, pad_id: int, stop_ids: Tensor, stop_texts: StopTexts | None) -> Generation:
        """Everything drawn as `[B, T]`."""
        shape, device = (self.rows, 1 + max((slot for slot, *_ in self.steps), default=-1)), stop_ids.device
        token_ids = torch.full(shape, pad_id, dtype=torch.long, device=device)
        mask = torch.zeros(shape, dtype=torch.bool, device=device)
        log_probs = torch.zeros(shape, device=device)
        stopped = torch.zeros(self.rows, dtype=torch.bool, device=device)
        for slot, rows, tokens, drawn_log_probs in self.steps:
            token_ids[rows, slot], log_probs[rows, slot], mask[rows, slot] = tokens, drawn_log_probs, True
            stopped[rows] = torch.isin(tokens, stop_ids)
        if stop_texts is not None:
            stopped[list(stop_texts.completed)] = True
        return Generation(token_ids, mask, log_probs, ["stop" if one else "length" for one in stopped.tolist()])


def expect_finite(log_probs: Tensor, slot: int) -> None:
    """Log-probs of what was drawn are numbers, unless the model is broken."""
    if not bool(log_probs.isfinite().all()):
        raise ModelError(
            f"the model gave numbers that are not finite at response token {slot}; its weights have diverged, "
            "so go back to an earlier checkpoint and lower the learning rate."
        )


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
    stop_texts: StopTexts | None = None,
) -> Generation:
    """Draw `n` responses for every prompt, at most `max_rows` rows at a time; `seeds` holds one seed a row.

    The model is put into eval mode. Rows whose prompts are of like length are decoded together. `stop_texts` end a row
    beside the stop ids.
    """
    assert len(seeds) == len(prompts) * n, f"{len(seeds)} seeds for {len(prompts)} prompts of {n} samples"
    assert max_rows >= 1
    model.eval()
    model = base_causal_lm(model)  # its adapters stay in it
    device = next(model.parameters()).device
    limits = torch.tensor(window_limits(model, prompts, sampling.max_new_tokens), device=device).repeat_interleave(n)
    stop_ids = torch.tensor(sampling.stop_ids, dtype=torch.long, device=device)
    every_seed = seed_tensor(seeds, device)
    record = _Record(len(seeds), on_progress)
    by_length = sorted(range(len(seeds)), key=lambda row: len(prompts[row // n]))
    for begin in range(0, len(seeds), max_rows):
        rows = torch.tensor(by_length[begin : begin + max_rows], device=device)
        batch = [tuple(prompts[row // n]) for row in rows.tolist()]
        _decode(model, batch, sampling, rows, every_seed[rows], limits[rows], stop_ids, record, stop_texts)
    return record.generation(pad_id, stop_ids, stop_texts)


def _decode(
    model: nn.Module,
    prompts: Sequence[tuple[int, ...]],
    sampling: Sampling,
    rows: Tensor,
    seeds: Tensor,
    limits: Tensor,
    stop_ids: Tensor,
    record: _Record,
    stop_texts: StopTexts | None = None,
) -> None:
    """Decode one batch to its end; `rows`, `seeds` and `limits` (most tokens) are `[rows]`, as are `prompts`."""
    distinct = list(dict.fromkeys(prompts))
    place = {prompt: index for index, prompt in enumerate(distinct)}
    source = torch.tensor([place[prompt] for prompt in prompts], device=rows.device)
    most = max(len(prompt) for prompt in distinct) + int(limits.max())
    here = cpu.supports(model) and most <= cpu.reach(model)
    decoder = cpu.Decoder(model, most) if here else CachedDecoder(model)
    logits = decoder.begin(distinct, source)
    for slot in range(int(limits.max())):
        tokens, log_probs = draw(logits, sampling, seeds, slot)
        ended = (tokens[:, None] == stop_ids).any(1) | (limits == slot + 1)
        if stop_texts is not None:
            ended |= torch.tensor(stop_texts.add(rows.tolist(), tokens.tolist()), device=ended.device)
        count = int(ended.sum())
        record.add(slot, rows, tokens, log_probs, count)
        if count == len(rows):
            return
        if count:
            left = decoder.drop(ended)
            rows, seeds, limits, tokens = rows[left], seeds[left], limits[left], tokens[left]
        logits = decoder.step(tokens)


def window_limits(model: nn.Module, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[int]:
    """The most tokens each prompt may be given before the model's window is full."""
    window = getattr(cast(Any, model).config, "max_position_embeddings", None)
    if window is None:
        return [max_new_tokens] * len(prompts)
    for index, prompt in enumerate(prompts):
        if len(prompt) >= window:
            raise ModelError(
                f"prompt {index} has {len(prompt)} tokens and leaves no room in the model's window of {window}; "
                "shorten it or leave it out."
            )
    return [min(max_new_tokens, window - len(prompt)) for prompt in prompts]
