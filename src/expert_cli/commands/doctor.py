"""`expert-cli doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from expert_cli.console.terminal import Console
from expert_cli.utils.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from expert_cli.doctor.checks import CheckResult


def doctor(
    console: Console,
    deep: Annotated[bool, Option("--deep", help="Also try torch.compile; takes one or two minutes more.")] = False,
) -> None:
    """Check whether this machine is ready for training, and how to fix what is not.

    4-bit training and the attention kernel are tried in a separate process. No network is used. Exit code 3 if a check
    fails.

    Examples:

        expert-cli doctor
        expert-cli doctor --deep --json > machine.json
    """
    from expert_cli.doctor.checks import run_probes, told, worst
    from expert_cli.doctor.probes import COMPILE, PROBES

    console.info("checking this machine, and what works on it")
    lines = [*told(), *run_probes((*PROBES, COMPILE) if deep else PROBES)]
    document = {"state": worst(lines), "lines": [asdict(line) for line in lines]}
    console.result(document, lambda: _show(console, lines))
    raise typer.Exit(3 if worst(lines) == "fail" else 0)


def _show(console: Console, lines: Sequence[CheckResult]) -> None:
    rows = []
    for line in lines:
        rows.append([line.state, line.name, line.found])
        if line.fix:
            rows.append(["", "", f"-> {line.fix}"])
    console.table("this machine", ["", "check", "found, and what to do"], rows)
    warnings, failures = (sum(line.state == state for line in lines) for state in ("warn", "fail"))
    verdict = "not ready" if failures else "ready"
    console.text(f"{verdict}: {plural(len(lines), 'check')}, {failures} failed, {plural(warnings, 'warning')}")
