"""Sources -> a verified token store: opened if it fits, built if there is none, rebuilt where it is stale or damaged."""

from __future__ import annotations

import gc
import hashlib
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from filelock import Timeout
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig
from expert_cli.data.encode import EMPTY, Encoded, Encoder, Sample
from expert_cli.data.overlap import MOST_HELD_OUT, HeldOut, Question
from expert_cli.data.select import FileSlice, RowBatch, RowReader, RowReport, RowSelection, select
from expert_cli.data.sources import size_of, stamp_of
from expert_cli.data.store.documents import Documents
from expert_cli.data.store.lookup import BUILDING, StoreInputs, StoreKey, StoreState, inspect_store, lock_of, read_stats
from expert_cli.data.store.store_files import STORE_RULE, FileHashCache, write_fingerprint, write_shard
from expert_cli.data.templates.mask import PLAIN, Document
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import remove
from expert_cli.utils.length_histogram import LengthHistogram
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import short_place

SHARD_ROWS = 20_000
_MOST_WAITING = 16
_MOST_EXAMPLES = 3
_PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class TokenStore:
    """A store that is ready: where, how it came to be there, and what its statistics say.

    status: "hit", "built", "rebuilt" (stale or damaged before; `reason` says which). source_bytes, seconds: from first read
    to verified store, 0 for a hit. url: where it lies in object storage, too, else "".
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
        """Where it lies, as it is told."""
        return self.url or str(self.home)

    def split(self, name: str) -> Documents | None:
        """Return the documents of a split, None if the store has none."""
        return Documents(self.home / name) if (self.home / name).is_dir() else None

    def training(self) -> Documents:
        """Return the documents that train."""
        return Documents(self.home / "train")


def store_state(
    data: DataConfig, inputs: StoreInputs, folder: Path, *, verify: bool = False
) -> tuple[StoreKey, StoreState]:
    """Return the key that these inputs give, and what lies in `folder` for it; remembers file hashes there."""
    key = inputs.key(data)
    state = inspect_store(folder, key, inputs.hashes, hash_all=verify)
    if folder.is_dir():
        inputs.hashes.save()
    return key, state


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
    """Return the store for this data in `folder`, building it if need be. expert: whom it is built for.

    Waits while another process builds the same store, and then uses that one. Raises InputError (rows that cannot be used,
    files that change while they are read), EnvironmentProblem (disk; nothing of the build is left), IntegrityError (`locked`
    and no store fits).
    """
    started = time.monotonic()
    stamps = {file: stamp_of(file) for file in inputs.located.files()}
    source_bytes = sum(map(size_of, stamps))
    key, state = store_state(data, inputs, folder, verify=verify)
    if state.state == "hit" and not force:
        home = folder / key.name
        return TokenStore(home, "hit", state.reason, key, read_stats(home))
    if locked:
        raise IntegrityError(f"the token store is {state.state}: {state.reason}", "; ".join(state.changes))
    if force or state.state != "missing":
        report.info(f"store     {'is built anew, as asked' if force else f'{state.state}: {state.reason}'}")
    for change in state.changes:
        report.info(f"store     {change}")
    looks_for_overlap = bool(inputs.cases or inputs.located.validation or data.validation_share)
    gc.freeze()  # what is loaded by now stays: a pass over torch's objects takes 0.2 s, and rows set off several

    def fill(building: Path) -> Mapping[str, Any]:
        for fast in (True, False):
            remove(building)
            building.mkdir()
            encoder = Encoder(inputs.template, fast=fast)
            encoding = partial(RowEncoder, encoder=encoder)
            with TemporaryFile(dir=building) as tokens, ThreadPoolExecutor(1) as thread:
                spool = Spool(tokens)
                reads = partial(select, data, inputs.located, report, encoding, spool.add)
                selection = reads(flat_map=inputs.flat_map, asked=looks_for_overlap)
                agrees = thread.submit(encoder.agrees, spool.sample)
                stats = write_splits(building, selection, spool, encoder.engine, report)
            if agrees.result():
                break
            report.info("encoder   fastokens gives other ids than tokenizers for a sample of these rows: once more")
        report.detail(f"encoder   {encoder}")
        stats["train"]["overlap"] = overlap_of(selection, inputs.cases) if looks_for_overlap else {}
        for file, seen in stamps.items():
            if stamp_of(file, fresh=True) != seen:
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
    """Build a store in a folder beside its place, which `fill` makes, and return its folder; one that is there is used.

    force: build even then. Waits while another process builds the same store. Raises EnvironmentProblem when the disk is full
    (nothing of this build is left) or the folder cannot be written.
    """
    home, building = folder / key.name, folder / f"{BUILDING}{key.name}"
    failed, elsewhere = f"cannot write the token store in {folder}", "put the store elsewhere: pretokenize --output DIR"
    with disk_errors(failed, elsewhere, unfinished=building):
        folder.mkdir(parents=True, exist_ok=True)
        lock = lock_of(home)  # the operating system frees it when its owner dies
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            report.info("another process builds this token store; waiting for it")
            held = lock.acquire(poll_interval=0.5)
        with held:
            hash_cache.refresh()
            if not force and inspect_store(folder, key, hash_cache).state == "hit":
                return home
            remove(building)
            stats = fill(building)
            write_fingerprint(building, key.sha256, dict(key.parts), stats, expert=expert)
            remove(home)
            building.rename(home)
            state = inspect_store(folder, key, hash_cache, hash_all=True)
            hash_cache.save()
    if state.state != "hit":
        raise IntegrityError(f"the store that was just written is {state.state}: {state.reason}", "check the disk")
    return home


@dataclass
class EncodedBatch(RowBatch):
    """Rows as documents. counts: int64 [rows], how many of each have a trained token; forms: of whole texts, as `Template`."""

    encoded: Encoded = EMPTY
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    sample: Sample = field(default_factory=Sample)
    forms: Counter[str] = field(default_factory=Counter)


@dataclass
class RowEncoder:
    """Reads rows of a source's files, and writes them down as documents of token ids."""

    reader: RowReader
    encoder: Encoder

    def __call__(self, part: FileSlice) -> Iterator[EncodedBatch]:
        """Yield the documents of a file's rows; a thread encodes while the next rows are read."""
        waiting: deque[Future[EncodedBatch]] = deque()
        with ThreadPoolExecutor(1) as thread:
            for batch in self.reader(part):
                waiting.append(thread.submit(self._encoded, *self._written(batch)))
                if len(waiting) > _MOST_WAITING:
                    yield waiting.popleft().result()
            yield from (done.result() for done in waiting)

    def _written(self, read: RowBatch) -> tuple[EncodedBatch, list[list[Document]]]:
        """Write rows down by the template; those that it refuses are bad."""
        template = self.encoder.template
        template.forms.clear()
        written = template.documents(read.rows)
        for row, refusal in zip(read.rows, written, strict=True):
            if isinstance(refusal, str):
                read.report.drop(refusal, row.where)
        read.keep([not isinstance(one, str) for one in written])
        texts = ([turn["content"] for turn in row.messages] or [row.answer] for row in read.rows)
        sample = Sample.of([*chain(*texts)])
        batch = EncodedBatch(**{**vars(read), "rows": []}, sample=sample, forms=Counter(template.forms))
        return batch, [one for one in written if not isinstance(one, str)]

    def _encoded(self, batch: EncodedBatch, written: list[list[Document]]) -> EncodedBatch:
        batch.encoded, trained = self.encoder.encode([*chain(*written)]).trained_only()
        row_of = np.repeat(np.arange(len(written)), [*map(len, written)])
        batch.counts = np.bincount(row_of[trained], minlength=len(written))
        return batch


class Spool:
    """The documents of all rows, on disk, until it is known which rows are taken; a sample of their texts, and their forms.

    A file of int32: the id of a token that is trained, ~id of one that is not. It is read, not mapped: what is mapped counts
    as this process's memory until it is closed.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """Write them to a file."""
        self._file, self.sample, self.forms = file, Sample(), Counter[str]()
        self._counts, self._sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]

    def add(self, batch: EncodedBatch) -> None:
        """Write the documents of the rows that follow."""
        self.sample.add(batch.sample)
        self.forms.update(batch.forms)
        self._file.write(np.where(batch.encoded.trained, batch.encoded.ids, ~batch.encoded.ids).data)
        self._counts.append(batch.counts)
        self._sizes.append(np.diff(batch.encoded.offsets).astype(np.int32))

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many documents each row has, int64 [rows]; asked for when all are there."""
        return np.concatenate(self._counts)

    @cached_property
    def _begins(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        sizes, documents = np.concatenate(self._sizes), np.append(0, self.counts.cumsum())
        return sizes, documents, np.append(0, sizes.cumsum(dtype=np.int64))[documents]

    def documents(self, rows: NDArray[np.int64]) -> Encoded:
        """Return the documents of some rows, end to end."""
        all_sizes, of_rows, at = self._begins
        sizes, tokens = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else ():
            first, end = run[0], run[-1] + 1
            sizes.append(all_sizes[of_rows[first] : of_rows[end]])
            self._file.seek(4 * at[first])
            tokens.append(np.frombuffer(self._file.read(4 * int(at[end] - at[first])), np.int32))
        values = np.concatenate(tokens)
        return Encoded(
            np.maximum(values, ~values), np.append(0, np.concatenate(sizes).cumsum(dtype=np.int64)), values >= 0
        )


def write_splits(
    building: Path, selection: RowSelection, spool: Spool, encoder: str, report: Reporter
) -> dict[str, Any]:
    """Write the documents of the rows that are taken, shard by shard, and return the statistics of each split.

    encoder: what made the ids, as the statistics name it. Raises InputError: nothing of a split is trained.
    """
    if spool.forms:
        told = (f"{form} {n:,}{' (trained whole)' if form == PLAIN else ''}" for form, n in spool.forms.most_common())
        report.info(f"whole texts by form: {', '.join(told)}")
    stats: dict[str, Any] = {}
    for split in selection.splits:
        of_sources = selection.taken(split)
        counts = [spool.counts[rows] for rows in of_sources]
        rows, sizes, trained = np.concatenate(of_sources), [np.zeros(0, np.int64)], 0
        with report.progress(f"writing {split}", len(rows), "rows") as bar:
            for start in range(0, len(rows), SHARD_ROWS):
                if len(documents := spool.documents(rows[start : start + SHARD_ROWS])):
                    write_shard(building, split, len(sizes) - 1, documents)
                    sizes.append(np.diff(documents.offsets))
                    trained += int(documents.trained.sum())
                bar.update(min(start + SHARD_ROWS, len(rows)))
        read, each = selection.reports[split], np.concatenate(counts)
        if untrained := int((each == 0).sum()):
            read.dropped["no trained token"] = untrained
        stats[split] = split_stats(np.concatenate(sizes), trained, read, encoder, spool.forms)
        if several := int((each > 1).sum()):
            stats[split]["split_conversations"] = several
    return stats


def overlap_of(selection: RowSelection, cases: Sequence[Question]) -> dict[str, Any]:
    """Return what of the cases and of the rows that evaluate stands in the rows that train, the first few by their places."""
    train, held = (np.flatnonzero(selection.copies[split]).tolist() for split in ("train", "validation"))
    asked = selection.hashes["asked"]

    def same(texts: HeldOut, count: int, place: Callable[[int], str]) -> dict[str, Any]:
        rows = texts.found_in(asked[train])
        examples = [f"{place(n)} as {selection.place(train[row])}" for n, row in [*rows.items()][:_MOST_EXAMPLES]]
        return {"rows": count, "same": len(rows), "examples": examples, "digest": texts.digest}

    told = {}
    if held:
        looked_for = HeldOut((), asked[held[:MOST_HELD_OUT]].tolist())
        told["validation"] = same(looked_for, len(held), lambda number: selection.place(held[number]))
    if cases:
        looked_for = HeldOut(cases[:MOST_HELD_OUT])
        told["cases"] = same(looked_for, len(cases), lambda number: short_place(cases[number].where))
    return told


def split_stats(
    sizes: NDArray[np.integer[Any]], trained: int, report: RowReport, encoder: str, forms: Mapping[str, int]
) -> dict[str, Any]:
    """Return the statistics of a split's documents of these sizes. Raises InputError: nothing of it is trained."""
    if not trained:
        raise InputError("no document has a trained token", "check that the response column is mapped and not empty")
    lengths = LengthHistogram.of(sizes)
    return {
        "rows": len(lengths),
        "tokens": lengths.tokens,
        "trained_tokens": trained,
        "dropped": {**report.dropped, **report.filtered},
        "length": {**{f"p{p}": lengths.percentile(p) for p in _PERCENTILES}, "max": lengths.longest},
        "mapping": report.mapping,
        "ignored": report.unread,
        "forms": dict(forms),
        "encoder": encoder,
    }


# Data sets of token ids that another program saved: `--trust-store` ---------------------------------------------------

NO_TRUST = "leave --trust-store out to build a store"


def trusted_sha256(home: Path, hash_cache: FileHashCache) -> str:
    """Return one hash over the Arrow files of a data set that another program saved, in their order."""
    files = [*home.glob("*.arrow"), *home.glob("train/*.arrow"), *home.glob("validation/*.arrow")]
    return hashlib.sha256(json.dumps([*map(hash_cache.sha256, sorted(files))]).encode()).hexdigest()


def convert_foreign_store(
    home: Path, folder: Path, inputs: StoreInputs, report: Reporter, *, expert: str = ""
) -> TokenStore:
    """Make a store in `folder` of a data set that another program saved, once, and return it.

    Its columns: input_ids, and completion_mask or labels. Raises IntegrityError: it is another data set, does not fit the
    tokenizer, or has labels that are not the ids at their places.
    """
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
            sizes, trained, dropped = [np.zeros(0, np.int64)], 0, Counter[str]()
            for number, table in enumerate(splits[split].with_format("arrow").iter(SHARD_ROWS)):
                documents, good = _checked(table, f"{home}: {split}", inputs.tokenizer.vocab_size).trained_only()
                write_shard(building, split, number, documents)
                sizes.append(np.diff(documents.offsets))
                trained += int(documents.trained.sum())
                dropped += Counter({"no trained token": int((~good).sum())})
            stats[split] = split_stats(
                np.concatenate(sizes), trained, RowReport(dropped=dropped), "another program", {}
            )
        return stats

    made = build(folder, key, fill, inputs.hashes, report, expert=expert)
    return TokenStore(made, "hit", f"made of {home}, trusted as asked", key, read_stats(made))


def _checked(table: Any, where: str, vocabulary: int) -> Encoded:
    """Return the documents of an Arrow table. Raises IntegrityError as `convert_foreign_store` does."""
    names = table.column_names
    kind = next((name for name in ("completion_mask", "labels") if name in names), "")
    if "input_ids" not in names or not kind:
        told = f"its columns are {', '.join(names)}; input_ids and completion_mask (or labels) are needed"
        raise IntegrityError(f"{where}: {told}", NO_TRUST)
    lists = [table.column(name).combine_chunks() for name in ("input_ids", kind)]
    flat = [one.flatten() for one in lists]
    ids, said = (one.to_numpy(zero_copy_only=False) for one in flat)
    sizes, others = (one.value_lengths().fill_null(0).to_numpy() for one in lists)
    fault = ""
    if any(one.null_count for one in (*lists, *flat)) or not np.array_equal(sizes, others):
        fault = "it has gaps (null), or ids and mask differ in length"
    elif len(ids) and not (ids.min() >= 0 and ids.max() < vocabulary):
        fault = f"ids run from {ids.min()} to {ids.max()}, the tokenizer has {vocabulary}: made with another one"
    elif kind == "labels" and len(wrong := np.flatnonzero((said != -100) & (said != ids))):
        told = f"labels are not the ids at their places, as at token {wrong[0]:,}: label {said[wrong[0]]}, id {ids[wrong[0]]}"
        fault = f"{told}; labels are -100 or the token's own id, not shifted"
    if fault:
        raise IntegrityError(f"{where}: {fault}", NO_TRUST)
    trained = said != -100 if kind == "labels" else said.astype(np.bool_)
    return Encoded(ids.astype(np.int32), np.append(0, sizes.cumsum(dtype=np.int64)), trained)
