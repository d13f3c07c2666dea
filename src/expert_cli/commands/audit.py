"""`expert-cli audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from expert_cli import api
from expert_cli.commands.options import BaseModel, Dataset, ManifestPath, Offline, arguments
from expert_cli.console.terminal import Console
from expert_cli.errors import ThresholdNotMet
from expert_cli.utils.text import plural, shortened

if TYPE_CHECKING:
    from expert_cli.evaluation.audit import Audit

_SHOWN = 3
_EXAMPLE_CHARACTERS = 100


def audit(
    console: Console,
    manifest: ManifestPath,
    dataset: Dataset = None,
    cases: Annotated[list[Path] | None, Option()] = None,
    verifier: Annotated[str, Option()] = "",
    base_model: BaseModel = None,
    limit: Annotated[int | None, Option(min=1)] = None,
    offline: Offline = False,
) -> None:
    """Check an expert's training rows and test cases, and report those that are wrong or useless.

    Errors: an answer that does not run or parse, is too long or contains a prompt; one question with contradicting answers; a
    case that is also a training row, or whose expected answer does not pass. Warnings, for you to judge: duplicates and near
    duplicates. Answers that could not be run are listed, not counted as good. Exit code 5 if there are errors.

    Examples:

        expert-cli audit --manifest experts/expert-sql/manifest.json --dataset experts/expert-sql/datasets/train.jsonl
        expert-cli audit -m my-expert/manifest.json --limit 1000 --json
    """
    found = api.audit(**arguments(api.audit, locals()))
    console.result(found.as_json(), lambda: _show(console, found))
    if found.errors:
        raise ThresholdNotMet(f"{plural(found.errors, 'error')} in rows and cases", "correct them, or take them out")


def _show(console: Console, found: Audit) -> None:
    document = found.as_json()
    counts = [plural(document[name], name.removesuffix("s")) for name in ("rows", "cases", "errors", "warnings")]
    console.text(f"{document['expert']}: {', '.join(counts[:2])}; {', '.join(counts[2:])}")
    for name, reason in document["not_checked"].items():
        console.warning(f"{name}: {reason}")
    for name, check in document["checks"].items():
        if not check["count"]:
            continue
        share = f"{check['count']:,} {check['of']} ({check['share']:.1%})"
        console.text(f"{check['severity']}: {name}: {share}: {check['meaning']}")
        for example in check["examples"][:_SHOWN]:
            at = f"{example['file']}:{example['line']}" if example["line"] else example["file"]
            text = f": {shortened(example['text'], _EXAMPLE_CHARACTERS)}" if example["text"] else ""
            console.text(f"  {at}: {example['detail']}{text}")
