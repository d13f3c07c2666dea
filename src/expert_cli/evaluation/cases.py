"""Reads cases and answers from files of strict JSON lines. Every error message names file and line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from expert_cli.data.database_prompt import schema_prompt
from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.registry import known_verifiers, verifier
from expert_cli.inference.expert_config import Stop
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.utils.files import json_objects
from expert_cli.utils.text import type_name


class Answer(NamedTuple):
    """An answer to a case, why it ends ("": unknown), and its number of tokens."""

    text: str
    stop: Stop | Literal[""] = ""
    tokens: int = 0


@dataclass(frozen=True)
class EvalCase:
    """A case from a file with its question and, once it is answered, its answer or all drawn answers.

    where: "file:line". digest: hash of the row without answers. file: the path of the first file that the case names. shown: a
    description of its database, used instead of the input.
    """

    case: Case
    where: str
    id: str
    digest: str
    file: Path | None = None
    prompt: str = ""
    input: str = ""
    shown: str = ""
    answers: tuple[Answer, ...] = ()
    is_sampled: bool = False

    @property
    def question(self) -> dict[str, str]:
        """The question as in the file."""
        return {"prompt": self.prompt, "input": self.input}

    @property
    def asked(self) -> tuple[str, str]:
        """The prompt for a model, and the input or the shown database."""
        return self.prompt, self.shown or self.input

    def turn(self, separator: str) -> str:
        """Return the prompt with the input or the shown database as one text."""
        return separator.join(filter(None, self.asked))

    def answered(self, text: str) -> EvalCase:
        """Return the case with an answer."""
        return replace(self, answers=(Answer(text),))

    @property
    def answer(self) -> str:
        """The text of the first answer."""
        return self.answers[0].text


Cases = Sequence[EvalCase]
T = TypeVar("T")


def spread(rows: Sequence[T], count: int | None) -> list[T]:
    """Return `count` rows (None: all) in their order, the middle one of each of `count` equal parts."""
    count = min(len(rows) if count is None else count, len(rows))
    return [rows[(2 * part + 1) * len(rows) // (2 * count)] for part in range(count)]


def shown_databases(cases: Cases, settings: SchemaPromptConfig | None) -> list[EvalCase]:
    """Return cases with a description of their database, or of their input's CREATE TABLEs, as `shown`. Raises InputError."""
    if settings is None:
        return list(cases)
    shown = list(cases)
    for n, case in enumerate(cases):
        database = case.file if case.case.file_key == "database" else None
        with at(case.where):
            shown[n] = replace(case, shown=schema_prompt(settings, case.prompt, case.input, database))
    return shown


@contextmanager
def at(where: str) -> Iterator[None]:
    """Put the place `where` before the message of an InputError that is raised inside."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error.message}", error.hint) from error


def read_cases(path: Path, needed: Literal["answer", "prompt"] = "prompt") -> list[EvalCase]:
    """Read one or more cases with prompts, or with answers. Raises InputError with file and line of the first error."""
    seen, rows = dict[str, str](), list[EvalCase]()
    for where, line, row in json_objects(path):
        asks = {"prompt": None, "input": ""} if needed == "prompt" or "prompt" in row else {}
        texts = {key: row.pop(key, default) for key, default in ({needed: None} | asks).items()}
        for key, text in texts.items():
            if not isinstance(text, str):
                raise InputError(f"{where}: {key}: a text is needed, not {type_name(text)}", f"one {key} a row")
        answers = (Answer(texts.pop("answer")),) if needed == "answer" else ()
        case, file = case_in(path.resolve().parent, where, row)
        identity = case.id or str(line)
        if seen.setdefault(identity, where) != where:
            raise InputError(f"{where}: id {identity!r} is that of {seen[identity]}", "give every case its own id")
        rows.append(EvalCase(case, where, identity, digest_of(row | texts), file, **texts, answers=answers))
    if not rows:
        raise InputError(f"{path}: no rows", "one JSON object a line: expert-cli evaluate --help")
    return rows


read_answers = partial(read_cases, needed="answer")


def digest_of(row: Mapping[str, Any]) -> str:
    """Return a hash of a row."""
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]


def read_case(where: str, row: Mapping[str, Any]) -> Case:
    """Return the case of a row. where: its place in error messages. Raises InputError."""
    name = row.get("verifier")
    kind = verifier(str(name))
    if kind is None:
        fault = f"there is no {name!r}" if name else "is missing"
        raise InputError(f"{where}: verifier: {fault}", f"verifiers: {', '.join(known_verifiers())}")
    try:
        with at(where):
            case = kind.model_validate(row)
            case.require_sound()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where}: {key}: {first['msg']}", "keys: docs/EXPERT_FORMAT.md, Test cases") from error
    return case


def case_in(folder: Path, where: str, row: Mapping[str, Any]) -> tuple[Case, Path | None]:
    """Return the case of a row and the path of its first file. folder: the absolute path that its files are relative to."""
    case = read_case(where, row)
    files = [(folder / name).resolve() for name in case.file_names]
    for name, file in zip(case.file_names, files, strict=True):
        if not file.is_file():
            raise InputError(f"{where}: {name}: no such file ({file})", "paths are relative to the file of the row")
    return case.located(folder), files[0] if files else None
