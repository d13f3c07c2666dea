"""`expert-cli validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from expert_cli import api
from expert_cli.commands.options import BaseModel
from expert_cli.console.terminal import Console
from expert_cli.utils.text import plural

if TYPE_CHECKING:
    from expert_cli.config.plan import Validation


def validate(
    console: Console,
    manifests: Annotated[list[Path], Argument(help="One or more manifest.json files.")],
    base_model: BaseModel = None,
    verbose: Annotated[bool, Option("--verbose", help="Show all keys, including defaults.")] = False,
) -> None:
    """Check manifests, and show which keys are adjusted or not used on this machine.

    Files of data and models that are missing here give warnings, not errors. Exit code 2 if a manifest has a fault.

    Examples:

        expert-cli validate experts/expert-sql/manifest.json
        expert-cli validate experts/*/manifest.json --json
    """
    checks = []
    for path in manifests:
        checks.append(api.validate(path, base_model=base_model))
        if not console.as_json:
            _show(console, checks[-1], verbose=verbose)
    valid = not any(found.errors for found in checks)
    if console.as_json:
        console.document({"valid": valid, "manifests": [found.as_json() for found in checks]})
    raise typer.Exit(0 if valid else 2)


def _show(console: Console, found: Validation, *, verbose: bool) -> None:
    if found.plan and not console.quiet:
        from expert_cli.config.effects import effects_table

        console.table(*effects_table(found.plan.effects, found.plan.defaults, whole=verbose))
    for warning in found.warnings:
        console.warning(warning)
    for fault in found.errors:
        console.text(f"{fault}" + (f"\n  {fault.suggestion}" if fault.suggestion else ""))
    console.text(f"{found.path}: " + (plural(len(found.errors), "fault") if found.errors else "valid"))
