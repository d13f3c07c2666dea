"""What a run is made of, so that another one can be compared with it: `--locked RUN.json` and `--resume`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError, LockedOrDamaged
from expert_cli.files import sha256_of
from expert_cli.runconfig import RunConfig

HARMLESS = ("loader.num_workers", "loader.pin_memory", "loader.prefetch_factor", "loader.persistent_workers", "code")
"""What may differ when a run goes on: how batches are fetched changes none of them, and the code may have been mended."""


def identity(
    run: RunConfig, *, files: Collection[Path], base: str, tokenizer: str, template: str, processes: int
) -> dict[str, Any]:
    """Return what two equal runs have in common: contents (hashes) and settings, no paths, no machine."""
    settings = {name: asdict(getattr(run, name)) for name in ("model", "adapter", "optim", "loader", "compute")}
    named = {
        "data": [sha256_of(path) for path in files],
        "rows": [[spec.split, spec.weight] for spec in run.data.train],
        "base model": base,
        "tokenizer": tokenizer,
        "template": template,
        "code": code_sha256(),
        "seed": run.seed,
        "max_seq_length": run.data.max_seq_length,
        "processes": processes,
        **{f"{block}.{name}": value for block, values in settings.items() for name, value in values.items()},
    }
    plain: dict[str, Any] = json.loads(json.dumps(named))
    return plain


def code_sha256() -> str:
    """Return one hash over the package's own source files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def require_same(recorded: Path, now: Mapping[str, Any]) -> None:
    """Compare with the identity that a run.json recorded.

    Raises LockedOrDamaged naming every difference, InputError if the file is no run.json of this tool.
    """
    try:
        before: dict[str, Any] = json.loads(recorded.read_text(encoding="utf-8"))["identity"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--locked {recorded}: is not a run.json of expert-cli", "name run.json of a run directory"
        ) from error
    changed = _differences(before, now, ())
    if changed:
        raise LockedOrDamaged(
            f"this run differs from {recorded}: {'; '.join(changed)}", "leave --locked out to train anyway"
        )


def require_goes_on(
    checkpoint: Path, before: Mapping[str, Any], now: Mapping[str, Any], drift: Collection[str]
) -> None:
    """Raise LockedOrDamaged naming what differs from the run that wrote a checkpoint. drift: keys that may.

    Raises InputError for a key in `drift` that does not exist.
    """
    unknown = sorted(set(drift) - set(before) - set(now))
    if unknown:
        raise InputError(f"--allow-drift {unknown[0]}: there is no such key", f"keys: {', '.join(sorted(now))}")
    changed = _differences(before, now, (*HARMLESS, *drift))
    if changed:
        names = " ".join(f'--allow-drift "{line.split(": ")[0]}"' for line in changed)
        raise LockedOrDamaged(
            f"{checkpoint} belongs to another run: {'; '.join(changed)}",
            f"go on with what it was trained with, start anew with --overwrite, or allow it: {names}",
        )


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], ignored: Collection[str]) -> list[str]:
    return [
        f"{name}: {_short(before.get(name))} -> {_short(now.get(name))}"
        for name in {**before, **now}
        if before.get(name) != now.get(name) and name not in ignored
    ]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 32 else f"{text[:29]}..."
