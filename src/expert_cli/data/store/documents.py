"""The documents of a store that is opened: views into memory-mapped files, never copies."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expert_cli.data.store.store_files import verify_store
from expert_cli.utils.files import FileHashCache


@dataclass(frozen=True)
class _Shard:
    """One file: `starts` int32 [rows + 1] into `ids` int32 [tokens]; bit i of `bits` says whether token i is trained."""

    starts: NDArray[np.int32]
    ids: NDArray[np.int32]
    bits: NDArray[np.uint8]

    @classmethod
    def opened(cls, file: Path) -> _Shard:
        """Map a file that `write_shard` wrote. Arrow's own way to numpy would import pandas, which takes 0.3 s."""
        with pa.memory_map(str(file)) as source:
            lists, mask = pa.ipc.open_stream(source).read_next_batch().columns
        starts, ids = (np.frombuffer(lists.buffers()[number], np.int32) for number in (1, 3))
        starts = starts[: len(lists) + 1]
        return cls(starts, ids[: starts[-1]], np.frombuffer(mask.buffers()[3], np.uint8))

    def trained(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return whether the tokens start <= number < stop are trained, one byte a token."""
        whole = np.unpackbits(self.bits[start // 8 : (stop + 7) // 8], bitorder="little")
        return whole[start % 8 : start % 8 + stop - start].view(np.bool_)

    def mask_lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tokens before the first trained one of each document, and the trained ones, int64 [rows] each."""
        begins, stops = self.starts[:-1].astype(np.int64), self.starts[1:].astype(np.int64)
        trained = np.flatnonzero(self.trained(0, len(self.ids)))
        first, beyond = np.searchsorted(trained, begins), np.searchsorted(trained, stops)
        return np.minimum(np.append(trained, len(self.ids))[first], stops) - begins, beyond - first


class Documents:
    """One split of a verified store, by document number. Picklable: a worker process opens the files again."""

    def __init__(self, folder: Path) -> None:
        """Map the shards of a split's folder; the library `datasets` leaves files of its own beside them."""
        self.folder = folder
        self._shards = [*map(_Shard.opened, sorted(folder.glob("data-*.arrow")))]
        self.first = np.cumsum([0, *(len(shard.starts) - 1 for shard in self._shards)], dtype=np.int64)

    def __reduce__(self) -> tuple[type[Documents], tuple[Path]]:
        """Send the folder, not the data."""
        return Documents, (self.folder,)

    def __len__(self) -> int:
        """Return the number of documents."""
        return int(self.first[-1])

    def document(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return (ids, trained) of one document, both [tokens]; ids is a view of the file."""
        at = int(np.searchsorted(self.first, number, side="right")) - 1
        shard, row = self._shards[at], number - int(self.first[at])
        start, stop = int(shard.starts[row]), int(shard.starts[row + 1])
        return shard.ids[start:stop], shard.trained(start, stop)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The tokens of every document, int64 [documents]."""
        return np.concatenate([np.zeros(0, np.int64), *(np.diff(shard.starts) for shard in self._shards)])

    @cached_property
    def mask_lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens before the first trained one of every document, and the trained ones; each mask is read."""
        prompts, trained = zip(*(shard.mask_lengths() for shard in self._shards), strict=True)
        return np.concatenate(prompts), np.concatenate(trained)

    def id_range(self) -> tuple[int, int]:
        """Return the smallest and the largest token id; (0, -1) if there is no token."""
        ends = [int(end) for shard in self._shards if len(shard.ids) for end in (shard.ids.min(), shard.ids.max())]
        return min(ends, default=0), max(ends, default=-1)


def drawn_prompts(home: Path | None, count: int, seed: int) -> list[list[int]]:
    """Return what the first answers of some rows follow, drawn by seed, if anything. Raises IntegrityError."""
    if home is None or not (home / "train").is_dir():
        return []
    verify_store(home, FileHashCache(home.parent).sha256)
    documents = Documents(home / "train")
    numbers = random.Random(seed).sample(range(len(documents)), min(count, len(documents)))  # noqa: S311
    drawn = (documents.document(number) for number in numbers)
    return [ids[: trained.argmax()].tolist() for ids, trained in drawn if trained.argmax()]
