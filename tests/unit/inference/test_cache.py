"""The preallocated cache holds what transformers' own holds, whichever rows come and go."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from transformers import DynamicCache, LlamaConfig

from expert_cli.inference.cache import BLOCK, PreallocatedCache
from tests import tiny
from tests.tiny_hybrids import hybrid

CONFIG = LlamaConfig(**{**tiny.SHAPE, "num_hidden_layers": 2})


def states(rows: int, columns: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values of two layers; values are wider."""
    return [(torch.randn(rows, 2, columns, 4), torch.randn(rows, 2, columns, 6)) for _ in range(2)]


def updated(cache: Any, new: list[tuple[torch.Tensor, torch.Tensor]]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [cache.update(*both, layer) for layer, both in enumerate(new)]


def assert_same(cache: PreallocatedCache, expected: DynamicCache, padding: list[int]) -> None:
    """What a mask does not hide is equal, the rest is finite."""
    assert cache.get_seq_length() == expected.get_seq_length()
    for layer, other in zip(cache.layers, expected.layers, strict=True):
        for found, wanted in ((layer.keys, other.keys), (layer.values, other.values)):
            assert found.shape == wanted.shape
            assert found.isfinite().all()
            for row, hidden in enumerate(padding):
                assert torch.equal(found[row, :, hidden:], wanted[row, :, hidden:])


def test_steps_are_appended_without_a_copy_but_once_a_block() -> None:
    cache, plain = PreallocatedCache(CONFIG), DynamicCache(config=CONFIG)
    buffers = set()
    for columns in (5, *[1] * (2 * BLOCK)):
        new = states(3, columns)
        for found, wanted in zip(updated(cache, new), updated(plain, new), strict=True):
            assert torch.equal(found[0], wanted[0])
            assert torch.equal(found[1], wanted[1])
        buffers.add(cache.layers[0].keys.data_ptr())
    assert len(buffers) == 3, "the prompt's own, and that of each block"


@pytest.mark.parametrize("seed", range(8))
def test_rows_come_and_go(seed: int) -> None:
    """Beside it, every row alone in transformers' cache, put together anew with zeros before the shorter ones."""
    torch.manual_seed(seed)
    rng, cache = random.Random(seed), PreallocatedCache(CONFIG)
    alone: list[list[list[torch.Tensor]]] = []  # rows, layers, keys and values [heads, columns, head_dim]
    for _ in range(60):
        width = max((row[0][0].shape[1] for row in alone), default=0)
        rows = rng.randrange(1, 4)
        columns = rng.choice([1, 3, width, max(1, width - 2), width + 7, BLOCK // 3])
        if not alone or (columns and rng.random() < 0.3):
            fresh, new = PreallocatedCache(CONFIG), states(rows, columns := max(1, columns))
            updated(fresh, new)
            order = [rng.randrange(rows) for _ in range(rng.randrange(1, 5))]
            fresh.reorder_cache(torch.tensor(order))
            cache = cache if alone else fresh
            if alone:
                cache.join(fresh)
            alone += [[[part[row] for part in layer] for layer in new] for row in order]
        elif rng.random() < 0.4:
            rng.shuffle(order := list(range(len(alone))))
            kept = order[: rng.randrange(1, len(order) + 1)]
            if rng.random() < 0.7:  # as a batch does it: the last ones take the places of those that went
                last = sorted((row for row in kept if row >= len(kept)), reverse=True)
                kept = [row if row in kept else last.pop() for row in range(len(kept))]
            cache.reorder_cache(torch.tensor(kept))
            alone = [alone[row] for row in kept]
            left = max(row[0][0].shape[1] for row in alone)
            cache.trim(width - left)
        else:
            new = states(len(alone), 1)
            updated(cache, new)
            for n, row in enumerate(alone):
                for layer, both in zip(row, new, strict=True):
                    layer[:] = [torch.cat([old, part[n]], 1) for old, part in zip(layer, both, strict=True)]
        width = max(row[0][0].shape[1] for row in alone)
        expected = DynamicCache(config=CONFIG)
        for layer in range(2):
            parts = [
                torch.stack(
                    [torch.nn.functional.pad(row[layer][n], (0, 0, width - row[layer][n].shape[1], 0)) for row in alone]
                )
                for n in range(2)
            ]
            expected.update(parts[0], parts[1], layer)
        assert_same(cache, expected, [width - row[0][0].shape[1] for row in alone])


def test_rows_that_leave_move_the_last_ones_alone() -> None:
    cache, new = PreallocatedCache(CONFIG), states(5, 3)
    updated(cache, new)
    before = cache.layers[0].keys.data_ptr()
    cache.reorder_cache(torch.tensor([0, 4, 2]))
    assert cache.layers[0].keys.data_ptr() == before
    assert torch.equal(cache.layers[0].keys, new[0][0][[0, 4, 2]])


def test_what_a_row_leaves_behind_reaches_none_that_takes_its_place() -> None:
    """Not even a NaN, which no mask hides."""
    cache = PreallocatedCache(CONFIG)
    first = states(2, 6)
    for part in first[0]:
        part[1] = torch.nan
    updated(cache, first)
    cache.reorder_cache(torch.tensor([0]))
    fresh = PreallocatedCache(CONFIG)
    updated(fresh, states(1, 2))
    cache.join(fresh)
    assert cache.layers[0].keys.isfinite().all()
    assert cache.layers[0].values.isfinite().all()


def test_only_rows_of_layers_that_attend_to_everything_can_join() -> None:
    assert PreallocatedCache(CONFIG).is_joinable
    window: Any = tiny.tiny_model("qwen3", use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert not PreallocatedCache(window.config).is_joinable
    for name in ("mamba2", "qwen3_5", "falcon_h1"):
        assert not PreallocatedCache(hybrid(name).config).is_joinable, name
