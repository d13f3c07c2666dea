"""`expert-cli validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expert_cli.commands.options import BaseModel, Debug, Json, Quiet
from expert_cli.console import Console
from expert_cli.errors import ExpertError, Fault, ManifestError

if TYPE_CHECKING:
    from expert_cli.machine import Machine
    from expert_cli.plan import Plan


def validate(
    manifests: Annotated[list[Path], typer.Argument(help="One or more manifest.json files.", show_default=False)],
    base_model: BaseModel = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001  read by cli.main
) -> None:
    """Check manifests, and say what every key does on this machine.

    Data and models that are not on this machine are warnings, not errors. Exit code 2 if a manifest has a fault.

    Examples:

        expert-cli validate experts/expert-sql/manifest.json

        expert-cli validate experts/*/manifest.json --json
    """
    from expert_cli import machine

    console = Console("validate", as_json=as_json, quiet=quiet)
    facts = machine.inspect()
    rows = [_check(path, facts, base_model) for path in manifests]
    valid = all(row["valid"] for row in rows)
    if as_json:
        console.document({"valid": valid, "manifests": [_as_json(row) for row in rows]})
    else:
        for row in rows:
            _show(console, row, quiet=quiet)
    raise typer.Exit(0 if valid else 2)


def _check(path: Path, facts: Machine, base_model: str | None) -> dict[str, Any]:
    from expert_cli.config import Overrides, missing_data
    from expert_cli.plan import make_plan

    plan: Plan | None = None
    errors: list[Fault] = []
    try:
        plan = make_plan(path, facts, Overrides(base_model=base_model))
        for base in plan.loaded.manifest.bases:
            make_plan(path, facts, Overrides(base_model=base.name))
    except ManifestError as error:
        errors = error.faults
    except ExpertError as error:
        errors = [Fault(str(path), 1, 1, "", error.message, error.hint)]
    warnings = [str(warning) for warning in plan.warnings] + missing_data(plan.run) if plan else []
    return {"path": str(path), "valid": not errors, "errors": errors, "plan": plan, "warnings": warnings}


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    effects = [effect.as_json() for effect in row["plan"].effects] if row["plan"] else []
    errors = [fault.as_json() for fault in row["errors"]]
    return {
        "path": row["path"],
        "valid": row["valid"],
        "errors": errors,
        "effects": effects,
        "warnings": row["warnings"],
    }


def _show(console: Console, row: dict[str, Any], *, quiet: bool) -> None:
    if row["plan"] and not quiet:
        from expert_cli.commands.effects_table import show_effects

        show_effects(console, row["plan"].effects, short=False, to_stdout=True)
    for warning in row["warnings"]:
        console.warn(warning)
    for fault in row["errors"]:
        console.text(f"{fault}" + (f"\n  {fault.suggestion}" if fault.suggestion else ""))
    verdict = "valid" if row["valid"] else f"{len(row['errors'])} fault(s)"
    console.text(f"{row['path']}: {verdict}")
