"""Check a manifest, and say what every key of it does."""

from __future__ import annotations

from dataclasses import replace
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

    return _with_columns(plan.validate(Path(manifest), machine.inspect(), base_model))


def _with_columns(found: Validation) -> Validation:
    """Look whether the columns that `field_mapping` names are there, where the rows are."""
    if found.plan is None or not any(vars(found.plan.run.data.mapping).values()):
        return found
    from expert_cli.data.select import absent_columns
    from expert_cli.manifest.json_text import dotted
    from expert_cli.manifest.key import not_used

    plan = found.plan
    absent = absent_columns(plan.run.data)
    named = {path[-1]: path for path in plan.decided.outcomes if path[:2] == ("dataset", "field_mapping")}
    told = {named.get(role, ("dataset", "text_field")): not_used(reason) for role, reason in absent.items()}
    decided = replace(plan.decided, outcomes={**plan.decided.outcomes, **told})
    warnings = [f"{dotted(('training', *path))}: {outcome.reason}" for path, outcome in told.items()]
    return replace(found, plan=replace(plan, decided=decided), warnings=[*found.warnings, *warnings])
