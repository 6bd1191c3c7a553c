"""Decoding by transformers' own forward pass, with a cache that has room to grow and gives up finished rows."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer

from mingce.models.batching import forward_inputs
from mingce.models.lora import base_causal_lm

_FIRST_ROOM = 32


class CachedDecoder:
    """Rows that grow by a token at a time. Prompts are padded before their first token, so that all rows end alike."""

    def __init__(self, model: nn.Module):
        inner = base_causal_lm(model)
        self.model, self.cache = model, roomy_cache(inner.config)
        self.takes_positions = "position_ids" in inspect.signature(inner.forward).parameters

    def begin(self, prompts: Sequence[Sequence[int]], source: Tensor) -> Tensor:
        """Logits `[rows, V]` after the prompts, row i having prompt `source[i]`."""
        none = source.new_empty((len(prompts), 0))
        inputs = forward_inputs(prompts, none, none.bool(), 0)
        logits = self._forward(*inputs)
        cast(Any, self.cache).reorder_cache(source)
        self.mask, self.positions = inputs.attention_mask[source], inputs.position_ids[source, -1:]
        return logits[source]

    def step(self, tokens: Tensor) -> Tensor:
        """Logits `[rows, V]` after one token more in every row."""
        self.mask, self.positions = functional.pad(self.mask, (0, 1), value=1), self.positions + 1
        return self._forward(tokens[:, None], self.mask, self.positions)

    def drop(self, ended: Tensor) -> Tensor:
        """Takes rows out; returns the former index of every row that is left."""
        left = drop_rows(self.cache, ended)
        self.mask, self.positions = self.mask[left], self.positions[left]
        return left

    def _forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor) -> Tensor:
        positions = {"position_ids": position_ids} if self.takes_positions else {}
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, past_key_values=self.cache, use_cache=True,
            logits_to_keep=1, **positions,
        )  # fmt: skip
        logits: Tensor = output.logits[:, -1]
        return logits


class RoomyLayer(DynamicLayer):
    """One layer's keys and values `[B, heads, length, width]`, as views of buffers with room behind them.

    transformers' own layer makes a new tensor of the whole past for every token; this one writes the token where it
    belongs and grows by half when full.
    """

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the states of new tokens `[B, heads, new, width]`; returns all states so far."""
        if not self.is_initialized:
            self.dtype, self.device = key_states.dtype, key_states.device
            self.is_initialized = True
            self.key_room, self.value_room = key_states[..., :0, :], value_states[..., :0, :]
            self._show(0)
        begin = self.get_seq_length()
        end = begin + key_states.shape[-2]
        if end > self.key_room.shape[-2]:
            self.key_room, self.value_room = grown(self.key_room, end), grown(self.value_room, end)
        self.key_room[..., begin:end, :] = key_states
        self.value_room[..., begin:end, :] = value_states
        return self._show(end)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row i becomes the former row `beam_idx[i]`, in new buffers."""
        length = self.get_seq_length()
        self.key_room = self.key_room.index_select(0, beam_idx)
        self.value_room = self.value_room.index_select(0, beam_idx)
        self._show(length)

    def fill_holes(self, holes: Tensor, movers: Tensor, rows: int) -> None:
        """Copy the rows `movers` over the rows `holes` and keep the first `rows`."""
        length = self.get_seq_length()
        for room in (self.key_room, self.value_room):
            room[holes, :, :length] = room[movers, :, :length]
        self.key_room, self.value_room = self.key_room[:rows], self.value_room[:rows]
        self._show(length)

    def _show(self, length: int) -> tuple[Tensor, Tensor]:
        self.keys, self.values = self.key_room[..., :length, :], self.value_room[..., :length, :]
        return self.keys, self.values


def roomy_cache(config: PretrainedConfig) -> DynamicCache:
    """An empty cache for a model; layers that are not plain attention (sliding, linear) stay transformers' own."""
    cache = DynamicCache(config=config)
    cache.layers = [cast(Any, RoomyLayer)() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def drop_rows(cache: DynamicCache, ended: Tensor) -> Tensor:
    """Take the rows marked in `ended [B]` out of the cache; returns the former index of every row that is left."""
    left, holes, movers = moves(ended)
    for layer in cache.layers:
        if isinstance(layer, RoomyLayer):
            layer.fill_holes(holes, movers, len(left))
        else:
            cast(Any, layer).reorder_cache(left)
    return left


def moves(ended: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The former index of every row that is left, the places that become free, and the rows that move into them.

    These are the last ones, so only as much is copied as has ended.
    """
    rows = int((~ended).sum())
    left = torch.arange(rows, device=ended.device)
    holes = ended[:rows].nonzero()[:, 0]
    movers = (~ended[rows:]).nonzero()[:, 0] + rows
    left[holes] = movers
    return left, holes, movers


def grown(room: Tensor, length: int) -> Tensor:
    """A buffer `[B, heads, room, width]` with place for `length` tokens and half as many again."""
    larger = room.new_empty((*room.shape[:-2], max(length + _FIRST_ROOM, length * 3 // 2), room.shape[-1]))
    larger[..., : room.shape[-2], :] = room
    return larger
