"""Two saved experiments against each other: A of the one over A of the other, where machine, base model and rows agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from expert_cli.benchmark.experiment.parity import Curve, Parity, parity
from expert_cli.errors import InputError
from expert_cli.hardware.machine import Machine, cpu_facts
from expert_cli.runs.metrics import items, part, read_json
from expert_cli.utils.statistics import unpaired_ratio

METHOD = (
    "measured at different times: ratio of A's speed over B's from the means of the logs, 95 % interval by Welch's t; "
    "speedups are each file's own, against what it was measured with"
)
NAMES = ("name", "train")
"""What things are called; what they hold is compared."""


def machine_facts(machine: Machine) -> dict[str, Any]:
    """Return the machine as a saved result keeps it, without its name; the CPU is this one's, "" where nothing names it."""
    return {
        "system": machine.system,
        "cpu": cpu_facts()[0],
        "cores": machine.cores,
        "memory_gb": round(machine.memory_bytes / 2**30),
        "gpus": [gpu.name for gpu in machine.gpus],
        "cpu_bf16": machine.cpu_bf16,
    }


def data_facts(config: Mapping[str, Any], sha256: str) -> dict[str, Any]:
    """Return which rows a run trains on: the hash of its sources' content, and which part of them.

    train: what they are called, for people: files by their path below the project, wherever that lies.
    """
    sources = [part(source) for source in items(config, "data", "train")]
    return {
        "train": [_source_name(source, str(config.get("root", ""))) for source in sources],
        "sha256": sha256,
        "parts": [[source.get("split", ""), source.get("weight", 1.0)] for source in sources],
        "held_out": part(config, "data").get("validation_share", 0.0),
        "filters": part(config, "data", "filters"),
    }


def _source_name(source: Mapping[str, Any], root: str) -> str:
    path = str(source.get("path", ""))
    if root and source.get("kind") != "hub" and Path(path).is_relative_to(root):
        path = Path(path).relative_to(root).as_posix()
    words = "::".join(filter(None, (path, str(source.get("split", "")), str(source.get("config", "")))))
    return words if source.get("weight", 1.0) == 1.0 else f"{words} x {source['weight']:g}"


def compare_experiments(a: Path, b: Path, *, force: bool = False) -> dict[str, Any]:
    """Return the document that compares the A sides of two saved experiments.

    Raises InputError: a file that is no saved experiment; different machines, base models or rows, or rows of which an older
    version kept no hash, unless `force`.
    """
    documents = [_load(path) for path in (a, b)]
    unlike = [
        f"{path} was saved by an older version, without a hash of its rows"
        for path, document in zip((a, b), documents, strict=True)
        if not part(document, "a", "data").get("sha256")
    ]
    unlike += _differences(documents, rows=not unlike)
    if unlike and not force:
        hint = "what was measured on different machines, models or rows is no comparison; --force does it all the same"
        raise InputError(f"{a} and {b} cannot be compared: {'; '.join(unlike)}", hint)
    sides = [document["a"] for document in documents]
    speeds = [[run["tokens_per_s"] for run in side["runs"]] for side in sides]
    same = _parity(*sides)
    first, second = (document["versions"] for document in documents)
    changed = [
        f"{name} {version} and {second.get(name)}" for name, version in first.items() if second.get(name) != version
    ]
    notes = [f"compared by force: {line}" for line in unlike]
    notes += [f"versions differ: {', '.join(changed)}"] if changed else []
    notes += [] if same else ["no seed was run in both: losses cannot be compared"]
    return {
        "kind": "compare",
        "method": METHOD,
        "a": {"file": str(a), **sides[0]},
        "b": {"file": str(b), **sides[1]},
        "ratio": unpaired_ratio(*speeds).as_json(),
        "speedups": [document["ratio"] for document in documents],
        "loss_parity": same.as_json() if same else None,
        "notes": notes,
    }


def _load(path: Path) -> dict[str, Any]:
    document = read_json(path)
    if document.get("kind") != "experiment" or not part(document, "a").get("runs"):
        hint = "save one with expert-cli benchmark --manifest M --against unoptimized --output FILE"
        raise InputError(f"{path}: holds no saved experiment", hint)
    return document


def _differences(documents: Sequence[Mapping[str, Any]], *, rows: bool) -> list[str]:
    """Return what must agree and does not: what things hold, not what they are called. rows: whether these are compared."""
    places = [("machine", ("machine",)), ("model", ("a", "model"))] + ([("data", ("a", "data"))] if rows else [])
    return [
        f"{what}.{key} is {found[0].get(key)} and {found[1].get(key)}"
        for what, place in places
        if (found := [part(document, *place) for document in documents])
        for key in {**found[0], **found[1]}
        if found[0].get(key) != found[1].get(key) and key not in NAMES
    ]


def _parity(a: Mapping[str, Any], b: Mapping[str, Any]) -> Parity | None:
    """Compare the losses of runs with the same seed; None where there are none."""
    curves = [{run["seed"]: _curve(run) for run in side["runs"]} for side in (a, b)]
    seeds = [seed for seed in curves[0] if seed in curves[1]]
    return parity([curves[0][seed] for seed in seeds], [curves[1][seed] for seed in seeds]) if seeds else None


def _curve(run: Mapping[str, Any]) -> Curve:
    losses = tuple(float("nan") if loss is None else loss for loss in run["losses"])
    return Curve(tuple(run["trained_tokens"]), losses)
