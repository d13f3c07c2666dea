"""Sources -> a verified token store: opened if it fits, built if there is none, rebuilt where it is stale or damaged."""

from __future__ import annotations

import gc
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig
from expert_cli.data.rows.asked import asked_by
from expert_cli.data.rows.cache import Unchanged
from expert_cli.data.rows.columnar import RowReport, Rows
from expert_cli.data.rows.columns import COLUMN_RULE, USUAL_NAMES
from expert_cli.data.rows.kinds import kind_named
from expert_cli.data.rows.overlap import Overlap
from expert_cli.data.rows.preview import first_rows
from expert_cli.data.rows.selected import RowSelection, Split
from expert_cli.data.rows.selection import select_rows
from expert_cli.data.store.documents import Documents, data_files
from expert_cli.data.store.files import FileHashCache
from expert_cli.data.store.inspect import StoreState, has_stores, inspect_store, left_unread, read_stats, store_kind
from expert_cli.data.store.key import StoreInputs, StoreKey
from expert_cli.data.store.token_store import Contents, build
from expert_cli.data.templates.template import input_heading
from expert_cli.data.templates.whole_text import describe_forms
from expert_cli.data.tokenize.assemble import Encoded
from expert_cli.data.tokenize.encoder import Encoder
from expert_cli.data.tokenize.stream import DocumentStream
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.paths import cache_folder
from expert_cli.utils.reporter import Reporter

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class TokenStore:
    """A store that is ready: where, how it came to be there, and what its statistics say.

    status: "hit" (it was there and fits), "built", "rebuilt" (stale or damaged before; `reason` says which). `source_bytes`
    over `seconds` is the speed from first read to verified store; both are 0 for a hit.
    """

    home: Path
    status: str
    reason: str
    key: StoreKey
    stats: Mapping[str, Any]
    seconds: float
    source_bytes: int

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
    home = folder / key.sha256[:12]
    if state.state == "hit" and (column := left_unread(read_stats(home), kind_named(inputs.kind))):
        state = StoreState("stale", f'{home} was built before the column "{column}" was read')
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
    """Return the store for this data in `folder`, building it if need be; expert: whom it is built for.

    Raises InputError (rows that cannot be used, files that change while they are read), EnvironmentProblem (disk),
    IntegrityError (`locked` and no store fits).
    """
    started = time.monotonic()
    files = Unchanged(inputs.located.files())
    # Where no store lies one will be built: the engine loads and the rows are looked at while the sources are hashed.
    begun = None if locked or has_stores(folder) else _Build(data, inputs, report)
    with ThreadPoolExecutor(1) as thread:
        hashed = thread.submit(store_state, data, inputs, folder, verify=verify)
        if begun:
            _ = begun.selection  # looks at the rows, and keeps what was seen
        key, state = hashed.result()
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
    build_ = begun or _Build(data, inputs, report)
    contents = Contents(build_.splits, build_.shards, build_.stats, files.require, expert)
    home = build(folder, key, contents, inputs.hashes, report, force=force or state.state == "stale")
    status = "built" if state.state == "missing" else "rebuilt"
    return TokenStore(home, status, state.reason, key, read_stats(home), time.monotonic() - started, files.bytes())


class _Build:
    """One build: selects the rows, hands out shards as they are encoded, and measures what was written."""

    def __init__(self, data: DataConfig, inputs: StoreInputs, report: Reporter) -> None:
        self.data = data
        self.located = inputs.located
        self.template = inputs.template
        self.encoder = Encoder(inputs.tokenizer.backend, cache=cache_folder() / "engines")
        self.report = report
        self.forms: dict[Split, dict[str, int]] = {"train": {}, "validation": {}}
        self.by_source: dict[Split, NDArray[np.int64]] = {}
        self.overlaps = {"validation": Overlap(), "cases": Overlap.of(inputs.cases)}
        self.found: list[Overlap] = []  # in the piece that is read now

    @cached_property
    def selection(self) -> RowSelection:
        selection = select_rows(self.data, self.located, self.report, refused=self.template.refused)
        column = selection.train_report.input_column
        if self.template.heads_input and column and input_heading(column) != self.template.input_separator:
            raise InputError(
                f'the column "{column}" becomes the input, which a first look at the rows did not tell',
                f'Write "field_mapping": {{"input": "{column}"}} in training.dataset.',
            )
        return selection

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that the store gets, what evaluates first: it is looked for in the rows that train."""
        return ("validation", "train") if self.located.validation or self.data.validation_share else ("train",)

    def _begin(self, split: Split) -> None:
        """End what was found in the piece before, and look at the next one of the rows that train."""
        for overlap, found in zip(self.overlaps.values(), self.found, strict=False):
            overlap.extend(found)
        looked_for = split == "train" and any(overlap.added for overlap in self.overlaps.values())
        self.found = [overlap.begin() for overlap in self.overlaps.values()] if looked_for else []

    def _look(self, split: Split, rows: Rows) -> None:
        if split == "validation":
            self.overlaps["validation"].add(rows)
        elif self.found:
            asked = asked_by(rows)
            for found in self.found:
                found.look(asked)

    def rows(self, split: Split) -> int:
        return sum(map(len, self.selection.sources(split)))

    def shards(self, split: Split, skip: int) -> Iterator[Encoded]:
        """Yield the shards of a split from number `skip` on.

        Documents that evaluate are counted by source, so that each task has its own loss: all of them are encoded, those of
        an interrupted build, too.
        """
        stream = DocumentStream(
            self.selection,
            self.template,
            self.encoder,
            self.forms[split],
            partial(self._begin, split),
            partial(self._look, split),
        )
        ends = np.cumsum([len(source) for source in self.selection.sources(split)])
        counted = split == "validation" and len(ends) > 1
        first = 0 if counted else skip
        by_source = np.zeros(len(ends), np.int64)
        with self.report.progress(f"tokenizing {split}", self.rows(split), "rows") as bar:
            done = 0
            for number, chunk in enumerate(stream.chunks(split, skip=first), first):
                if number >= skip:
                    yield chunk
                by_source += np.bincount(np.searchsorted(ends, done + chunk.kept, "right"), minlength=len(ends))
                done += chunk.rows
                bar.update(stream.read_over + done)
        self._begin("validation")  # no more rows that train
        if counted:
            self.by_source[split] = by_source
        if stream.forms:
            self.report.info(f"{split}: whole texts by form: {describe_forms(stream.forms)}")

    def engine(self) -> str:
        """Return the engine and its version; a build that only had to be finished asks which it would be."""
        rows = first_rows(self.data, self.located.train, refused=self.template.refused)
        self.encoder.encode(self.template.documents(rows))
        return self.encoder.engine.engine.name

    def stats(self, building: Path) -> dict[str, Any]:
        """Return the store's statistics, measured on what was written."""
        if self.template.thought:
            self.report.warning(
                "answers are trained with their reasoning; evaluate and chat ask without it, and so does the chat template "
                "beside the adapter, unless a program passes enable_thinking=True"
            )
        reports = {"train": self.selection.train_report, "validation": self.selection.validation_report}
        stats: dict[str, Any] = {
            split: _split_stats(
                Documents(building / split), reports[split], self.rows(split), self.engine(), self.forms[split]
            )
            for split in sorted(self.splits)
        }
        stats["train"]["overlap"] = {of: overlap.as_json() for of, overlap in self.overlaps.items() if overlap.added}
        for split, counts in self.by_source.items():
            stats[split]["sources"] = counts.tolist()
        if any(source.spec.share for source in self.located.train):
            stats["train"]["replayed"] = self.selection.replayed
        return stats


def _split_stats(
    documents: Documents, report: RowReport | None, rows: int, encoder: str, forms: Mapping[str, int]
) -> dict[str, Any]:
    lengths = documents.lengths
    trained = documents.trained_tokens()
    if not trained:
        raise InputError("no document has a trained token", "check that the response column is mapped and not empty")
    percentiles = np.percentile(lengths, PERCENTILES, method="higher")
    counts, edges = np.histogram(lengths, bins=12)
    dropped = {**report.dropped, **report.filtered} if report else {}
    if rows > len(documents):
        dropped["no trained token"] = rows - len(documents)
    return {
        "rows": len(lengths),
        "tokens": int(lengths.sum()),
        "trained_tokens": trained,
        "dropped": dropped,
        "filtered": report.filters() if report else {},
        "length": {
            **{f"p{p}": int(v) for p, v in zip(PERCENTILES, percentiles, strict=True)},
            "max": int(lengths.max()),
        },
        "histogram": {"counts": counts.tolist(), "edges": [round(float(edge), 1) for edge in edges]},
        "mapping": report.mapping if report else "",
        "ignored": report.unread() if report else [],
        "forms": dict(forms),
        "encoder": encoder,
        "rule_of_columns": COLUMN_RULE,
        "known_columns": [*USUAL_NAMES],
    }


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
        stats[split] = _split_stats(documents, None, len(documents) + documents.empty, "another program", {})
    return replace(trusted, stats=stats)
