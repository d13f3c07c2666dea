"""Check a manifest, and explain what each of its keys does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.paths import FilePath

if TYPE_CHECKING:
    from expert_cli.config.plan import Validation


@disk_errors()
def validate(manifest: FilePath, *, base_model: str | None = None) -> Validation:
    """Check a manifest, and explain what each key does on this machine. Faults are returned, not raised.

    Args:
        manifest: The expert's manifest.json.
        base_model: The base model whose effects are shown, as for `train`. Faults are searched with all of them.

    Returns:
        `errors` (empty for a valid manifest), `warnings`, and in `plan.effects` one row for each key.
    """
    from expert_cli.config import plan
    from expert_cli.hardware import machine

    return plan.validate(Path(manifest), machine.inspect(), base_model)
