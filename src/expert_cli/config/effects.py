"""Lists the effect of every key of a manifest: one row per key, with a reason.

The code that uses a key notes its effect (`Settings`); for other keys the declaration contains it. A test goes through the
schema and fails for a key without either.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from expert_cli.config.settings import OF_ADAPTERS, Merged, Outcomes, Unwritten
from expert_cli.manifest.json_text import JSON_SCHEMA, JsonText, Path_, dotted
from expert_cli.manifest.key import CARD, Outcome, Status, adjusted, declared, informational, not_used
from expert_cli.manifest.keys.dataset import Filters
from expert_cli.manifest.schema import Manifest, Training
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.utils.text import shortened

EMPTY = not_used("empty: the same as not written")
NULL = not_used("null: the same as not written")
ADAPTER = informational("where other programs find the adapter; training.config decides what is trained")


@dataclass(frozen=True)
class Effect:
    """A row as in `validate --json`: the key as in the file, its value, its effect and the reason."""

    key: str
    value: Any
    status: Status
    effect: str
    reason: str


@dataclass(frozen=True)
class Decided(Merged):
    """The decisions about a manifest's keys for one base model.

    outcomes: by path; ("config", KEY) is for the layer that KEY's value comes from (`origins` names it); ("base", KEY) for
    the base model; ("dataset", ...), ("evaluation", ...), ("decoding", ...), ("rft", ...) for these blocks. unwritten: by the
    same paths, the defaults of keys that are not written.
    """

    outcomes: Outcomes
    unwritten: Mapping[Path_, Unwritten]


def effects(text: JsonText, decided: Decided) -> list[Effect]:
    """Return a row for every key in the file except comments, in the file's order."""
    is_v1 = "base_models" not in text.value
    found = ((path, value, _outcome(path, value, decided, is_v1=is_v1)) for path, value in leaves(text.value))
    return [Effect(dotted(path), value, **vars(outcome)) for path, value, outcome in found]


def defaults(decided: Decided) -> list[Effect]:
    """Return a row for every default that has an effect in this run."""
    of_base = decided.entry if decided.index is not None else ("base_models",)
    places: dict[Any, Path_] = {"base": of_base, "evaluation": ("evaluation",)}
    rows = []
    for path, (value, why) in decided.unwritten.items():
        outcome = decided.outcomes[path]
        if outcome.status != "not_used":
            key = dotted((*places.get(path[0], ("training", path[0])), *path[1:]))
            rows.append(Effect(key, value, **vars(replace(outcome, reason=outcome.reason or why))))
    return rows


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Yield every key without keys below it. Lists and JSON Schemas are one key, except lists of base models and adapters."""
    opens_list = path and path[-1] in ("base_models", "adapters") and isinstance(value, list)
    if isinstance(value, dict) and value and path != JSON_SCHEMA:
        for key, member in value.items():
            yield from leaves(member, (*path, key))
    elif opens_list and value and all(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def _outcome(path: Path_, value: Any, decided: Decided, *, is_v1: bool) -> Outcome:
    match path:
        case ("training", "config", *rest):
            return _config_outcome(rest, value, decided, own_origin="training.config")
        case ("training", "dataset", *rest):
            return _dataset_outcome((*rest,), value, decided.outcomes)
        case ("training", str(key), *rest):
            return _told(decided.outcomes, (key, *rest)) or declared(Training, key).always or CARD
        case ("base_model", *rest) if is_v1:
            return _base_outcome(rest, value, decided, chosen=decided.index == 0)
        case ("base_models", int(index), *rest):
            return _base_outcome(rest, value, decided, chosen=index == decided.index)
        case ("adapters", *rest) if is_v1:
            return _adapter_outcome(rest, value, decided)
        case (str(key), *_):
            return _told(decided.outcomes, path) or declared(Manifest, key).always or CARD
    return CARD


def _told(outcomes: Outcomes, path: Path_) -> Outcome | None:
    """Return the outcome noted for a key, else for the nearest block around it; None if there is none."""
    while len(path) > 1:
        if path in outcomes:
            return outcomes[path]
        path = path[:-1]
    return None


def _base_outcome(rest: list[Any], value: Any, decided: Decided, *, chosen: bool) -> Outcome:
    if not chosen:
        if rest[0] in ("name", "alias"):
            return informational("another base model that --base-model can pick")
        return not_used(f"the base model of this run is {decided.base.name}")
    match rest:
        case ["adapters", *inner]:
            return _adapter_outcome(inner, value, decided)
        case ["config", *inner]:
            return _config_outcome(inner, value, decided, own_origin="base model")
    return NULL if value is None else _told(decided.outcomes, ("base", *rest)) or CARD


def _adapter_outcome(rest: list[Any], value: Any, decided: Decided) -> Outcome:
    """Return the effect of an adapter entry: training.config decides, and takes missing values from the first entry."""
    if not rest:
        return EMPTY
    name = OF_ADAPTERS.get(rest[-1], rest[-1])
    if rest[0] == 0 and value is not None and decided.origins.get(name) == "adapters[0]":
        return decided.outcomes["config", name]
    return ADAPTER


def _config_outcome(rest: list[Any], value: Any, decided: Decided, *, own_origin: str) -> Outcome:
    if not rest or value == {}:
        return EMPTY
    name = TrainingConfig.old_names.get(rest[0], rest[0])
    if name in decided.dropped:
        return not_used(f"{decided.dropped[name]} decides")
    origin = decided.origins.get(name, own_origin)
    now = getattr(decided.values, name)
    is_overridden = origin != "--set" and not origin.startswith(own_origin)
    if is_overridden and len(rest) == 1 and value not in (None, now):
        return adjusted(f"{now}", f"{origin} overrides it")
    if value is None and name != "save_total_limit":
        return NULL
    return decided.outcomes["config", name]


def _dataset_outcome(rest: Path_, value: Any, outcomes: Outcomes) -> Outcome:
    if value is None:
        return NULL
    if rest[0] in ("filters", "validation") and isinstance(value, dict):
        return EMPTY
    if len(rest) > 1 and rest[0] in ("filters", "validation") and rest[1] not in Filters.model_fields:
        return CARD
    return _told(outcomes, ("dataset", *rest)) or CARD


MANY = 4
"""At least this many keys of a block, with the same effect for the same reason, share one line."""


def effects_table(
    effects: Sequence[Effect], defaults: Sequence[Effect], *, whole: bool = False
) -> tuple[str, list[str], list[list[str]]]:
    """Return title, header and rows of a table of the keys that do not simply apply. whole: all keys, and the defaults.

    Two columns: a narrow one, and one that fits a terminal of any width.
    """
    counts: Counter[str] = Counter(effect.status for effect in effects)
    names = ("applied", "adjusted", "informational", "not_used")
    title = "effects of the manifest: " + ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in names)
    shown = [row for row in effects if whole or row.status in ("adjusted", "not_used")]
    alike = [list(some) for _, some in groupby(shown, lambda row: (row.key.rpartition(".")[0], row.status, _says(row)))]
    rows = list[list[str]]()
    for first, *others in alike:
        status = first.status.replace("_", " ")
        if not whole and len(others) + 1 >= MANY:
            rows.append([status, f"{first.key.rpartition('.')[0]}: {len(others) + 1} keys: {_says(first)}"])
        else:
            rows += [_cells(row, status) for row in (first, *others)]
    if whole:
        title += f"; {len(defaults)} defaults of keys that are not written"
        rows += [_cells(row, "default") for row in defaults]
    return title, ["status", "key = value: effect (reason)"], rows


def _cells(row: Effect, status: str) -> list[str]:
    return [status, f"{row.key} = {shortened(json.dumps(row.value, ensure_ascii=False), 32)}: {_says(row)}"]


def _says(row: Effect) -> str:
    return f"{row.effect} ({row.reason})" if row.effect and row.reason else row.effect or row.reason
