"""Check a manifest, and explain what each of its keys does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from expert_cli.errors import ExpertError
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
    from expert_cli.model.loading.names import parse_model_name

    found = plan.validate(Path(manifest), machine.inspect(), base_model)
    if found.plan is not None:
        run = found.plan.run
        for name in dict.fromkeys((run.model.name, *(base.name for base in found.plan.loaded.manifest.bases))):
            try:
                parse_model_name(name, (run.manifest.parent, run.root, Path.cwd()))
            except ExpertError as error:
                found.warnings.append(error.message)
    return found
