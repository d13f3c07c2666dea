"""The cases of an expert, the look for what training rows say already, and the files they are written to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from datagen.common.dataset_files import Row, write_jsonl


@dataclass(frozen=True)
class Cases:
    """The rows of one expert's cases.jsonl, the right answer to each, and the files they name by their paths."""

    rows: list[Row] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def without(self, ids: Collection[str], most: Mapping[str, int]) -> Cases:
        """The first cases of each category, as many as `most` says, that have none of these ids; the files stay."""
        kept, count = Cases(files=self.files), Counter[str]()
        for row, answer in zip(self.rows, self.answers, strict=True):
            category = str(row["category"])
            if row["id"] not in ids and count[category] < most[category]:
                count[category] += 1
                kept.add(row, answer)
        return kept

    def add(self, row: Row, answer: str) -> None:
        """Add one case, an empty input left out."""
        self.rows.append({key: value for key, value in row.items() if key != "input" or value})
        self.answers.append(answer)


def _plain(*texts: str) -> str:
    return " ".join("\n".join(texts).lower().split())


def _plain_answer(answer: str) -> str:
    """An answer with its layout aside, and where it is JSON also the order of its keys."""
    try:
        return json.dumps(json.loads(answer), sort_keys=True)
    except ValueError:
        return _plain(answer)


def overlaps(cases: Cases, rows: Iterable[Row]) -> dict[str, str]:
    """The cases, by id, whose prompt or whose answer stands in the rows, layout and case of letters aside, and which.

    Every row's columns are instruction, input (none for TypeScript) and answer, in this order.
    """
    prompts, answers = set(), set()
    for row in rows:
        instruction, *between, answer = [str(value) for key, value in row.items() if key != "test"]
        prompts.add(_plain(instruction, *between))
        answers.add(_plain_answer(answer))
    found = {}
    for case, answer in zip(cases.rows, cases.answers, strict=True):
        if _plain_answer(answer) in answers:
            found[str(case["id"])] = "its answer"
        if _plain(str(case["prompt"]), str(case.get("input", ""))) in prompts:
            found[str(case["id"])] = "its prompt"
    return found


def write_cases(folder: Path, name: str, cases: Cases) -> None:
    """Write a file of cases and the files that they name."""
    write_jsonl(folder / f"{name}.jsonl", sorted(cases.rows, key=lambda row: str(row["category"])))
    for path, content in cases.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
