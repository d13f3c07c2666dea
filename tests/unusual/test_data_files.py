"""Unusual files of rows: each is read in full, or what was left out is named, or the whole is refused with the reason."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from tests import tiny
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


def zipped(**files: str) -> bytes:
    """Return files as a ZIP archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def tarred(**files: str) -> bytes:
    """Return files as a tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def saved(path: Path) -> None:
    """Save a data set as `datasets` does, with a split for training and one for tests."""
    DatasetDict({"train": Dataset.from_list([row(1), row(2)]), "test": Dataset.from_list([row(9)])}).save_to_disk(path)


def linked(target: str) -> Any:
    """Return what makes a link to `target`."""
    return lambda path: path.symlink_to(target)


def unreadable(path: Path) -> None:
    """Make a folder that nobody but root can look into."""
    path.mkdir()
    (path / "b.jsonl").write_text(TWO, encoding="utf-8")
    path.chmod(0)


Files = dict[str, Content]
# id -> files, dataset, the answers that are trained, and what must be said ("" = nothing beyond the usual)
READ: dict[str, tuple[Files, Any, list[str], str]] = {
    "no line feed at the end": ({JSONL: TWO[:-1]}, JSONL, says(1, 2), ""),
    "empty lines between rows": ({JSONL: TWO.replace("\n", "\n\n\n")}, JSONL, says(1, 2), ""),
    "lines of blanks": ({JSONL: TWO.replace("\n", "\n  \t\n")}, JSONL, says(1, 2), ""),
    "CRLF": ({JSONL: TWO.replace("\n", "\r\n")}, JSONL, says(1, 2), ""),
    "a byte order mark": ({JSONL: b"\xef\xbb\xbf" + TWO.encode()}, JSONL, says(1, 2), ""),
    "blanks before a row": ({JSONL: "   " + TWO}, JSONL, says(1, 2), ""),
    "U+2028 within a value": ({JSONL: json.dumps(row(1, output="a\u2028b"), ensure_ascii=False)}, JSONL, ["a\u2028b"], ""),
    "U+0085 within a value": ({JSONL: json.dumps(row(1, output="a\x85b"), ensure_ascii=False)}, JSONL, ["a\x85b"], ""),
    "a form feed within a value": ({JSONL: json.dumps(row(1, output="a\fb"))}, JSONL, ["a\fb"], ""),
    "a pair of surrogates, escaped": ({JSONL: json.dumps(row(1, output="😀"))}, JSONL, ["😀"], ""),
    "letters outside the first plane": ({JSONL: json.dumps(row(1, output="𝒳"), ensure_ascii=False)}, JSONL, ["𝒳"], ""),
    "a combining mark": ({JSONL: json.dumps(row(1, output="e\u0301"), ensure_ascii=False)}, JSONL, ["e\u0301"], ""),
    "escapes that need not be": ({JSONL: '{"instruction": "\\u0061sk", "output": "\\u0073ay\\/"}\n'}, JSONL, ["say/"], ""),
    "a column that only some rows have": ({JSONL: lines(row(1), row(2, note="x"), row(3))}, JSONL, says(1, 2, 3), ""),
    "a column of numbers in some rows": ({JSONL: lines(row(1, id=1), row(2, id="x"), row(3, id=None))}, JSONL, says(1, 2, 3), ""),
    "keys in another order": ({JSONL: lines({"output": "say 1", "instruction": "x"}, row(2))}, JSONL, says(1, 2), ""),
    "one list": ({"data/train.json": json.dumps([row(1), row(2)])}, "data/train.json", says(1, 2), ""),
    "one list over many lines": ({"data/train.json": json.dumps([row(1), row(2)], indent=4)}, "data/train.json", says(1, 2), ""),
    "a list with nothing after but blanks": ({"data/train.json": json.dumps([row(1)]) + "\n \n"}, "data/train.json", says(1), ""),
    "JSON Lines under .json": ({"data/train.json": TWO}, "data/train.json", says(1, 2), ""),
    "one row": ({"data/train.json": json.dumps(row(1), indent=1)}, "data/train.json", says(1), ""),
    "rows under data": ({"data/train.json": json.dumps({"data": [row(1), row(2)]})}, "data/train.json", says(1, 2), ""),
    "CSV": ({"data/t.csv": CSV}, "data/t.csv", says(1, 2), ""),
    "CSV with CRLF": ({"data/t.csv": CSV.replace("\n", "\r\n")}, "data/t.csv", says(1, 2), ""),
    "CSV with a mark": ({"data/t.csv": "\ufeff" + CSV}, "data/t.csv", says(1, 2), ""),
    "CSV, quoted commas and line feeds": ({"data/t.csv": 'instruction,output\n"a, b","x,\ny"\n'}, "data/t.csv", ["x,\ny"], ""),
    "CSV, doubled quotes": ({"data/t.csv": 'instruction,output\na,"say ""x"""\n'}, "data/t.csv", ['say "x"'], ""),
    "CSV, blanks kept": ({"data/t.csv": "instruction,output\na,  x  \n"}, "data/t.csv", ["  x  "], ""),
    "CSV, numbers stay text": ({"data/t.csv": "instruction,output\na,007\nb,1e3\n"}, "data/t.csv", ["007", "1e3"], ""),
    "CSV, words that look like nothing": ({"data/t.csv": "instruction,output\na,NA\nb,null\n"}, "data/t.csv", ["NA", "null"], ""),
    "CSV, no line feed at the end": ({"data/t.csv": CSV[:-1]}, "data/t.csv", says(1, 2), ""),
    "CSV, quoted header": ({"data/t.csv": '"instruction","output"\nask,say 1\n'}, "data/t.csv", says(1), ""),
    "gzip": ({"data/train.jsonl.gz": gzip.compress(TWO.encode())}, "data/train.jsonl.gz", says(1, 2), ""),
    "gzip in two members": ({"data/train.jsonl.gz": gzip.compress(lines(row(1)).encode()) + gzip.compress(lines(row(2)).encode())}, "data/train.jsonl.gz", says(1, 2), ""),
    "a list in gzip": ({"data/t.json.gz": gzip.compress(json.dumps([row(1)]).encode())}, "data/t.json.gz", says(1), ""),
    "TSV": ({"data/t.tsv": CSV.replace(",", "\t")}, "data/t.tsv", says(1, 2), ""),
    "a bzip2 file": ({"data/t.jsonl.bz2": bz2.compress(TWO.encode())}, "data/t.jsonl.bz2", says(1, 2), ""),
    "an xz file": ({"data/t.jsonl.xz": lzma.compress(TWO.encode())}, "data/t.jsonl.xz", says(1, 2), ""),
    "a pattern": ({f"data/{n}.jsonl.gz": gzip.compress(lines(row(n)).encode()) for n in (2, 1)}, "data/*.jsonl.gz", says(1, 2), ""),
    "a pattern and a slice": ({f"data/{n}.jsonl": lines(row(n)) for n in (1, 2, 3)}, "data/[0-9].jsonl::train[1:]", says(2, 3), ""),
    "a list of files": ({"b.jsonl": lines(row(1)), "a.csv": CSV}, {"path": ["b.jsonl", "a.csv::train[1:]"]}, says(1, 2), "dataset.path: applied"),
    "a document a line": ({"data/t.txt.bz2": bz2.compress(b"one\n\ntwo\n")}, "data/t.txt.bz2", ["one", "two"], ""),
    "Parquet": ({"data/t.parquet": table(row(1), row(2))}, "data/t.parquet", says(1, 2), ""),
    "Parquet, a row a group": ({"data/t.parquet": table(row(1), row(2), row_group_size=1)}, "data/t.parquet", says(1, 2), ""),
    "Parquet, zstd": ({"data/t.parquet": table(row(1), compression="zstd")}, "data/t.parquet", says(1), ""),
    "Parquet, dictionaries": (
        {"data/t.parquet": columns(["instruction", "output"], pa.array(["a", "a"]).dictionary_encode(), ["say 1", "say 2"])},
        "data/t.parquet", says(1, 2), "",
    ),
    "Parquet, large strings": (
        {"data/t.parquet": columns(["instruction", "output"], pa.array(["a"], pa.large_string()), pa.array(["say 1"], pa.large_string()))},
        "data/t.parquet", says(1), "",
    ),
    "numbered parts in their order": ({f"data/p-{n}.jsonl": lines(row(n)) for n in (0, 1, 2)}, "data", says(0, 1, 2), ""),
    "a folder in a folder": ({"data/more/a.jsonl": lines(row(1)), "data/b.jsonl": lines(row(2))}, "data", says(2, 1), ""),
    "hidden files": ({"data/a.jsonl": lines(row(1)), "data/.b.jsonl": lines(row(2))}, "data", says(1), ""),
    "an empty file beside a full one": ({"data/a.jsonl": "", "data/b.jsonl": lines(row(2))}, "data", says(2), ""),
    "a README beside the rows": ({"data/README.md": "# Rows\n", "data/b.jsonl": lines(row(2))}, "data", says(2), ""),
    "a name with a blank": ({"my data/a b.jsonl": TWO}, "my data/a b.jsonl", says(1, 2), ""),
    "a name in other letters": ({"данные/строки.jsonl": TWO}, "данные/строки.jsonl", says(1, 2), ""),
    "a name with brackets that is there": ({"data/a[1].jsonl": TWO}, "data/a[1].jsonl", says(1, 2), ""),
    "a name with a star that is there": ({"data/a*.jsonl": TWO}, "data/a*.jsonl", says(1, 2), ""),
    "upper-case ending": ({"data/T.JSONL": TWO}, "data/T.JSONL", says(1, 2), ""),
    "a slash at the end": ({JSONL: TWO}, "data/", says(1, 2), ""),
    "a dot before": ({JSONL: TWO}, "./data/train.jsonl", says(1, 2), ""),
    "a way back": ({JSONL: TWO}, "data/../data/train.jsonl", says(1, 2), ""),
    "a link to a file": ({"real/x.jsonl": TWO, "data/train.jsonl": linked("../real/x.jsonl")}, JSONL, says(1, 2), ""),
    "a link in the folder": ({"real/x.jsonl": TWO, "data/train.jsonl": linked("../real/x.jsonl")}, "data", says(1, 2), ""),
    "a linked folder": ({"real/x.jsonl": TWO, "data": linked("real")}, "data", says(1, 2), ""),
    "a saved data set": ({"data": saved}, "data", says(1, 2), ""),
    "a split of a saved data set": ({"data": saved}, "data::test", says(9), ""),
    "the first rows": ({JSONL: lines(*(row(n) for n in range(9)))}, f"{JSONL}::train[:2]", says(0, 1), ""),
    "the last rows": ({JSONL: lines(*(row(n) for n in range(9)))}, f"{JSONL}::train[-2:]", says(7, 8), ""),
    "rows between": ({JSONL: lines(*(row(n) for n in range(9)))}, f"{JSONL}::train[3:5]", says(3, 4), ""),
    "a share": ({JSONL: lines(*(row(n) for n in range(10)))}, f"{JSONL}::train[:20%]", says(0, 1), ""),
    "more rows than there are": ({JSONL: TWO}, f"{JSONL}::train[:50]", says(1, 2), ""),
    "a file that is named twice": ({JSONL: lines(row(1))}, {"type": "multi_task", "tasks": {"a": {"train": JSONL}, "b": {"train": JSONL}}}, says(1, 1), ""),
    "one bad line of 200": ({JSONL: lines(*(row(n) for n in range(200))).replace(json.dumps(row(7)), "{")}, JSONL, says(*(n for n in range(200) if n != 7)), "1 |:8"),
    "one empty answer of 200": (
        {JSONL: lines(*(row(n) if n != 7 else row(n, output="") for n in range(200)))}, JSONL, says(*(n for n in range(200) if n != 7)), "1 ",
    ),
    "one null of 200": (
        {JSONL: lines(*(row(n) if n != 7 else row(n, output=None) for n in range(200)))}, JSONL, says(*(n for n in range(200) if n != 7)), "1 ",
    ),
    "one number of 200": (
        {JSONL: lines(*(row(n) if n != 199 else [1] for n in range(200)))}, JSONL, says(*range(199)), "1 ",
    ),
    "the first row of 200 is bad": (
        {JSONL: lines({"x": 1}, *(row(n) for n in range(1, 200)))}, JSONL, says(*range(1, 200)), "1 ",
    ),
    "spare columns": ({JSONL: lines(row(1, id=7, source="web"), row(2, id=8, source="web"))}, JSONL, says(1, 2), "id|source"),
}  # fmt: skip

# id -> files, dataset, what the error says
REFUSED: dict[str, tuple[Files, Any, str]] = {
    "no file": ({}, JSONL, r"train\.jsonl"),
    "an empty file": ({JSONL: ""}, JSONL, r"train\.jsonl.*(no|0) (good )?rows?|empty"),
    "blanks alone": ({JSONL: " \n\n"}, JSONL, r"train\.jsonl.*(no|0) rows?|empty"),
    "an empty list": ({"data/t.json": "[]"}, "data/t.json", r"t\.json.*(no|0) rows?|empty"),
    "a header alone": ({"data/t.csv": "instruction,output\n"}, "data/t.csv", r"t\.csv.*(no|0) rows?|empty"),
    "an empty folder": ({"data/.keep": ""}, "data", r"data"),
    "a folder of pictures": ({"data/a.png": b"\x89PNG"}, "data", r"data"),
    "UTF-16 with its mark": ({JSONL: TWO.encode("utf-16")}, JSONL, r"UTF-16"),
    "a list under .jsonl": ({JSONL: json.dumps([row(1), row(2)])}, JSONL, r"not a JSON object|row"),
    "objects over several lines under .json": ({"data/train.json": json.dumps(row(1), indent=1) + "\n" + json.dumps(row(2), indent=1)}, "data/train.json", r"not valid JSON|row"),
    "a folder of two formats": ({"data/a.jsonl": lines(row(1)), "data/b.csv": "instruction,output\nask,say 2\n"}, "data", r"formats"),
    "plain beside packed": ({"data/a.jsonl": lines(row(1)), "data/b.jsonl.gz": gzip.compress(lines(row(2)).encode())}, "data", r"\.jsonl\.gz"),
    "Parquet beside JSON Lines": ({"data/a.parquet": table(row(1)), "data/b.jsonl": lines(row(2))}, "data", r"formats"),
    "two sets of columns": ({JSONL: lines(*({**row(n), "question": "other", "answer": "other"} for n in (1, 2)))}, JSONL, r"output.*answer"),
    "two lists": ({"data/t.json": json.dumps([row(1)]) + json.dumps([row(2)])}, "data/t.json", r"t\.json"),
    "words after a list": ({"data/t.json": json.dumps([row(1)]) + " and more"}, "data/t.json", r"t\.json"),
    "a list that does not end": ({"data/t.json": json.dumps([row(1), row(2)])[:-1]}, "data/t.json", r"t\.json"),
    "a list in a list": ({"data/t.json": json.dumps([[row(1)]])}, "data/t.json", r"t\.json"),
    "a number": ({"data/t.json": "7"}, "data/t.json", r"t\.json"),
    "lists in lines": ({JSONL: "[1]\n[2]\n"}, JSONL, r"train\.jsonl"),
    "half of the lines bad": ({JSONL: lines(row(1)) + "{\n"}, JSONL, r"train\.jsonl:?.*2|50"),
    "NaN": ({JSONL: '{"instruction": "a", "output": NaN}\n'}, JSONL, r"train\.jsonl"),
    "a key that comes twice": ({JSONL: '{"instruction": "a", "output": "x", "output": "y"}\n'}, JSONL, r"output|twice"),
    "half a pair of surrogates": ({JSONL: '{"instruction": "a", "output": "\\ud83d"}\n'}, JSONL, r"train\.jsonl"),
    "Latin-1": ({JSONL: json.dumps(row(1, output="caf\xe9"), ensure_ascii=False).encode("latin-1")}, JSONL, r"UTF-8|utf-8"),
    "zeros": ({JSONL: b"\0" * 100}, JSONL, r"train\.jsonl"),
    "gzip that is none": ({"data/t.jsonl.gz": TWO}, "data/t.jsonl.gz", r"t\.jsonl\.gz"),
    "gzip that is cut": ({"data/t.jsonl.gz": gzip.compress(TWO.encode())[:-9]}, "data/t.jsonl.gz", r"t\.jsonl\.gz"),
    "gzip without its name": ({JSONL: gzip.compress(TWO.encode())}, JSONL, r"train\.jsonl"),
    "Parquet that is none": ({"data/t.parquet": TWO}, "data/t.parquet", r"t\.parquet"),
    "Parquet that is cut": ({"data/t.parquet": table(row(1))[:-8]}, "data/t.parquet", r"t\.parquet"),
    "Parquet of two columns of one name": ({"data/t.parquet": columns(["instruction", "output", "output"], ["a"], ["x"], ["y"])}, "data/t.parquet", r"output"),
    "Parquet of bytes": ({"data/t.parquet": columns(["instruction", "output"], [b"\xff"], [b"\xfe"])}, "data/t.parquet", r"t\.parquet|binary|text"),
    "Parquet of numbers": ({"data/t.parquet": columns(["instruction", "output"], [1], [2])}, "data/t.parquet", r"t\.parquet|text|instruction|output"),
    "Parquet of messages with two contents": (
        {"data/t.parquet": columns(["messages"], pa.array([], pa.list_(pa.struct([("role", "string"), ("content", "string"), ("content", "string")]))))},
        "data/t.parquet", r"content.*more than once",
    ),
    "a slice of 5,000 digits": ({JSONL: TWO}, f"{JSONL}::train[:{'9' * 5000}]", r"slice"),
    "CSV of two columns of one name": ({"data/t.csv": "instruction,output,output\na,x,y\n"}, "data/t.csv", r"output"),
    "CSV with a row too long": ({"data/t.csv": "instruction,output\na,x,y,z\n"}, "data/t.csv", r"t\.csv"),
    "CSV with a row too short": ({"data/t.csv": "instruction,output\na\n"}, "data/t.csv", r"t\.csv"),
    "CSV with a quote that is never closed": ({"data/t.csv": 'instruction,output\na,"x\n'}, "data/t.csv", r"t\.csv"),
    "a ZIP archive": ({"data/t.zip": zipped(a=TWO)}, "data/t.zip", r"zip"),
    "a tar archive": ({"data/t.tar.gz": tarred(a=TWO)}, "data/t.tar.gz", r"tar"),
    "an ending that nobody knows": ({"data/t.rows": TWO}, "data/t.rows", r"t\.rows|\.rows"),
    "a dangling link": ({"data/a.jsonl": TWO, "data/b.jsonl": linked("nowhere.jsonl")}, "data", r"b\.jsonl"),
    "links in a circle": ({"data/a.jsonl": linked("b.jsonl"), "data/b.jsonl": linked("a.jsonl")}, "data/a.jsonl", r"a\.jsonl"),
    "a pipe": ({"data/a.jsonl": os.mkfifo if hasattr(os, "mkfifo") else ""}, "data/a.jsonl", r"a\.jsonl"),
    "a pattern that fits nothing": ({JSONL: TWO}, "data/*.csv", r"no such file or folder; looked for at: .*data/\*\.csv"),
    "a list with a file that is not there": ({JSONL: TWO}, {"path": [JSONL, "data/x.jsonl"]}, r"data/x\.jsonl: no such file"),
    "a list of nothing": ({}, {"path": []}, r"path"),
    "JSON lines under .txt": ({"data/t.txt": TWO}, "data/t.txt", r"t\.txt: begins as JSON lines"),
    "a device": ({}, "/dev/zero", r"/dev/zero"),
    "a name of 300 letters": ({}, "a" * 300 + ".jsonl", r"aaa"),
    "a name with a zero in it": ({}, "a\0b.jsonl", r"a"),
    "a folder that is the way to a file": ({JSONL: TWO}, f"{JSONL}/x.jsonl", r"train\.jsonl"),
    "a slice that ends before it begins": ({JSONL: TWO}, f"{JSONL}::train[2:1]", r"\[2:1\]|no rows"),
    "a slice of words": ({JSONL: TWO}, f"{JSONL}::train[abc]", r"abc"),
    "a slice that is not closed": ({JSONL: TWO}, f"{JSONL}::train[1", r"train\[1"),
    "a split that no file has": ({JSONL: TWO}, f"{JSONL}::test", r"test"),
    "a split that a saved data set lacks": ({"data": saved}, "data::valid", r"valid"),
    "shares above the whole": ({JSONL: TWO}, f"{JSONL}::train[:200%]", r"200"),
    "no column that is known": ({JSONL: lines({"x": "a", "y": "b"})}, JSONL, r"x.*y|column"),
    "an instruction alone": ({JSONL: lines({"instruction": "a"})}, JSONL, r"instruction|answer|response|column"),
    "answers that are all empty": ({JSONL: lines(row(1, output=""), row(2, output=" "))}, JSONL, r"train\.jsonl|empty"),
    "an object that is no row": ({"data/t.json": json.dumps({"a": {"b": 1}})}, "data/t.json", r"t\.json|column"),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.mark.skipif(sys.platform == "win32", reason="names and links that Windows does not have")
@pytest.mark.parametrize(("files", "dataset", "answers", "said"), READ.values(), ids=READ.keys())
def test_read_in_full_or_named(
    tmp_path: Path, model: Path, files: Files, dataset: Any, answers: list[str], said: str
) -> None:
    import re

    outcome = prepare(tmp_path, model, files, dataset)
    assert outcome.refused == ""
    assert outcome.answers == answers
    assert re.search(said, outcome.said)


@pytest.mark.skipif(sys.platform == "win32", reason="names and links that Windows does not have")
@pytest.mark.parametrize(("files", "dataset", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_the_reason(tmp_path: Path, model: Path, files: Files, dataset: Any, why: str) -> None:
    import re

    outcome = prepare(tmp_path, model, files, dataset)
    assert re.search(why, outcome.refused, re.DOTALL), (outcome.refused or outcome.documents, outcome.said)
