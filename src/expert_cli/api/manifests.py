"""Check a manifest, and say what every key of it does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.paths import FilePath

if TYPE_CHECKING:
    from expert_cli.config.plan import Validation


@disk_errors()
def validate(manifest: FilePath, *, base_model: str | None = None) -> Validation:
    """Check a manifest, and say what every key does on this machine. A fault is no error: it stands in the result.

    Args:
        manifest: An expert's manifest.json.
        base_model: The base model whose effects are told, as `train` takes it; faults are looked for with every one.

    Returns:
        `errors` (empty for a manifest that can be used), `warnings`; `plan.effects` has a row a key.
    """
    from expert_cli.config import plan
    from expert_cli.hardware import machine

    return plan.validate(Path(manifest), machine.inspect(), base_model)
