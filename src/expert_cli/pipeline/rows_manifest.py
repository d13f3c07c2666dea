"""Makes a manifest that suits given rows, for `init --from`.

It sets the values that depend on the rows, which defaults cannot do: row length, epochs, rows per step, and validation rows.
All other keys keep their defaults.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from expert_cli.config.data_sources import missing, parse_source
from expert_cli.config.plan import Plan, make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.select import RowSelection, select_rows
from expert_cli.data.sources import locate_data
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.starter import SMOLLM2
from expert_cli.pipeline.pretokenize import store_for
from expert_cli.pipeline.right_size import LengthRow, length_table, recommend
from expert_cli.pipeline.training_data import resolve_inputs
from expert_cli.utils.files import write_text
from expert_cli.utils.length_histogram import LengthHistogram
from expert_cli.utils.reporter import NullReporter, Reporter

LARGE_BASE = "Qwen/Qwen3-0.6B"
"""The base model if there is a GPU; otherwise it is the model in the package index, which can be trained on two CPU cores."""
BYTES_PER_TOKEN = 3.5
"""In UTF-8: English has about 4, code and other languages about 3."""
LONGEST = 4096
"""Largest row length: activations grow with it, and longer documents are rare; they are shortened and counted."""
PASSES = ((500, 5), (5_000, 3), (20_000, 2))
"""(rows, epochs) for fewer rows than that; 1 epoch for more. Few rows need several epochs; the best step is kept."""
DOCUMENTS_A_STEP = 16
FEWEST_STEPS = 100
"""To make at least this many steps, a step gets fewer documents."""
FEWEST_ROWS_TO_SPLIT = 200
"""With fewer rows, training would need the validation rows, and they would be too few for a reliable loss."""
HELD_BACK = (0.05, 20, 500)
"""Share of the rows, with a minimum and a maximum: more than 500 do not make the loss more stable."""
SMALL_RATE = 1e-3
"""The learning rate for the smallest model, for which the default is too low: see the default's reason."""


@dataclass(frozen=True)
class Lengths:
    """The lengths of the training documents. recommended: a row length that cuts almost nothing. by: how they were counted."""

    tokens: LengthHistogram
    recommended: int
    by: Literal["tokenizer", "estimate"]


def write_manifest_of_rows(
    home: Path,
    source: str,
    machine: Machine,
    report: Reporter,
    *,
    base_model: str | None = None,
    columns: Mapping[str, str] | None = None,
    offline: bool = False,
) -> dict[str, Any]:
    """Inspect the rows of `source` (as in `training.dataset.path`, from the current folder) and write `home`/manifest.json.

    If the base model's tokenizer is on this machine, the token store is built to measure lengths, and training uses it.
    columns: the roles of columns whose names do not show them. Returns what `init --from --json` prints. Raises InputError,
    ManifestError, EnvironmentProblem.
    """
    path = home / "manifest.json"
    base: dict[str, Any] = {"name": base_model or (SMOLLM2 if machine.device == "cpu" else LARGE_BASE)}
    if is_folder := Path(base["name"]).exists():
        base["name"] = str(Path(base["name"]).absolute())
    spec = parse_source(source, (Path.cwd(),))
    if spec.tried:
        raise InputError(missing(spec), "give a file or folder of rows, its URL, or the id of a hub data set")
    dataset: dict[str, Any] = {"path": _named(spec.path, source) if spec.is_local else source}
    if columns:
        dataset["field_mapping"] = dict(columns)
    written: dict[str, Any] = {"name": home.name, "base_models": [base], "training": {"dataset": dataset, "config": {}}}

    def planned() -> Plan:
        write_text(path, json.dumps(written, indent=2, ensure_ascii=False) + "\n")
        return make_plan(path, machine, Overrides(offline=offline))

    # a CPU unpacks 4-bit weights anyway; models as small as the default ones need no quantization
    if machine.device == "cpu" or base_model is None:
        base["quantization"] = "none"
    plan = planned()
    selection = _selected(plan)
    rows = int(selection.copies["train"].sum())
    held_back = _held_back(rows)
    dataset |= held_back
    lengths = _lengths(planned(), selection, report)
    written["training"]["config"], size, steps = settings_for(lengths, base["name"], evaluates=bool(held_back))
    if spec.is_local:
        dataset["path"] = _named(_beside(home, spec.path), dataset["path"])
    if is_folder:
        base["name"] = _beside(home, base["name"])
    planned()
    told, at = selection.reports["train"], lengths.tokens.percentile
    found = {
        "form": selection.readers[0].columns.form,
        "columns": str(selection.readers[0].columns),
        "not_read": [*told.unread],
        "read": told.read,
        "good": told.read - sum(told.dropped.values()) - sum(told.filtered.values()),
        "length": {"p50": at(50), "p99": at(99), "max": at(100), "by": lengths.by},
        "max_seq_length": size.max_seq_length,
        "truncated_rows": size.truncated_rows,
        "epochs": written["training"]["config"]["epochs"],
        "steps": steps,
        "validation_split": dataset.get("validation_split"),
    }
    return {"manifest": str(path), "rows": dataset["path"], "found": found}


def _beside(home: Path, place: str) -> str:
    """Return an absolute path, relative to `home` if it is below the folder of `home`, so that the project can be moved."""
    here = home.absolute()
    return Path(os.path.relpath(place, here)).as_posix() if here.parent in Path(place).parents else place


def _named(place: str, source: str) -> str:
    """Return a source with another path, but the same split and slice."""
    return "::".join([place, *source.split("::")[1:]])


def _selected(plan: Plan) -> RowSelection:
    located = locate_data(plan.run.data, NullReporter())
    try:
        return select_rows(plan.run.data, located, NullReporter())
    except InputError as error:
        if "field_mapping" not in error.hint:
            raise
        hint = "say which column is what: --column instruction=NAME --column response=NAME (or text=, messages=)"
        raise InputError(error.message, hint) from error


def _held_back(rows: int) -> dict[str, float]:
    share, least, most = HELD_BACK
    if rows < FEWEST_ROWS_TO_SPLIT:
        return {}
    return {"validation_split": float(f"{min(max(share * rows, least), most) / rows:.2g}")}


def _lengths(plan: Plan, selection: RowSelection, report: Reporter) -> Lengths:
    run = replace(plan.run, data=replace(plan.run.data, offline=True))
    try:
        inputs = resolve_inputs(run, NullReporter(), locate_data(plan.run.data, NullReporter()))
    except EnvironmentProblem:
        whole = (sum(len(text.encode("utf-8", "replace")) for text in row.content()) for row in selection.rows())
        tokens = np.array([max(round(size / BYTES_PER_TOKEN), 2) for size in whole], np.int64)
        lengths = LengthHistogram.of(tokens)
        return Lengths(lengths, recommend(lengths, 1 << 24), "estimate")
    lengths = LengthHistogram.of(store_for(run, inputs, report).training().lengths)
    return Lengths(lengths, recommend(lengths, 1 << 24), "tokenizer")


def settings_for(lengths: Lengths, base: str, *, evaluates: bool) -> tuple[dict[str, Any], LengthRow, int]:
    """Return `training.config`, the effect of its row length, and the approximate number of steps."""
    capacity = min(lengths.recommended, LONGEST)
    size = next(row for row in length_table(lengths.tokens, capacity) if row.max_seq_length == capacity)
    rows, packs = len(lengths.tokens), size.sequences
    epochs = next((passes for below, passes in PASSES if rows < below), 1)
    together = min(round(DOCUMENTS_A_STEP * packs / rows), packs * epochs // FEWEST_STEPS)
    accumulation = max(together, 1)
    config: dict[str, Any] = {"max_seq_length": capacity, "epochs": epochs}
    if accumulation > 1:  # not batch_size, which needs memory
        config["gradient_accumulation_steps"] = accumulation
    if base == SMOLLM2:
        config["learning_rate"] = SMALL_RATE
    if evaluates:
        config["eval_strategy"] = "epoch"
    if evaluates and epochs > 1:
        config["load_best_model_at_end"] = True
    return config, size, -(-packs // accumulation) * epochs
