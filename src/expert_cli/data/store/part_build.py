"""A token store built by several processes: what one of them does, and what makes the parts a store.

    cut the sources  ->  look at their sections  ->  select the rows  ->  encode what evaluates  ->  encode what trains

Each step is work that all share, and begins when the one before is done; of the last a process does its own part alone. What
comes of a section depends on that section and on what was selected, so that the shards are those of one process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from expert_cli.config.run_config import DataConfig
from expert_cli.data.formats.registry import lines_in
from expert_cli.data.located import Located
from expert_cli.data.rows.as_json import (
    Arrays,
    cut_as_json,
    cut_of,
    look_as_json,
    look_of,
    selection_as_json,
    selection_of,
)
from expert_cli.data.rows.asked import Asked
from expert_cli.data.rows.look import Judge, PieceLook, look_at
from expert_cli.data.rows.overlap import MOST_HELD_OUT, Overlap
from expert_cli.data.rows.scan import SourcePieces, cut_source
from expert_cli.data.rows.selected import RowSelection, Split
from expert_cli.data.store.contents import StoreBuild
from expert_cli.data.store.files import FinishedShard, ShardRecord, write_shard
from expert_cli.data.store.key import StoreInputs
from expert_cli.data.store.parts import Part, SharedWork
from expert_cli.errors import IntegrityError
from expert_cli.utils.reporter import Reporter

CUT, SELECTION = "cut", "selection"


class PartBuild:
    """One process's share in building a store."""

    def __init__(self, data: DataConfig, inputs: StoreInputs, shared: SharedWork, report: Reporter) -> None:
        """Begin, or go on with what is there."""
        self.data = data
        self.shared = shared
        self.inputs = inputs
        self.build = StoreBuild(data, inputs, report, self._looks)
        self.sources = {"train": inputs.located.train, "validation": inputs.located.validation}

    def run(self) -> list[dict[str, Any]]:
        """Build this process's part, and of the steps before what nobody has done; return what the pieces of the part gave.

        Raises InputError: rows that cannot be used; EnvironmentProblem: the disk.
        """
        self.shared.share("cutting the sources", [CUT], self._cut)
        self.shared.share("looking at the rows", self._look_names(), self._look)
        self.shared.share("selecting rows", [SELECTION], self._select)
        for split in self.build.splits:
            names = self.names(split)
            self.shared.share(f"tokenizing {split}", names, partial(self._encode, split), all_of=split != "train")
        names = self.names("train")
        return [self.shared.done(names[number]) or {} for number in self.shared.part.own(len(names))]

    # -- what each step does ------------------------------------------------------------------------------------------

    def _cut(self, _: int) -> tuple[Mapping[str, Any], Arrays]:
        cuts = {
            f"{split}-{number}": cut_as_json(cut_source(located, self.data), located.files)
            for split, sources in self.sources.items()
            for number, located in enumerate(sources)
        }
        return {"cuts": cuts}, {}

    @cached_property
    def _cuts(self) -> dict[str, SourcePieces]:
        told = (self.shared.done(CUT) or {})["cuts"]
        return {
            f"{split}-{number}": cut_of(told[f"{split}-{number}"], located.files)
            for split, sources in self.sources.items()
            for number, located in enumerate(sources)
        }

    def _look_names(self) -> list[str]:
        return [f"look-{of}-{n:05d}" for of, cut in self._cuts.items() for n in range(len(cut.pieces))]

    def _look(self, number: int) -> tuple[Mapping[str, Any], Arrays]:
        """Look at one section, without what the others tell."""
        sections = [(of, section) for of, cut in self._cuts.items() for section in cut.pieces]
        of, (pieces, rows) = sections[number]
        split, _, source = of.partition("-")
        judge = self._judge(self.sources[split][int(source)], split)
        look = look_at(judge, pieces, rows, known=self._cuts[of].names)
        look.lines = lines_in(pieces[0])
        return look_as_json(look)

    def _judge(self, located: Located, split: str) -> Judge:
        ranked = split == "train" and bool(self.data.validation_share) and not self.inputs.located.validation
        return Judge(located, self.data, self.inputs.template.refused, ranked)

    def _looks(self, judge: Judge, room: int) -> tuple[SourcePieces, list[PieceLook]]:  # noqa: ARG002  no row is kept
        """What the sections of a source gave."""
        of = next(
            f"{split}-{number}"
            for split, sources in self.sources.items()
            for number, located in enumerate(sources)
            if located is judge.located
        )
        cut = self._cuts[of]
        names = [f"look-{of}-{number:05d}" for number in range(len(cut.pieces))]
        return cut, [
            look_of(self.shared.done(name) or {}, self.shared.arrays(name), judge, pieces, rows)
            for name, (pieces, rows) in zip(names, cut.pieces, strict=True)
        ]

    def _select(self, _: int) -> tuple[Mapping[str, Any], Arrays]:
        return selection_as_json(self.build.selection)

    @cached_property
    def selection(self) -> RowSelection:
        """Which rows are taken, as one process decided."""
        arrays = self.shared.arrays(SELECTION)
        told = self.shared.done(SELECTION) or {}
        selection = selection_of(told, arrays.__getitem__, self.inputs.located, self.data.schema_prompt)
        vars(self.build)["selection"] = selection
        return selection

    def names(self, split: Split) -> list[str]:
        """Return the pieces of work that encode a split, in the order of its shards."""
        return [f"{split}-{number:06d}" for number in range(len(self.selection.readings(split)))]

    def _encode(self, split: Split, number: int) -> tuple[Mapping[str, Any], Arrays]:
        """Encode the rows of one reading, and count what is told of them."""
        if split == "train":
            self.build.overlaps = dict(self._overlaps)
        else:
            self.build.overlaps["validation"] = Overlap()
        self.build.forms[split] = {}
        self.build.found = []
        shards: list[ShardRecord] = []
        for at, chunk in enumerate(self.build.stream(split).encoded([self.selection.readings(split)[number]])):
            shards.append(write_shard(self.shared.folder, f"{split}/{number:06d}-{at:03d}.arrow", chunk))
        told: dict[str, Any] = {"shards": list(map(asdict, shards)), "forms": self.build.forms[split]}
        told["encoder"] = self.build.encoder.engine.engine.name if shards else ""
        if split == "train":
            told["found"] = [found.found() for found in self.build.found]
            return told, {}
        held = self.build.overlaps["validation"]
        asked = json.dumps([held.asked.questions, held.asked.inputs, held.asked.places]).encode()
        return told | {"asked": held.added}, {"texts": np.frombuffer(asked, np.uint8)}

    @cached_property
    def _overlaps(self) -> dict[str, Overlap]:
        """What is looked for in the rows that train: the texts that evaluate, once all of these are read."""
        held = Overlap()
        for name in self.names("validation"):
            texts = json.loads(self.shared.arrays(name)["texts"].tobytes())
            held.added += (self.shared.done(name) or {})["asked"]
            held.asked.extend(Asked(*texts).part(0, MOST_HELD_OUT - len(held.asked)))
        return {"validation": held, "cases": Overlap.of(self.inputs.cases)}

    # -- what makes the parts a store ---------------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """Return the pieces of work that are not done, as far as is known."""
        if self.shared.done(CUT) is None:
            return [CUT]
        if looks := [name for name in self._look_names() if self.shared.done(name) is None]:
            return looks
        if self.shared.done(SELECTION) is None:
            return [SELECTION]
        return [name for split in self.build.splits for name in self.names(split) if self.shared.done(name) is None]

    def lacking(self, missing: Sequence[str]) -> list[Part]:
        """Return the parts that lack some pieces that are missing, as far as the others tell."""
        return self.shared.parts_of(self.names("train")) if missing[0].startswith("train-") else []

    def shards(self, split: Split, skip: int) -> Iterator[FinishedShard]:
        """Yield the shards of a split from number `skip` on. Raises IntegrityError: one is not as it was written."""
        number = 0
        for name in self.names(split):
            for told in (self.shared.done(name) or {})["shards"]:
                record = ShardRecord(**told)
                path = self.shared.folder / record.file
                if number >= skip:
                    if not path.is_file() or path.stat().st_size != record.bytes:
                        raise IntegrityError(f"{path}: is not what was written", f"delete {name}.json beside it")
                    yield FinishedShard(path, record)
                number += 1

    def stats(self, building: Path) -> dict[str, Any]:
        """Return the store's statistics, of what all parts counted."""
        build = self.build
        build.overlaps = dict(self._overlaps)
        for split in build.splits:
            told = [self.shared.done(name) or {} for name in self.names(split)]
            for one in told:
                for form, count in one["forms"].items():
                    build.forms[split][form] = build.forms[split].get(form, 0) + count
                for overlap, found in zip(build.overlaps.values(), one.get("found", ()), strict=False):
                    overlap.extend(overlap.with_found(found))
            build.stream(split).refuse_foreign(build.rows(split))
            sources = self.selection.sources(split)
            if split == "validation" and len(sources) > 1:
                counts = [
                    sum(shard["rows"] for one in part for shard in one["shards"])
                    for part in self._by_source(split, told)
                ]
                build.by_source[split] = np.array(counts, np.int64)
        return build.stats(building)

    def _by_source(self, split: Split, told: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        readings = self.selection.readings(split)
        return [
            [one for reading, one in zip(readings, told, strict=True) if reading.source is source]
            for source in self.selection.sources(split)
        ]
