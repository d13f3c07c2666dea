"""`expert-cli evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expert_cli.commands.options import Debug, Json, Quiet
from expert_cli.console import SCHEMA_VERSION, Console
from expert_cli.errors import GateMissed

if TYPE_CHECKING:
    from expert_cli.evaluation.against import Drop
    from expert_cli.evaluation.judge import Evaluation, Share


def evaluate(
    answers: Annotated[
        Path, typer.Option("--answers", help="Answers with their cases, one JSON object a line.", show_default=False)
    ],
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N rows.", show_default=False)] = None,
    case_timeout: Annotated[float, typer.Option(min=0.01, help="Seconds that one answer may run.")] = 2.0,
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit 5 if the accuracy is below this.", show_default=False)
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="An earlier evaluation, compared case by case.", show_default=False)
    ] = None,
    max_drop: Annotated[
        float, typer.Option(min=0, max=1, help="With --against: exit 5 if the accuracy fell by more than this.")
    ] = 0.05,
    output: Annotated[Path | None, typer.Option(help="Also write the JSON document here.", show_default=False)] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001  read by cli.main
) -> None:
    """Judge answers by running them: SQL, Cypher, JSON, TypeScript.

    A row: {"verifier": "sql", "database": "shop.sqlite", "expected": "SELECT ...", "answer": "..."}. Paths are relative
    to the file. Answers can change nothing: they run on copies, within limits of time and memory.

    Examples:

        expert-cli evaluate --answers answers.jsonl

        expert-cli evaluate --answers answers.jsonl --threshold 0.95 --output evaluation.json

        expert-cli evaluate --answers answers.jsonl --against evaluation.json --max-drop 0.02 --json
    """
    from expert_cli.evaluation.against import compare_with
    from expert_cli.evaluation.cases import read_answers
    from expert_cli.evaluation.judge import judge

    console = Console("evaluate", as_json=as_json, quiet=quiet)
    evaluation = judge(read_answers(answers)[:limit], console, case_timeout)
    drop = compare_with(against, evaluation, max_drop) if against else None
    missed = _missed(evaluation.share, threshold, drop)
    document = _document(evaluation, threshold, drop, passed=not missed)
    if output is not None:
        from expert_cli.files import write_json

        write_json(output, {"schema_version": SCHEMA_VERSION, "command": "evaluate", **document})
    if as_json:
        console.document(document)
    else:
        _show(console, evaluation, drop)
    if missed:
        raise GateMissed(missed, "see the failures above") if not as_json else typer.Exit(GateMissed.exit_code)


def _document(evaluation: Evaluation, threshold: float | None, drop: Drop | None, *, passed: bool) -> dict[str, Any]:
    from expert_cli.evaluation.extract import RULE

    gates = {"baseline": None, "threshold": threshold, "against": drop.as_json() if drop else None, "passed": passed}
    return {**evaluation.as_json(), **gates, "extraction": RULE}


def _missed(share: Share, threshold: float | None, drop: Drop | None) -> str:
    """Return which gate was missed, in words with both values, or ""."""
    if threshold is not None and share.accuracy < threshold:
        return f"accuracy {share.accuracy:.4f} ({share.correct} of {share.cases}) is below the threshold {threshold:g}"
    if drop is not None and not drop.held:
        return f"accuracy fell by {drop.drop:.4f} against {drop.file}, more than {drop.max_drop:g}"
    return ""


def _show(console: Console, evaluation: Evaluation, drop: Drop | None) -> None:
    shares = {"all": evaluation.share}
    if len(evaluation.by_category) > 1:
        shares |= evaluation.by_category
    rows = [[f"{share.correct}/{share.cases}", f"{share.accuracy:.1%}", _interval(share.ci95), name]
            for name, share in shares.items()]  # fmt: skip
    console.table("accuracy", ["correct", "accuracy", "95 % interval", "category"], rows)
    if evaluation.failures:
        console.text("")
        failures = [
            [kind if index == 0 else "", str(count) if index == 0 else "", f"{one.row.id}: {one.verdict.detail}"]
            for kind, count in evaluation.failures.items()
            for index, one in enumerate(evaluation.examples(kind))
        ]
        console.table("failures", ["class", "answers", "examples"], failures)
    if "parsed_only" in evaluation.failures:
        console.warn(f"{evaluation.failures['parsed_only']} answers could only be parsed here: that proves nothing")
    for note in dict.fromkeys(one.verdict.detail for one in evaluation.answers if one.verdict.passed):
        if note:
            console.warn(f"correct, but {note}")
    if drop is not None:
        console.text("")
        change = "fell" if drop.drop > 0 else "rose"
        console.text(
            f"against {drop.file}: {drop.cases} cases, {drop.lost} lost, {drop.gained} gained; accuracy {change} by "
            f"{abs(drop.drop):.1%} (95 % interval of the drop {_interval(drop.ci95)})"
        )


def _interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.1%} to {ends[1]:.1%}"
