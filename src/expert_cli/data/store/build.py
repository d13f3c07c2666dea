"""Sources -> a verified token store: opened if it fits, built if there is none, rebuilt where it is stale or damaged."""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from filelock import Timeout
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig
from expert_cli.data.encode import Encoded, Encoder, Sample
from expert_cli.data.overlap import MOST_HELD_OUT, HeldOut, Question, overlap_json
from expert_cli.data.rows import Row
from expert_cli.data.select import BAD_SHARE, FileSlice, RowBatch, RowReader, RowReport, Split, select
from expert_cli.data.sources import size_of, stamp_of
from expert_cli.data.store.documents import Documents, data_files
from expert_cli.data.store.files import FileHashCache, ShardRecord, shard_name, write_fingerprint, write_shard
from expert_cli.data.store.inspect import BUILDING, StoreState, inspect_store, lock_of, read_stats, store_kind
from expert_cli.data.store.key import StoreInputs, StoreKey
from expert_cli.data.templates.mask import FOREIGN, Document, describe_forms
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.files import remove
from expert_cli.utils.reporter import Reporter

SHARD_ROWS = 20_000
_MOST_WAITING = 16
_PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class TokenStore:
    """A store that is ready: where, how it came to be there, and what its statistics say.

    status: "hit" (it was there and fits), "built", "rebuilt" (stale or damaged before; `reason` says which). `source_bytes`
    over `seconds` is the speed from first read to verified store; both are 0 for a hit. url: where it lies in object storage,
    too, else "".
    """

    home: Path
    status: str
    reason: str
    key: StoreKey
    stats: Mapping[str, Any]
    seconds: float
    source_bytes: int
    url: str = ""

    @property
    def place(self) -> str:
        """Where it lies, as it is told."""
        return self.url or str(self.home)

    def split(self, name: str) -> Documents | None:
        """Return the documents of a split, None if the store has none."""
        folder = self.home / name
        if name == "train" and not folder.is_dir():
            folder = self.home  # a data set without splits that another program saved
        return Documents(folder) if folder.is_dir() else None

    def training(self) -> Documents:
        """Return the documents that train. Raises IntegrityError without any."""
        return self.split("train") or Documents(self.home / "train")


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
    home = folder / key.sha256[:12]
    if state.state == "hit" and not force:
        return TokenStore(home, "hit", state.reason, key, read_stats(home), 0.0, 0)
    if locked:
        raise IntegrityError(f"the token store is {state.state}: {state.reason}", "; ".join(state.changes))
    if force or state.state != "missing":
        report.info(f"store     {'is built anew, as asked' if force else f'{state.state}: {state.reason}'}")
    for change in state.changes:
        report.info(f"store     {change}")
    gc.freeze()  # what is loaded by now stays: a pass over torch's objects takes 0.2 s, and rows set off several

    def fill(building: Path) -> Filled:
        building.mkdir()
        with TemporaryDirectory(dir=building) as spool:
            written = StoreBuild(data, inputs, report, Path(spool), fast=True)
            if not written.encoder.agrees(written.sample):
                report.info("encoder   fastokens gives other ids than tokenizers for a sample of these rows: once more")
                written = StoreBuild(data, inputs, report, Path(spool), fast=False)
            records = written.write(building)
        for file, seen in stamps.items():
            if stamp_of(file, fresh=True) != seen:
                raise InputError(f"{file}: changed while it was read", "wait until it is written, then start again")
        return records, written.stats

    home = build(folder, key, fill, inputs.hashes, report, expert=expert, force=force)
    status = "built" if state.state == "missing" else "rebuilt"
    return TokenStore(home, status, state.reason, key, read_stats(home), time.monotonic() - started, source_bytes)


Filled = tuple[list[ShardRecord], Callable[[Path], Mapping[str, Any]]]
"""The shards that were written, and what tells the statistics of a folder of them."""


def build(
    folder: Path,
    key: StoreKey,
    fill: Callable[[Path], Filled],
    hash_cache: FileHashCache,
    report: Reporter,
    *,
    expert: str = "",
    force: bool = False,
) -> Path:
    """Build a store in a folder beside its place, which `fill` fills, and return its folder; one that is there is used.

    force: build even then. Waits while another process builds the same store. Raises EnvironmentProblem when the disk is full
    (nothing of this build is left) or the folder cannot be written.
    """
    home, building = folder / key.sha256[:12], folder / f"{BUILDING}{key.sha256[:12]}"
    failed, elsewhere = f"cannot write the token store in {folder}", "put the store elsewhere: pretokenize --output DIR"
    with disk_errors(failed, elsewhere, unfinished=building), _lock(home, report):
        if home.is_file():
            raise NotADirectoryError(errno.ENOTDIR, "is a file, not a folder", str(home))
        hash_cache.refresh()
        if not force and inspect_store(folder, key, hash_cache).state == "hit":
            return home
        remove(building)
        records, stats = fill(building)
        write_fingerprint(building, key.sha256, dict(key.parts), records, stats, expert=expert)
        remove(home)
        building.rename(home)
        state = inspect_store(folder, key, hash_cache, hash_all=True)
        hash_cache.save()
        if state.state != "hit":
            raise IntegrityError(f"the store that was just written is {state.state}: {state.reason}", "check the disk")
    return home


@dataclass(kw_only=True)
class EncodedBatch(RowBatch):
    """Rows as documents. made: int32 [good rows], how many of each, -1: the template refuses it. forms: of whole texts."""

    made: NDArray[np.int32]
    encoded: Encoded = field(init=False)
    sample: Sample = field(default_factory=Sample)
    forms: Counter[str] = field(default_factory=Counter)
    has_reasoning: bool = False


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
                waiting.append(thread.submit(self._encoded, *self._documents(batch)))
                if len(waiting) > _MOST_WAITING:
                    yield waiting.popleft().result()
            yield from (done.result() for done in waiting)

    def _documents(self, read: RowBatch) -> tuple[EncodedBatch, list[Document]]:
        template, documents = self.encoder.template, list[Document]()
        template.forms.clear()
        template.counts.clear()
        made = np.zeros(len(read.rows), np.int32)
        batch = EncodedBatch(read.place, read.report, hashes=read.hashes, made=made)
        for number, (row, written) in enumerate(zip(read.rows, template.documents(read.rows), strict=True)):
            if isinstance(written, str):
                batch.report.drop(written, row.where)
                made[number] = -1
                continue
            batch.sample.add([turn["content"] for turn in row.messages] or [row.answer])
            documents += written
            made[number] = len(written)
        batch.usable = (made >= 0).tobytes()
        batch.forms, batch.has_reasoning = Counter(template.forms), bool(template.counts["thinking"])
        return batch, documents

    def _encoded(self, batch: EncodedBatch, documents: list[Document]) -> EncodedBatch:
        batch.encoded, trained = self.encoder.encode(documents).trained_only()
        rows = np.repeat(np.arange(len(batch.made)), np.maximum(batch.made, 0))
        batch.made[batch.made > 0] = np.bincount(rows[trained], minlength=len(batch.made))[batch.made > 0]
        return batch


class Spool:
    """The documents of all rows, on disk, until it is known which rows are taken."""

    def __init__(self, folder: Path) -> None:
        """Write them below a folder."""
        self._files = folder / "ids", folder / "trained"
        self._made, self._sizes = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for file in self._files:
            file.write_bytes(b"")

    def add(self, batch: EncodedBatch) -> None:
        """Write the documents of the rows that follow."""
        for file, values in zip(self._files, (batch.encoded.ids, batch.encoded.trained), strict=True):
            with file.open("ab") as out:
                out.write(values.tobytes())
        self._made.append(np.maximum(batch.made, 0))
        self._sizes.append(np.diff(batch.encoded.offsets).astype(np.int32))

    def seal(self) -> None:
        """Note where each row begins: all are there."""
        self.made, self._sizes = np.concatenate(self._made), [np.concatenate(self._sizes)]
        self._documents = np.append(0, self.made.cumsum(dtype=np.int64))
        self._tokens = np.append(0, self._sizes[0].cumsum(dtype=np.int64))

    def documents(self, rows: NDArray[np.int64]) -> Encoded:
        """Return the documents of some rows, end to end."""
        pieces = _joined(self._documents[rows], self._documents[rows + 1])
        sizes = np.concatenate([self._sizes[0][begin:end] for begin, end in pieces])
        if not len(sizes):
            return Encoded(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.bool_))
        ids, trained = (
            np.concatenate([there[self._tokens[begin] : self._tokens[end]] for begin, end in pieces])
            for there in (np.memmap(self._files[0], np.int32, "r"), np.memmap(self._files[1], np.bool_, "r"))
        )
        return Encoded(ids, np.append(0, sizes.cumsum(dtype=np.int64)), trained)


def _joined(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return ranges, those that follow each other as one."""
    first = np.flatnonzero(np.append(True, begins[1:] != ends[:-1])[: len(begins)])
    return list(zip(begins[first].tolist(), ends[np.append(first[1:], len(ends)) - 1].tolist(), strict=True))


class StoreBuild:
    """One build: reads the rows, decides which are taken, writes their documents shard by shard, and measures them."""

    def __init__(self, data: DataConfig, inputs: StoreInputs, report: Reporter, folder: Path, *, fast: bool) -> None:
        """Read and encode all rows; `folder` takes what is kept of them. Raises what `select_rows` does."""
        self.inputs, self.report = inputs, report
        self.spool, self.sample = Spool(folder), Sample()
        self.forms = Counter[str]()
        self.has_reasoning = False
        self.encoder = Encoder(inputs.template, fast=fast)
        self.looks_for_overlap = bool(inputs.cases or inputs.located.validation or data.validation_share)
        self.selection = select(
            data,
            inputs.located,
            report,
            partial(RowEncoder, encoder=self.encoder),
            self._keep,
            flat_map=inputs.flat_map,
            asked=self.looks_for_overlap,
        )
        self.spool.seal()

    def _keep(self, batch: EncodedBatch) -> None:
        self.spool.add(batch)
        self.sample.add_sample(batch.sample)
        self.forms.update(batch.forms)
        self.has_reasoning |= batch.has_reasoning

    def _taken(self, split: Split) -> list[NDArray[np.int64]]:
        return [source.taken() for source in self.selection.sources(split)]

    def write(self, building: Path) -> list[ShardRecord]:
        """Write the shards. Raises InputError: more than 1 % of the texts are in another tokenizer's tokens."""
        self.report.info(f"encoder   {self.encoder.engine}: {self.encoder.reason}")
        self._tell_forms()
        records: list[ShardRecord] = []
        for split in self.splits:
            rows = np.concatenate(self._taken(split))
            names = (shard_name(split, number) for number in count())
            with self.report.progress(f"writing {split}", len(rows), "rows") as bar:
                for start in range(0, len(rows), SHARD_ROWS):
                    if len(documents := self.spool.documents(rows[start : start + SHARD_ROWS])):
                        records.append(write_shard(building, next(names), documents))
                    bar.update(min(start + SHARD_ROWS, len(rows)))
        return records

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that the store gets."""
        return ("train", "validation") if self.selection.validation else ("train",)

    def _tell_forms(self) -> None:
        foreign = sum(count for form, count in self.forms.items() if form.endswith(FOREIGN))
        if foreign > BAD_SHARE * len(self.spool.made):
            raise InputError(
                f"{foreign} of {len(self.spool.made)} texts are written in control tokens that the tokenizer does not have "
                f"({describe_forms(self.forms)}): to the model they would be words",
                'Give the rows as "messages", or take the base model that they were written for.',
            )
        if self.forms:
            self.report.info(f"whole texts by form: {describe_forms(self.forms)}")
        if self.has_reasoning:
            self.report.warning(
                "answers are trained with their reasoning; evaluate and chat ask without it, and so does the chat template "
                "beside the adapter, unless a program passes enable_thinking=True"
            )

    def stats(self, building: Path) -> dict[str, Any]:
        """Return the store's statistics. Raises InputError: nothing of a split is trained."""
        stats: dict[str, Any] = {}
        for split, report in zip(
            self.splits, (self.selection.train_report, self.selection.validation_report), strict=False
        ):
            if not (building / split).is_dir():
                raise _nothing_trained()
            made = [self.spool.made[rows] for rows in self._taken(split)]
            all_made = np.concatenate(made)
            untrained = int((all_made == 0).sum())
            documents = Documents(building / split)
            stats[split] = split_stats(documents, report, untrained, self.encoder.engine, self.forms)
            if several := int((all_made > 1).sum()):
                stats[split]["split_conversations"] = several
            if split == "validation" and len(made) > 1:
                stats[split]["sources"] = [int(one.sum()) for one in made]
        stats["train"]["overlap"] = self._overlap() if self.looks_for_overlap else {}
        if replayed := sum(len(source) for source in self.selection.train if source.located.spec.share):
            stats["train"]["replayed"] = replayed
        return stats

    def _overlap(self) -> dict[str, Any]:
        """What of the cases and of the rows that evaluate stands in the rows that train."""
        train, asked = self._asked("train")
        held, hashes = self._asked("validation")
        cases = self.inputs.cases

        def place(number: int) -> str:
            return self._row("train", train[number]).where

        def question(number: int) -> Question:
            row = self._row("validation", held[number])
            return Question(*row.question, row.where)

        told = {}
        if len(held):
            looked_for = HeldOut((), hashes[:MOST_HELD_OUT].tolist())
            told["validation"] = overlap_json(len(held), looked_for, asked, question, place)
        if cases:
            told["cases"] = overlap_json(len(cases), HeldOut(cases[:MOST_HELD_OUT]), asked, cases.__getitem__, place)
        return told

    def _asked(self, split: Split) -> tuple[NDArray[np.int64], NDArray[np.bytes_]]:
        """Return the rows that are taken, each once, and the hashes of what they ask."""
        rows, hashes = [np.zeros(0, np.int64)], [np.zeros(0, "S16")]
        for source in self.selection.sources(split):
            mine = np.flatnonzero(source.copies)
            rows.append(mine + source.first)
            hashes.append(np.frombuffer(source.hashes["asked"], "S16")[mine])
        return np.concatenate(rows), np.concatenate(hashes)

    def _row(self, split: Split, number: np.int64) -> Row:
        sources = self.selection.sources(split)
        return next(one for one in reversed(sources) if one.first <= number).row(int(number))


def split_stats(
    documents: Documents, report: RowReport, untrained: int, encoder: str, forms: Mapping[str, int]
) -> dict[str, Any]:
    """Return the statistics of a split. untrained: rows that were taken and train nothing.

    Raises InputError: nothing of it is trained.
    """
    lengths, trained = documents.histogram(), documents.trained_tokens()
    if not trained:
        raise _nothing_trained()
    counts, edges = lengths.binned(12)
    dropped = {**report.dropped, **report.filtered, **({"no trained token": untrained} if untrained else {})}
    return {
        "rows": len(lengths),
        "tokens": lengths.tokens,
        "trained_tokens": trained,
        "dropped": dropped,
        "filtered": report.filters(),
        "length": {**{f"p{p}": lengths.percentile(p) for p in _PERCENTILES}, "max": lengths.longest},
        "histogram": {"counts": counts.tolist(), "edges": [round(float(edge), 1) for edge in edges]},
        "mapping": report.mapping,
        "ignored": report.unread(),
        "forms": dict(forms),
        "encoder": encoder,
    }


def _nothing_trained() -> InputError:
    return InputError("no document has a trained token", "check that the response column is mapped and not empty")


@contextmanager
def _lock(home: Path, report: Reporter) -> Iterator[None]:
    """Hold the lock of one store. The operating system frees it when its owner dies."""
    home.parent.mkdir(parents=True, exist_ok=True)
    lock = lock_of(home)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        report.info("another process builds this token store; waiting for it")
        held = lock.acquire(poll_interval=0.5)
    with held:
        yield


def foreign_store(folder: Path) -> Path | None:
    """Return a data set that another program saved where stores lie (`folder` itself or one below), None without one."""
    below = sorted(path for path in folder.glob("[!.]*") if path.is_dir())
    return next((place for place in (folder, *below) if store_kind(place) == "saved"), None)


def trusted_sha256(home: Path, hash_cache: FileHashCache) -> str:
    """Return one hash over the rows that another program saved: of each split the hashes of its files, in their order.

    Raises IntegrityError: a file is missing.
    """
    splits = [split for split in ("train", "validation") if (home / split).is_dir()]
    try:
        hashes = [[split, *map(hash_cache.sha256, data_files(home / split))] for split in splits or ["."]]
    except OSError as error:
        raise IntegrityError(f"{error.filename}: {error.strerror}", "save the data set again") from error
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def adopt_foreign_store(home: Path, key: StoreKey, vocab_size: int) -> TokenStore:
    """Return a store that another program made, after checking its columns and the range of its ids.

    Raises IntegrityError if they do not fit the tokenizer.
    """
    trusted = TokenStore(home, "hit", "made by another program, trusted as asked", key, {}, 0.0, 0)
    stats: dict[str, Any] = {}
    for split in ("train", "validation"):
        documents = trusted.split(split)
        if documents is None:
            continue
        smallest, largest = documents.id_range()
        if smallest < 0 or largest >= vocab_size:
            message = f"{documents.folder}: ids run from {smallest} to {largest}, the tokenizer has {vocab_size}"
            hint = "it was made with another tokenizer; leave --trust-store out to build a store"
            raise IntegrityError(message, hint)
        stats[split] = split_stats(documents, RowReport(), documents.empty, "another program", {})
    return replace(trusted, stats=stats)
