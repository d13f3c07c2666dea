"""Which files hold the rows of a split: of a folder, a pattern, a hub data set, a URL. None of them is read for it."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from expert_cli.config.data_sources import parse_source, require_apart
from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.data.sources import Located, content_of, locate_data
from expert_cli.errors import EnvironmentProblem, ExpertError, InputError
from expert_cli.utils.files import sha256_of
from tests.hub_server import hub_server
from tests.object_storage import S3Server, write
from tests.words import Words

posix = pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
SHARDS = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000-of-00001.parquet"]
LEVELS = ["easy/1.jsonl", "easy/deep/2.jsonl", "hard/a.jsonl", "hard/b1.jsonl", "hard/c.jsonl"]
TWO = """{config_name: easy, default: true, data_files: [{split: train, path: easy/*.jsonl}]}
- {config_name: hard, data_files: [{split: train, path: [hard/b*, hard/a.jsonl]}, {split: dev_1, path: hard/c.jsonl}]}"""
COMMIT = "a" * 40
CARD = b"---\nconfigs:\n- {config_name: default, data_files: data/*}\n- {config_name: s, data_files: s.csv}\n---\n"
HUB = {"README.md": CARD, "data/0.jsonl": b"0", "data/1.jsonl": b"1", "s.csv": b"s"}


def made(folder: Path, names: list[str], readme: str = "") -> Path:
    """Make files that no reader of rows could read, and a README with configurations."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\xff")
    if readme:
        (folder / "README.md").write_text(f"---\nconfigs:\n- {readme}\n---\n# Words\n", encoding="utf-8")
    return folder


def located(written: str | Path, words: Words | None = None, *, offline: bool = True) -> Located:
    spec = parse_source(str(written), (Path("/"),))
    data = DataConfig((spec,), (), 0.0, ColumnMapping(), RowFilters(), True, 128, 7, offline)
    return locate_data(data, words or Words()).train[0]


@pytest.mark.parametrize(
    ("names", "readme", "asked", "expected", "unread"),
    [
        (SHARDS[::-1], "", "", SHARDS[:2], ""),
        (["dev.csv", "sql_train.csv"], "", "::validation", ["dev.csv"], ""),
        (["train.json", "config.json", "x.json"], "", "", ["train.json"], "x.json"),
        (["notes.txt", "deep/er/c.TSV.gz"], "", "", ["deep/er/c.TSV.gz"], ""),
        (["a.jsonl", ".b.jsonl", "__c.jsonl", ".git/d.jsonl"], "", "", ["a.jsonl"], ".b.jsonl, __c.jsonl"),
        (["1.csv", *(f"{n}.tar" for n in "234567")], "", "", ["1.csv"], "2.tar, 3.tar, 4.tar, 5.tar, 6.tar and 1 more"),
        (LEVELS, TWO, "", LEVELS[:1], ", ".join(LEVELS[1:])),
        (LEVELS, TWO, "::train::hard", [LEVELS[3], LEVELS[2]], ", ".join(LEVELS[:2])),
        (LEVELS, TWO, "::dev_1::hard", LEVELS[4:], ", ".join(LEVELS[:2])),
        (["a/train.csv", "b/1.csv"], "{config_name: a, data_dir: ./a/}", "::train::a", ["a/train.csv"], "b/1.csv"),
    ],
)
def test_the_files_of_a_split_are_taken_in_order_and_others_that_look_like_rows_are_named(
    tmp_path: Path, names: list[str], readme: str, asked: str, expected: list[str], unread: str
) -> None:
    words = Words()
    assert located(f"{made(tmp_path, names, readme)}{asked}", words).files == tuple(map(tmp_path.joinpath, expected))
    assert words.lines == ([f"warning: {tmp_path}: not read: {unread}"] if unread else [])


@pytest.mark.parametrize(
    ("names", "readme", "asked", "message"),
    [
        (SHARDS[1:], "", "", "data/train has 1 of 2 parts"),
        (SHARDS, "", "::dev", r'no file has the split "dev"; there is: train \(2\), test \(1\)$'),
        (["train.csv", "train.jsonl.gz"], "", "", r"of 2 formats \(\.csv, \.jsonl\.gz\)"),
        (LEVELS, TWO, "::train::medium", 'there is no configuration "medium"; there is: easy, hard'),
        (LEVELS, "config_name: a\n- config_name: b", "", "several configurations and no default one"),
        (LEVELS, "[", "", "the README's metadata: while parsing a flow node"),
        (
            ["x.xlsx"],
            "{config_name: a, data_files: x.xlsx}",
            "",
            r"is in x\.xlsx, which does not exist or is not a file of rows",
        ),
        (["a.jsonl"], "{config_name: a, data_files: ['*', b.jsonl]}", "", r"is in b\.jsonl, which does not exist"),
        (["a.jsonl"], f"{{config_name: a, data_files: {__file__}}}", "", r"is in .*\.py, which does not exist"),
    ],
)
def test_a_split_in_part_is_refused(tmp_path: Path, names: list[str], readme: str, asked: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        located(f"{made(tmp_path, names, readme)}{asked}")


def test_a_pattern_names_files_and_what_else_it_fits_is_named(tmp_path: Path) -> None:
    made(tmp_path, ["b.jsonl", "a.jsonl", ".c.jsonl", "deep/d.jsonl", "notes.md"])
    words = Words()
    assert located(f"{tmp_path}/*", words).files == (tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert words.lines == [f"warning: {tmp_path}/*: not read: {tmp_path}/notes.md"]
    with pytest.raises(InputError, match="no file of rows fits it"):
        located(f"{tmp_path}/*.md")


@posix
def test_links_to_folders_are_followed_once_and_what_is_no_file_is_refused_unopened(tmp_path: Path) -> None:
    here = made(tmp_path, ["here/a.jsonl", "here/sub/b.jsonl", "there/x.jsonl"]) / "here"
    for link, target in {"here/linked": "there", "here/again": "here/sub", "there/circle": "here"}.items():
        (tmp_path / link).symlink_to(tmp_path / target)
    assert sorted(file.name for file in located(here).files) == ["a.jsonl", "b.jsonl", "x.jsonl"]
    os.mkfifo(here / "pipe")
    for target in ("pipe", "/dev/zero", "gone"):
        (here / "c.jsonl").symlink_to(target)
        with pytest.raises(InputError, match=r"c\.jsonl: not a file that can be read"):
            located(here)
        (here / "c.jsonl").unlink()


@posix
def test_the_hub_clients_cache_serves_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    home = made(tmp_path / "datasets--org--rows", ["refs/main", "blobs/0", f"snapshots/{COMMIT}/data/0"])
    (home / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    snapshot = home / "snapshots" / COMMIT
    for name, content in HUB.items():
        blob = home / "blobs" / sha256(content).hexdigest()
        blob.write_bytes(content)
        (snapshot / name).symlink_to(blob)
    found = located("org/rows")
    assert (found.files, found.revision) == ((snapshot / "data/0.jsonl", snapshot / "data/1.jsonl"), COMMIT)
    csv = snapshot / "s.csv"
    assert located(f"org/rows@{COMMIT}::train::s").files == (csv,)
    assert content_of(csv, sha256_of) == sha256(b"s").hexdigest()
    (snapshot / "README.md").unlink()
    (snapshot / "README.md").write_text(
        "---\nconfigs: [{config_name: a, data_files: data/2.jsonl}]\n---", encoding="utf-8"
    )
    for written, told in {
        "org/rows": r"data/2\.jsonl, which does not exist",
        "org/rows@v2": '"org/rows@v2": .* not all of it is in the cache',
        "my data": '"my data" is neither a file nor the id of a hub data set',
    }.items():
        with pytest.raises(ExpertError, match=told):
            located(written)


def test_of_the_hub_one_split_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with hub_server(monkeypatch, "datasets", "org/rows", COMMIT, HUB) as asked:
        found = located("org/rows", offline=False)
        assert {path.partition(f"{COMMIT}/")[2] for path in asked if "/resolve/" in path} == {*HUB} - {"s.csv"}
        with pytest.raises(EnvironmentProblem, match=r'"org/down": .*501'):
            located("org/down", offline=False)
    with pytest.raises(EnvironmentProblem, match="org/rows"):
        located("org/rows", offline=False)
    assert located("org/rows") == found
    found.files[-1].unlink()
    with pytest.raises(EnvironmentProblem, match="not all of it is in the cache"):
        located("org/rows")


def test_a_url_names_objects_unread(bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in ("rows.jsonl", "x.parquet/1.parquet", "some/train-2.jsonl", "some/train-10.jsonl", "some/valid.jsonl"):
        write(f"{bucket}/{name}", b"\xff")
    s3_server.door.requests.clear()
    with pytest.raises(EnvironmentProblem, match=r"the network may not be used \(--offline is given\)"):
        located(f"{bucket}/some")
    assert s3_server.door.requests == []
    for written, names in {
        "x.parquet": ["x.parquet/1.parquet"],
        "some/": ["some/train-10.jsonl", "some/train-2.jsonl"],
        "some/train-1*.jsonl": ["some/train-10.jsonl"],
        "*/valid.jsonl": ["some/valid.jsonl"],
    }.items():
        assert list(map(str, located(f"{bucket}/{written}", offline=False).files)) == [f"{bucket}/{n}" for n in names]
    (file,) = located(f"{bucket}/rows.jsonl", offline=False).files
    assert [line for line in s3_server.door.requests if line.startswith("GET") and "list-type" not in line] == []
    assert content_of(file, sha256_of) == "00594fd4f42ba43fc1ca0427a0576295 1"  # S3's ETag of the byte 0xff; its size
    with pytest.raises(InputError, match=r"none\.jsonl: no object has this name or begins with it"):
        located(f"{bucket}/none.jsonl", offline=False)


def test_nothing_is_written_into_a_folder_of_rows(tmp_path: Path) -> None:
    rows = SourceSpec("folder", str(tmp_path / "rows"))
    data = DataConfig((rows,), (), 0.0, ColumnMapping(), RowFilters(), True, 128, 7, True)
    require_apart(data, tmp_path / "rows-out", "--output DIR")
    with pytest.raises(InputError, match="is inside the data folder"):
        require_apart(data, tmp_path / "rows" / "out", "--output DIR")
