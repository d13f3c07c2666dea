"""Read a run directory, also one that is being written: metrics as they grow, run.json and report.json as they are.

Nothing is required of the files: a key that is missing, a torn line, a number that is none count as not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import parse_json
from expert_cli.utils.text import plural

BASES = ("baseline", "few_shot")
"""Where an evaluation's document has the base model's answers: without examples, and with some."""
SHARES = ("data", "host_to_device", "forward", "backward", "optimizer", "checkpoint", "eval", "other")


class MetricsTail:
    """The lines of a metrics.jsonl, as they come. A file that got shorter is another one: it is read from its start."""

    def __init__(self, path: Path) -> None:
        """Take a path; nothing need be there yet."""
        self.path = path
        self.damaged = 0
        self._offset = 0
        self._torn = b""

    def read(self) -> list[dict[str, Any]]:
        """Return the lines that were finished since the last call; a half-written one waits for its end."""
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
        try:
            line = parse_json(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            self.damaged += 1
            return None
        return line


def number(value: Any, *keys: str) -> float | None:
    """Return the finite number that lies under these nested keys, or that the value itself is; else None."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


def numbers(lines: Sequence[Mapping[str, Any]], *keys: str) -> list[float]:
    """Return the finite numbers that lie under these keys, one a line that has one."""
    return [value for line in lines if (value := number(line, *keys)) is not None]


def timed(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the lines that tell step times. An evaluation's own line does not: the next timed one covers its time."""
    return [line for line in lines if part(line, "step_time_shares")]


def intervals(lines: Sequence[Mapping[str, Any]], before: Mapping[str, Any] | None = None) -> list[float]:
    """Return the seconds that each of these timed lines covers; 1 where they are not known.

    before: the timed line that precedes them. An interval is the growth of `seconds` from one timed line to the next; where
    that does not grow (a resumed run starts at 0 again), `seconds` itself.
    """
    found = []
    last = number(before, "seconds") if before else 0.0
    for line in lines:
        now = number(line, "seconds")
        found.append(1.0 if now is None or last is None else now - last if now > last else now or 1.0)
        last = now if now is not None else last
    return found


def rates(
    lines: Sequence[Mapping[str, Any]], key: str, earlier: Sequence[Mapping[str, Any]] = ()
) -> tuple[list[float], list[float]]:
    """Return the values of a figure that is told a second, and how many seconds each held: the weights of their mean.

    earlier: the lines before these.
    """
    preceding = next((line for line in reversed(earlier) if number(line, key) is not None), None)
    told = [line for line in lines if number(line, key) is not None]
    return numbers(told, key), intervals(told, preceding)


def mean_shares(lines: Sequence[Mapping[str, Any]], before: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Return the step-time shares of several lines, each weighted with its interval; {} where no line has any."""
    totals = dict.fromkeys(SHARES, 0.0)
    told = timed(lines)
    for line, interval in zip(told, intervals(told, before), strict=True):
        for name in SHARES:
            totals[name] += interval * max(0.0, number(line, "step_time_shares", name) or 0.0)
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
    """Return the JSON object of a file, {} where there is none to be read."""
    try:
        value = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def part(value: Any, *keys: str) -> dict[str, Any]:
    """Return the object that lies under these nested keys, {} where there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return dict(value) if isinstance(value, Mapping) else {}


def items(value: Any, *keys: str) -> list[Any]:
    """Return the list that lies under these nested keys, [] where there is none."""
    block = part(value, *keys[:-1]).get(keys[-1])
    return block if isinstance(block, list) else []


def require_run(folder: Path) -> RunPaths:
    """Return the paths of a run directory. Raises InputError: no such folder, or nothing of a run in it."""
    paths = RunPaths(folder.resolve())
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder", "name the folder of a run: what `train --output` was given")
    if not any(path.is_file() for path in (paths.run_json, paths.metrics, paths.status)):
        raise InputError(
            f"{folder}: holds neither run.json nor metrics.jsonl nor status.json", "name the folder of a run"
        )
    return paths


def base_title(base: Mapping[str, Any]) -> str:
    """Return what a base model that answered is called: with how many examples before each question, where there were any."""
    shots = int(number(base, "shots") or 0)
    return f"base model, {plural(shots, 'example')}" if shots else "base model"
