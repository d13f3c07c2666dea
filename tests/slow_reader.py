"""The rows of data files, read the plain way, one by one: what the fast readers are held against. Imports nothing of ours.

`slow_read` says which rows a file or folder holds and what is wrong with it; `make_data` writes small files and folders, sound
and broken, from a `random.Random`. `reading.disagreements` compares.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.compressed import DAMAGE, DECOMPRESS

LINES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt")
FORMATS = (*LINES, ".parquet", ".arrow")
Row = tuple[Any, ...]


@dataclass
class SlowRead:
    """What a file or folder holds.

    rows: one entry a row in order, its texts, or None where it cannot be used. broken: names of files that have to be
    refused. unread: names that have to be told. odd: True where no good row tells the columns.
    """

    rows: list[Row | None] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def bad(self) -> int:
        """How many rows cannot be used."""
        return sum(row is None for row in self.rows)

    @property
    def good(self) -> list[Row]:
        """The others."""
        return [row for row in self.rows if row is not None]


class _Broken(Exception):
    """A file that is no file of rows as a whole."""


def slow_read(path: Path) -> SlowRead:
    """Return the rows of the split "train" of a file or folder."""
    found = SlowRead()
    for name in _files(path, found) if path.is_dir() else [""]:
        file = path / name
        if not _form(file.name) or not file.is_file():
            found.broken.append(file.name)
            continue
        try:
            found.rows += map(_texts, _values(file))
        except (_Broken, pa.ArrowException, RecursionError, *DAMAGE):
            found.broken.append(file.name)
    return found


def _files(folder: Path, found: SlowRead) -> list[str]:
    names: list[str] = []
    seen: set[str] = set()
    links: list[Path] = []
    tops = [folder]
    while tops or links:
        top = tops.pop() if tops else links.pop(0)
        if os.path.realpath(top) in seen:
            found.unread.append(top.name)
            continue
        for here, folders, files in os.walk(top):
            seen.add(os.path.realpath(here))
            links += sorted(Path(here, name) for name in folders if Path(here, name).is_symlink())
            names += [Path(here, name).relative_to(folder).as_posix() for name in files]
    data = [name for name in sorted(names) if _form(name)]
    data = [name for name in data if not _form(name).startswith(".txt")] or data
    hidden = [name for name in data if any(part[0] in "._" for part in name.split("/"))]
    data = [name for name in data if name not in hidden]
    found.unread += [name.rpartition("/")[2] for name in names if name.endswith((".xlsx", ".bak"))]
    splits = {name: re.search(r"(^|[-._/])(train|test)([-._/]|$)", name) for name in data}
    unnamed = [name for name in data if not splits[name]]
    train = [name for name in data if (match := splits[name]) and match[2] == "train"]
    chosen = train if any(splits.values()) else data
    told = [name for name in hidden if not _form(name).startswith(".txt")]
    found.unread += [name.rpartition("/")[2] for name in told + (unnamed if any(splits.values()) else [])]
    if len({_form(name) for name in chosen}) > 1 or not chosen:
        found.broken.append(folder.name)
    return chosen


def _form(name: str) -> str:
    """The suffixes of a file of rows, "" of another."""
    path = Path(name.lower())
    inner = Path(path.stem).suffix
    if path.suffix in DECOMPRESS:
        return inner + path.suffix if inner in LINES else ""
    return path.suffix if path.suffix in FORMATS else ""


def _content(path: Path) -> bytes:
    return DECOMPRESS.get(path.suffix.lower(), bytes)(path.read_bytes())


def _values(path: Path) -> Iterator[Any]:
    """The rows as they stand; None for one that cannot be read. Raises _Broken and what parsing raises."""
    suffix = "." + _form(path.name).split(".")[1]
    if suffix == ".parquet":
        file = pq.ParquetFile(path)
        yield from _table_rows([file.read_row_group(number) for number in range(file.num_row_groups)])
    elif suffix == ".arrow":
        is_file = path.read_bytes()[:6] == b"ARROW1"
        reader = pa.ipc.open_file(path) if is_file else pa.ipc.open_stream(path.read_bytes())
        yield from _table_rows([reader.read_all()])
    elif _content(path)[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise _Broken
    elif suffix in (".csv", ".tsv"):
        yield from _csv_rows(path, "," if suffix == ".csv" else "\t")
    elif suffix == ".txt":
        yield from _text_rows(path)
    elif suffix == ".json":
        yield from _json_rows(path)
    else:
        yield from _line_rows(path)


def _table_rows(tables: list[pa.Table]) -> Iterator[Any]:
    for table in tables:
        if len(set(table.column_names)) < len(table.column_names):
            raise _Broken
        for number in range(table.num_rows):
            yield table.slice(number, 1).to_pylist()[0]


def _line_rows(path: Path) -> Iterator[Any]:
    for line in _content(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line.strip():
            try:
                yield _parsed(line.decode("utf-8"))
            except (ValueError, RecursionError):
                yield None


class _Twice(dict[str, Any]):
    """An object with a name that stands twice."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names) or any(isinstance(value, _Twice) for _, value in pairs):
        return _Twice(pairs)
    return dict(pairs)


def _parsed(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_pairs)


def _json_rows(path: Path) -> Iterator[Any]:
    text = _content(path).removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    try:
        value = _parsed(text)
    except ValueError:
        first = text.lstrip()[:1]
        if first != "{" or "\n" not in text.strip():
            raise
        _parsed(text.strip().split("\n")[0])  # the first line at least is a row
        yield from _line_rows(path)
        return
    if isinstance(value, _Twice):
        raise _Broken
    rows = value.get("data") if isinstance(value, dict) else value
    others = [v for key, v in value.items() if key != "data"] if isinstance(value, dict) else []
    if not isinstance(rows, list) or any(isinstance(other, list) and other for other in others):
        raise _Broken
    yield from rows


def _text_rows(path: Path) -> Iterator[Any]:
    for line in _content(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line.strip():
            try:
                yield {"text": line.decode("utf-8").removesuffix("\r")}
            except ValueError:
                yield None


def _csv_rows(path: Path, delimiter: str) -> Iterator[Any]:
    header: list[str] = []
    with io.StringIO(_content(path).decode("utf-8-sig", "surrogateescape"), newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if "end of data" in str(error):
                    raise _Broken from error
                yield None
                continue
            if cells and header:
                yield dict(zip(header, cells, strict=True)) if len(cells) == len(header) else None
            elif cells:
                header = cells
                if len(set(header)) < len(header):
                    raise _Broken


def _texts(value: Any) -> Row | None:
    """What a row says: its question, context and answer, its turns, or its text; None if it cannot be trained."""
    if not isinstance(value, dict) or isinstance(value, _Twice):
        return None
    if "messages" in value:
        texts = _turns(value["messages"])
    elif "text" in value:
        texts = (value["text"],)
    else:
        context = value.get("context")
        texts = (value.get("question"), "" if context is None else context, value.get("answer"))
    if texts is None or not all(isinstance(text, str) for text in texts) or not texts[-1].strip():
        return None
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        return None
    return texts


def _turns(turns: Any) -> Row | None:
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        return None
    said = [(turn.get("role"), turn.get("content")) for turn in turns]
    if not all(role in ("system", "user", "assistant") and isinstance(content, str) for role, content in said):
        return None
    answers = [number for number, (role, _) in enumerate(said) if role == "assistant"]
    return tuple(part for turn in said[: answers[-1] + 1] for part in turn) if answers else None
