"""Rows of cases and answers: JSON lines, read strictly, every fault with its file and line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from expert_cli.errors import InputError
from expert_cli.evaluation.verifiers import json_schema

UNCATEGORIZED = "uncategorised"
MAX_LINE_BYTES = 16 << 20
Stop = Literal["end", "length", "sequence"]
"""An end token was written; the longest length was reached; a stop sequence was."""


class _Case(BaseModel):
    """What all cases may say."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: str = Field(default="", description="Pairs this case with itself in another evaluation; default: its line.")
    category: str = Field(default=UNCATEGORIZED, min_length=1, description="Accuracy is also reported by category.")


class SqlCase(_Case):
    """A query whose rows must be those of the expected one."""

    verifier: Literal["sql"]
    database: str = Field(min_length=1, description="An SQLite database, relative to the file of the row.")
    expected: str = Field(min_length=1, description="One or more accepted queries, each ended by a semicolon.")
    dialect: Literal["sqlite", "postgresql"] = "sqlite"


class CypherCase(_Case):
    """A query over the graph that a script makes."""

    verifier: Literal["cypher"]
    script: str = Field(min_length=1, description="A Cypher script, relative to the file of the row.")
    expected: str = Field(min_length=1, description="One or more accepted queries, each ended by a semicolon.")


class JsonCase(_Case):
    """A JSON value."""

    verifier: Literal["json"]
    json_schema: dict[str, Any] | None = Field(alias="schema", description="A JSON Schema that the answer must match.")
    expected: Any = Field(description="The value, part of it, or the accepted alternatives, as `rule` says.")
    rule: Literal["exact", "subset", "accepted"]


class TypescriptCase(_Case):
    """A program: prefix, answer, tests."""

    verifier: Literal["typescript"]
    tests: str | None = Field(description="Code that throws if the answer is wrong; null: the answer must compile.")
    prefix: str = Field(default="", description="Code that the answer continues.")


Case = SqlCase | CypherCase | JsonCase | TypescriptCase
_ANY_CASE: TypeAdapter[Case] = TypeAdapter(Annotated[Case, Field(discriminator="verifier")])


@dataclass(frozen=True)
class CaseAnswer:
    """A case with an answer to judge. `where`: "file:line". `digest`: of the case, whatever the answer; `prompt`: of what was
    asked, "" where nothing tells. `stop`: why the answer ends, "" where nothing tells. `raw`: what was written, where a stop
    sequence cut the answer out of it.
    """

    case: Case
    answer: str
    where: str
    id: str
    digest: str
    file: Path | None
    """The database or script, found."""
    prompt: str = ""
    stop: Stop | Literal[""] = ""
    raw: str = ""


@dataclass(frozen=True)
class EvalCase:
    """A case with its prompt, not answered yet; the rest as in `CaseAnswer`."""

    case: Case
    prompt: str
    input: str
    where: str
    id: str
    digest: str
    file: Path | None

    @property
    def prompt_digest(self) -> str:
        """A hash of what is asked."""
        return _digest({"prompt": self.prompt, "input": self.input})

    def answered(self, text: str, stop: Stop | Literal[""] = "", raw: str = "") -> CaseAnswer:
        """Return the case with an answer."""
        return CaseAnswer(self.case, text, self.where, self.id, self.digest, self.file, self.prompt_digest, stop, raw)


_Row = TypeVar("_Row", CaseAnswer, EvalCase)


def stratified_sample(rows: Sequence[_Row], count: int | None) -> list[_Row]:
    """Return `count` rows (None: all), in their order: ordered by category, the middles of so many equal parts."""
    if count is None or count >= len(rows):
        return list(rows)
    ordered = sorted(range(len(rows)), key=lambda number: rows[number].case.category)
    middles = ((2 * part + 1) * len(rows) // (2 * count) for part in range(count))
    return [rows[number] for number in sorted(ordered[middle] for middle in middles)]


def read_answers(path: Path) -> list[CaseAnswer]:
    """Read rows of cases with answers. Raises InputError with file and line of the first fault."""
    return [
        CaseAnswer(case, texts["answer"], where, identity, digest, file)
        for case, texts, where, identity, digest, file in _rows(path, ("answer",))
    ]


def read_cases(path: Path) -> list[EvalCase]:
    """Read rows of cases with prompts. Raises InputError with file and line of the first fault."""
    return [
        EvalCase(case, texts["prompt"], texts["input"], where, identity, digest, file)
        for case, texts, where, identity, digest, file in _rows(path, ("prompt", "input"), optional="input")
    ]


def _rows(
    path: Path, keys: Sequence[str], optional: str = ""
) -> Iterator[tuple[Case, dict[str, str], str, str, str, Path | None]]:
    """Yield (case, texts under `keys`, file:line, id, digest of the case, its file) of every row; there is at least one."""
    seen: dict[str, str] = {}
    for where, line, row in _objects(path):
        texts = {key: row.pop(key, "" if key == optional else None) for key in keys}
        for key, text in texts.items():
            if not isinstance(text, str):
                raise InputError(f"{where}: {key}: a text is needed, not {_named(text)}", f"one {key} a row")
        case = _case(where, row)
        identity = case.id or str(line)
        if identity in seen:
            raise InputError(f"{where}: id {identity!r} is that of {seen[identity]}", "give every case its own id")
        seen[identity] = where
        asked = {key: text for key, text in texts.items() if key != "answer"}
        yield case, texts, where, identity, _digest(row | asked), _file(where, path, case)
    if not seen:
        raise InputError(f"{path}: no rows", "one JSON object a line: expert-cli evaluate --help")


def expected_text(case: Case) -> str:
    """Return the right answer of a case as text, all of several; "" for a program, which only has tests."""
    if isinstance(case, JsonCase):
        return json.dumps(case.expected, ensure_ascii=False)
    return "" if isinstance(case, TypescriptCase) else case.expected


def _digest(row: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]


def _objects(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield (file:line, line, object) of every line that is not blank."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path}:{number}", number, _object(f"{path}:{number}", line)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "give a file of JSON lines") from error


def _object(where: str, line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise InputError(f"{where}: {len(line):,} bytes, a row may have {MAX_LINE_BYTES:,}", "shorten the answer")
    try:
        value = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}", "one JSON object a line, in UTF-8") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: {_named(value)}, not an object", "one JSON object a line")
    return value


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) < len(members):
        keys = [key for key, _ in members]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} twice")
    return value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


def _case(where: str, row: dict[str, Any]) -> Case:
    try:
        case = _ANY_CASE.validate_python(row)
        if isinstance(case, JsonCase):
            json_schema.check_case(case.expected, schema=case.json_schema, rule=case.rule)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", error.hint) from error
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in fault["loc"][1:]) or "verifier"
        hint = "verifiers: sql, cypher, json, typescript" if key == "verifier" else "see expert-cli evaluate --help"
        raise InputError(f"{where}: {key}: {fault['msg']}", hint) from error
    return case


def _file(where: str, path: Path, case: Case) -> Path | None:
    """Return the absolute path of the database or script. Raises InputError where it is missing."""
    named = case.database if isinstance(case, SqlCase) else case.script if isinstance(case, CypherCase) else ""
    if not named:
        return None
    found = (path.resolve().parent / named).resolve()
    if not found.is_file():
        raise InputError(f"{where}: {named}: no such file ({found})", "paths are relative to the file of the row")
    return found


def _named(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
