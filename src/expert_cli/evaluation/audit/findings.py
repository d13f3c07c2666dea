"""What an audit can find, one entry a check, and the findings as they are collected."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from expert_cli.evaluation.audit.similarity import NEAR
from expert_cli.evaluation.verdict import detail_line

Severity = Literal["error", "warning"]
MAX_EXAMPLES = 5
_PLACE = re.compile(r"(?P<file>.*):(?:row )?(?P<line>\d+)", re.DOTALL)


class Check(NamedTuple):
    """severity: an error makes a row dead, or a case useless. of: what is counted. meaning: one line, for people."""

    severity: Severity
    of: Literal["rows", "cases"]
    meaning: str


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "unreadable": Check("error", "rows", "training leaves the row out: a text is missing, empty or no text"),
        "does_not_run": Check(
            "error", "rows", "the answer does not parse, names what is not there, or fails the row's own tests"
        ),
        "prompt_in_answer": Check("error", "rows", "the answer goes on into a next prompt, or ends with its own"),
        "unclosed_fence": Check("error", "rows", "the answer opens a code fence and does not close it"),
        "too_long": Check("error", "rows", "the answer alone has max_seq_length tokens or more"),
        "contradiction": Check("error", "rows", "one question, answers that differ in label, value or result"),
        "leak": Check("error", "rows", "question and input are those of a case, letter case and blanks aside"),
        "case_fails": Check("error", "cases", "the expected answer is not right by the case's own judge"),
        "case_empty": Check("error", "cases", "an answer that returns no rows is judged right"),
        "empty_result": Check("warning", "rows", "the query runs and returns no rows"),
        "duplicate": Check("warning", "rows", "an earlier row says the same, letter case and blanks aside"),
        "near_duplicate": Check(
            "warning",
            "rows",
            f"nearly an earlier row: Jaccard similarity >= {NEAR:g} of the sets of 5 characters in a row, both of question "
            "with answer and of the input",
        ),
        "near_leak": Check(
            "warning", "cases", f"nearly a row's question: the same similarity >= {NEAR:g}, of question and of input"
        ),
        "leaked_answer": Check("warning", "cases", "a row has the same input and the case's expected answer"),
        "weak_case": Check("warning", "cases", "three assertions or fewer: wrong programs pass such tests"),
        "truncated": Check("warning", "rows", "question and answer together have more than max_seq_length tokens"),
    }
)


def place_beside(where: str, other: str) -> str:
    """Return a place as it is named in a message about `other`: by its line alone where both are in one file."""
    file, _, line = where.rpartition(":")
    return f"line {line}" if file == other.rpartition(":")[0] and line.isdigit() else where


@dataclass
class Found:
    """What one check found: the numbers of rows, or the places of cases, and some of them in words.

    groups: how many there are of each database, where that is known; the examples are then of different ones.
    """

    members: set[int | str] = field(default_factory=set)
    examples: list[dict[str, Any]] = field(default_factory=list)
    groups: Counter[str] = field(default_factory=Counter)


@dataclass
class Findings:
    """All that was found. not_run: how many answers were only read, by the reason; not_checked: checks that were left out."""

    found: dict[str, Found] = field(default_factory=lambda: {name: Found() for name in CHECKS})
    ran: int = 0
    parsed: int = 0
    not_run: Counter[str] = field(default_factory=Counter)
    not_checked: dict[str, str] = field(default_factory=dict)

    def add(self, check: str, member: int | str, where: str, detail: str, text: str, group: str = "") -> None:
        """Note one finding. member: the number of a row, the place of a case. text: what is at fault, quoted."""
        found = self.found[check]
        if member in found.members:
            return
        found.members.add(member)
        found.groups[group] += 1
        if len(found.examples) < MAX_EXAMPLES and (not group or found.groups[group] == 1):
            place = _PLACE.fullmatch(where)
            file, line = (place["file"], int(place["line"])) if place else (where, None)
            found.examples.append(
                {"file": file, "line": line, "detail": detail_line(detail), "text": detail_line(text)}
            )

    def count(self, severity: Severity) -> int:
        """Return how many rows and cases the checks of a severity are about, each check by itself."""
        return sum(len(self.found[name].members) for name, check in CHECKS.items() if check.severity == severity)
