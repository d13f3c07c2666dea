"""Rows of cases and answers: JSON lines, read strictly, every fault with its file and line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from expert_cli.data import overlap
from expert_cli.data.schema_prompt import schema_prompt
from expert_cli.errors import InputError
from expert_cli.evaluation.extract import extract
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.registry import known_verifiers, verifier
from expert_cli.inference.generation_config import Stop
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.utils.json_lines import json_objects
from expert_cli.utils.text import type_name

MAX_CHARACTERS = 4_000_000
"""Of a text that an answer is looked for in, which takes time by its length, before any limit of time counts."""


class Question(NamedTuple):
    """What a model is asked; input: what stands below the prompt."""

    prompt: str
    input: str

    @property
    def digest(self) -> str:
        """A hash of what is asked."""
        return digest_of(self._asdict())

    def showing(self, shown: str) -> Question:
        """Return it with what is shown of a database in the place of the input; "" = nothing."""
        return Question(self.prompt, shown or self.input)


@dataclass(frozen=True)
class _CaseRow:
    """A case of a file. `where`: "file:line". `digest`: of the case, whatever the answer."""

    case: Case
    where: str
    id: str
    digest: str
    file: Path | None
    """The first of the files that the case names, found: a database, a script."""


@dataclass(frozen=True)
class CaseAnswer(_CaseRow):
    """A case with an answer to judge. `question`: what was asked, None where nothing tells. `stop`: why the answer
    ends, "" where nothing tells. `raw`: what was written, where a stop sequence cut the answer out of it. `samples`: all
    answers that were drawn, this one first; () where none were. shown: what stood in the place of the input; "" = nothing.
    """

    answer: str
    question: Question | None = None
    stop: Stop | Literal[""] = ""
    raw: str = ""
    samples: tuple[CaseAnswer, ...] = ()
    shown: str = ""

    @property
    def asked(self) -> Question | None:
        """What a model was asked: the case's question, with what it was shown; None where that is not known."""
        return self.question and self.question.showing(self.shown)

    @property
    def extracted(self) -> str | None:
        """The answer without what stands around it; None where the text is too long to look for it."""
        return extract(self.answer, self.case.fences) if len(self.answer) <= MAX_CHARACTERS else None


@dataclass(frozen=True)
class EvalCase(_CaseRow):
    """A case with its prompt, not answered yet. shown: of its database, in the place of the input; "" = nothing."""

    prompt: str
    input: str
    shown: str = ""

    @property
    def question(self) -> Question:
        """What the case asks."""
        return Question(self.prompt, self.input)

    @property
    def asked(self) -> Question:
        """What a model is asked: the case's question, with what it is shown."""
        return self.question.showing(self.shown)

    def answered(self, text: str, stop: Stop | Literal[""] = "", raw: str = "") -> CaseAnswer:
        """Return the case with an answer."""
        row = (self.case, self.where, self.id, self.digest, self.file)
        return CaseAnswer(*row, text, self.question, stop, raw, shown=self.shown)


_Row = TypeVar("_Row", CaseAnswer, EvalCase)


def stratified_sample(rows: Sequence[_Row], count: int | None) -> list[_Row]:
    """Return `count` rows (None: all), in their order: ordered by category, the middles of so many equal parts."""
    if count is None or count >= len(rows):
        return list(rows)
    ordered = sorted(range(len(rows)), key=lambda number: rows[number].case.category)
    middles = ((2 * part + 1) * len(rows) // (2 * count) for part in range(count))
    return [rows[number] for number in sorted(ordered[middle] for middle in middles)]


def read_answers(path: Path) -> list[CaseAnswer]:
    """Read rows of cases with answers, and with what was asked where they hold it. Raises InputError with file and line of the
    first fault.
    """
    return [
        CaseAnswer(*row, texts["answer"], Question(texts["prompt"], texts["input"]) if "prompt" in texts else None)
        for row, texts in _rows(path, "answer")
    ]


def read_cases(path: Path) -> list[EvalCase]:
    """Read rows of cases with prompts. Raises InputError with file and line of the first fault."""
    return [EvalCase(*row, texts["prompt"], texts["input"]) for row, texts in _rows(path, "prompt")]


def asked_by_cases(cases: Sequence[EvalCase]) -> list[overlap.Question]:
    """Return what cases ask, to be looked for in rows."""
    return [overlap.Question(case.prompt, case.input, case.where) for case in cases]


def shown_databases(cases: Sequence[EvalCase], settings: SchemaPromptConfig | None) -> list[EvalCase]:
    """Return cases with what each is shown of its database, or of the CREATE TABLE texts of its input; None: nothing.

    Raises InputError: a case has neither.
    """
    return [replace(case, shown=_shown(case, settings) if settings else "") for case in cases]


def _shown(case: EvalCase, settings: SchemaPromptConfig) -> str:
    database = case.file if case.case.file_key == "database" else None
    try:
        return schema_prompt(settings, case.prompt, case.input, database)
    except InputError as error:
        raise InputError(f"{case.where}: {error.message}", error.hint) from error


def _rows(
    path: Path, needed: Literal["answer", "prompt"]
) -> Iterator[tuple[tuple[Case, str, str, str, Path | None], dict[str, str]]]:
    """Yield what a `_CaseRow` holds, and the texts beside the case, of every row; there is at least one."""
    seen: dict[str, str] = {}
    for where, line, row in json_objects(path):
        texts = _texts(where, row, needed)
        case, file = case_in(path.resolve().parent, where, row)
        identity = case.id or str(line)
        if identity in seen:
            raise InputError(f"{where}: id {identity!r} is that of {seen[identity]}", "give every case its own id")
        seen[identity] = where
        asked = {key: text for key, text in texts.items() if key != "answer"}
        yield (case, where, identity, digest_of(row | asked), file), texts
    if not seen:
        raise InputError(f"{path}: no rows", "one JSON object a line: expert-cli evaluate --help")


def _texts(where: str, row: dict[str, Any], needed: str) -> dict[str, str]:
    """Take the text that is needed out of a row, and a prompt with its input, "" by default, where there is one."""
    asked = ("prompt", "input") if needed == "prompt" or "prompt" in row else ()
    texts = {key: row.pop(key, "" if key == "input" else None) for key in dict.fromkeys((needed, *asked))}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"{where}: {key}: a text is needed, not {type_name(text)}", f"one {key} a row")
    return texts


def digest_of(row: Mapping[str, Any]) -> str:
    """Return a hash of a row."""
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]


def read_case(where: str, row: Mapping[str, Any]) -> Case:
    """Return the case that a row's keys make. where: what errors call it. Raises InputError."""
    name = row.get("verifier")
    kind = verifier(name) if isinstance(name, str) else None
    if kind is None:
        fault = f"there is no {name!r}" if name else "is missing"
        raise InputError(f"{where}: verifier: {fault}", f"verifiers: {', '.join(known_verifiers())}")
    try:
        case = kind.model_validate(row)
        case.require_sound()
    except InputError as error:
        raise InputError(f"{where}: {error.message}", error.hint) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "too_short" and first["loc"][0] == kind.file_key:
            raise InputError(f"{where}: {kind.file_key}: the list is empty", "name at least one file") from error
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where}: {key}: {first['msg']}", "see expert-cli evaluate --help") from error
    return case


def case_in(folder: Path, where: str, row: Mapping[str, Any]) -> tuple[Case, Path | None]:
    """Return the case that a row's keys make, and the first of the files that it names, found in `folder`, which is absolute.

    where: what errors call it. Raises InputError, also where a file is missing.
    """
    case = read_case(where, row)
    files = [(folder / name).resolve() for name in case.file_names]
    for name, file in zip(case.file_names, files, strict=True):
        if not file.is_file():
            raise InputError(f"{where}: {name}: no such file ({file})", "paths are relative to the file of the row")
    return case.located(folder), files[0] if files else None
