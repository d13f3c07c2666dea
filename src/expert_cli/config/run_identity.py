"""Compares runs by their contents and settings, for `--locked RUN.json` and `--resume`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from expert_cli.config.adapter_origin import init_sha256
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError, IntegrityError
from expert_cli.manifest.keys.log_save_eval import LogSaveEvalConfig
from expert_cli.runs.metrics import items, part, read_json
from expert_cli.utils.redaction import redact
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import change, quoted

IGNORED_ON_RESUME = (
    *("loader.num_workers", "loader.pin_memory", "loader.prefetch_factor", "loader.persistent_workers"),
    *("compute.checkpointing", "compute.reentrant", "compute.dequantized_copy", "compute.on_oom", "compute.fsdp"),
    "compute.capture",
    "processes",
)
"""May differ in a resumed run: how batches are loaded, how memory is used, how many processes share a step's packs."""
MICRO_BATCH = ("batch_size", "gradient_accumulation_steps")
"""How the packs of an optimizer step are split; their product must not differ."""
PROGRAMS = ("code", "versions")
"""May differ in a resumed run, with a warning: a bug may have been fixed, but results may differ in the last bits."""
SETTINGS = ("model", "adapter", "optim", "loader", "compute")
"""Blocks of a run whose values are the same in two equal runs."""
STORE = "store"
"""The block that decides a run's tokens."""


def identity(run: RunConfig, store: Mapping[str, str], trusted: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two equal runs have in common: contents (hashes) and settings, but no paths and no machine.

    store: the parts of the token store's key. trusted: the hash of another program's rows, if they are trained; else "". more:
    further values by name.
    """
    named: dict[str, Any] = {**more, "tokenizer": store["tokenizer"], "code": code_sha256(), **settings_of(run)}
    parts = {name: value for name, value in store.items() if named.get(name) != value}
    named[STORE] = parts | {"trusted": trusted or "none"}
    plain: dict[str, Any] = json.loads(redact(json.dumps(named)))
    return plain


def settings_of(run: RunConfig) -> dict[str, Any]:
    """Return the part of an identity that comes from a run's settings; reads the adapter that training starts from."""
    rounds = asdict(run.rft) if run.rft is not None else {}
    return {
        "rows": [[spec.split, spec.weight] for spec in run.data.train],
        "seed": run.seed,
        "max_seq_length": run.data.max_seq_length,
        "best model": _best_model(run.watch),
        **{f"{block}.{name}": value for block in SETTINGS for name, value in asdict(getattr(run, block)).items()},
        "adapter.init_adapter": init_sha256(run),
        # prompts and cases are part of the data
        **{f"rft.{name}": value for name, value in rounds.items() if name not in ("prompts", "held_back_cases")},
    }


def begun_as(before: Mapping[str, Any], now: Mapping[str, Any], drift: Collection[str]) -> dict[str, Any]:
    """Return the identity of this run; if it continues `before`, with the number of processes that began that run."""
    goes_on = before and not _changed(before, now, drift)
    return {**now, "processes": before["processes"]} if goes_on else dict(now)


def _best_model(watch: LogSaveEvalConfig) -> dict[str, Any] | None:
    """Return the settings that decide on the best step and on early stopping; None if the last step is kept."""
    if not (watch.load_best_model_at_end or watch.early_stopping_patience):
        return None
    not_of_it = ("logging_", "save_", "report_")
    return {name: value for name, value in asdict(watch).items() if not name.startswith(not_of_it)}


def code_sha256() -> str:
    """Return one hash over the package's own source files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def require_same(path: Path, now: Mapping[str, Any], report: Reporter) -> None:
    """Raise IntegrityError for differences from the identity in a run.json; changed library versions are only reported."""
    before = part(read_json(path), "identity")
    if not before:
        told = "is not a run.json of expert-cli" if path.is_file() else "no such file"
        raise InputError(f"--locked {path}: {told}", "name run.json of a run directory")
    if changed := _differences(before, now, ("versions",)):
        told = f"this run differs from {path}: {'; '.join(changed)}"
        raise IntegrityError(told, "leave --locked out to train anyway")
    _tell(path, before, now, report)


def require_keys(drift: Collection[str], now: Mapping[str, Any]) -> None:
    """Raise InputError for a key of `drift` that does not exist."""
    if unknown := sorted(set(drift) - set(_flat(now))):
        raise InputError(f"--allow-drift {unknown[0]}: there is no such key", f"keys: {', '.join(sorted(_flat(now)))}")


def require_goes_on(
    checkpoint: Path, before: Mapping[str, Any], now: Mapping[str, Any], drift: Collection[str] | None, report: Reporter
) -> None:
    """Raise IntegrityError for differences from the run of a checkpoint, except those in `drift`. None: it is complete."""
    require_keys(set(drift or ()) - set(_flat(before)), now)
    if changed := _changed(before, now, drift or ()):
        names = " ".join(f'--allow-drift "{line.split(": ")[0]}"' for line in changed)
        goes_on = f"train on with --from {quoted(checkpoint.parent)} and another --output"
        goes_on = goes_on if drift is None else f"allow the difference: {names}"
        told = f"{checkpoint} belongs to another run: {'; '.join(changed)}"
        raise IntegrityError(told, f"use its settings and data, start again with --overwrite, or {goes_on}")
    _tell(checkpoint, before, now, report)


def _changed(before: Mapping[str, Any], now: Mapping[str, Any], drift: Collection[str]) -> list[str]:
    """Return the differences between two runs, without those that a resumed run may have."""
    split = [f"optim.{key}" for key in MICRO_BATCH]
    products = {math.prod(run.get(key, 0) for key in split) for run in (before, now)}
    # rows of similar length are grouped by micro-batch
    same_packs = split if len(products) == 1 and not now["loader.group_by_length"] else []
    return _differences(before, now, (*IGNORED_ON_RESUME, *PROGRAMS, *same_packs, *drift))


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], ignored: Collection[str]) -> list[str]:
    old, new = _flat(before), _flat(now)
    return [
        f"{name}: {change(_text(old.get(name)), _text(new.get(name)))}"
        for name in {**old, **new}
        if old.get(name) != new.get(name) and name not in ignored
    ]


def _tell(where: Path, before: Mapping[str, Any], now: Mapping[str, Any], report: Reporter) -> None:
    """Report the programs that have changed."""
    changed = ["expert-cli itself"] if before.get("code") != now["code"] else []
    older = {str(pair[0]): pair[1] for pair in items(before, "versions") if isinstance(pair, list) and len(pair) == 2}
    changed += [f"{name} ({old} -> {new})" for name, new in now["versions"] if (old := older.get(name, "none")) != new]
    if changed:
        report.warning(f"changed since {where}: {', '.join(changed)}; the run may not be bit for bit the same")


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return every key with its value; keys of the store's block get the form "store.filters"."""
    store = part(identity, STORE)
    rest = {name: value for name, value in identity.items() if name != STORE}
    return rest | {f"{STORE}.{name}": value for name, value in store.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
