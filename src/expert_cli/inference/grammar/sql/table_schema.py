"""The tables and columns that a text describes, wherever they stand: its CREATE TABLE and CREATE VIEW statements, and the lines
of a compact schema prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from expert_cli.data.schema_prompt.styles import HEADING

_NAME = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+"|`[^`]+`|\[[^\]]+\])'
_HEAD = re.compile(
    rf"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:GLOBAL|LOCAL)\s+)?(?:(?:TEMP|TEMPORARY|UNLOGGED|VIRTUAL|MATERIALIZED)\s+)?"
    rf"(?P<kind>TABLE|VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>{_NAME}(?:\s*\.\s*{_NAME})*)\s*(?P<next>\(|AS\b)",
    re.IGNORECASE,
)
_PIECE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|[(),]|;", re.DOTALL)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_COMPACT = re.compile(rf"^{HEADING}\n(?:{_NAME}\(.*\)(?:\n|\Z))+", re.MULTILINE)
_COMPACT_TABLE = re.compile(rf"^(?P<name>{_NAME})\(", re.MULTILINE)
_FIRST = re.compile(rf"\s*(?P<name>{_NAME}|[\w$]+)")
_CONSTRAINTS = frozenset(
    ("PRIMARY", "FOREIGN", "UNIQUE", "CONSTRAINT", "CHECK", "KEY", "INDEX", "EXCLUDE", "FULLTEXT", "LIKE")
)
_CONSTRAINT_NEXT = re.compile(
    r"\s*(?:KEY\b|\(|INDEX\b|USING\b)|\s+[\w\"`\[\]]+\s*(?:\(|PRIMARY|FOREIGN|UNIQUE|CHECK)", re.IGNORECASE
)


@dataclass(frozen=True)
class Table:
    """A table: its name, its schema's name where one is written, its columns in their order, as they are written, unquoted.

    has_rowid: whether SQLite's rowid is a column of it.
    """

    name: str
    columns: tuple[str, ...]
    schema: str = ""
    has_rowid: bool = True


def tables_of(*texts: str) -> Mapping[str, Table]:
    """Return the tables that texts describe, by their names in lower case; the first of a name counts. Linear in the length."""
    found: dict[str, Table] = {}
    for text in texts:
        for head in _HEAD.finditer(text):
            table = _table(head, text)
            if table and table.columns:
                found.setdefault(table.name.lower(), table)
        for block in _COMPACT.finditer(text):
            for head in _COMPACT_TABLE.finditer(block[0]):
                columns = (_column(item, view=True) for item in _items(block[0], head.end())[0])
                named = Table(unquoted(head["name"]), tuple(filter(None, columns)))
                found.setdefault(named.name.lower(), named)
    return found


def _table(head: re.Match[str], text: str) -> Table | None:
    parts = [unquoted(part) for part in re.findall(_NAME, head["name"])]
    schema = parts[-2] if len(parts) > 1 else ""
    if head["next"] != "(":
        return None
    items, end = _items(text, head.end())
    view = head["kind"].upper() == "VIEW"
    columns = tuple(column for item in items if (column := _column(item, view)))
    rest = re.compile(r"\s*WITHOUT\s+ROWID", re.IGNORECASE)
    return Table(parts[-1], columns, schema, has_rowid=not view and not rest.match(text, end))


def _items(text: str, start: int) -> tuple[list[str], int]:
    """Return what stands between the commas of a bracket that opened before `start`, and where it ends."""
    items: list[str] = []
    depth, begin = 0, start
    for piece in _PIECE.finditer(text, start):
        mark = piece[0]
        if mark == "(":
            depth += 1
        elif mark == ";" or (mark == ")" and not depth):
            return [*items, text[begin : piece.start()]], piece.end()
        elif mark == ")":
            depth -= 1
        elif mark == "," and not depth:
            items.append(text[begin : piece.start()])
            begin = piece.end()
    return [*items, text[begin:]], len(text)


def _column(item: str, view: bool) -> str:
    """Return the name of a column's definition; "" of a constraint's."""
    item = _COMMENT.sub(" ", item)
    first = _FIRST.match(item)
    if first is None:
        return ""
    if not view and first["name"].upper() in _CONSTRAINTS and _CONSTRAINT_NEXT.match(item, first.end()):
        return ""
    return unquoted(first["name"])


def unquoted(name: str) -> str:
    """Return a name without its quotes."""
    if name[0] in '"`[' and len(name) > 1:
        return name[1:-1].replace('""', '"')
    return name
