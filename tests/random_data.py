"""Small data files and folders, sound and broken, of every format: what the slow reader and ours are tried on."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.compressed import COMPRESS
from tests.slow_reader import FORMATS, LINES

TEXTS: tuple[str, ...] = (
    "plain",
    "Zürich — 東京 🦆",
    "line\nbreak",
    "a\ttab",
    '"quoted"; {"a": 1}, [2]',
    "\u2028-\x85",
    "'",
    "0",
    "null",
)
TEXTS += ("2024-01-01", "e\u0301", " spaced ", "\\n", "x" * 900, "<|im_end|>", ",,", "\r\nCRLF\r\n", "\ufeff", "1e400")
NO_ANSWERS = (None, 3, 1.5, True, ["a"], {"a": "b"}, "", " \n")
SOUND = 0.6
"""The share of data sets with nothing wrong."""


def make_data(folder: Path, chance: random.Random) -> Path:
    """Write a file or a folder of files into `folder` and return its path; the same for the same state of `chance`."""
    kind = chance.choice(["pair", "pair", "pair", "messages", "text"])
    suffix = chance.choice(_forms(kind))
    faults = 0 if chance.random() < SOUND else chance.choice([1, 1, 2, 5])
    if chance.random() < 0.5:
        return _file(folder / f"rows{chance.choice([suffix, suffix, suffix.upper()])}", kind, faults, chance)
    home = folder / "data"
    home.mkdir()
    stems = chance.choice(
        [["a", "b", "c"], ["a", "deep/b", "deep/er/c"], ["train-1", "train-2", "test"], ["train", "x"]]
    )
    for stem in stems[: chance.randint(1, 3)]:
        path = home / f"{stem}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        _file(path, kind, faults and chance.choice([0, faults]), chance)
    for _ in range(chance.choice([0, 0, 1, 2])):
        _beside(home, suffix, kind, chance)
    return home


def _forms(kind: str) -> list[str]:
    """The suffixes of files that hold rows of a kind, one in three compressed."""
    holding = {"messages": (".jsonl", ".ndjson", ".json"), "pair": LINES[:-1]}.get(kind, (*LINES, ".txt", ".txt"))
    plain = [*FORMATS[-2:], *holding]
    return [*plain * 2, *(form + packed for form in holding for packed in COMPRESS)]


def _beside(home: Path, suffix: str, kind: str, chance: random.Random) -> None:
    """Put something else into a folder: a link, a file of another format, a packed or a hidden one."""
    other = chance.choice(_forms(kind))
    match chance.randrange(10):
        case 0:
            _file(home / f"z{other}", kind, 0, chance)
        case 1:
            (home / "z.jsonl.gz").write_bytes(b"\x1f\x8b")
        case 2:
            (home / f"_z{suffix}").write_bytes(b"")
        case 3:
            (home / "z.xlsx").write_bytes(b"PK")
        case 4:
            (home / f"old{suffix}.bak").write_bytes(b"")
        case 5:
            (home / "notes.txt").write_text("words", encoding="utf-8")
        case _ if os.name == "nt":
            return
        case 6:
            _link(home / f"gone{suffix}", home / "nowhere")
        case 7:
            _link(home / "circle", home)
        case 8:
            elsewhere = home.parent / "elsewhere"
            elsewhere.mkdir(exist_ok=True)
            _file(elsewhere / f"train-9{suffix}", kind, 0, chance)
            _link(home / "linked", elsewhere)
        case _:
            elsewhere = home.parent / "single"
            elsewhere.mkdir(exist_ok=True)
            _link(home / f"train-8{suffix}", _file(elsewhere / f"x{suffix}", kind, 0, chance))


def _link(path: Path, target: Path) -> None:
    if not os.path.lexists(path):
        path.symlink_to(target)


def _file(path: Path, kind: str, faults: int, chance: random.Random) -> Path:
    count = chance.choice([1, 5, 110, 130, 250] if faults else [0, 1, 2, 3, 8, 8, 40, 130])
    rows = [_row(kind, chance) for _ in range(count)]
    for _ in range(min(faults, count)):
        _spoil(rows[chance.randrange(count)], kind, chance)
    packed = path.suffix.lower()
    suffix = path.with_suffix("").suffix.lower() if packed in COMPRESS else packed
    if suffix in (".parquet", ".arrow"):
        _write_table(path, kind, rows, faults, chance)
    else:
        writers: dict[str, Callable[[list[dict[str, Any]], int, random.Random], bytes]] = {
            ".csv": partial(_csv_bytes, ","),
            ".tsv": partial(_csv_bytes, "\t"),
            ".json": _json_bytes,
            ".txt": _text_bytes,
        }
        writer = writers.get(suffix, _line_bytes)
        content = writer(rows, faults, chance)
        if faults and chance.random() < 0.1:
            content = content.decode("utf-8", "replace").encode("utf-16")
        content = (b"\xef\xbb\xbf" if chance.random() < 0.15 else b"") + content
        content = COMPRESS.get(packed, bytes)(content)
        if packed in COMPRESS and faults and chance.random() < 0.2:
            content = content[: chance.randrange(len(content))] + chance.choice([b"", b"more"])
        path.write_bytes(content)
    return path


def _row(kind: str, chance: random.Random) -> dict[str, Any]:
    def text() -> str:
        return "".join(chance.choices(TEXTS, k=chance.choice([1, 1, 1, 2])))

    if kind == "text":
        row: dict[str, Any] = {"text": text()}
    elif kind == "messages":
        roles = ["system"] * chance.randrange(2) + ["user", "assistant"] * chance.choice([1, 1, 2])
        roles += ["user"] * (chance.random() < 0.1)
        row = {"messages": [{"role": role, "content": text() + "."} for role in roles]}
    else:
        row = {"question": text(), "answer": text()}
        if chance.random() < 0.5:
            row["context"] = chance.choice([None, "", text()])
    if chance.random() < 0.3:
        row["id"] = chance.choice([1, -7, 2**40])
    if chance.random() < 0.1:
        row["Note"] = chance.choice(["", "a"])
    items = list(row.items())
    chance.shuffle(items)
    return dict(items)


def _spoil(row: dict[str, Any], kind: str, chance: random.Random) -> None:
    if kind == "messages":
        row["messages"] = chance.choice(
            [None, "x", [], [{"role": "user", "content": "q"}], [{"role": "judge", "content": "q"}], [{}], [3]]
            + [[{"role": "user", "content": "q"}, {"role": "assistant", "content": bad}] for bad in (None, "", 4)]
        )
    elif kind == "text":
        row["text"] = chance.choice(NO_ANSWERS)
    else:
        match chance.randrange(4):
            case 0:
                row.pop("answer", None)
            case 1:
                row["context"] = 5
            case 2:
                row["question"] = chance.choice(NO_ANSWERS[:-2])
            case _:
                row["answer"] = chance.choice(NO_ANSWERS)


def _line(row: dict[str, Any], chance: random.Random) -> bytes:
    separators = chance.choice([None, (",", ":"), (" , ", " :  ")])
    return json.dumps(row, ensure_ascii=chance.random() < 0.5, separators=separators).encode("utf-8")


def _line_bytes(rows: list[dict[str, Any]], faults: int, chance: random.Random) -> bytes:
    lines = [_line(row, chance) for row in rows]
    odd = [b"{broken", b"3", b"[1]", b'{"answer": "\xff"}', b'{"answer": "a", "answer": "b"}', b"{} {}", b"[" * 5000]
    odd += [b'{"question": "q", "answer": "\\ud800"}', b"null", b'{"question": "q", "answer": NaN}']
    for _ in range(faults if chance.random() < 0.5 else 0):
        lines.insert(chance.randint(0, len(lines)), chance.choice(odd))
    for _ in range(chance.choice([0, 0, 1, 3])):
        lines.insert(chance.randint(0, len(lines)), chance.choice([b"", b"  ", b"\t"]))
    end = chance.choice([b"\n", b"\n", b"\r\n"])
    return end.join(lines) + (end if chance.random() < 0.7 else b"")


def _json_bytes(rows: list[dict[str, Any]], faults: int, chance: random.Random) -> bytes:
    text = json.dumps(rows, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 1, "\t"]))
    form = chance.randrange(4)
    if form == 0 and len(rows) > 1:
        return _line_bytes(rows, faults, chance)
    if faults and form == 1:
        again = chance.choice([text, "]", "x", "{}", text[:-1]])
        return f"{text}\n{again}".encode()
    if faults and form == 2:
        beside = {"other": rows[:1], "data": rows}
        return json.dumps(chance.choice([beside, {"rows": rows}, rows[0], 3, {"data": {"train": rows}}])).encode()
    if form == 3:
        text = f'{{"version": "1", "data": {text}, "end": null}}'
    return (chance.choice(["", "\r\n", "  "]) + text + chance.choice(["", "\n", "\r\n \t"])).encode()


def _text_bytes(rows: list[dict[str, Any]], faults: int, chance: random.Random) -> bytes:
    end = chance.choice(["\n", "\r\n", "\n\n"])
    lines = [str(row["text"]).replace("\r", "").replace("\n", " ") for row in rows]
    spoilt = [b"\xff" if faults and chance.random() < 0.01 else line.encode() for line in lines]
    return end.encode().join(spoilt)


def _csv_bytes(delimiter: str, rows: list[dict[str, Any]], faults: int, chance: random.Random) -> bytes:
    names = sorted({name for row in rows for name in row}) or ["question", "answer"]
    chance.shuffle(names)
    file = io.StringIO()
    end = chance.choice(["\n", "\r\n"])
    quote_all = chance.choice([True, False])
    writer = csv.writer(
        file, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    )
    twice = faults and chance.random() < 0.1
    writer.writerow([names[0], *names[:-1]] if twice and len(names) > 1 else names)
    for row in rows:
        writer.writerow(["" if row.get(name) is None else str(row[name]) for name in names])
        if faults and chance.random() < 0.01:
            odd = [f"1{end}", f'"x"y,1{end}', f"\udcff,1{end}", f'"open{end}', ",".join("1234567") + end]
            file.write(chance.choice(odd).replace(",", delimiter))
        if chance.random() < 0.02:
            file.write(end)
    return file.getvalue().encode("utf-8", "surrogateescape")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_turns(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(turn, dict) and isinstance(turn.get("content"), str) for turn in value
    )


def _write_table(path: Path, kind: str, rows: list[dict[str, Any]], faults: int, chance: random.Random) -> None:
    names = sorted({name for row in rows for name in row}) or ["question", "answer"]
    columns: dict[str, Any] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, TypeError):
            # A column has one type: what does not fit becomes null, which is no answer either.
            fits = {"id": lambda value: isinstance(value, int), "messages": _is_turns}.get(name, _is_text)
            fitting = [value if fits(value) else None for value in values]
            columns[name] = pa.array(fitting)
        if pa.types.is_string(columns[name].type) and chance.random() < 0.2:
            columns[name] = (
                columns[name].cast(pa.large_string()) if chance.random() < 0.5 else columns[name].dictionary_encode()
            )
    table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    if faults and chance.random() < 0.2:
        name = chance.choice([name for name in names if name in ("question", "answer", "text", "messages")])
        table = table.append_column(name, columns[name])
    if path.suffix.lower() == ".parquet":
        pq.write_table(
            table, path, row_group_size=chance.choice([1, 7, 1000]), compression=chance.choice(["zstd", "none"])
        )
    else:
        form = chance.choice([pa.ipc.new_file, pa.ipc.new_stream])
        with pa.OSFile(str(path), "wb") as file, form(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=chance.choice([3, 1000]))
    if faults and chance.random() < 0.15:
        content = path.read_bytes()
        path.write_bytes(content[: chance.randrange(len(content))])
