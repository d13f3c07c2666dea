"""A token store built in parts: by processes of any number, on machines that see the sources and the folder of stores."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from expert_cli.config.run_config import RunConfig
from expert_cli.data.sources.data_rows import input_column
from expert_cli.data.sources.folder import require_apart
from expert_cli.data.store.build import TokenStore
from expert_cli.data.store.inspect import PARTS, has_stores
from expert_cli.data.store.part_build import build_part
from expert_cli.data.store.parts import Part, SharedWork
from expert_cli.data.store.seal import seal_parts
from expert_cli.data.store.stored_parts import StoredWork
from expert_cli.pipeline.overlap import own_cases, tell_overlap
from expert_cli.pipeline.pretokenize import (
    DataInputs,
    explain,
    headed,
    plain_inputs,
    resolve_inputs,
    store_for,
    with_heading,
)
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import Reporter

_HEADING = "heading"
_PIECE = re.compile(rf"{re.escape(PARTS)}[^/]+/[^/]+-[^/]+\.json")


@dataclass(frozen=True)
class PartReport:
    """What `pretokenize --part` tells. status: "built", or "hit" where the store is there already."""

    expert: str
    path: str
    part: Part
    status: str
    numbers: Mapping[str, int]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return a row under "stores" of `pretokenize --part --json` (docs/INTERFACE.md)."""
        told = {"expert": self.expert, "path": self.path, "part": str(self.part), "status": self.status}
        return {**told, **self.numbers, "seconds": self.seconds}


def build_store_part(run: RunConfig, part: Part, report: Reporter) -> PartReport:
    """Build one part of a run's token store. Raises what building the store raises."""
    started = time.monotonic()
    inputs, shared, heads_input = _shared(run, part, report)
    if home := _store_there(run, inputs, shared, heads_input=heads_input):
        return PartReport(run.expert, home, part, "hit", {}, 0.0)
    shared.open(run.expert)
    if heads_input:
        find = input_column
        shared.share("naming the input", [_HEADING], lambda _: ({"column": find(run.data, inputs.located.train)}, {}))
    numbers = build_part(run.data, _with_heading(inputs, run, shared), shared, report)
    return PartReport(run.expert, shared.place(), part, "built", numbers, time.monotonic() - started)


def store_of_parts(run: RunConfig, report: Reporter) -> TokenStore | None:
    """Return a run's token store, None where it is not there, as far as that can be told without reading the data."""
    return _opened(run, *_shared(run, Part(1, 1), report), report)


def _opened(
    run: RunConfig, inputs: DataInputs, shared: SharedWork, heads_input: bool, report: Reporter
) -> TokenStore | None:
    if not _store_there(run, inputs, shared, heads_input=heads_input):
        return None
    return store_for(run, resolve_inputs(run, report), report, locked=True)


def seal(run: RunConfig, report: Reporter) -> TokenStore:
    """Make a run's token store of its parts. Raises IntegrityError: a part is missing, of another store, or damaged."""
    inputs, shared, heads_input = _shared(run, Part(1, 1), report)
    if there := _opened(run, inputs, shared, heads_input, report):
        return there
    inputs = _with_heading(inputs, run, shared)
    store = seal_parts(run.data, inputs, shared, report, expert=run.expert)
    if run.store_url:
        opened = store_for(run, inputs, report, locked=True)
        return replace(opened, status=store.status, seconds=store.seconds, source_bytes=store.source_bytes)
    tell_overlap(store.stats, inputs.cases, report)
    return store


def parts_done(run: RunConfig) -> int:
    """Return how many pieces of work are done in the parts of a run's stores."""
    if run.store_url:
        return sum(_PIECE.fullmatch(name) is not None for name in StoredFolder(run.store_url).list())
    return sum(1 for _ in run.store.glob(f"{PARTS}*/*-*.json"))


def _store_there(run: RunConfig, inputs: DataInputs, shared: SharedWork, *, heads_input: bool) -> str:
    """Where the store of these inputs is, if it is there and that can be told without reading the data; else ""."""
    if sealed := shared.sealed():
        return shared.above(sealed[:12])
    if not (run.store_url or has_stores(run.store)) or not inputs.hashes.knows(inputs.located.files()):
        return ""
    if run.store_url and heads_input:  # all rows would have to be read for the heading
        return ""
    found = explain(run, headed(inputs, run) if heads_input else inputs)
    return found.path if found.state.state == "hit" else ""


def _shared(run: RunConfig, part: Part, report: Reporter) -> tuple[DataInputs, SharedWork, bool]:
    inputs, heads_input = plain_inputs(run, report)
    require_apart(run.data, run.store, "pretokenized_cache, or pretokenize --output DIR")
    inputs = replace(inputs, cases=own_cases(run, report))
    work = (run.store, inputs.plan(run.data), part, report)
    shared = StoredWork(*work, StoredFolder(run.store_url)) if run.store_url else SharedWork(*work)
    return inputs, shared, heads_input


def _with_heading(inputs: DataInputs, run: RunConfig, shared: SharedWork) -> DataInputs:
    return with_heading(inputs, run, shared.told(_HEADING)["column"]) if shared.is_done(_HEADING) else inputs
