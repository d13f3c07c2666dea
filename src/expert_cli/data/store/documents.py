"""The documents of a store that is opened, and of one whose run is over: views into memory-mapped files, never copies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expert_cli.data.store.store_files import BUILD_ANEW, STATE, file_hashes, verify_store
from expert_cli.errors import IntegrityError
from expert_cli.utils.files import parse_json
from expert_cli.utils.length_histogram import LengthHistogram


class DocumentLengths(NamedTuple):
    """Of some documents all tokens, those before the first trained one, and the trained ones; int64 [documents] each."""

    tokens: NDArray[np.int64]
    prompts: NDArray[np.int64]
    trained: NDArray[np.int64]


@dataclass(frozen=True)
class DocumentsOfShard:
    """One record batch: `starts` [rows + 1] into `ids` int32 [tokens]; bit `first_bit` + i says if token i is trained.

    empty: rows without a token, which are left out. What a store holds are views of its file: 4 bytes a document.
    """

    starts: NDArray[np.integer[Any]]
    ids: NDArray[np.int32]
    bits: NDArray[np.uint8]
    first_bit: int
    empty: int

    def trained(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return whether the tokens start <= number < stop are trained, one byte a token."""
        first, last = self.first_bit + start, self.first_bit + stop
        whole = np.unpackbits(self.bits[first // 8 : (last + 7) // 8], bitorder="little")
        return whole[first % 8 : first % 8 + stop - start].view(np.bool_)

    def lengths(self) -> DocumentLengths:
        """Measure the documents: each mask is read."""
        begins, stops = self.starts[:-1].astype(np.int64), self.starts[1:].astype(np.int64)
        trained = np.flatnonzero(self.trained(0, len(self.ids)))
        first, beyond = np.searchsorted(trained, begins), np.searchsorted(trained, stops)
        prompts = np.minimum(np.append(trained, len(self.ids))[first], stops) - begins
        return DocumentLengths(stops - begins, prompts, beyond - first)


class Documents:
    """One split of a store, by document number.

    empty: rows without a token, which are no documents. Picklable: a worker process opens the files again.
    """

    def __init__(self, folder: Path) -> None:
        """Map the Arrow files of a split's folder. Raises IntegrityError if they are not what a store holds."""
        self.folder = folder
        self._shards = [part for file in data_files(folder) for part in _parts(file)]
        self.empty = sum(part.empty for part in self._shards)
        counts = [len(part.starts) - 1 for part in self._shards]
        self.first = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])

    def __reduce__(self) -> tuple[type[Documents], tuple[Path]]:
        """Send the folder, not the data."""
        return Documents, (self.folder,)

    def __len__(self) -> int:
        """Return the number of documents."""
        return int(self.first[-1])

    def document(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return (ids, trained) of one document, both [tokens]; ids is a view of the file."""
        at = int(np.searchsorted(self.first, number, side="right")) - 1
        shard = self._shards[at]
        row = number - int(self.first[at])
        start, stop = int(shard.starts[row]), int(shard.starts[row + 1])
        return shard.ids[start:stop], shard.trained(start, stop)

    def lengths_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tokens of some documents, int64 [numbers]; the numbers ascend."""
        found = np.empty(len(numbers), np.int64)
        borders = np.searchsorted(numbers, self.first)
        for at in np.flatnonzero(np.diff(borders)).tolist():
            here, starts = slice(borders[at], borders[at + 1]), self._shards[at].starts
            rows = numbers[here] - self.first[at]
            found[here] = starts[rows + 1] - starts[rows]
        return found

    def prompt_lengths_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tokens before the first trained one of some documents, int64 [numbers]; each mask is read."""
        if len(numbers) == len(self):
            return np.concatenate([lengths.prompts for lengths in self.measured()])
        trained = (self.document(number)[1] for number in numbers.tolist())
        return np.array([int(mask.argmax()) if mask.any() else len(mask) for mask in trained], np.int64)

    def measured(self) -> Iterator[DocumentLengths]:
        """Yield the lengths of all documents, shard by shard: each mask is read."""
        return (part.lengths() for part in self._shards)

    def histogram(self) -> LengthHistogram:
        """Return how many documents have which length."""
        return LengthHistogram.of(
            np.concatenate([np.zeros(0, np.int64), *(np.diff(part.starts) for part in self._shards)])
        )

    def trained_lengths(self) -> NDArray[np.int64]:
        """Return the trained tokens of every document, int64 [documents]; each mask is read."""
        return np.concatenate([lengths.trained for lengths in self.measured()])

    def trained_tokens(self) -> int:
        """Return how many tokens are trained in all documents."""
        return int(self.trained_lengths().sum())

    def id_range(self) -> tuple[int, int]:
        """Return the smallest and the largest token id; (0, -1) if there is no token."""
        ends = [int(end) for part in self._shards if len(part.ids) for end in (part.ids.min(), part.ids.max())]
        return min(ends, default=0), max(ends, default=-1)


def data_files(folder: Path) -> list[Path]:
    """Return the Arrow files of a split's folder, in their order. Raises IntegrityError: its list cannot be read."""
    try:
        names = [str(one["filename"]) for one in parse_json((folder / STATE).read_bytes())["_data_files"]]
        return [folder / Path(name).name for name in names]  # never a file outside of its folder
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{folder}: state.json is missing or broken", BUILD_ANEW) from error


def _parts(file: Path) -> list[DocumentsOfShard]:
    """Map an Arrow file of a store, a record batch each. Raises IntegrityError if it is not what a store holds."""
    try:
        with pa.memory_map(str(file)) as source:
            return [_part(batch) for batch in pa.ipc.open_stream(source)]
    except (OSError, ValueError, pa.ArrowException) as error:
        raise IntegrityError(f"{file}: {error}", BUILD_ANEW) from error


def _part(batch: Any) -> DocumentsOfShard:
    """Return the documents of a record batch, views where it is of a store. Raises ValueError: it is of another form."""
    names = batch.schema.names
    kind = next((name for name in ("completion_mask", "labels") if name in names), "")
    if "input_ids" not in names or not kind:
        raise ValueError(f"its columns are {', '.join(names)}; input_ids and completion_mask (or labels) are needed")
    starts, flat = _lists(batch, "input_ids", pa.int32())
    of_mask, mask = _lists(batch, kind, pa.bool_() if kind == "completion_mask" else pa.int32())
    if not np.array_equal(starts, of_mask):
        raise ValueError("ids and mask differ in length")
    ids, first_bit = _values(flat), mask.offset
    if kind == "completion_mask":
        bits = np.frombuffer(mask.buffers()[1] or b"", np.uint8)
    else:
        labels = _values(mask)
        for at in np.flatnonzero((labels != -100) & (labels != ids))[:1]:
            told = f"labels are not the ids at their places, as at token {at:,}: label {labels[at]}, id {ids[at]}"
            raise ValueError(f"{told}; labels are -100 or the token's own id, not shifted")
        first_bit, bits = 0, np.packbits(labels != -100, bitorder="little")
    # A document without a token, which only other programs write, trains nothing.
    empty = np.flatnonzero(starts[1:] <= starts[:-1])
    return DocumentsOfShard(np.delete(starts, empty + 1) if len(empty) else starts, ids, bits, first_bit, len(empty))


def _lists(batch: Any, name: str, of: Any) -> tuple[NDArray[np.integer[Any]], Any]:
    """Return where the lists of a column begin, [rows + 1], and their values end to end."""
    column = batch.column(name).cast(pa.list_(of))
    flat = column.flatten()
    if column.null_count or flat.null_count:
        raise ValueError(f"{name} has gaps (null)")
    starts = _values(column.offsets)
    return starts - starts[0] if starts[0] else starts, flat


def _values(array: Any) -> NDArray[Any]:
    """View an Arrow array of numbers; Arrow's own way to numpy imports pandas, which takes 0.3 s."""
    dtype = np.dtype(array.type.to_pandas_dtype())
    return np.frombuffer(array.buffers()[1] or b"", dtype)[array.offset : array.offset + len(array)]


def drawn_prompts(home: Path | None, count: int, seed: int) -> list[list[int]]:
    """Return what the first answers of `count` training rows of a store follow, drawn by seed; [] where it is gone.

    Rows that are trained from their first token on have no prompt: they are left out. Raises IntegrityError: it is damaged.
    """
    if home is None or not (home / "train").is_dir():
        return []
    verify_store(home, file_hashes(home.parent).sha256)
    documents = Documents(home / "train")
    numbers = random.Random(seed).sample(range(len(documents)), min(count, len(documents)))  # noqa: S311
    drawn = (documents.document(number) for number in numbers)
    return [ids[: trained.argmax()].tolist() for ids, trained in drawn if trained.argmax()]
