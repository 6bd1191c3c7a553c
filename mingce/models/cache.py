"""The keys and values of a batch while it is decoded: room to grow, and finished rows taken out in place."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer

_FIRST_ROOM = 32


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
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
        begin = self.reserve(key_states.shape[-2])
        end = begin + key_states.shape[-2]
        self.key_room[..., begin:end, :] = key_states
        self.value_room[..., begin:end, :] = value_states
        return self._show(end)

    def reserve(self, count: int) -> int:
        """Makes the last `count` tokens part of the past, to be written by the caller; returns where they begin."""
        begin = self.get_seq_length()
        end = begin + count
        if end > self.key_room.shape[-2]:
            room = max(end + _FIRST_ROOM, end * 3 // 2)
            self.key_room = _moved(self.key_room, begin, room)
            self.value_room = _moved(self.value_room, begin, room)
        self._show(end)
        return begin

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


def drop_rows(cache: DynamicCache, finished: Tensor) -> Tensor:
    """Take the rows marked in `finished [B]` out of the cache; returns the former index of every row that is left.

    The last rows move into the holes, so only as much is copied as has ended.
    """
    rows = int((~finished).sum())
    kept = torch.arange(rows, device=finished.device)
    holes = finished[:rows].nonzero()[:, 0]
    movers = (~finished[rows:]).nonzero()[:, 0] + rows
    kept[holes] = movers
    for layer in cache.layers:
        if isinstance(layer, RoomyLayer):
            layer.fill_holes(holes, movers, rows)
        else:
            cast(Any, layer).reorder_cache(kept)
    return kept


def _moved(room: Tensor, length: int, size: int) -> Tensor:
    larger = room.new_empty((*room.shape[:-2], size, room.shape[-1]))
    larger[..., :length, :] = room[..., :length, :]
    return larger
