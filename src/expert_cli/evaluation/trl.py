"""Makes input for TRL's trainers: rewards from 0 to 1 from verdicts, and preference pairs from right and wrong answers.

{"id": case, "prompt": [{"role": "user", "content": ...}], "chosen": [{"role": "assistant", ...}], "rejected": [...]}

Pairs are conversations, so that the tokenizer in `adapter/` formats them as training did, with system prompt and end token. TRL
appends the tokenizer's EOS token to plain texts, and this may be another token.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import Answer, EvalCase, case_in, digest_of
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.grade import Evaluation, GradedAnswer, Permissions, grade
from expert_cli.evaluation.verifiers.case import FORGED, Grade, Kind, plain
from expert_cli.evaluation.verifiers.registry import verifier
from expert_cli.utils.files import json_lines, parse_json, require_new_file, write_bytes
from expert_cli.utils.reporter import NullReporter

DENSE: Mapping[Kind, float] = {"correct": 1.0, "wrong": 0.3, "unknown_name": 0.1, "parsed_only": 0.1}
"""Rewards by verdict. An answer that only runs or parses gets less than half: near misses must not add up to a right one."""
WHOLE_CASE = "case"
"""The column with the whole case as JSON text, instead of a column for each key."""
MOST_PAIRS = 4
"""The most pairs of one prompt. K answers, half of them right, make K²/4 pairs, so half-solved prompts would dominate."""
OPTION = "--write-pairs"


def grades(
    completions: Sequence[Any], columns: Mapping[str, Sequence[Any]], folder: Path, allowed: Permissions
) -> list[Grade]:
    """Grade completions in parallel, equal answers to equal cases only once. A completion without text counts as empty.

    columns: those of the data set, with one entry per completion; only the keys of the case are read, or only `WHOLE_CASE`.
    folder: paths in cases are relative to it.
    """
    rows = []
    for number, completion in enumerate(completions):
        where = f"completion {number + 1}"
        row = _row(where, number, columns)
        case, file = case_in(folder.resolve(), where, row)
        rows.append(EvalCase(case, where, case.id, digest_of(row), file, answers=(Answer(text_of(completion)),)))
    different = {(row.digest, row.answer): row for row in rows}
    allowed.require([*different.values()], NullReporter())
    if any(row.case.can_be_forged for row in rows):
        warnings.warn(FORGED, stacklevel=2)  # once: Python's default filter
    judged = grade([*different.values()], NullReporter(), allowed.seconds).answers
    known = dict(zip(different, (one.verdict for one in judged), strict=True))
    return [known[row.digest, row.answer] for row in rows]


def text_of(completion: Any) -> str:
    """Return the text of a completion, or of its last message from the assistant; "" for anything else."""
    messages = completion if isinstance(completion, list | tuple) else ()
    said = [one.get("content") for one in messages if isinstance(one, Mapping) and one.get("role") == "assistant"]
    content = said[-1] if said else completion
    return content if isinstance(content, str) else ""


def _row(where: str, number: int, columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the keys of a case, without other columns and without nulls that a data set adds."""
    held = {name: values for name, values in columns.items() if isinstance(values, list | tuple)}
    row = {name: values[number] for name, values in held.items() if number < len(values)}
    if WHOLE_CASE in columns:
        try:
            row = dict(parse_json(columns[WHOLE_CASE][number]))
        except (ValueError, TypeError) as error:
            told = f"{where}: {WHOLE_CASE}: not a JSON object: {error}"
            raise InputError(told, "write the case's row as JSON text") from error
    kind = verifier(str(row.get("verifier")))
    if kind is None:  # read_case reports it
        return row
    fields = {field.alias or key: field for key, field in kind.model_fields.items()}
    own = {key: value for key, value in row.items() if key in fields}
    return {key: value for key, value in own.items() if value is not None or fields[key].is_required()}


def write_pairs(path: Path, found: Evaluation, input_separator: str | None) -> dict[str, Any]:
    """Write the preference pairs of an evaluation with samples; return the value of "pairs"."""
    require_new_file(OPTION, path)
    if not all(len(one.verdicts) > 1 for one in found.answers):
        raise InputError(f"{OPTION}: a pair needs several answers to a case", "draw them: --samples 8")
    of_cases = [list(_pairs(one)) for one in found.answers]
    rows = []
    for one, pairs in zip(found.answers, of_cases, strict=True):
        if pairs and one.row.asked[1] and input_separator is None:
            told = f"{one.row.where}: the evaluation does not say how a prompt and its input were joined"
            raise InputError(told, f"evaluate the adapter again: --adapter DIR --samples K {OPTION} FILE")
        for said in pairs:
            turns = [("user", one.row.turn(input_separator or "")), *(("assistant", text) for text in said)]
            of_pair = [[{"role": role, "content": text}] for role, text in turns]
            rows.append({"id": one.row.id, **dict(zip(("prompt", "chosen", "rejected"), of_pair, strict=True))})
    write_bytes(path, json_lines(rows))
    prompts = sum(map(bool, of_cases))
    all_right = sum(all(verdict.passed for verdict in one.verdicts) for one in found.answers)
    figures = {"file": str(path), "pairs": len(rows), "prompts": prompts, "all_right": all_right}
    return {**figures, "none_right": len(of_cases) - prompts - all_right}


def _pairs(one: GradedAnswer) -> Iterator[tuple[str, str]]:
    """Yield (chosen, rejected), each answer as rarely as possible; none that is only parsed, or is right but unfinished."""
    texts: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for answer, verdict in zip(one.row.answers, one.verdicts, strict=True):
        if verdict.kind != "parsed_only" and not (verdict.passed and answer.stop in ("length", "looping")):
            said = plain(extract(answer.text, one.row.case.fences) or answer.text)
            texts[verdict.passed].setdefault(said, answer.text)
    right, wrong = ([*some.values()] for some in texts.values())
    if right and wrong:
        for place in range(min(MOST_PAIRS, max(len(right), len(wrong)))):
            yield right[place % len(right)], wrong[place % len(wrong)]
