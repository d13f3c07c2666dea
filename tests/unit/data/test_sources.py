"""Which files a source is: in a folder, a pattern, a hub data set or object storage; what is not read is named."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict, load_dataset_builder
from huggingface_hub import constants

from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.config.source_names import parse_source
from expert_cli.data.sources import LocatedData, content_of, locate_data, require_apart
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError
from expert_cli.utils.files import sha256_of
from tests.hub_server import hub_server
from tests.object_storage import write
from tests.words import Words

ROW = b'{"question": "q", "answer": "a"}\n'
COMMIT = "a" * 40


def located(written: str | Path | SourceSpec, words: Words | None = None, *, offline: bool = False) -> LocatedData:
    spec = written if isinstance(written, SourceSpec) else parse_source(str(written), (Path.cwd(),))
    data = DataConfig((spec,), (), 0.0, ColumnMapping(), RowFilters(), True, 128, 7, offline)
    return locate_data(data, words or Words())


def names(folder: Path, written: str = "", words: Words | None = None) -> list[str]:
    """The files of a folder's split, by their names in it; nothing of them is read."""
    return [
        os.path.relpath(str(file), folder).replace(os.sep, "/") for file in located(f"{folder}{written}", words).files()
    ]


def made(folder: Path, *files: str, readme: str = "") -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"not rows")
    if readme:
        (folder / "README.md").write_text(f"---\n{readme}---\n# Rows\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("split", "files"),
    [
        ("", ["train.jsonl"]),
        ("::train[:10]", ["train.jsonl"]),
        ("::validation", ["dev.jsonl"]),
        ("::dev", ["dev.jsonl"]),
    ],
)
def test_files_are_those_that_datasets_finds(tmp_path: Path, split: str, files: list[str]) -> None:
    folder = made(tmp_path / "rows", "train.jsonl", "dev.jsonl", ".train.jsonl", "notes.md")
    assert names(folder, split) == files
    found = load_dataset_builder(str(folder), cache_dir=str(tmp_path / "cache")).config.data_files
    assert [Path(name).name for name in found["validation" if "v" in split else "train"]] == files


def test_files_that_look_like_rows_and_are_not_read_are_named(tmp_path: Path) -> None:
    words = Words()
    folder = made(tmp_path, "train.jsonl", "dev.jsonl", "extra.jsonl", "table.xlsx", "b.jsonl.bak", "picture.png")
    assert names(folder, words=words) == ["train.jsonl"]
    (told,) = words.lines
    assert [name for name in ("extra.jsonl", "table.xlsx", "picture.png", "dev.jsonl") if name in told] == [
        "extra.jsonl",
        "table.xlsx",
    ]


README = """configs:
- config_name: default
  data_files: [{split: train, path: data/*}, {split: test, path: late.jsonl}]
- config_name: small
  data_files: small.jsonl
- config_name: outside
  data_files: ../other/train.jsonl
"""


def test_a_readme_says_which_files_a_configuration_has(tmp_path: Path) -> None:
    made(tmp_path / "other", "train.jsonl")
    folder = made(tmp_path / "rows", "data/b.jsonl", "data/a.jsonl", "small.jsonl", readme=README)
    assert names(folder) == ["data/a.jsonl", "data/b.jsonl"]
    assert names(folder, "::train::small") == ["small.jsonl"]
    for written, told in {
        "::train::none": 'there is no configuration "none"; there is: default, small, outside',
        "::test": 'the README says that the split "test" is in late.jsonl, which is not there',
        "::train::outside": r"\.\./other/train\.jsonl, which is not there",
        "::validation": 'no file holds the split "validation"; there is: train \\(2\\)',
    }.items():
        with pytest.raises(InputError, match=told):
            names(folder, written)


def test_a_pattern_is_all_files_that_fit_it(tmp_path: Path) -> None:
    made(tmp_path, "b.jsonl", "a.jsonl", "sub/c.jsonl", "d.txt.bak")
    assert names(tmp_path, "/*.jsonl") == ["a.jsonl", "b.jsonl"]
    assert names(tmp_path, "/**/*.jsonl") == ["a.jsonl", "b.jsonl", "sub/c.jsonl"]
    for written, told in {"/*.bak": "no file of rows fits this pattern", "/*.csv": "no such file or folder"}.items():
        with pytest.raises(InputError, match=told):
            names(tmp_path, written)


def a_pipe(folder: Path) -> None:
    os.mkfifo(made(folder, "a.jsonl") / "p.jsonl")


def a_dead_link(folder: Path) -> None:
    (made(folder, "a.jsonl") / "b.jsonl").symlink_to(folder / "gone")


FAULTS: dict[str, tuple[Any, str]] = {
    "two forms": (lambda at: made(at, "a.jsonl", "b.csv"), r"files of 2 formats side by side \(.csv, .jsonl\)"),
    "a missing shard": (
        lambda at: made(at, "data/train-00000-of-00002.jsonl"),
        "data/train has 1 of 2 parts; number 00001 is missing",
    ),
    "a pipe": (a_pipe, "a named pipe, not a file of rows"),
    "a dead link": (a_dead_link, "a link that leads nowhere"),
    "nothing": (lambda at: made(at, "x.png"), 'no file holds the split "train"; there is: no data file'),
}


@pytest.mark.skipif(os.name == "nt", reason="pipes and links of POSIX")
@pytest.mark.parametrize(("make", "told"), FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_with_a_folder_is_told(tmp_path: Path, make: Any, told: str) -> None:
    (tmp_path / "rows").mkdir()
    make(tmp_path / "rows")
    with pytest.raises(InputError, match=told):
        names(tmp_path / "rows")


def test_a_folder_that_links_lead_to_is_read_once(tmp_path: Path) -> None:
    made(tmp_path, "rows/a.jsonl", "rows/sub/b.jsonl")
    (tmp_path / "rows" / "sub" / "loop").symlink_to(tmp_path / "rows")
    assert names(tmp_path / "rows") == ["a.jsonl", "sub/b.jsonl"]


def test_a_folder_that_save_to_disk_wrote_says_its_own_files(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    rows = {split: Dataset.from_list([{"a": split}]) for split in ("train", "validation")}
    DatasetDict(rows).save_to_disk(str(folder))
    assert names(folder) == ["train/data-00000-of-00001.arrow"]
    assert names(folder, "::dev") == ["validation/data-00000-of-00001.arrow"]
    with pytest.raises(InputError, match='no split "test": save_to_disk wrote this folder; there is: '):
        names(folder, "::test")
    (folder / "train" / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../../a.arrow"}]}))
    with pytest.raises(InputError, match=r"is listed in its state\.json, but it is not there"):
        names(folder)


def test_a_store_in_a_folder_of_rows_is_refused(tmp_path: Path) -> None:
    spec = SourceSpec("folder", str(tmp_path / "rows"))
    data = DataConfig((spec,), (), 0.0, ColumnMapping(), RowFilters(), True, 128, 7, True)
    require_apart(data, tmp_path / "out", "--output DIR")
    with pytest.raises(InputError, match="lies in the data folder") as caught:
        require_apart(data, tmp_path / "rows" / "out", "--output DIR")
    assert "--output DIR" in caught.value.hint


# The hub ----------------------------------------------------------------------------------------------------------------------

FILES = {"README.md": b"# Rows\n", "data/train-0.jsonl": ROW, "data/test-0.jsonl": ROW * 2, "logo.png": b"x"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def fill(cache: Path, *files: str) -> Path:
    """Lay the cache out as the hub client does: blobs named by their hash, links of a snapshot, the branch."""
    repository = cache / "datasets--org--rows"
    for name in files:
        blob = repository / "blobs" / hashlib.sha256(FILES[name]).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(FILES[name])
        link = repository / "snapshots" / COMMIT / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    return repository / "snapshots" / COMMIT


HUB = SourceSpec("hub", "org/rows")


def test_the_files_of_a_split_alone_are_fetched(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_server(monkeypatch, "datasets", "org/rows", COMMIT, FILES):
        (found,) = located(HUB).train
        assert [(file.name, Path(str(file)).read_bytes()) for file in found.files] == [("train-0.jsonl", ROW)]
        assert found.revision == COMMIT
        assert not list(cache.rglob("logo.png")) + list(cache.rglob("test-0.jsonl"))
    assert [file.name for file in located(HUB, offline=True).files()] == ["train-0.jsonl"]


def test_the_cache_serves_where_the_hub_does_not(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fill(cache, *FILES)
    assert located(HUB, offline=True).files() == [folder / "data" / "train-0.jsonl"]
    words = Words()
    with hub_server(monkeypatch, "datasets", "org/else", COMMIT, {}):
        assert located(HUB, words).files() == [folder / "data" / "train-0.jsonl"]
        with pytest.raises(EnvironmentProblem, match=r'"org/down": the hub answered 501, and it is not in the cache'):
            located(SourceSpec("hub", "org/down"))
    why = "the hub has no such data set, or it is private (hf auth login)"
    assert words.lines == [f"warning: org/rows: {why}; using commit {COMMIT[:12]} from the cache"]
    with pytest.raises(InputError, match=r'"a b/c" is neither a file nor the id of a hub data set'):
        located(SourceSpec("hub", "a b/c"))


def test_a_damaged_file_of_the_cache_is_refused(cache: Path) -> None:
    file = fill(cache, *FILES) / "data" / "train-0.jsonl"
    assert content_of(file, sha256_of) == hashlib.sha256(ROW).hexdigest()
    file.resolve().write_bytes(b"other")
    with pytest.raises(EnvironmentProblem, match="damaged in the hub client's cache") as caught:
        content_of(file, sha256_of)
    assert f"Delete {file.resolve()}" in caught.value.hint


# Object storage --------------------------------------------------------------------------------------------------------------


def test_a_url_is_an_object_a_folder_or_a_pattern(bucket: str) -> None:
    for name in ("rows.jsonl", "some/train-2.jsonl", "some/train-10.jsonl", "some/valid.jsonl"):
        write(f"{bucket}/{name}", ROW)
    (rows,) = located(f"{bucket}/rows.jsonl").files()
    before = content_of(rows, sha256_of)
    assert list(map(str, located(f"{bucket}/some").files())) == [
        f"{bucket}/some/train-10.jsonl",
        f"{bucket}/some/train-2.jsonl",
    ]
    assert list(map(str, located(f"{bucket}/some/v*.jsonl").files())) == [f"{bucket}/some/valid.jsonl"]
    write(f"{bucket}/rows.jsonl", ROW * 2)
    assert content_of(located(f"{bucket}/rows.jsonl").files()[0], sha256_of) != before
    for written, told in {
        f"{bucket}/none": "no object has this name, and none lies below it",
        f"{bucket}/some::test": 'no file holds the split "test"; there is: train',
    }.items():
        with pytest.raises(InputError, match=told):
            located(written)
    with pytest.raises(ExpertError, match="the network may not be used"):
        located(f"{bucket}/rows.jsonl", offline=True)
