"""`expert-cli validate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expert_cli.commands.options import BaseModel, Debug, Json, Quiet
from expert_cli.console import Console
from expert_cli.errors import ExpertError, Fault, ManifestError

if TYPE_CHECKING:
    from expert_cli.machine import Machine
    from expert_cli.manifest.fixes import Fix
    from expert_cli.plan import Plan


@dataclass(frozen=True)
class Check:
    """One manifest, looked at. `fixes` is None unless they were asked for; `diff` shows them."""

    path: Path
    errors: list[Fault]
    plan: Plan | None
    warnings: list[str]
    fixes: list[Fix] | None = None
    diff: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the entry under "manifests"."""
        document = {
            "path": str(self.path),
            "valid": not self.errors,
            "errors": [fault.as_json() for fault in self.errors],
            "effects": [effect.as_json() for effect in self.plan.effects] if self.plan else [],
            "warnings": self.warnings,
        }
        return document if self.fixes is None else {**document, "fixes": [fix.as_json() for fix in self.fixes]}


def validate(
    manifests: Annotated[list[Path], typer.Argument(help="One or more manifest.json files.", show_default=False)],
    base_model: BaseModel = None,
    fix: Annotated[bool, typer.Option("--fix", help="Show mistyped and old keys under their right names.")] = False,
    write: Annotated[bool, typer.Option("--write", help="With --fix: change the file, then check it again.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001  read by cli.main
) -> None:
    """Check manifests, and say what every key does on this machine.

    Data and models that are not on this machine are warnings, not errors. Exit code 2 if a manifest has a fault.

    Examples:

        expert-cli validate experts/expert-sql/manifest.json

        expert-cli validate experts/*/manifest.json --json

        expert-cli validate old/manifest.json --fix --write
    """
    from expert_cli import machine

    if write and not fix:
        raise typer.BadParameter("--write goes with --fix")
    console = Console("validate", as_json=as_json, quiet=quiet)
    facts = machine.inspect()
    checks = []
    for path in manifests:
        check = _check(path, facts, base_model)
        checks.append(_fixed(check, facts, base_model, write=write) if fix else check)
        if not as_json:
            _show(console, checks[-1], quiet=quiet, write=write)
    valid = not any(check.errors for check in checks)
    if as_json:
        console.document({"valid": valid, "manifests": [check.as_json() for check in checks]})
    raise typer.Exit(0 if valid else 2)


def _check(path: Path, facts: Machine, base_model: str | None) -> Check:
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
    return Check(path, errors, plan, warnings)


def _fixed(check: Check, facts: Machine, base_model: str | None, *, write: bool) -> Check:
    """Find the renames, and with `write` make them, until a check of the file finds none: a block hides its own keys."""
    from expert_cli.manifest.fixes import apply_fixes, diff, find_fixes, read_raw, write_raw
    from expert_cli.manifest.jsontext import read_json

    done: list[Fix] = []
    shown: tuple[str, ...] = ()
    while True:
        try:
            text = read_json(check.path)
        except ManifestError:
            return replace(check, fixes=done, diff=shown)
        raw = read_raw(check.path)
        fixes, remarks = find_fixes(raw, text, check.errors)
        done += fixes
        new = apply_fixes(raw, fixes)
        shown += tuple(diff(raw, new, str(check.path)))
        if not (fixes and write):
            return replace(check, fixes=done, diff=shown, warnings=[*check.warnings, *map(str, remarks)])
        write_raw(check.path, new)
        check = _check(check.path, facts, base_model)


def _show(console: Console, check: Check, *, quiet: bool, write: bool) -> None:
    if check.plan and not quiet:
        from expert_cli.commands.effects_table import show_effects

        show_effects(console, check.plan.effects, short=False, to_stdout=True)
    for warning in check.warnings:
        console.warn(warning)
    for fault in check.errors:
        console.text(f"{fault}" + (f"\n  {fault.suggestion}" if fault.suggestion else ""))
    if check.fixes is not None:
        console.diff(check.diff)
        count = f"{len(check.fixes)} key{'' if len(check.fixes) == 1 else 's'}"
        console.text(
            f"{check.path}: {count} renamed" if write else f"{check.path}: {count} to rename (--write does it)"
        )
    console.text(f"{check.path}: " + (f"{len(check.errors)} fault(s)" if check.errors else "valid"))
