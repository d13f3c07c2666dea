"""Sources -> a verified token store: opened if it fits, built if there is none, rebuilt where it is stale or damaged."""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from filelock import Timeout

from expert_cli.config.run_config import DataConfig
from expert_cli.data.encode import Encoded, Encoder, Fastokens
from expert_cli.data.overlap import HeldOut, Overlap, Question
from expert_cli.data.rows import Row
from expert_cli.data.select import BAD_SHARE, RowReport, RowSelection, SelectedSource, Split, TakenRows, select_rows
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
_BATCH_ROWS = 1_000
_HINT = 'Another base model, "prompt_template" or "chat_template_path" may write these rows; or mend them.'
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
        written = StoreBuild(data, inputs, report)
        records = [record for split in written.splits for record in written.write(building, split)]
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


@dataclass
class EncodedRows:
    """Some rows of a source as documents. first: the number of the first one in its split; report: those that are refused.

    forms, counts: the template's; asked: what rows that evaluate ask; found: (evaluation, number of its text, place of a row).
    """

    source: int
    first: int
    rows: int
    report: RowReport = field(default_factory=RowReport)
    forms: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    asked: list[Question] = field(default_factory=list)
    found: list[tuple[str, int, str]] = field(default_factory=list)
    encoded: Encoded = field(init=False)
    engine: str = ""


@dataclass
class Tally:
    """What became of the rows of a split. refused, documents: how many of each source; forms, counts: the template's."""

    report: RowReport = field(default_factory=RowReport)
    refused: Counter[int] = field(default_factory=Counter)
    documents: Counter[int] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    engine: str = ""

    def add(self, part: EncodedRows) -> None:
        """Add what became of the rows that follow."""
        self.report.add(part.report)
        self.refused[part.source] += part.report.dropped.total()
        self.documents[part.source] += len(part.encoded)
        self.forms.update(part.forms)
        self.counts.update(part.counts)
        self.engine = part.engine


@dataclass
class RowEncoder:
    """Writes rows down as documents of token ids. is_held_out: these rows evaluate; held: texts that are looked for in them."""

    encoder: Encoder
    is_held_out: bool
    held: Mapping[str, HeldOut]

    def __call__(self, taken: TakenRows) -> Iterator[EncodedRows]:
        """Yield the documents of some rows of a file; a thread encodes while the next rows are read."""
        rows, first = taken.rows(), taken.first
        waiting: deque[Future[EncodedRows]] = deque()
        with ThreadPoolExecutor(1) as thread:
            while batch := list(islice(rows, _BATCH_ROWS - first % _BATCH_ROWS)):  # no part has rows of two shards
                part = EncodedRows(taken.source, first, len(batch))
                waiting.append(thread.submit(self._encoded, part, self._documents(part, batch)))
                first += len(batch)
                if len(waiting) > 2:
                    yield waiting.popleft().result()
            yield from (part.result() for part in waiting)

    def _encoded(self, part: EncodedRows, documents: list[Document]) -> EncodedRows:
        part.encoded, part.engine = self.encoder.encode(documents), self.encoder.engine
        return part

    def _documents(self, part: EncodedRows, batch: Sequence[Row]) -> list[Document]:
        template, documents = self.encoder.template, []
        template.forms.clear()
        template.counts.clear()
        for row, made in zip(batch, template.documents(batch), strict=True):
            if isinstance(made, str):
                part.report.drop(made, row.where)
                continue
            documents += made
            if self.is_held_out:
                part.asked.append(Question(*row.question, row.where))
            for of, held in self.held.items():
                part.found += ((of, number, row.where) for number in held.find(*row.question))
        part.forms.update(template.forms)
        part.counts.update(template.counts)
        return documents


class StoreBuild:
    """One build: selects the rows, writes them as documents shard by shard, and measures what was written."""

    def __init__(self, data: DataConfig, inputs: StoreInputs, report: Reporter) -> None:
        """Look at all rows, and decide which are taken. Raises what `select_rows` does."""
        with ThreadPoolExecutor(1) as thread:
            fast = thread.submit(Fastokens, inputs.template.tokenizer)
            self.selection: RowSelection = select_rows(data, inputs.located, report, flat_map=inputs.flat_map)
        self.encoder = Encoder(inputs.template, self.selection.sample, fast.result)
        report.info(f"encoder   {self.encoder.engine}: {self.encoder.reason}")
        self.report, self.flat_map = report, inputs.flat_map
        self.tally = {"train": Tally(), "validation": Tally()}
        self.overlaps = {"validation": Overlap(), "cases": Overlap()}
        for case in inputs.cases:
            self.overlaps["cases"].add(case)

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that the store gets, what evaluates first: it is looked for in the rows that train."""
        return ("validation", "train") if self.selection.validation else ("train",)

    def write(self, building: Path, split: Split) -> list[ShardRecord]:
        """Write the shards of a split.

        Raises InputError: more than 1 % of a source's rows are refused by the template, or are in another tokenizer's tokens.
        """
        is_held_out = split == "validation"
        held = {of: overlap.held for of, overlap in self.overlaps.items() if overlap.added and not is_held_out}
        encoder = RowEncoder(self.encoder, is_held_out, held)
        tally, sources = self.tally[split], self.selection.sources(split)
        records: list[ShardRecord] = []
        total = sum(map(len, sources))
        with self.report.progress(f"tokenizing {split}", total, "rows") as bar:
            parts = self.flat_map(encoder, list(self.selection.taken(split)))
            for _, shard in groupby(parts, lambda part: part.first // SHARD_ROWS):
                encoded = []
                for part in shard:
                    tally.add(part)
                    self._require_good(tally, sources, part.first + part.rows)
                    for question in part.asked:
                        self.overlaps["validation"].add(question)
                    for of, number, where in part.found:
                        self.overlaps[of].found(number, where)
                    encoded.append(part.encoded)
                    bar.update(part.first + part.rows)
                if len(joined := Encoded.joined(encoded)):
                    records.append(write_shard(building, shard_name(split, len(records)), joined))
        self._tell(split, total)
        return records

    def _require_good(self, tally: Tally, sources: Sequence[SelectedSource], rows: int) -> None:
        for source, count in tally.refused.items():
            if count > BAD_SHARE * len(sources[source]):
                told = f"{count} of {min(rows, len(sources[source]))} rows are bad: {'; '.join(tally.report.examples)}"
                raise InputError(f"{sources[source].located}: {told}", _HINT)

    def _tell(self, split: Split, rows: int) -> None:
        tally = self.tally[split]
        foreign = sum(count for form, count in tally.forms.items() if form.endswith(FOREIGN))
        if foreign > BAD_SHARE * rows:
            raise InputError(
                f"{foreign} of {rows} texts are written in control tokens that the tokenizer does not have "
                f"({describe_forms(tally.forms)}): to the model they would be words",
                'Give the rows as "messages", or take the base model that they were written for.',
            )
        if tally.forms:
            self.report.info(f"{split}: whole texts by form: {describe_forms(tally.forms)}")
        if tally.report.dropped:
            self.report.warning(tally.report.told(rows, "are refused by the template and left out"))

    def stats(self, building: Path) -> dict[str, Any]:
        """Return the store's statistics. Raises InputError: nothing of a split is trained."""
        if self.tally["train"].counts["thinking"]:
            self.report.warning(
                "answers are trained with their reasoning; evaluate and chat ask without it, and so does the chat template "
                "beside the adapter, unless a program passes enable_thinking=True"
            )
        reports = {"train": self.selection.train_report, "validation": self.selection.validation_report}
        stats: dict[str, Any] = {}
        for split in sorted(self.splits):
            report, tally = RowReport(), self.tally[split]
            for part in (reports[split], tally.report):
                report.add(part)
            rows = sum(map(len, self.selection.sources(split))) - sum(tally.refused.values())
            if not (building / split).is_dir():
                raise _nothing_trained()
            documents = Documents(building / split)
            stats[split] = split_stats(documents, report, rows, tally.engine, tally.forms)
            if tally.counts["split"]:
                stats[split]["split_conversations"] = tally.counts["split"]
        stats["train"]["overlap"] = {of: overlap.as_json() for of, overlap in self.overlaps.items() if overlap.added}
        if len(self.selection.validation) > 1:
            counts = self.tally["validation"].documents
            stats["validation"]["sources"] = [counts[number] for number in range(len(self.selection.validation))]
        if any(source.located.spec.share for source in self.selection.train):
            replayed = (len(source) for source in self.selection.train if source.located.spec.share)
            stats["train"]["replayed"] = sum(replayed)
        return stats


def split_stats(
    documents: Documents, report: RowReport, rows: int, encoder: str, forms: Mapping[str, int]
) -> dict[str, Any]:
    """Return the statistics of a split. rows: those that were taken. Raises InputError: nothing of it is trained."""
    lengths, trained = documents.histogram(), documents.trained_tokens()
    if not trained:
        raise _nothing_trained()
    counts, edges = lengths.binned(12)
    dropped = {**report.dropped, **report.filtered}
    if rows > len(lengths):
        dropped["no trained token"] = rows - len(lengths)
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
        stats[split] = split_stats(documents, RowReport(), len(documents) + documents.empty, "another program", {})
    return replace(trusted, stats=stats)
