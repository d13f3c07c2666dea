"""Unusual files of rows: each is read in full, or what was left out is named, or the whole is refused with the reason."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from tests.unusual_world import Content, lines, prepare, row, says

JSONL = "data/train.jsonl"
TWO = lines(row(1), row(2))
CSV = "instruction,output\nask 1,say 1\nask 2,say 2\n"


def table(*rows: dict[str, Any], **more: Any) -> bytes:
    """Return rows as a Parquet file."""
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), out, **more)
    return out.getvalue()


def columns(names: Sequence[str], *values: Sequence[Any]) -> bytes:
    """Return columns as a Parquet file; a name may come twice."""
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array(column) for column in values], names=list(names)), out)
    return out.getvalue()


def saved(path: Path) -> None:
    """Save a data set as `datasets` does, with a split for training and one for tests."""
    DatasetDict({"train": Dataset.from_list([row(1), row(2)]), "test": Dataset.from_list([row(9)])}).save_to_disk(path)


def linked(target: str) -> Any:
    """Return what makes a link to `target`."""
    return lambda path: path.symlink_to(target)


Files = dict[str, Content]
# id -> files, dataset, the answers that are trained, and what must be said ("" = nothing beyond the usual)
READ: dict[str, tuple[Files, Any, list[str], str]] = {
    "no line feed at the end": ({JSONL: TWO[:-1]}, JSONL, says(1, 2), ""),
    "empty lines between rows": ({JSONL: TWO.replace("\n", "\n\n\n")}, JSONL, says(1, 2), ""),
    "CRLF": ({JSONL: TWO.replace("\n", "\r\n")}, JSONL, says(1, 2), ""),
    "a byte order mark": ({JSONL: b"\xef\xbb\xbf" + TWO.encode()}, JSONL, says(1, 2), ""),
    "U+2028 within a value": ({JSONL: json.dumps(row(1, output="a\u2028b"), ensure_ascii=False)}, JSONL, ["a\u2028b"], ""),
    "a pair of surrogates, escaped": ({JSONL: json.dumps(row(1, output="😀"))}, JSONL, ["😀"], ""),
    "escapes that need not be": ({JSONL: '{"instruction": "\\u0061sk", "output": "\\u0073ay\\/"}\n'}, JSONL, ["say/"], ""),
    "a column that only some rows have": ({JSONL: lines(row(1), row(2, note="x"), row(3))}, JSONL, says(1, 2, 3), ""),
    "keys in another order": ({JSONL: lines({"output": "say 1", "instruction": "x"}, row(2))}, JSONL, says(1, 2), ""),
    "one list": ({"data/train.json": json.dumps([row(1), row(2)])}, "data/train.json", says(1, 2), ""),
    "JSON Lines under .json": ({"data/train.json": TWO}, "data/train.json", says(1, 2), ""),
    "one row": ({"data/train.json": json.dumps(row(1), indent=1)}, "data/train.json", says(1), ""),
    "CSV": ({"data/t.csv": CSV}, "data/t.csv", says(1, 2), ""),
    "CSV, blanks kept": ({"data/t.csv": "instruction,output\na,  x  \n"}, "data/t.csv", ["  x  "], ""),
    "CSV, numbers stay text": ({"data/t.csv": "instruction,output\na,007\nb,1e3\n"}, "data/t.csv", ["007", "1e3"], ""),
    "gzip": ({"data/train.jsonl.gz": gzip.compress(TWO.encode())}, "data/train.jsonl.gz", says(1, 2), ""),
    "gzip in two members": ({"data/train.jsonl.gz": gzip.compress(lines(row(1)).encode()) + gzip.compress(lines(row(2)).encode())}, "data/train.jsonl.gz", says(1, 2), ""),
    "a bzip2 file": ({"data/t.jsonl.bz2": bz2.compress(TWO.encode())}, "data/t.jsonl.bz2", says(1, 2), ""),
    "a pattern": ({f"data/{n}.jsonl.gz": gzip.compress(lines(row(n)).encode()) for n in (2, 1)}, "data/*.jsonl.gz", says(1, 2), ""),
    "a pattern and a slice": ({f"data/{n}.jsonl": lines(row(n)) for n in (1, 2, 3)}, "data/[0-9].jsonl::train[1:]", says(2, 3), ""),
    "a list of files": ({"b.jsonl": lines(row(1)), "a.csv": CSV}, {"path": ["b.jsonl", "a.csv::train[1:]"]}, says(1, 2), "dataset.path: applied"),
    "Parquet": ({"data/t.parquet": table(row(1), row(2))}, "data/t.parquet", says(1, 2), ""),
    "Parquet, dictionaries": ({"data/t.parquet": columns(["instruction", "output"], pa.array(["a", "a"]).dictionary_encode(), ["say 1", "say 2"])}, "data/t.parquet", says(1, 2), ""),
    "numbered parts in their order": ({f"data/p-{n}.jsonl": lines(row(n)) for n in (0, 1, 2)}, "data", says(0, 1, 2), ""),
    "a folder in a folder": ({"data/more/a.jsonl": lines(row(1)), "data/b.jsonl": lines(row(2))}, "data", says(2, 1), ""),
    "hidden files": ({"data/a.jsonl": lines(row(1)), "data/.b.jsonl": lines(row(2))}, "data", says(1), ""),
    "a README beside the rows": ({"data/README.md": "# Rows\n", "data/b.jsonl": lines(row(2))}, "data", says(2), ""),
    "a name with a blank": ({"my data/a b.jsonl": TWO}, "my data/a b.jsonl", says(1, 2), ""),
    "a name in other letters": ({"данные/строки.jsonl": TWO}, "данные/строки.jsonl", says(1, 2), ""),
    "a link to a file": ({"real/x.jsonl": TWO, "data/train.jsonl": linked("../real/x.jsonl")}, JSONL, says(1, 2), ""),
    "a saved data set": ({"data": saved}, "data", says(1, 2), ""),
    "the first rows": ({JSONL: lines(*(row(n) for n in range(9)))}, f"{JSONL}::train[:2]", says(0, 1), ""),
    "a file that is named twice": ({JSONL: lines(row(1))}, {"type": "multi_task", "tasks": {"a": {"train": JSONL}, "b": {"train": JSONL}}}, says(1, 1), ""),
    "one bad line of 200": ({JSONL: lines(*(row(n) for n in range(200))).replace(json.dumps(row(7)), "{")}, JSONL, says(*(n for n in range(200) if n != 7)), "1 |:8"),
    "the first row of 200 is bad": ({JSONL: lines({"x": 1}, *(row(n) for n in range(1, 200)))}, JSONL, says(*range(1, 200)), "1 "),
    "spare columns": ({JSONL: lines(row(1, id=7, source="web"), row(2, id=8, source="web"))}, JSONL, says(1, 2), "id|source"),
}  # fmt: skip

# id -> files, dataset, what the error says
REFUSED: dict[str, tuple[Files, Any, str]] = {
    "no file": ({}, JSONL, r"train\.jsonl"),
    "an empty file": ({JSONL: ""}, JSONL, r"train\.jsonl.*(no|0) (good )?rows?|empty"),
    "blanks alone": ({JSONL: " \n\n"}, JSONL, r"train\.jsonl.*(no|0) rows?|empty"),
    "a header alone": ({"data/t.csv": "instruction,output\n"}, "data/t.csv", r"t\.csv.*(no|0) rows?|empty"),
    "an empty folder": ({"data/.keep": ""}, "data", r"data"),
    "a folder of pictures": ({"data/a.png": b"\x89PNG"}, "data", r"data"),
    "UTF-16 with its mark": ({JSONL: TWO.encode("utf-16")}, JSONL, r"UTF-16"),
    "a list under .jsonl": ({JSONL: json.dumps([row(1), row(2)])}, JSONL, r"not a JSON object|row"),
    "objects over several lines under .json": ({"data/train.json": json.dumps(row(1), indent=1) + "\n" + json.dumps(row(2), indent=1)}, "data/train.json", r"not valid JSON|row"),
    "a folder of two formats": ({"data/a.jsonl": lines(row(1)), "data/b.csv": "instruction,output\nask,say 2\n"}, "data", r"formats"),
    "two sets of columns": ({JSONL: lines(*({**row(n), "question": "other", "answer": "other"} for n in (1, 2)))}, JSONL, r"output.*answer"),
    "NaN": ({JSONL: '{"instruction": "a", "output": NaN}\n'}, JSONL, r"train\.jsonl"),
    "Parquet that is cut": ({"data/t.parquet": table(row(1))[:-8]}, "data/t.parquet", r"t\.parquet"),
    "Parquet of two columns of one name": ({"data/t.parquet": columns(["instruction", "output", "output"], ["a"], ["x"], ["y"])}, "data/t.parquet", r"output"),
    "Parquet of bytes": ({"data/t.parquet": columns(["instruction", "output"], [b"\xff"], [b"\xfe"])}, "data/t.parquet", r"t\.parquet|binary|text"),
    "Parquet of numbers": ({"data/t.parquet": columns(["instruction", "output"], [1], [2])}, "data/t.parquet", r"t\.parquet|text|instruction|output"),
    "a slice of 5,000 digits": ({JSONL: TWO}, f"{JSONL}::train[:{'9' * 5000}]", r"slice"),
    "CSV with a quote that is never closed": ({"data/t.csv": 'instruction,output\na,"x\n'}, "data/t.csv", r"t\.csv"),
    "a ZIP archive": ({"data/t.zip": b"PK\5\6" + bytes(18)}, "data/t.zip", r"zip"),
    "a tar archive": ({"data/t.tar.gz": gzip.compress(bytes(10_240))}, "data/t.tar.gz", r"tar"),
    "links in a circle": ({"data/a.jsonl": linked("b.jsonl"), "data/b.jsonl": linked("a.jsonl")}, "data/a.jsonl", r"a\.jsonl"),
    "a pipe": ({"data/a.jsonl": os.mkfifo if hasattr(os, "mkfifo") else ""}, "data/a.jsonl", r"a\.jsonl"),
    "a pattern that fits nothing": ({JSONL: TWO}, "data/*.csv", r"no such file or folder; looked for at: .*data/\*\.csv"),
    "a list with a file that is not there": ({JSONL: TWO}, {"path": [JSONL, "data/x.jsonl"]}, r"data/x\.jsonl: no such file"),
    "a list of nothing": ({}, {"path": []}, r"path"),
    "lines of text": ({"data/t.txt": TWO}, "data/t.txt", r"t\.txt"),
    "a device": ({}, "/dev/zero", r"/dev/zero"),
    "a name of 300 letters": ({}, "a" * 300 + ".jsonl", r"aaa"),
    "a name with a zero in it": ({}, "a\0b.jsonl", r"a"),
    "a slice that ends before it begins": ({JSONL: TWO}, f"{JSONL}::train[2:1]", r"\[2:1\]|no rows"),
    "a split that no file has": ({JSONL: TWO}, f"{JSONL}::test", r"test"),
    "shares above the whole": ({JSONL: TWO}, f"{JSONL}::train[:200%]", r"200"),
    "an object that is no row": ({"data/t.json": json.dumps({"a": {"b": 1}})}, "data/t.json", r"t\.json|column"),
}  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="names and links that Windows does not have")
@pytest.mark.parametrize(("files", "dataset", "answers", "said"), READ.values(), ids=READ.keys())
def test_read_in_full_or_named(tmp_path: Path, files: Files, dataset: Any, answers: list[str], said: str) -> None:
    outcome = prepare(tmp_path, files, dataset)
    assert outcome.refused == ""
    assert outcome.answers == answers
    assert re.search(said, outcome.said)


@pytest.mark.skipif(sys.platform == "win32", reason="names and links that Windows does not have")
@pytest.mark.parametrize(("files", "dataset", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_the_reason(tmp_path: Path, files: Files, dataset: Any, why: str) -> None:
    outcome = prepare(tmp_path, files, dataset)
    assert re.search(why, outcome.refused, re.DOTALL), (outcome.refused or outcome.documents, outcome.said)
