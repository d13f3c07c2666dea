"""Reads a run directory, also while a run is writing it: metrics as they are added, run.json and report.json.

The files may be incomplete: missing keys, incomplete lines and invalid numbers count as unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import parse_json, write_text
from expert_cli.utils.text import plural

WITHOUT_GRAMMAR = "without_grammar"
ENDPOINT = "baseline_endpoint"
BASES = ("baseline", "few_shot", WITHOUT_GRAMMAR, ENDPOINT)
"""Keys of an evaluation's document that contain other answers to its cases: those of the base model without and with examples,
of the expert without its grammar, and of another model's server.
"""
SHARES = ("data", "host_to_device", "forward", "backward", "captured", "optimizer", "checkpoint", "eval", "other")
"""The phases of a step. captured: forward and backward, replayed from a CUDA graph."""


def mean_span(steps: int) -> int:
    """Return the number of losses in a run's first and last mean: 5, or fewer in a short run, so that they do not overlap."""
    return max(1, min(5, steps // 2))


class MetricsTail:
    """Reads the lines of a metrics.jsonl as they arrive. A file that got shorter is read again from its start."""

    def __init__(self, path: Path) -> None:
        """Take a path, which need not exist yet."""
        self.path = path
        self._offset = 0
        self._torn = b""

    def read(self) -> list[dict[str, Any]]:
        """Return the lines completed since the last call."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self._offset:
                    self._offset, self._torn = 0, b""
                file.seek(self._offset)
                new = file.read()
        except OSError:
            return []
        self._offset += len(new)
        *whole, self._torn = (self._torn + new).split(b"\n")
        return [line for text in whole if text.strip() and (line := self._parsed(text)) is not None]

    def _parsed(self, text: bytes) -> dict[str, Any] | None:
        with suppress(ValueError):
            if isinstance(line := parse_json(text), dict):
                return line
        return None


def truncate_metrics(metrics: Path, step: int) -> None:
    """Remove lines after `step` from metrics.jsonl: the resumed run will log them again."""
    lines = MetricsTail(metrics).read()
    if lines:
        kept = [json.dumps(line) + "\n" for line in lines if isinstance(line.get("step"), int) and line["step"] <= step]
        write_text(metrics, "".join(kept))


def number(value: Any, *keys: str) -> float | None:
    """Return the finite number under these nested keys, or the value itself if it is one; else None."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


def numbers(lines: Sequence[Mapping[str, Any]], *keys: str) -> list[float]:
    """Return the finite numbers under these keys, one for each line that has one."""
    return [value for line in lines if (value := number(line, *keys)) is not None]


def rates(lines: Sequence[Mapping[str, Any]], key: str) -> tuple[list[float], list[float]]:
    """Return the values of a rate, and the seconds that each line covers, to be used as weights of a mean."""
    told = [line for line in lines if number(line, key) is not None]
    return numbers(told, key), [number(line, "interval_s") or 1.0 for line in told]


def mean_shares(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the step-time shares of several lines, weighted by the seconds they cover; {} if there are none."""
    told = [(part(line, "step_time_shares"), number(line, "interval_s") or 1.0) for line in lines]
    totals = {name: sum(weight * max(0.0, number(shares, name) or 0.0) for shares, weight in told) for name in SHARES}
    whole = sum(totals.values())
    return {name: value / whole for name, value in totals.items()} if whole else {}


def padding_share(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of padding in all positions so far, from the newest line that counts both."""
    for line in reversed(lines):
        real, padded = number(line, "tokens_real"), number(line, "tokens_padded")
        if real is not None and padded is not None and real + padded > 0:
            return padded / (real + padded)
    return None


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, {} if there is none."""
    try:
        value = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def part(value: Any, *keys: str) -> dict[str, Any]:
    """Return the object under these nested keys, {} if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return dict(value) if isinstance(value, Mapping) else {}


def items(value: Any, *keys: str) -> list[Any]:
    """Return the list under these nested keys, [] if there is none."""
    block = part(value, *keys[:-1]).get(keys[-1])
    return block if isinstance(block, list) else []


def sample_shares(document: Mapping[str, Any]) -> list[tuple[str, float, tuple[float, float]]]:
    """Return name, share and 95 % interval of each pass@k (1, 2, 4 ... all) and majority in an evaluation's document."""
    most = len(part(document, "pass_at"))
    shown = [str(k) for k in range(1, most + 1) if k & (k - 1) == 0 or k == most]
    found = [(f"pass@{k}", number(document, "pass_at", k), items(document, "pass_at_ci95", k)) for k in shown]
    found.append(("majority", number(document, "majority"), items(document, "majority_ci95")))
    return [(name, share, (ends[0], ends[1])) for name, share, ends in found if share is not None and len(ends) == 2]


def require_run(folder: Path) -> RunPaths:
    """Return the paths of a run directory. Raises InputError if the folder is missing or contains no run."""
    paths = RunPaths(folder.resolve())
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder", "name the folder of a run (train --output)")
    if not any(path.is_file() for path in (paths.run_json, paths.metrics, paths.status)):
        told = f"{folder}: holds neither run.json nor metrics.jsonl nor status.json"
        raise InputError(told, "name the folder of a run")
    return paths


def forgotten_in_words(told: Any) -> str:
    """Return a run's "forgetting" in words: how much the loss on neutral texts rose, with its interval; "" if unknown."""
    texts, old, new, rose = (number(told, key) for key in ("texts", "loss_before", "loss_after", "difference"))
    ends = items(told, "ci95")
    if texts is None or old is None or new is None or rose is None:
        return ""
    interval = " (95 % interval {:+.3f} to {:+.3f})".format(*ends) if len(ends) == 2 else ""
    of = plural(int(texts), "neutral text")
    return f"{rose:+.3f} nats a token{interval} on {of}: loss {old:.3f} -> {new:.3f}"


def base_title(name: str, base: Mapping[str, Any]) -> str:
    """Return the title of the answers under a key of BASES: the expert without grammar, another model or the base model."""
    if name == ENDPOINT:
        return str(part(base, "generation").get("model"))
    if name == WITHOUT_GRAMMAR:
        return "expert without its grammar"
    shots = int(number(base, "shots") or 0)
    return f"base model, {plural(shots, 'example')}" if shots else "base model"
