"""Keys and values of the answers that are being written: preallocated instead of copied at every step, rows come and go.

begin            end
| columns in use | ahead       a row of the buffers, in every layer; all rows end together,
| -  -  in use   | ahead       and a mask hides what lies before a shorter one
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

BLOCK = 128
"""Columns that are allocated ahead at a time."""


class PreallocatedLayer(DynamicLayer):
    """A layer of full attention. `keys` and `values` [rows, heads, columns, head_dim]: what is in use of its buffers."""

    keys: Any  # transformers declares that they may be None, as before the first tokens
    values: Any

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new columns behind those in use; return all in use. A prompt's are kept as they are, without a copy."""
        rows, added = len(key_states), key_states.shape[2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers, self._begin, self._end = [key_states, value_states], 0, 0
        elif self._end + added > self._buffers[0].shape[2]:
            self._allocate(rows, self._end - self._begin, added + BLOCK)
        columns = slice(self._end, self._end + added)
        if self._end:
            self._buffers[0][:rows, :, columns], self._buffers[1][:rows, :, columns] = key_states, value_states
        self._use(rows, self._begin, columns.stop)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Make row n what row beam_idx[n] was; rows that stay in their place are not copied."""
        order: list[int] = beam_idx.tolist()
        moved = [(place, row) for place, row in enumerate(order) if place != row]
        if any(row < len(order) for _, row in moved):  # it would be written over before it is read
            self._buffers = [buffer.index_select(0, beam_idx.to(buffer.device)) for buffer in self._buffers]
        else:
            in_use = slice(self._begin, self._end)
            for buffer in self._buffers:
                for place, row in moved:
                    buffer[place, :, in_use] = buffer[row, :, in_use]
        self._use(len(order), self._begin, self._end)

    def trim(self, columns: int) -> None:
        """Leave out the first columns, which no row reads."""
        self._use(len(self.keys), self._begin + columns, self._end)

    def join(self, other: PreallocatedLayer) -> None:
        """Take the other's rows behind those that are here."""
        rows, joined, width = len(self.keys), len(self.keys) + len(other.keys), other.keys.shape[2]
        if joined > len(self._buffers[0]) or width > self._end - self._begin:
            self._allocate(joined, max(width, self._end - self._begin), BLOCK)
        for buffer, new in zip(self._buffers, (other.keys, other.values), strict=True):
            buffer[rows:joined, :, self._begin : self._end - width] = (
                0  # a row before may have left NaN, which no mask hides
            )
            buffer[rows:joined, :, self._end - width : self._end] = new
        self._use(joined, self._begin, self._end)

    def _allocate(self, rows: int, width: int, ahead: int) -> None:
        """Move to new buffers for at least so many rows, with `width` columns in use."""
        used = self.keys.shape[2]
        for n, part in enumerate((self.keys, self.values)):
            size = (max(rows, len(self._buffers[n])), part.shape[1], width + ahead, part.shape[3])
            self._buffers[n] = part.new_zeros(size)
            self._buffers[n][: len(part), :, width - used : width] = part
        self._use(len(self.keys), 0, width)

    def _use(self, rows: int, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        self.keys, self.values = (buffer[:rows, :, begin:end] for buffer in self._buffers)


class PreallocatedCache(DynamicCache):
    """The cache of a batch: what attends to everything is held in preallocated layers, all else in transformers' own."""

    layers: list[Any]

    def __init__(self, config: PreTrainedConfig) -> None:
        """Make an empty one for a model."""
        super().__init__(config=config)
        own: Any = PreallocatedLayer  # transformers declares no types for what makes one
        self.layers = [own() if type(layer) is DynamicLayer else layer for layer in self.layers]

    @property
    def is_joinable(self) -> bool:
        """Whether rows can join, and columns be left out: where no layer has a state, or a window over the columns."""
        return all(isinstance(layer, PreallocatedLayer) for layer in self.layers)

    def join(self, other: PreallocatedCache) -> None:
        """Put the other's rows behind those that are here."""
        for layer, new in zip(self.layers, other.layers, strict=True):
            layer.join(new)

    def trim(self, columns: int) -> None:
        """Leave out the first columns, which no row reads."""
        for layer in self.layers:
            layer.trim(columns)
