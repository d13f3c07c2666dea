"""The base class of all cases, and `Grade`, the verdict on an answer. A verifier is a subclass of `Case`, listed in
`registry.py`; its fields are the keys of a case's row.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

EMPTY = ""
"""The result of an answer that runs and returns nothing."""
FORGED = 'answers to Python cases with "tests" can be forged; with "function" and "calls" they cannot (docs/JUDGING.md)'
"""The warning that is shown if verdicts are used to train a model."""

MAX_BYTES = 1_000_000
"""The size of the largest answer that is judged."""
Kind = Literal["correct", "wrong", "empty", "invalid", "unknown_name", "timeout", "refused", "too_large", "parsed_only"]
"""The kinds of verdicts, which docs/JUDGING.md explains."""


@dataclass(frozen=True)
class Grade:
    """The verdict on one answer."""

    kind: Kind
    detail: str = ""

    def __post_init__(self) -> None:
        """Shorten `detail` to one printable line: it often quotes the answer."""
        object.__setattr__(self, "detail", detail_line(self.detail))

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.kind == "correct"


def detail_line(text: str, limit: int = 200) -> str:
    """Return `text` as one line of at most `limit` characters, without unprintable ones."""
    line = plain("".join(one for one in text[: 8 * limit] if one.isprintable() or one.isspace()))
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def plain(text: str) -> str:
    """Return a text with each sequence of white space replaced by one blank."""
    return " ".join(text.split())


class Stopped(Exception):
    """Raised for an answer without a result to compare; the message says why."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.verdict = kind, detail, Grade(kind, detail)


def readable(answer: str, max_bytes: int = MAX_BYTES) -> None:
    """Raise `Stopped` for an answer that is empty, too long or not Unicode text."""
    if not answer.strip():
        raise Stopped("empty", "no answer")
    try:
        if (size := len(answer.encode())) > max_bytes:
            raise Stopped("too_large", f"the answer has {size:,} bytes, at most {max_bytes:,} are run")
    except UnicodeEncodeError as error:
        raise Stopped("invalid", "the answer contains characters that are not text") from error


def unreadable(error: Exception, what: str = "") -> Stopped:
    """Return the `Stopped` for JSON that `strict_json` refused. what: put before the message."""
    return Stopped("too_large" if "recursion" in str(error) else "invalid", f"{what}{error}")


class Example(NamedTuple):
    """A case's row without the key "verifier", a right answer and a wrong one."""

    row: dict[str, Any]
    right: str
    wrong: str


class Labeled(NamedTuple):
    """An answer as one of several labels; answered: None for an answer that is none of them."""

    labels: tuple[str, ...]
    expected: str
    answered: str | None


class Case(BaseModel, ABC):
    """A question, and the rule that says whether an answer is right. A subclass's docstring is its line in the documents."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fences: ClassVar[frozenset[str]]
    """Language names of fenced code blocks, in lower case."""
    example: ClassVar[Example]
    file_key: ClassVar[str] = ""
    """The key that names one file or several."""
    starts: ClassVar[Literal["", "answer", "command"]] = ""
    """What is run as a program: nothing, the answer, or a command that the case names."""

    verifier: str
    id: str = ""  # identifies the case in other evaluations; default: its line
    category: str = Field(default="uncategorised", min_length=1)

    @abstractmethod
    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade | bool:
        """Grade a readable answer; True and False mean right and wrong. file: the first file that the case names. Raises
        Stopped, InputError, EnvironmentProblem.
        """

    def verdict(self, answer: str, file: Path | None, timeout_s: float) -> Grade:
        """Return the verdict on an extracted answer. Raises InputError, EnvironmentProblem."""
        try:
            readable(answer)
            found = self.grade(answer, file, timeout_s)
        except Stopped as stopped:
            return stopped.verdict
        except RecursionError:
            return Grade("too_large", "nested too deep")
        if isinstance(found, Grade):
            return found
        return Grade("correct") if found else Grade("wrong", f"it is {answer.strip()[:80]!r}")

    @property
    def expected_text(self) -> str:
        """The first right answer as text; "" if none is known, as for a program that only has tests."""
        expected = getattr(self, "expected", None)
        return expected or "" if isinstance(expected, str | None) else json.dumps(expected, ensure_ascii=False)

    @property
    def criterion(self) -> str:
        """The criterion for an answer in readable form: the right answer, else a program's tests or a pattern."""
        return self.expected_text or str(getattr(self, "tests", None) or getattr(self, "pattern", ""))

    @property
    def can_be_forged(self) -> bool:
        """Whether a malicious answer can pass without being right, which matters if verdicts are used to train a model."""
        return False

    def labeled(self, answer: str) -> Labeled | None:  # noqa: ARG002  for subclasses
        """Return an extracted answer as a label; None for verifiers without labels."""
        return None

    @classmethod
    def prepare(cls, asked: Sequence[tuple[Case, str]], timeout_s: float) -> None:
        """Do work that is cheaper for many answers at once. It is called before `grade` is called for each answer."""

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002  for subclasses
        """Return a key of the answer's result, equal for answers with equal results, right or wrong; by default the text.

        `EMPTY`: it runs and returns nothing. None, or `Stopped`: it has no result. file, errors: as for `grade`.
        """
        label = self.labeled(answer)
        return label.answered if label else plain(answer) or None

    @property
    def file_names(self) -> tuple[str, ...]:
        """The files that the case names, relative to the file of its row."""
        named: str | list[str] = getattr(self, self.file_key, "")
        return tuple(named) if isinstance(named, list) else (named,) if named else ()

    def located(self, folder: Path) -> Case:  # noqa: ARG002  for those that name files
        """Return the case with absolute paths."""
        return self

    def require_sound(self) -> None:
        """Raise InputError if no answer could be right, as far as the case itself shows."""

    def for_dummy(self, *, first: bool) -> Case | None:
        """Return the case to grade a dummy answer with, to find out early what cannot be graded here; None if it would show
        nothing new: for a verifier that starts programs, the first case is enough.
        """
        return self if first or not self.starts else None
