"""What of an evaluation stands in the training rows, too: the cases that are looked for, and the warning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from expert_cli.config.run_config import RunConfig
from expert_cli.data.overlap import MOST_HELD_OUT, HeldOut, Question
from expert_cli.data.rows import BadRow, text_of
from expert_cli.errors import InputError
from expert_cli.utils.files import json_objects
from expert_cli.utils.reporter import Reporter

_REMEDIES = {
    "validation": "take them out of the rows that train, or split other rows off, and the evaluation loss tells what was "
    "learned, not what was remembered",
    "cases": "expert-cli audit names all that are the same",
}
_NAMES = {"validation": "validation rows", "cases": "cases"}


def own_cases(run: RunConfig, report: Reporter) -> list[Question]:
    """Return what the expert's own cases ask; of a file at fault, which an evaluation will refuse, nothing."""
    if not run.own_cases.is_file():
        return []
    asked: list[Question] = []
    where = ""
    try:
        for where, _, case in json_objects(run.own_cases):
            asked.append(Question(text_of(case, "prompt"), text_of(case, "input") if "input" in case else "", where))
    except (InputError, BadRow) as error:
        told = error.message if isinstance(error, InputError) else f"{where}: {error}"
        report.warning(f"cases are not looked for in the training rows: {told}")
        return []
    return asked


def tell_overlap(stats: Mapping[str, Any], cases: Sequence[Question], report: Reporter) -> None:
    """Warn of what a store's statistics say of it. cases: those that there are now; of others the store tells nothing."""
    found, digest = stats["train"].get("overlap", {}), HeldOut(cases[:MOST_HELD_OUT]).digest
    if len(cases) and found.get("cases", {}).get("digest") != digest:
        report.info("cases     the store was built before them: expert-cli audit looks for them in the training rows")
    for of, told in found.items():
        if told["same"] and (of != "cases" or told["digest"] == digest):
            report.warning(f"{_in_words(of, told)}; {_REMEDIES[of]}")


def _in_words(of: str, told: Mapping[str, Any]) -> str:
    """Return how many, and the first ones."""
    beyond = f" (the first {MOST_HELD_OUT:,} were looked for)" if told["rows"] > MOST_HELD_OUT else ""
    examples = "; ".join(f'{one["held_out"]} as {one["train"]}: "{one["text"]}"' for one in told["examples"])
    return f"{told['same']:,} of {told['rows']:,} {_NAMES[of]}{beyond} stand in the training rows, too: {examples}"
