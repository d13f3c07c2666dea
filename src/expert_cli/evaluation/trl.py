"""What TRL's trainers learn from: verdicts of the judges as rewards from 0 to 1, right and wrong answers as pairs.

{"id": case, "prompt": [{"role": "user", "content": ...}], "chosen": [{"role": "assistant", ...}], "rejected": [...]}

Pairs are conversations, not texts: the tokenizer in `adapter/` writes them down as training did, with the system prompt and the
end of the turn. To texts TRL adds the tokenizer's own end token, which need not be the one that ends a turn.
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
"""What runs, and what parses, is worth less than half of what is right: no number of near misses makes up for it."""
WHOLE_CASE = "case"
"""The column that holds a case as JSON text, in place of a column a key."""
MOST_PAIRS = 4
"""Pairs of one prompt. K answers, half of them right, make K²/4: prompts that are won half the time would be all there is."""
OPTION = "--write-pairs"


def grades(
    completions: Sequence[Any], columns: Mapping[str, Sequence[Any]], folder: Path, allowed: Permissions
) -> list[Grade]:
    """Judge what was written, several at once, equal answers to equal cases once. What is no text is judged as an empty one.

    columns: those of the data set, an entry a completion; of them the keys of the case count, or `WHOLE_CASE` alone. folder:
    paths in cases are relative to it.
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
        warnings.warn(FORGED, stacklevel=2)  # once, as Python's filters have it
    judged = grade([*different.values()], NullReporter(), allowed.seconds).answers
    known = dict(zip(different, (one.verdict for one in judged), strict=True))
    return [known[row.digest, row.answer] for row in rows]


def text_of(completion: Any) -> str:
    """Return what was written: a text, or that of the last message of the assistant; "" for anything else."""
    messages = completion if isinstance(completion, list | tuple) else ()
    said = [one.get("content") for one in messages if isinstance(one, Mapping) and one.get("role") == "assistant"]
    content = said[-1] if said else completion
    return content if isinstance(content, str) else ""


def _row(where: str, number: int, columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the keys of a case: neither other columns count nor the null with which a data set fills up a row."""
    held = {name: values for name, values in columns.items() if isinstance(values, list | tuple)}
    row = {name: values[number] for name, values in held.items() if number < len(values)}
    if WHOLE_CASE in columns:
        try:
            row = dict(parse_json(columns[WHOLE_CASE][number]))
        except (ValueError, TypeError) as error:
            told = f"{where}: {WHOLE_CASE}: no JSON object: {error}"
            raise InputError(told, "write the case's row as JSON text") from error
    kind = verifier(str(row.get("verifier")))
    if kind is None:  # the reader of cases says what is wrong
        return row
    fields = {field.alias or key: field for key, field in kind.model_fields.items()}
    own = {key: value for key, value in row.items() if key in fields}
    return {key: value for key, value in own.items() if value is not None or fields[key].is_required()}


def write_pairs(path: Path, found: Evaluation, input_separator: str | None) -> dict[str, Any]:
    """Write the pairs of an evaluation with samples, and return the value under "pairs"."""
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
    """Yield (chosen, rejected), each answer as seldom as can be. What only could be parsed here may be right: it is neither."""
    texts: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for answer, verdict in zip(one.row.answers, one.verdicts, strict=True):
        if verdict.kind != "parsed_only" and not (verdict.passed and answer.stop in ("length", "looping")):
            said = plain(extract(answer.text, one.row.case.fences) or answer.text)
            texts[verdict.passed].setdefault(said, answer.text)
    right, wrong = ([*some.values()] for some in texts.values())
    if right and wrong:
        for place in range(min(MOST_PAIRS, max(len(right), len(wrong)))):
            yield right[place % len(right)], wrong[place % len(wrong)]
