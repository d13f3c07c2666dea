"""What a data source names: a file, a folder, a hub id; which split, slice and configuration of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from expert_cli.config.data_sources import parse_source
from expert_cli.config.run_config import SourceSpec
from expert_cli.errors import InputError
from expert_cli.utils.files import matching


@pytest.mark.parametrize(
    ("written", "kind", "config", "split"),
    [
        ("rows.jsonl", "file", "", "train"),
        ("./rows.jsonl::train[:10]", "file", "", "train[:10]"),
        ("sql_dev.jsonl::dev[5:]", "file", "", "dev[5:]"),
        ("folder::test::small", "folder", "small", "test"),
        ("org/name::test::small", "hub", "small", "test"),
        ("org/name::[:5]", "hub", "", "train[:5]"),
    ],
)
def test_what_is_there_tells_what_it_is(tmp_path: Path, written: str, kind: str, config: str, split: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "sql_dev.jsonl").touch()
    spec = parse_source(written, (tmp_path,))
    path = "org/name" if kind == "hub" else str(tmp_path / written.partition("::")[0])
    assert spec == SourceSpec(kind, path, config, split)  # type: ignore[arg-type]


@pytest.mark.parametrize(("written", "split"), [("rows/*.jsonl.gz", "train"), ("rows\\?.jsonl.gz", "train")])
def test_a_pattern_is_local_where_it_fits_a_file(tmp_path: Path, written: str, split: str) -> None:
    here, odd = tmp_path / "here", tmp_path / "o[d]d"
    (here / "rows").mkdir(parents=True)
    (odd / "rows").mkdir(parents=True)
    spec = parse_source(written, (here, odd))
    assert (spec.kind, len(spec.tried)) == ("file", 2)
    for name in ("a", "b"):
        (odd / "rows" / f"{name}.jsonl.gz").touch()
    spec = parse_source(written, (here, odd))
    assert (spec.kind, spec.split, spec.tried) == ("files", split, ())
    assert {path.name for path in matching(spec.path)} == {"a.jsonl.gz", "b.jsonl.gz"}


@pytest.mark.parametrize(
    "name",
    [
        *("x/rows.jsonl.gz", "rows.tsv", "rows.csv.GZ", "rows/*", "data.json.bz2::train[:5]"),
        *("./rows", "C:/rows/train", "/nowhere/rows", "a/b/c.parquet"),
    ],
)
def test_what_looks_local_never_becomes_a_hub_id(tmp_path: Path, name: str) -> None:
    assert parse_source(name, (tmp_path,)).tried == (str(tmp_path / name.partition("::")[0]),)


@pytest.mark.parametrize(
    ("written", "revision", "config"), [("org/name@refs/convert/parquet::test", "refs/convert/parquet", "")]
)
def test_a_revision_stands_behind_the_id(tmp_path: Path, written: str, revision: str, config: str) -> None:
    spec = parse_source(written, (tmp_path,))
    assert spec == SourceSpec("hub", "org/name", config, "test", revision=revision)
    assert str(spec) == f"org/name@{revision}" + (f"::{config}" if config else "")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("*.jsonl::test", r'\*\.jsonl is a file, it has no split "test"'),
        ("rows.jsonl::test", 'rows.jsonl is a file, it has no split "test"'),
        ("rows.jsonl::train::small", 'rows.jsonl is a file, it has no configuration "small"'),
        ("rows\0.jsonl", "holds a NUL"),
        ("::train", "is not of the form"),
    ],
)
def test_what_a_file_has_not_is_refused(tmp_path: Path, written: str, message: str) -> None:
    for name in ("rows.jsonl", "sql_dev.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=message):
        parse_source(written, (tmp_path,))


@pytest.mark.skipif(os.name == "nt", reason="Windows says it in other words")
@pytest.mark.parametrize("path", ["./" + "x" * 300 + ".jsonl", "x" * 5000 + ".json"])
def test_a_path_that_is_too_long_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match="File name too long") as caught:
        parse_source(path, (tmp_path,))
    assert len(caught.value.message) < 120
