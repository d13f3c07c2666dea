"""A token store built by several processes: what one of them does, and what makes the parts a store.

    cut the sources  ->  look at what was cut  ->  select the rows  ->  encode what evaluates  ->  encode what trains

Each step is tasks that all share, and begins when the one before is done; of the last a process does its own part alone. What
a task gives depends on what it reads and on what was selected, so that the shards are those of one process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np

from expert_cli.config.run_config import DataConfig
from expert_cli.data.located import Located
from expert_cli.data.rows.as_json import (
    cut_as_json,
    cut_of,
    look_as_json,
    look_of,
    selection_as_json,
    selection_of,
)
from expert_cli.data.rows.asked import Asked
from expert_cli.data.rows.cache import Unchanged
from expert_cli.data.rows.look import Held, Judge, PieceLook, scan_pieces
from expert_cli.data.rows.overlap import MOST_HELD_OUT, Overlap
from expert_cli.data.rows.scan import SourcePieces, cut_source, lines_of
from expert_cli.data.rows.selected import Reading, RowSelection, Split
from expert_cli.data.store.contents import Counted, StoreBuild
from expert_cli.data.store.documents import DocumentLengths, measured
from expert_cli.data.store.files import FinishedShard, ShardRecord, write_shard
from expert_cli.data.store.key import StoreInputs
from expert_cli.data.store.parts import Given, Part, SharedWork
from expert_cli.data.tokenize.stream import read_together
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.length_histogram import LengthHistogram
from expert_cli.utils.reporter import Reporter, Said

CUT, SELECTION = "cut", "selection"
_LENGTHS = "lengths"


class PartBuild:
    """One process's share in building a store."""

    def __init__(self, data: DataConfig, inputs: StoreInputs, shared: SharedWork, report: Reporter) -> None:
        """Begin, or go on with what is there."""
        self.data = data
        self.shared = shared
        self.inputs = inputs
        self.said = Said(report)
        self.build = StoreBuild(data, inputs, self.said, self._looks)
        sources = {"train": inputs.located.train, "validation": inputs.located.validation}
        self.sources: dict[str, Located] = {
            f"{split}-{number}": located for split, some in sources.items() for number, located in enumerate(some)
        }

    def run(self) -> list[Mapping[str, Any]]:
        """Build this process's part, and of the steps before what nobody has done; return what the tasks of the part told.

        Raises InputError: rows that cannot be used; EnvironmentProblem: the disk.
        """
        self.shared.share("cutting the sources", [CUT], self._cut)
        self.shared.share("looking at the rows", self._look_names, self._look)
        self.shared.share("selecting rows", [SELECTION], self._select)
        for split in self.build.splits:
            encode = partial(self._encode, split)
            self.shared.share(f"tokenizing {split}", self.names(split), encode, all_of=split != "train")
        names = self.names("train")
        return [self.shared.told(names[number]) for number in self.shared.part.own(len(names))]

    # -- what each step does ------------------------------------------------------------------------------------------

    def _cut(self, _: int) -> Given:
        return {of: cut_as_json(cut_source(one, self.data), one.files) for of, one in self.sources.items()}, {}

    @cached_property
    def _cuts(self) -> dict[str, SourcePieces]:
        told = self.shared.told(CUT)
        return {of: cut_of(told[of], located.files) for of, located in self.sources.items()}

    @cached_property
    def _held(self) -> list[tuple[str, Held]]:
        return [(of, held) for of, cut in self._cuts.items() for held in cut.held]

    @cached_property
    def _look_names(self) -> list[str]:
        return [f"look-{number:06d}" for number in range(len(self._held))]

    def _look(self, number: int) -> Given:
        """Look at what is read together, without what the other looks tell."""
        of, held = self._held[number]
        ranked = of.startswith("train") and self.build.splits_rows
        judge = Judge(self.sources[of], self.data, self.inputs.template.refused, ranked)
        look = scan_pieces(judge, held, known=self._cuts[of].names)
        look.lines = lines_of(look)
        return look_as_json(look)

    def _looks(self, judge: Judge, room: int) -> tuple[SourcePieces, list[PieceLook]]:  # noqa: ARG002  no row is kept
        """What the looks at a source gave."""
        of = next(of for of, located in self.sources.items() if located is judge.located)
        looks = [
            look_of(*self.shared.result(name), judge, held)
            for name, (source, held) in zip(self._look_names, self._held, strict=True)
            if source == of
        ]
        return self._cuts[of], looks

    def _select(self, _: int) -> Given:
        told, arrays = selection_as_json(self.build.selection)
        return {**told, "said": self.said.lines}, arrays

    @cached_property
    def selection(self) -> RowSelection:
        """Which rows are taken, as one process decided."""
        told, arrays = self.shared.result(SELECTION)
        selection = selection_of(told, arrays.__getitem__, self.inputs.located, self.data.schema_prompt)
        self.build.selection = selection
        return selection

    @cached_property
    def _readings(self) -> dict[Split, list[list[Reading]]]:
        """What is read together, by split: cut once, as all rows are counted for it."""
        splits: tuple[Split, ...] = ("train", "validation")
        return {split: read_together(self.selection.readings(split)) for split in splits}

    def names(self, split: Split) -> list[str]:
        """Return the tasks that encode a split, in the order of its shards."""
        return [f"{split}-{number:06d}" for number in range(len(self._readings[split]))]

    def _encode(self, split: Split, number: int) -> Given:
        """Encode the rows of some readings, and count what is told of them."""
        readings, rows = self._readings[split][number], self.build.rows(split)
        overlaps = self._overlaps if split == "train" else {"validation": Overlap(), "cases": Overlap()}
        self.build.begin_again(split, overlaps)
        stream = self.build.stream(split)
        ends = np.cumsum([int(reading.taken.sum()) for reading in readings])
        counts, done = np.zeros(len(readings), np.int64), 0
        shards: list[ShardRecord] = []
        lengths = [np.empty((3, 0), np.int64)]
        for at, chunk in enumerate(stream.encoded([readings])):
            shards.append(write_shard(self.shared.folder, f"{split}/{number:06d}-{at:03d}.arrow", chunk))
            lengths.append(np.stack(measured(chunk.offsets, chunk.trained)))
            counts += np.bincount(np.searchsorted(ends, done + chunk.kept, "right"), minlength=len(ends))
            done += chunk.rows
            stream.refuse_foreign(rows)
        sources = self.selection.sources(split)
        told: dict[str, Any] = {
            "shards": list(map(asdict, shards)),
            "forms": stream.forms,
            "sources": [
                [sources.index(one.source), count] for one, count in zip(readings, counts.tolist(), strict=True)
            ],
            "found": [found.found() for found in self.build.found],
            "asked": overlaps["validation"].added,
        }
        arrays = {_LENGTHS: np.concatenate(lengths, axis=1).astype(np.int32)}
        if split == "train":
            return told, arrays
        held = overlaps["validation"].asked
        asked = json.dumps([held.questions, held.inputs, held.places]).encode()
        return told, {**arrays, "asked": np.frombuffer(asked, np.uint8)}

    @cached_property
    def _overlaps(self) -> dict[str, Overlap]:
        """What is looked for in the rows that train: the texts that evaluate, once all of these are read."""
        held = Overlap()
        for name in self.names("validation"):
            told, arrays = self.shared.result(name)
            held.added += told["asked"]
            held.asked.extend(Asked(*json.loads(arrays["asked"].tobytes())).part(0, MOST_HELD_OUT - len(held.asked)))
        return {"validation": held, "cases": Overlap.of(self.inputs.cases)}

    # -- what makes the parts a store ---------------------------------------------------------------------------------

    def missing(self) -> tuple[str, list[Part]]:
        """Return what of the parts is not there, "" if all is, and the parts that lack it, as far as the others tell."""
        steps: list[tuple[str, Sequence[str]]] = [("the sources are not cut", [CUT])]
        if self.shared.is_done(CUT):
            steps += [("{} of {} pieces of the sources are not looked at", self._look_names)]
            steps += [("no rows are selected", [SELECTION])]
        if self.shared.is_done(SELECTION):
            words = "{} of {} pieces of the rows that %s are not encoded"
            does = {"train": "train", "validation": "evaluate"}
            steps += [(words % does[split], self.names(split)) for split in self.build.splits]
        for told, names in steps:
            open_ = [name for name in names if not self.shared.is_done(name)]
            if open_:
                lacking = self.shared.parts_of(names) if names[0].startswith("train-") else []
                return told.format(len(open_), len(names)), lacking
        return "", []

    def records(self, split: Split) -> Iterator[ShardRecord]:
        """Yield the shards of a split, as they were written. Raises IntegrityError: one is not there so any more."""
        for name in self.names(split):
            records = [ShardRecord(**told) for told in self.shared.told(name)["shards"]]
            for lost in self.shared.shards_lost(records):
                raise self.shared.lost(lost, name)
            yield from records

    def shards(self, split: Split, skip: int) -> Iterator[FinishedShard]:
        """Yield the shards of a split in a folder from number `skip` on. Raises IntegrityError as `records` does."""
        for record in islice(self.records(split), skip, None):
            yield FinishedShard(self.shared.folder / record.file, record)

    def lengths(self, split: Split) -> Iterator[DocumentLengths]:
        """Yield the lengths of all documents of a split, as many at once as a task encoded."""
        for name in self.names(split):
            yield DocumentLengths(*self.shared.result(name)[1][_LENGTHS].astype(np.int64))

    def _counted(self, split: Split) -> Counted:
        lengths, trained = LengthHistogram.of_all(()), 0
        for some in self.lengths(split):
            lengths += LengthHistogram.of(some.tokens)
            trained += int(some.trained.sum())
        return Counted(lengths, trained)

    def stats(self) -> dict[str, Any]:
        """Return the store's statistics, of what all parts counted, and tell what the one told that selected the rows."""
        self.said.repeat(self.shared.told(SELECTION)["said"])
        build = self.build
        for split in build.splits:
            build.begin_again(split, dict(self._overlaps))
            counts = np.zeros(len(self.selection.sources(split)), np.int64)
            for name in self.names(split):
                told = self.shared.told(name)
                for form, count in told["forms"].items():
                    build.forms[split][form] = build.forms[split].get(form, 0) + count
                for source, count in told["sources"]:
                    counts[source] += count
                for overlap, found in zip(build.overlaps.values(), told["found"], strict=False):
                    overlap.extend(overlap.with_found(found))
            if split == "validation" and len(counts) > 1:
                build.by_source[split] = counts
        return build.stats(self._counted)


def build_part(data: DataConfig, inputs: StoreInputs, shared: SharedWork, report: Reporter) -> dict[str, int]:
    """Build one part of a store, and of what all parts need what nobody has done yet; return what the part holds, in numbers.

    Raises InputError (rows that cannot be used, files that change while they are read), EnvironmentProblem (disk).
    """
    files = Unchanged(inputs.located.files())
    with disk_errors(f"cannot write parts of the token store in {shared.place()}", "pretokenize --output DIR"):
        built = PartBuild(data, inputs, shared, report).run()
    files.require_everywhere()
    shards = [shard for one in built for shard in one["shards"]]
    return {
        "pieces": len(built),
        "shards": len(shards),
        **{of: sum(s[of] for s in shards) for of in ("rows", "tokens")},
    }
