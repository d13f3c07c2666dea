"""`expert-cli doctor`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expert_cli.console.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from expert_cli.doctor.check import CheckResult


def doctor(
    console: Console,
    free_memory: Annotated[
        bool, typer.Option("--free-memory", help="List who holds GPU memory and how to give it back; ends no process.")
    ] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also try torch.compile, a minute or two more.")] = False,
) -> None:
    """Say whether this machine is ready: what is here, what really works, and how to mend what does not.

    Tries 4-bit training and the attention of training in a process of their own, ten seconds on a quiet machine; with --deep
    torch.compile, too. Writes a trial file to each disk and deletes it; asks no network. Exit code 3 if a line says fail.

    Examples:

        expert-cli doctor

        expert-cli doctor --deep --json > machine.json

        expert-cli doctor --free-memory
    """
    if free_memory:
        from expert_cli.doctor.gpus import memory_holders

        _show_holders(console, memory_holders())
        return
    from expert_cli.doctor.check import attempt, check_up, worst
    from expert_cli.doctor.facts import look
    from expert_cli.doctor.probes import PROBES, QUICK, UNTRIED

    lines = check_up(console, look(Path.cwd()), PROBES if deep else QUICK)
    lines += [] if deep else attempt(UNTRIED)
    if console.as_json:
        console.document({"state": worst(lines), "lines": [asdict(line) for line in lines]})
    else:
        _show(console, lines)
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
    console.text(f"{verdict}: {failures} to mend (fail), {warnings} to know (warn), {len(lines)} lines")


def _show_holders(console: Console, found: dict[str, Any]) -> None:
    from expert_cli.doctor.gpus import megabytes

    if console.as_json:
        console.document(found)
        return
    if not found["gpus"]:
        why = f" ({found['problem']})" if found["problem"] else ""
        console.text(f"no NVIDIA GPU answers on this machine{why}: there is no GPU memory to give back")
        return
    for one in found["gpus"]:
        in_use = f"{megabytes(one['memory_used_mb'])} of {megabytes(one['memory_total_mb'])} in use"
        name = f"GPU {one['index']} {one['name']}".strip()
        console.text(f"{name}: {one['problem'] or in_use}")
    rows = [
        [str(row["gpu"]), str(row["pid"]), row["user"] or "?", megabytes(row["memory_mb"]), row["command"] or "?"]
        for row in found["holders"]
    ]
    title = "processes that hold GPU memory" if rows else "no process that the driver names holds GPU memory"
    console.table(title, ["GPU", "pid", "user", "memory", "command"], rows)
    for sentence in found["advice"]:
        console.text(sentence)
