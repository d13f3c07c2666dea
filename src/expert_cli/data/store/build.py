"""Opens the token store for some sources, builds it if it is missing, and rebuilds it if it is stale or damaged."""

from __future__ import annotations

import gc
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from filelock import Timeout
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig
from expert_cli.data.encode import Encoded, Encoder, OtherIds
from expert_cli.data.select import RowBatch, RowReport, RowSelection, select
from expert_cli.data.store.lookup import BUILDING, StoreInputs, StoreKey, inspect_store, lock_of
from expert_cli.data.store.store_files import STORE_RULE, Documents, read_stats, write_fingerprint, write_shard
from expert_cli.data.templates.mask import PLAIN
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import FileHashCache, remove, stamp
from expert_cli.utils.length_histogram import LengthHistogram
from expert_cli.utils.reporter import Bar, Reporter

SHARD_ROWS = 20_000


@dataclass(frozen=True)
class TokenStore:
    """A store that is ready to use, and how it was obtained.

    status: "hit", "built" or "rebuilt"; reason: why. source_bytes: size of the data files, seconds: time to build and verify;
    both are 0 for a hit. url: its place in object storage, if any.
    """

    home: Path
    status: str
    reason: str
    key: StoreKey
    stats: Mapping[str, Any]
    seconds: float = 0.0
    source_bytes: int = 0
    url: str = ""

    @property
    def place(self) -> str:
        """The URL or folder of the store, for messages."""
        return self.url or str(self.home)

    def split(self, name: str) -> Documents | None:
        """Return the documents of a split, None if the store lacks it."""
        return Documents(self.home / name) if (self.home / name).is_dir() else None

    def training(self) -> Documents:
        """Return the training documents."""
        return Documents(self.home / "train")


def tokenize(
    data: DataConfig,
    inputs: StoreInputs,
    folder: Path,
    report: Reporter,
    *,
    expert: str = "",
    verify: bool = False,
    force: bool = False,
    locked: bool = False,
) -> TokenStore:
    """Return the store for this data in `folder`, built if necessary. expert: the expert that it is built for.

    If another process builds the same store, wait and use that store. Raises InputError (unusable rows, files that change while
    they are read), EnvironmentProblem (disk), IntegrityError (`locked`, and no store fits).
    """
    started = time.monotonic()
    files = inputs.located.files()
    stamps = {file: stamp(file) for file in files if isinstance(file, Path)}  # remote files are read by version
    source_bytes = sum(file.stat().st_size if isinstance(file, Path) else file.info.size for file in files)
    key = inputs.key(data)
    state = inspect_store(folder, key, inputs.hashes, hash_all=verify)
    if state.state == "hit" and not force:
        home = folder / key.name
        return TokenStore(home, "hit", state.reason, key, read_stats(home))
    if locked:
        raise IntegrityError(f"the token store is {state.state}: {state.reason}", "; ".join(state.changes))
    if force or state.state != "missing":
        report.info(f"store     {'is built again, as requested' if force else f'{state.state}: {state.reason}'}")
    for change in state.changes:
        report.info(f"store     {change}")
    held_out = bool(inputs.cases or inputs.located.validation or data.validation_share)
    # Exempt everything loaded so far from garbage collection, and collect rarely: rows form no cycles.
    gc.freeze()
    gc.set_threshold(50_000)

    def fill(building: Path) -> Mapping[str, Any]:
        for fast in (True, False):
            remove(building)
            building.mkdir()
            encoder = Encoder(inputs.template, fast=fast)
            with TemporaryFile(dir=building) as tokens, suppress(OtherIds):
                spool = Spool(tokens)
                reads = partial(select, data, inputs.located, report, spool.add, flat_map=inputs.flat_map)
                selection = reads(encoder=encoder, asked=held_out)
                stats = write_splits(building, selection, spool, encoder.engine, report)
                break
            report.info("encoder   fastokens and tokenizers give different ids for these rows: encoding again")
        report.detail(f"encoder   {encoder.engine}")
        stats["train"]["overlap"] = overlap_of(selection, inputs.cases) if held_out else {}
        for file, seen in stamps.items():
            if not file.exists() or stamp(file) != seen:
                raise InputError(f"{file}: changed while it was read", "wait until it is written, then start again")
        return stats

    home = build(folder, key, fill, inputs.hashes, report, expert=expert, force=force)
    status = "built" if state.state == "missing" else "rebuilt"
    return TokenStore(home, status, state.reason, key, read_stats(home), time.monotonic() - started, source_bytes)


def build(
    folder: Path,
    key: StoreKey,
    fill: Callable[[Path], Mapping[str, Any]],
    hash_cache: FileHashCache,
    report: Reporter,
    *,
    expert: str = "",
    force: bool = False,
) -> Path:
    """Build a store with `fill` in a temporary folder beside its place, and return its folder. An existing store is used.

    force: build it anyway. Raises EnvironmentProblem if it cannot be written; the unfinished build is then deleted.
    """
    home, building = folder / key.name, folder / f"{BUILDING}{key.name}"
    failed = f"cannot write the token store in {folder}"
    elsewhere = "name another folder: pretokenized_cache, or pretokenize --output DIR"
    with disk_errors(failed, elsewhere, unfinished=building):
        folder.mkdir(parents=True, exist_ok=True)
        lock = lock_of(home)  # the operating system releases it when its owner dies
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            report.info("another process builds this token store; waiting for it")
            held = lock.acquire(poll_interval=0.5)
        with held:
            if not force and inspect_store(folder, key, hash_cache).state == "hit":
                return home
            remove(building)
            stats = fill(building)
            write_fingerprint(building, key.sha256, dict(key.parts), stats, expert=expert)
            remove(home)
            building.rename(home)
            state = inspect_store(folder, key, hash_cache, hash_all=True)
    if state.state != "hit":
        raise IntegrityError(f"the store that was just written is {state.state}: {state.reason}", "check the disk")
    return home


class Spool:
    """Keeps the documents of all rows in a file until rows are selected, as int32 ids, ~id for untrained tokens.

    The file is read, not memory-mapped, because mapped pages count as this process's memory until it is closed.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """Take the file, which is empty and open for reading and writing."""
        self._file = file
        self._counts, self._sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]

    def add(self, batch: RowBatch) -> None:
        """Append the documents of the next rows."""
        self._file.write(np.where(batch.encoded.trained, batch.encoded.ids, ~batch.encoded.ids).data)
        self._counts.append(batch.counts)
        self._sizes.append(np.diff(batch.encoded.offsets).astype(np.int32))

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Documents of each row, int64 [rows]; complete only after the last row."""
        return np.concatenate(self._counts)

    def shards(self, rows: NDArray[np.int64], bar: Bar) -> Iterator[Encoded]:
        """Yield the documents of the given rows, those of SHARD_ROWS rows at a time."""
        all_sizes, of_rows = np.concatenate(self._sizes), np.append(0, self.counts.cumsum())
        at = np.append(0, all_sizes.cumsum(dtype=np.int64))[of_rows]
        for start in range(0, len(rows), SHARD_ROWS):
            some = rows[start : start + SHARD_ROWS]
            runs = [(run[0], run[-1] + 1) for run in np.split(some, np.flatnonzero(np.diff(some) != 1) + 1)]
            sizes = np.concatenate([all_sizes[of_rows[first] : of_rows[end]] for first, end in runs])
            values, done = np.empty(sizes.sum(dtype=np.int64), np.int32), 0
            for first, end in runs:
                self._file.seek(4 * at[first])
                part = values[done : done + at[end] - at[first]]
                self._file.readinto(part.data)  # type: ignore[attr-defined]
                done += len(part)
            trained = values >= 0
            np.maximum(values, ~values, out=values)
            yield Encoded(values, np.append(0, sizes.cumsum(dtype=np.int64)), trained)
            bar.update(start + len(some))


def write_splits(
    building: Path, selection: RowSelection, spool: Spool, encoder: str, report: Reporter
) -> dict[str, Any]:
    """Write the documents of the selected rows; return statistics by split. encoder: the encoding library."""
    if forms := selection.reports["train"].forms:
        told = (f"{form} {n:,}{' (trained whole)' if form == PLAIN else ''}" for form, n in forms.most_common())
        report.info(f"whole texts by form: {', '.join(told)}")
    stats: dict[str, Any] = {}
    for split in selection.splits:
        of_sources, read = selection.taken(split), selection.reports[split]
        counts = [spool.counts[rows] for rows in of_sources]
        rows, each = np.concatenate(of_sources), np.concatenate(counts)
        if untrained := int((each == 0).sum()):
            read.dropped["no trained token"] = untrained
        with report.progress(f"writing {split}", len(rows), "rows") as bar:
            stats[split] = write_split(building / split, spool.shards(rows, bar), read, encoder)
        if several := int((each > 1).sum()):
            stats[split]["split_conversations"] = several
    return stats


def write_split(folder: Path, parts: Iterable[Encoded], report: RowReport, encoder: str) -> dict[str, Any]:
    """Write the documents of a split, one shard per part; return statistics. Raises InputError if nothing is trained."""
    sizes, trained = [np.zeros(0, np.int64)], 0
    for documents in filter(len, parts):
        write_shard(folder, len(sizes) - 1, documents)
        sizes.append(np.diff(documents.offsets))
        trained += int(documents.trained.sum())
    if not trained:
        raise InputError("no document has a trained token", "check that the response column is mapped and not empty")
    lengths = LengthHistogram.of(np.concatenate(sizes))
    return {
        "rows": len(lengths),
        "tokens": lengths.tokens,
        "trained_tokens": trained,
        "dropped": {**report.dropped, **report.filtered},
        "length": {**{f"p{p}": lengths.percentile(p) for p in (50, 90, 95, 99)}, "max": lengths.longest},
        "ignored": [*report.unread],
        "forms": dict(report.forms),
        "encoder": encoder,
    }


def overlap_of(selection: RowSelection, cases: Sequence[bytes]) -> dict[str, dict[str, int]]:
    """Return how many cases, and how many validation rows, have the same question as a training row."""
    train, held = (selection.hashes["asked"][selection.copies[split] > 0] for split in ("train", "validation"))
    asked = {"validation": held, "cases": np.array(cases, "S16")}
    same = {of: int((np.isin(some, train) & (some != b"")).sum()) for of, some in asked.items()}
    return {of: {"rows": len(some), "same": same[of]} for of, some in asked.items() if len(some)}


# Data sets of token ids saved by another program: `--trust-store` -----------------------------------------------------

NO_TRUST = "leave --trust-store out to build a store"


def trusted_sha256(home: Path, hash_cache: FileHashCache) -> str:
    """Return one hash over the Arrow files of a data set saved by another program, in order."""
    files = [*home.glob("*.arrow"), *home.glob("train/*.arrow"), *home.glob("validation/*.arrow")]
    return hashlib.sha256(json.dumps([*map(hash_cache.sha256, sorted(files))]).encode()).hexdigest()


def convert_foreign_store(
    home: Path, folder: Path, inputs: StoreInputs, report: Reporter, *, expert: str = ""
) -> TokenStore:
    """Convert another program's data set (input_ids, and a mask or labels) into a store, once. Raises IntegrityError."""
    import datasets

    made_by = ("made by another program", trusted_sha256(home, inputs.hashes))
    key = StoreKey((("rule", str(STORE_RULE)), ("tokenizer", inputs.tokenizer.sha256), made_by))

    def fill(building: Path) -> Mapping[str, Any]:
        saved = datasets.load_from_disk(str(home))
        stats: dict[str, Any] = {}
        splits = saved if isinstance(saved, datasets.DatasetDict) else {"train": saved}
        if "train" not in splits:
            raise IntegrityError(f"{home}: no split train among {', '.join(splits)}", NO_TRUST)
        for split in [name for name in ("train", "validation") if name in splits]:
            tables = splits[split].with_format("arrow").iter(SHARD_ROWS)
            parts = (_checked(table, f"{home}: {split}").trained_only()[0] for table in tables)
            stats[split] = write_split(building / split, parts, RowReport(), "another program")
            if untrained := len(splits[split]) - stats[split]["rows"]:
                stats[split]["dropped"] = {"no trained token": untrained}
        return stats

    made = build(folder, key, fill, inputs.hashes, report, expert=expert)
    return TokenStore(made, "hit", f"made of {home}, trusted as asked", key, read_stats(made))


def _checked(table: Any, where: str) -> Encoded:
    """Return the documents of an Arrow table. Raises IntegrityError if it has no valid ids with a mask or labels."""
    names = table.column_names
    kind = next((name for name in ("completion_mask", "labels") if name in names), "")
    if "input_ids" not in names or not kind:
        told = f"its columns are {', '.join(names)}; input_ids and completion_mask (or labels) are needed"
        raise IntegrityError(f"{where}: {told}", NO_TRUST)
    lists = [table.column(name).combine_chunks() for name in ("input_ids", kind)]
    flat = [one.flatten() for one in lists]
    ids, said = (one.to_numpy(zero_copy_only=False) for one in flat)
    sizes, others = (one.value_lengths().fill_null(0).to_numpy() for one in lists)
    if any(one.null_count for one in (*lists, *flat)) or not np.array_equal(sizes, others):
        raise IntegrityError(f"{where}: it has gaps (null), or ids and mask differ in length", NO_TRUST)
    if kind == "labels" and len(wrong := np.flatnonzero((said != -100) & (said != ids))):
        told = f"labels are not the ids at their places, as at token {wrong[0]:,}: label {said[wrong[0]]}, id {ids[wrong[0]]}"
        raise IntegrityError(f"{where}: {told}; labels are -100 or the token's own id, not shifted", NO_TRUST)
    trained = said != -100 if kind == "labels" else said.astype(np.bool_)
    return Encoded(ids.astype(np.int32), np.append(0, sizes.cumsum(dtype=np.int64)), trained)
