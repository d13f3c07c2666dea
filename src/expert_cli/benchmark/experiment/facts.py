"""What a saved result tells of the machine and the rows that it was measured with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expert_cli.hardware.machine import Machine, cpu_name
from expert_cli.runs.metrics import items, part


def machine_facts(machine: Machine) -> dict[str, Any]:
    """Return the machine as a saved result keeps it, without its name; the CPU is this one's, "" where nothing names it."""
    return {
        "system": machine.system,
        "cpu": cpu_name(),
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
