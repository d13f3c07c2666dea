"""Tiny packed data sets over a real token store, and packs without one."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from expert_cli.data.encode import Encoded
from expert_cli.data.packing.batches import Batch, Collator
from expert_cli.data.packing.pack_plan import Ints, Pieces
from expert_cli.data.packing.packed_dataset import PackedDataset
from expert_cli.data.store.build import build
from expert_cli.data.store.lookup import StoreKey
from expert_cli.data.store.store_files import Documents, write_shard
from expert_cli.manifest.keys.loader import Overflow, Packing
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import attention_backend
from expert_cli.utils.files import FileHashCache
from expert_cli.utils.reporter import NullReporter

END = 9


def whole(lengths: Ints) -> Pieces:
    """Return documents of these lengths, each in one piece."""
    return Pieces(np.arange(len(lengths)), np.zeros_like(lengths), lengths)


class Lengths(Documents):
    """Documents of which nothing but lengths is known. prompts: None: a half of each."""

    def __init__(self, lengths: Ints, prompts: Ints | None = None) -> None:
        self.lengths = lengths
        self.prompts = lengths // 2 if prompts is None else prompts

    def __reduce__(self) -> tuple[Any, ...]:
        return Lengths, (self.lengths, self.prompts)

    def __len__(self) -> int:
        return len(self.lengths)

    def trained_in(self, pieces: Pieces) -> Ints:
        begins = np.maximum(pieces.starts + 1, self.prompts[pieces.documents])
        return np.maximum(pieces.stops - begins, 0)


def encoded(*documents: tuple[int, int]) -> Encoded:
    """Make documents of (prompt, answer) tokens: the prompt 100, 101, ..., the answer 200, 201, ... and END."""
    ids = [[*range(100, 100 + p), *range(200, 199 + a), END] for p, a in documents]
    trained = [[False] * p + [True] * a for p, a in documents]
    offsets = np.cumsum([0, *(p + a for p, a in documents)])
    return Encoded(
        np.array(list(chain.from_iterable(ids)), np.int32),
        offsets.astype(np.int64),
        np.array(list(chain.from_iterable(trained)), np.bool_),
    )


def packed(
    folder: Path,
    *documents: tuple[int, int],
    capacity: int = 100,
    packing: Packing = "best_fit",
    overflow: Overflow = "truncate",
    seed: int = 0,
) -> PackedDataset:
    home = build(
        folder,
        StoreKey((("a", "b"),)),
        lambda building: write_shard(building / "train", 0, encoded(*documents)) or {},
        FileHashCache(folder),
        NullReporter(),
    )
    return PackedDataset(Documents(home / "train"), capacity, packing, overflow, seed)


def pack(*lengths: int) -> dict[str, torch.Tensor]:
    """Return documents of these lengths end to end, their tokens drawn at random, each trained but a document's first."""
    positions = torch.cat([torch.arange(length) for length in lengths] or [torch.arange(0)])
    ids = torch.randint(3, 384, (sum(lengths),), generator=torch.Generator().manual_seed(sum(lengths)))
    return {"input_ids": ids, "labels": torch.where(positions > 0, ids, -100), "position_ids": positions}


def model_inputs(collate: Collator, *packs: dict[str, torch.Tensor]) -> Batch:
    """Return what a model is given of a batch: all but what is counted for the Trainer."""
    batch = collate(packs)
    return {name: value for name, value in batch.items() if name not in ("real_tokens", "trained_tokens")}


def let_documents_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every document of a pack see those before it."""

    def leaky(module: Any, query: Any, *rest: Any, **settings: Any) -> Any:
        settings["cu_seq_lens_q"] = torch.tensor([0, query.shape[2]], dtype=torch.int32)
        return attention.per_document_sdpa(module, query, *rest, **settings)

    registered = attention_backend("documents").registered
    monkeypatch.setitem(attention.AttentionInterface._global_mapping, registered, leaky)
