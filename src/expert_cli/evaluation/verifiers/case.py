"""What every verifier says of itself: a case class, which `registry.py` lists, whose fields are the keys of a case's row. And
what becomes of one answer: a `Grade`.
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
"""What an answer gives that runs and finds nothing."""
FORGED = 'answers to Python cases with "tests" can be forged; with "function" and "calls" they cannot (docs/JUDGING.md)'
"""Told where verdicts train a model."""

MAX_BYTES = 1_000_000
"""Of an answer that is judged."""
Kind = Literal["correct", "wrong", "empty", "invalid", "unknown_name", "timeout", "refused", "too_large", "parsed_only"]
"""What docs/JUDGING.md says of each."""


@dataclass(frozen=True)
class Grade:
    """The judgment of one answer."""

    kind: Kind
    detail: str = ""

    def __post_init__(self) -> None:
        """Make any text fit for `detail`: it often quotes the answer."""
        object.__setattr__(self, "detail", detail_line(self.detail))

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.kind == "correct"


def detail_line(text: str, limit: int = 200) -> str:
    """Return `text` on one line of at most `limit` characters, what cannot be printed left out."""
    line = plain("".join(one for one in text[: 8 * limit] if one.isprintable() or one.isspace()))
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def plain(text: str) -> str:
    """Return a text with one blank in place of any."""
    return " ".join(text.split())


class Stopped(Exception):
    """An answer gave no result to compare; says why."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.verdict = kind, detail, Grade(kind, detail)


def readable(answer: str, max_bytes: int = MAX_BYTES) -> None:
    """Raise `Stopped` for an answer that no engine should see: none, too long, or with what is not text."""
    if not answer.strip():
        raise Stopped("empty", "no answer")
    try:
        if (size := len(answer.encode())) > max_bytes:
            raise Stopped("too_large", f"the answer has {size:,} bytes, at most {max_bytes:,} are run")
    except UnicodeEncodeError as error:
        raise Stopped("invalid", "the answer holds characters that are not text") from error


class Example(NamedTuple):
    """A case as its row says it, but for the verifier's name; an answer that is right, and one that is not."""

    row: dict[str, Any]
    right: str
    wrong: str


class Labeled(NamedTuple):
    """An answer that is one of several labels; answered: None for one that is none of them."""

    labels: tuple[str, ...]
    expected: str
    answered: str | None


class Case(BaseModel, ABC):
    """What decides whether an answer is right. The docstring of a subclass is its line in the documents."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fences: ClassVar[frozenset[str]]
    """What people and models write behind a fence, in lower case."""
    example: ClassVar[Example]
    file_key: ClassVar[str] = ""
    """The key that names a file, or several."""
    starts: ClassVar[Literal["", "answer", "command"]] = ""
    """What is run as a program: nothing, the answer, or a command that the case names."""

    verifier: str
    id: str = ""  # pairs this case with itself in another evaluation; default: its line
    category: str = Field(default="uncategorised", min_length=1)

    @abstractmethod
    def grade(self, answer: str, file: Path | None, timeout_s: float) -> Grade | bool:
        """Judge an answer that is readable, or say whether it is right. file: the first named. Raises Stopped, InputError,
        EnvironmentProblem.
        """

    def verdict(self, answer: str, file: Path | None, timeout_s: float) -> Grade:
        """Return what becomes of an answer, taken out of its text. Raises InputError, EnvironmentProblem."""
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
        """A right answer as text, the first of several; "" for a program, which only has tests, and where none is known."""
        expected = getattr(self, "expected", None)
        return expected or "" if isinstance(expected, str | None) else json.dumps(expected, ensure_ascii=False)

    @property
    def criterion(self) -> str:
        """What an answer is held against, for people: the right answer, else the tests of a program or a pattern."""
        return self.expected_text or str(getattr(self, "tests", None) or getattr(self, "pattern", ""))

    @property
    def can_be_forged(self) -> bool:
        """Whether an answer that wants to can pass without being right: it matters where verdicts train a model."""
        return False

    def labeled(self, answer: str) -> Labeled | None:  # noqa: ARG002  for subclasses
        """Return an answer, taken out of its text, as a label; None where answers are none."""
        return None

    @classmethod
    def prepare(cls, asked: Sequence[tuple[Case, str]], timeout_s: float) -> None:
        """Do at once, before `grade` is asked for each, what is cheaper for many answers to cases of this verifier."""

    def result_key(self, answer: str, file: Path | None, timeout_s: float) -> Hashable:  # noqa: ARG002  for subclasses
        """Return what an answer gives, the same for two that give the same, whatever is right; by default its text.

        `EMPTY`: it runs, and finds nothing. None, or `Stopped` raised: it gives nothing. file, errors: those of `grade`.
        """
        label = self.labeled(answer)
        return label.answered if label else plain(answer) or None

    @property
    def file_names(self) -> tuple[str, ...]:
        """The files that the case names, relative to that of its row."""
        named: str | list[str] = getattr(self, self.file_key, "")
        return tuple(named) if isinstance(named, list) else (named,) if named else ()

    def located(self, folder: Path) -> Case:  # noqa: ARG002  for those that name files
        """Return the case with paths that do not depend on the folder of its row."""
        return self

    def require_sound(self) -> None:
        """Raise InputError where no answer could be right, as far as the case alone tells."""

    def for_dummy(self, *, first: bool) -> Case | None:
        """Return what a dummy answer is graded by, to find out what cannot be graded here; None: another case told, as where
        programs are started the first of this verifier does.
        """
        return self if first or not self.starts else None
