"""A token store built in parts: by processes of any number, on machines that see the sources and the folder of stores."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from expert_cli.config.run_config import RunConfig
from expert_cli.data.sources.data_rows import input_column
from expert_cli.data.sources.folder import require_apart
from expert_cli.data.store.build import TokenStore, build_part, seal_parts
from expert_cli.data.store.inspect import PARTS, has_stores
from expert_cli.data.store.parts import Part, SharedWork
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
from expert_cli.utils.reporter import Reporter

_HEADING = "heading"


@dataclass(frozen=True)
class PartReport:
    """What `pretokenize --part` tells. status: "built", or "hit" where the store is there already."""

    expert: str
    path: Path
    part: Part
    status: str
    numbers: Mapping[str, int]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return a row under "stores" of `pretokenize --part --json` (docs/INTERFACE.md)."""
        told = {"expert": self.expert, "path": str(self.path), "part": str(self.part), "status": self.status}
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
    return PartReport(run.expert, shared.folder, part, "built", numbers, time.monotonic() - started)


def seal(run: RunConfig, report: Reporter) -> TokenStore:
    """Make a run's token store of its parts. Raises IntegrityError: a part is missing, of another store, or damaged."""
    inputs, shared, heads_input = _shared(run, Part(1, 1), report)
    if _store_there(run, inputs, shared, heads_input=heads_input):
        return store_for(run, resolve_inputs(run, report), report, locked=True)
    inputs = _with_heading(inputs, run, shared)
    store = seal_parts(run.data, inputs, shared, run.store, report, expert=run.expert)
    tell_overlap(store.stats, inputs.cases, report)
    return store


def parts_done(store: Path) -> int:
    """Return how many pieces of work are done in the parts of a folder of stores."""
    return sum(1 for _ in store.glob(f"{PARTS}*/*-*.json"))


def _store_there(run: RunConfig, inputs: DataInputs, shared: SharedWork, *, heads_input: bool) -> Path | None:
    """Where the store of these inputs is, if it is there and that can be told without reading the data."""
    if sealed := shared.sealed():
        return run.store / sealed[:12]
    if not has_stores(run.store) or not inputs.hashes.knows(inputs.located.files()):
        return None
    found = explain(run, headed(inputs, run) if heads_input else inputs)
    return Path(found.path) if found.state.state == "hit" else None


def _shared(run: RunConfig, part: Part, report: Reporter) -> tuple[DataInputs, SharedWork, bool]:
    inputs, heads_input = plain_inputs(run, report)
    require_apart(run.data, run.store, "pretokenized_cache, or pretokenize --output DIR")
    inputs = replace(inputs, cases=own_cases(run, report))
    return inputs, SharedWork.beside(run.store, inputs.plan(run.data), part, report), heads_input


def _with_heading(inputs: DataInputs, run: RunConfig, shared: SharedWork) -> DataInputs:
    return with_heading(inputs, run, shared.told(_HEADING)["column"]) if shared.is_done(_HEADING) else inputs
