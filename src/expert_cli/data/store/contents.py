"""What a token store is filled with: rows selected, encoded shard by shard, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expert_cli.config.run_config import DataConfig
from expert_cli.data.rows.asked import asked_by
from expert_cli.data.rows.columnar import RowReport, Rows
from expert_cli.data.rows.overlap import Overlap
from expert_cli.data.rows.preview import first_rows
from expert_cli.data.rows.selected import RowSelection, Split
from expert_cli.data.rows.selection import select_rows
from expert_cli.data.store.documents import Documents
from expert_cli.data.store.key import StoreInputs
from expert_cli.data.templates.template import input_heading
from expert_cli.data.templates.whole_text import describe_forms
from expert_cli.data.tokenize.assemble import Encoded
from expert_cli.data.tokenize.encoder import Encoder
from expert_cli.data.tokenize.stream import DocumentStream
from expert_cli.errors import InputError
from expert_cli.utils.length_histogram import LengthHistogram
from expert_cli.utils.paths import cache_folder
from expert_cli.utils.reporter import Reporter

PERCENTILES = (50, 90, 95, 99)


class Counted(NamedTuple):
    """How long the documents of a split are, and how many of their tokens are trained."""

    lengths: LengthHistogram
    trained: int

    @classmethod
    def of(cls, documents: Documents) -> Counted:
        """Count documents, shard by shard."""
        return cls(documents.histogram(), documents.trained_tokens())


class StoreBuild:
    """One build: selects the rows, hands out shards as they are encoded, and measures what was written."""

    def __init__(self, data: DataConfig, inputs: StoreInputs, report: Reporter) -> None:
        """Begin a build."""
        self.data = data
        self.located = inputs.located
        self.template = inputs.template
        self.encoder = Encoder(inputs.tokenizer.backend, cache=cache_folder() / "engines")
        self.report = report
        self.forms: dict[Split, dict[str, int]] = {"train": {}, "validation": {}}
        self.by_source: dict[Split, NDArray[np.int64]] = {}
        self.overlaps = {"validation": Overlap(), "cases": Overlap.of(inputs.cases)}

    @cached_property
    def selection(self) -> RowSelection:
        """Which rows are taken, decided when it is first asked for. Raises what `select_rows` does."""
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

    def _look(self, split: Split, rows: Rows) -> None:
        """Note what rows that evaluate ask, and look for it in those that train."""
        if split == "validation":
            self.overlaps["validation"].add(rows)
        elif any(overlap.added for overlap in self.overlaps.values()):
            asked = asked_by(rows)
            for overlap in self.overlaps.values():
                overlap.look(asked)

    def _rows(self, split: Split) -> int:
        """Return how many rows of a split are taken."""
        return sum(map(len, self.selection.sources(split)))

    def shards(self, split: Split, skip: int) -> Iterator[Encoded]:
        """Yield the shards of a split from number `skip` on.

        Documents that evaluate are counted by source, so that each task has its own loss: all of them are encoded, those of
        an interrupted build, too.
        """
        look = partial(self._look, split)
        stream = DocumentStream(self.selection, self.template, self.encoder, self.forms[split], look)
        ends = np.cumsum([len(source) for source in self.selection.sources(split)])
        counted = split == "validation" and len(ends) > 1
        first = 0 if counted else skip
        by_source = np.zeros(len(ends), np.int64)
        with self.report.progress(f"tokenizing {split}", self._rows(split), "rows") as bar:
            done = 0
            for number, chunk in enumerate(stream.chunks(split, skip=first), first):
                if number >= skip:
                    yield chunk
                by_source += np.bincount(np.searchsorted(ends, done + chunk.kept, "right"), minlength=len(ends))
                done += chunk.rows
                bar.update(stream.read_over + done)
        if counted:
            self.by_source[split] = by_source
        if stream.forms:
            self.report.info(f"{split}: whole texts by form: {describe_forms(stream.forms)}")

    def _engine(self) -> str:
        """Return the engine and its version; a build that only had to be finished asks which it would be."""
        rows = first_rows(self.data, self.located.train, refused=self.template.refused)
        self.encoder.encode(self.template.documents(rows))
        return self.encoder.engine.engine.name

    def stats(self, counted: Callable[[Split], Counted]) -> dict[str, Any]:
        """Return the store's statistics; counted: what was written of a split."""
        if self.template.thought:
            self.report.warning(
                "answers are trained with their reasoning; evaluate and chat ask without it, and so does the chat template "
                "beside the adapter, unless a program passes enable_thinking=True"
            )
        reports = {"train": self.selection.train_report, "validation": self.selection.validation_report}
        stats: dict[str, Any] = {
            split: split_stats(counted(split), reports[split], self._rows(split), self._engine(), self.forms[split])
            for split in sorted(self.splits)
        }
        stats["train"]["overlap"] = {of: overlap.as_json() for of, overlap in self.overlaps.items() if overlap.added}
        for split, counts in self.by_source.items():
            stats[split]["sources"] = counts.tolist()
        if any(source.spec.share for source in self.located.train):
            stats["train"]["replayed"] = self.selection.replayed
        return stats


def split_stats(
    counted: Counted, report: RowReport | None, rows: int, encoder: str, forms: Mapping[str, int]
) -> dict[str, Any]:
    """Return the statistics of a split. rows: those that were taken. Raises InputError: nothing of it is trained."""
    lengths, trained = counted
    if not trained:
        raise InputError("no document has a trained token", "check that the response column is mapped and not empty")
    counts, edges = lengths.binned(12)
    dropped = {**report.dropped, **report.filtered} if report else {}
    if rows > len(lengths):
        dropped["no trained token"] = rows - len(lengths)
    return {
        "rows": len(lengths),
        "tokens": lengths.tokens,
        "trained_tokens": trained,
        "dropped": dropped,
        "filtered": report.filters() if report else {},
        "length": {**{f"p{p}": lengths.percentile(p) for p in PERCENTILES}, "max": lengths.longest},
        "histogram": {"counts": counts.tolist(), "edges": [round(float(edge), 1) for edge in edges]},
        "mapping": report.mapping if report else "",
        "ignored": report.unread() if report else [],
        "forms": dict(forms),
        "encoder": encoder,
    }
