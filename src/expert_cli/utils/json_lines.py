"""JSON lines: written exactly, read strictly, every fault with its file and line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from expert_cli.errors import InputError
from expert_cli.utils.files import unique_keys, write_bytes
from expert_cli.utils.redaction import redact
from expert_cli.utils.text import type_name

MAX_LINE_BYTES = 16 << 20


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows atomically, an object a line."""
    write_bytes(path, json_lines(rows))


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as JSON lines: exactly, but without the hub's tokens, and with "?" for half of a surrogate pair."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return redact(text).encode("utf-8", "replace")


def json_objects(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield (file:line, line, object) of every line that is not blank. Raises InputError with the place of the first fault."""
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
        value = json.loads(line.decode("utf-8-sig"), object_pairs_hook=unique_keys, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}", "one JSON object a line, in UTF-8") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: {type_name(value)}, not an object", "one JSON object a line")
    return value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")
