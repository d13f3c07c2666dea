"""`train --locked RUN.json`: refuse a run that would not be the same as an earlier one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError, LockedOrDamaged


def require_same(recorded: Path, identity: Mapping[str, Any]) -> None:
    """Compare with the identity that a run.json recorded.

    Raises LockedOrDamaged naming every difference, InputError if the file is no run.json of this tool.
    """
    try:
        before: dict[str, Any] = json.loads(recorded.read_text(encoding="utf-8"))["identity"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--locked {recorded}: is not a run.json of expert-cli", "name run.json of a run directory"
        ) from error
    now = json.loads(json.dumps(dict(identity)))
    changed = [
        f"{name}: {_short(before.get(name))} -> {_short(now.get(name))}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]
    if changed:
        raise LockedOrDamaged(
            f"this run differs from {recorded}: {'; '.join(changed)}", "leave --locked out to train anyway"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 32 else f"{text[:29]}..."
