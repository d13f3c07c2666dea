"""What training reads is what a slow reader of a hundred lines reads, whatever the files hold; scripts try thousands more."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from expert_cli.data.formats import registry
from expert_cli.data.rows import selection
from tests import reading
from tests.compressed import COMPRESS
from tests.random_data import make_data
from tests.reading import disagreements
from tests.slow_reader import FORMATS, SlowRead, slow_read

SEEDS = range(100)
SLICES = [(0, None), (0, None), (3, None), (0, 60), (5, 90), (-40, None), (2, -3)]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_row_is_lost_or_changed_that_is_not_named(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr("expert_cli.data.formats.lines._BLOCK_BYTES", 700)
        monkeypatch.setattr(registry, "_ROWS", 7)
    if seed % 3 == 0:
        monkeypatch.setattr(selection, "ROOM_BYTES", 0)  # the files are read twice
    start, stop = SLICES[seed % len(SLICES)]
    assert disagreements(make_data(tmp_path, random.Random(seed)), start, stop) == []


def test_the_kept_data_sets_are_of_every_sort(tmp_path: Path) -> None:
    sorts: set[str] = set()
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = make_data(folder, random.Random(seed))
        read = slow_read(path)
        sort = (
            "broken"
            if read.broken
            else "bad"
            if read.bad > len(read.rows) / 100
            else "some bad"
            if read.bad
            else "sound"
        )
        sorts |= {sort if read.rows else "empty", *(["folder"] if path.is_dir() else map(str.lower, path.suffixes))}
        sorts |= {"unread"} if read.unread else set()
    assert sorts == {
        *("sound", "some bad", "bad", "broken", "empty", "unread", "folder"),
        *FORMATS,
        *COMPRESS,
    }


def test_the_slow_reader_says_what_is_there(tmp_path: Path) -> None:
    def turns(*contents: str) -> dict[str, object]:
        roles = ("user", "assistant") * 2
        return {"messages": [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]}

    lines = [{"question": "q", "answer": "a"}, {"question": "q", "answer": " "}, turns("u", "b", "v"), {"text": "t"}]
    (tmp_path / "train-1.jsonl").write_text("\n\n".join(map(json.dumps, lines)) + "\n{", encoding="utf-8")
    (tmp_path / "train-2.JSONL").write_bytes(b'\xef\xbb\xbf{"context": "c", "question": "q", "answer": "a"}\r\n')
    (tmp_path / "rest.jsonl").write_text("", encoding="utf-8")
    read = slow_read(tmp_path)
    assert read.good == [("q", "", "a"), ("user", "u", "assistant", "b"), ("t",), ("q", "c", "a")]
    assert read.rows == [*read.good[:1], None, *read.good[1:3], None, read.good[3]]
    assert (read.bad, read.broken, read.unread) == (2, [], ["rest.jsonl"])
    (tmp_path / "train-3.jsonl.gz").write_bytes(COMPRESS[".gz"](b'{"text": "t"}')[:-1])
    assert slow_read(tmp_path).broken == [tmp_path.name, "train-3.jsonl.gz"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.json", '[{"text": "a"}] []', SlowRead(broken=["x.json"])),
        ("x.json", '{"data": [{"text": "a"}]}', SlowRead([("a",)])),
        ("x.json", '{"data": [], "more": [1]}', SlowRead(broken=["x.json"])),
        ("x.json", '{"text": "a"}\n{"text": "b", "text": "c"}\nx', SlowRead([("a",), None, None])),
        ("x.csv", 'text,n\n"a\nb",1\n\nc\n', SlowRead([("a\nb",), None])),
        ("x.csv", "text,text\na,b\n", SlowRead(broken=["x.csv"])),
        ("x.parquet", "PAR1", SlowRead(broken=["x.parquet"])),
        ("x.txt", "a\n\n b \r\n", SlowRead([("a",), (" b ",)])),
        ("x.tsv", 'text\tn\n"a\tb"\t1\n', SlowRead([("a\tb",)])),
        ("x.rows", "a", SlowRead(broken=["x.rows"])),
        ("x.jsonl.gz", "a", SlowRead(broken=["x.jsonl.gz"])),
    ],
)
def test_the_slow_reader_reads_each_format(tmp_path: Path, name: str, content: str, expected: SlowRead) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    assert slow_read(tmp_path / name) == expected


def test_a_lost_file_a_lost_row_and_a_changed_one_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself: the slow reader is led to another file than ours."""
    rows = ['{"text": "a"}', '{"text": "b"}', '{"text": "c"}']
    path, other = tmp_path / "rows.jsonl", tmp_path / "other.jsonl"
    path.write_text("\n".join(rows), encoding="utf-8")
    monkeypatch.setattr(reading, "slow_read", lambda _: slow_read(other))
    for content, words in (
        ([*rows, '{"text": "d"}'], "3 rows are read, there are 4"),
        ([rows[0], '{"text": "B"}', rows[2]], "row 1 at .*:2 is \\('b',\\), not \\('B',\\)"),
        ([*rows, "{"], "0 rows are said to be bad, 1 are"),
    ):
        other.write_text("\n".join(content), encoding="utf-8")
        assert len(found := disagreements(path)) == 1
        assert re.search(words, found[0])
