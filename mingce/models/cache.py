"""Decoding by transformers' own forward pass, with a cache that has room to grow and gives up finished rows."""

from __future__ import annotations

import copy
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
_WINDOW = "sliding_window"


class CachedDecoder:
    """Rows that grow, with padding before and between their tokens, so that all rows end alike."""

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

    def step(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """Logits `[rows, V]` after one token more in every row, or in these `rows`."""
        if rows is not None and not torch.equal(rows, torch.arange(len(self.mask), device=rows.device)):
            return self.extend(rows, tokens[:, None].tolist())
        self.mask, self.positions = functional.pad(self.mask, (0, 1), value=1), self.positions + 1
        return self._forward(tokens[:, None], self.mask, self.positions)

    def extend(self, rows: Tensor, added: Sequence[Sequence[int]]) -> Tensor:
        """Logits `[rows, V]` after several tokens more in each of these rows; the others are padded."""
        width = max(len(ids) for ids in added)
        tokens, present = (self.mask.new_zeros(len(self.mask), width) for _ in range(2))
        for row, ids in zip(rows.tolist(), added, strict=True):
            tokens[row, width - len(ids) :], present[row, width - len(ids) :] = tokens.new_tensor(ids), 1
        positions = (self.positions + present.cumsum(1)).clamp(min=0)
        self.mask, self.positions = torch.cat([self.mask, present], dim=1), self.positions + present.sum(1, True)
        return self._forward(tokens, self.mask, positions)[rows]

    def begin_again(self, row: int) -> None:
        """Empties a row, prompt and all; `extend` gives it a new one."""
        self.mask[row], self.positions[row] = 0, -1

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


class AnewDecoder:
    """Rows that grow at different times where a layer's cache cannot skip padding (sliding windows, linear attention).

    Whenever rows come back, all of them are computed again from their beginning.
    """

    def __init__(self, model: nn.Module):
        self.model = model

    def begin(self, prompts: Sequence[Sequence[int]], source: Tensor) -> Tensor:
        """As `CachedDecoder.begin`."""
        self.histories = [list(prompts[prompt]) for prompt in source.tolist()]
        self.live, self.decoder = list(range(len(source))), CachedDecoder(self.model)
        return self.decoder.begin(prompts, source)

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """As `CachedDecoder.step`; rows that are left out are not computed until they come back."""
        wanted = rows.tolist()
        gone = torch.tensor([row not in wanted for row in self.live], device=tokens.device)
        if bool(gone.any()):
            self.live = [self.live[place] for place in self.decoder.drop(gone).tolist()]
        for row, token in zip(wanted, tokens.tolist(), strict=True):
            self.histories[row].append(token)
        order = torch.tensor([wanted.index(row) for row in self.live], device=tokens.device)
        return self.decoder.step(tokens[order])[order.argsort()]

    def extend(self, rows: Tensor, added: Sequence[Sequence[int]]) -> Tensor:
        """As `CachedDecoder.extend`."""
        for row, ids in zip(rows.tolist(), added, strict=True):
            self.histories[row] += ids
        self.live = sorted({*self.live, *rows.tolist()})
        self.decoder = CachedDecoder(self.model)
        every = torch.arange(len(self.live), device=rows.device)
        logits = self.decoder.begin([self.histories[row] for row in self.live], every)
        return logits[[self.live.index(row) for row in rows.tolist()]]

    def begin_again(self, row: int) -> None:
        """As `CachedDecoder.begin_again`."""
        self.histories[row] = []


def skips_padding(model: nn.Module) -> bool:
    """Whether the model's cache may hold padding between a row's tokens."""
    return all(isinstance(layer, RoomyLayer) for layer in roomy_cache(base_causal_lm(model).config).layers)


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


def has_stray_window(config: PretrainedConfig) -> bool:
    """Whether a `sliding_window` stands in the configuration of a family that has none and attends to all places."""
    return not hasattr(type(config), _WINDOW) and getattr(config, _WINDOW, None) is not None


def roomy_cache(config: PretrainedConfig) -> DynamicCache:
    """An empty cache for a model; layers that are not plain attention (sliding, linear) stay transformers' own."""
    config = config.get_text_config(decoder=True)
    if has_stray_window(config):  # which transformers' cache believes, and its model does not
        config = copy.deepcopy(config)
        delattr(config, _WINDOW)
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
