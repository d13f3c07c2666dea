"""Sources -> a verified token store: opened if it fits, built if there is none, rebuilt where it is stale or damaged."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from expert_cli.console import Reporter
from expert_cli.data.assemble import Encoded
from expert_cli.data.documents import Documents
from expert_cli.data.encode import Encoder
from expert_cli.data.fingerprint import FINGERPRINT
from expert_cli.data.rows import RowReport
from expert_cli.data.sources import LocatedData, first_rows
from expert_cli.data.store import StoreKey, StoreState, build, has_stores, look, read_stats, store_key
from expert_cli.data.storefiles import Memo
from expert_cli.data.stream import DocumentStream
from expert_cli.data.survey import Split, Survey, survey_data
from expert_cli.data.templates import Template
from expert_cli.errors import InputError, LockedOrDamaged
from expert_cli.paths import cache_folder
from expert_cli.runconfig import DataConfig

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class Tokenised:
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


def state_of(
    data: DataConfig,
    located: LocatedData,
    folder: Path,
    template: Template,
    tokenizer_sha256: str,
    *,
    verify: bool = False,
) -> tuple[StoreKey, StoreState]:
    """Return the key that this data and tokenizer give, and what lies in `folder` for it; remembers file hashes there."""
    memo = Memo(folder / ".memo.json")
    key = store_key(data, located, memo, tokenizer=tokenizer_sha256, template=template.fingerprint)
    state = look(folder, key, memo, hash_all=verify)
    if folder.is_dir():
        memo.save()
    return key, state


def tokenise(  # noqa: PLR0913  everything a store is made of
    data: DataConfig,
    located: LocatedData,
    folder: Path,
    template: Template,
    tokenizer: Tokenizer,
    report: Reporter,
    *,
    tokenizer_sha256: str,
    verify: bool = False,
    force: bool = False,
    locked: bool = False,
) -> Tokenised:
    """Return the store for this data in `folder`, building it if need be.

    Raises InputError (rows that cannot be used), EnvironmentProblem (disk), LockedOrDamaged (`locked` and no store fits).
    """
    started = time.monotonic()
    # Where no store lies one will be built: the engine loads and the rows are looked at while the sources are hashed.
    begun = None if locked or has_stores(folder) else _Build(data, located, template, tokenizer, report)
    with ThreadPoolExecutor(1) as thread:
        hashed = thread.submit(state_of, data, located, folder, template, tokenizer_sha256, verify=verify)
        if begun:
            begun.look()
        key, state = hashed.result()
    home = folder / key.sha256[:12]
    if state.state == "hit" and not force:
        return Tokenised(home, "hit", state.reason, key, read_stats(home), 0.0, 0)
    if locked:
        raise LockedOrDamaged(f"the token store is {state.state}: {state.reason}", "; ".join(state.changes))
    if force or state.state != "missing":
        report.say(f"store     {'is built anew, as asked' if force else f'{state.state}: {state.reason}'}")
    for change in state.changes:
        report.say(f"store     {change}")
    gc.freeze()  # what is loaded by now stays: a pass over torch's objects takes 0.2 s, and rows set off several
    build_ = begun or _Build(data, located, template, tokenizer, report)
    home = build(folder, key, build_.splits, build_.shards, build_.stats, report, force=force)
    source_bytes = sum(path.stat().st_size for path in located.files())
    status = "built" if state.state == "missing" else "rebuilt"
    return Tokenised(home, status, state.reason, key, read_stats(home), time.monotonic() - started, source_bytes)


class _Build:
    """One build: surveys the rows, hands out shards as they are encoded, and measures what was written."""

    def __init__(
        self, data: DataConfig, located: LocatedData, template: Template, tokenizer: Tokenizer, report: Reporter
    ) -> None:
        self.data = data
        self.located = located
        self.template = template
        self.encoder = Encoder(tokenizer, cache=cache_folder() / "engines")
        self.report = report

    def look(self) -> None:
        """Look at the rows, and keep what was seen for when it is needed."""
        _ = self.survey

    @cached_property
    def survey(self) -> Survey:
        return survey_data(self.data, self.located, self.report)

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that the store gets."""
        return ("train", "validation") if self.located.validation or self.data.validation_share else ("train",)

    def rows(self, split: Split) -> int:
        return sum(map(len, self.survey.sources(split)))

    def shards(self, split: Split, skip: int) -> Iterator[Encoded]:
        """Yield the shards of a split from number `skip` on."""
        stream = DocumentStream(self.data, self.survey, self.template, self.encoder)
        with self.report.progress(f"tokenising {split}", self.rows(split), "rows") as bar:
            done = 0
            for chunk in stream.chunks(split, skip=skip):
                yield chunk.encoded
                done += chunk.rows
                bar.update(done)

    def engine(self) -> str:
        """Return the engine and its version; a build that only had to be finished asks which it would be."""
        rows, _ = first_rows(self.data, self.located.train)
        self.encoder.encode(self.template.documents(rows))
        return self.encoder.engine.engine.name

    def stats(self, building: Path) -> dict[str, Any]:
        """Return the store's statistics, measured on what was written."""
        reports = {"train": self.survey.train_report, "validation": self.survey.validation_report}
        return {
            split: _split_stats(Documents(building / split), reports[split], self.rows(split), self.engine())
            for split in self.splits
        }


def _split_stats(documents: Documents, report: RowReport | None, rows: int, encoder: str) -> dict[str, Any]:
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
        "length": {
            **{f"p{p}": int(v) for p, v in zip(PERCENTILES, percentiles, strict=True)},
            "max": int(lengths.max()),
        },
        "histogram": {"counts": counts.tolist(), "edges": [round(float(edge), 1) for edge in edges]},
        "mapping": report.mapping if report else "",
        "encoder": encoder,
    }


def foreign_store(folder: Path) -> Path | None:
    """Return a data set that another program saved where stores lie (`folder` itself or one below), None without one."""
    for place in [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]:
        saved = (place / "dataset_dict.json").is_file() or (place / "state.json").is_file()
        if saved and not (place / FINGERPRINT).is_file() and not place.name.startswith("."):
            return place
    return None


def trust(home: Path, key: StoreKey, vocab_size: int) -> Tokenised:
    """Return a store that another program made, after checking its columns and the range of its ids.

    Raises LockedOrDamaged if they do not fit the tokenizer.
    """
    train = home / "train" if (home / "train").is_dir() else home
    documents = Documents(train)
    smallest, largest = documents.smallest_id(), documents.largest_id()
    if smallest < 0 or largest >= vocab_size:
        message = f"{home}: ids run from {smallest} to {largest}, the tokenizer has {vocab_size}"
        raise LockedOrDamaged(message, "it was made with another tokenizer; leave --trust-store out to build a store")
    stats = {"train": _split_stats(documents, None, len(documents), "another program")}
    validation = home / "validation"
    if validation.is_dir():
        held_out = Documents(validation)
        stats["validation"] = _split_stats(held_out, None, len(held_out), "another program")
    return Tokenised(home, "hit", "made by another program, trusted as asked", key, stats, 0.0, 0)
