"""Hub data sets: from a cache as the hub client lays it out, and from a small hub that runs in the test."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from huggingface_hub import constants

from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.data.sources.data_rows import locate_data
from expert_cli.data.sources.hub import refuse_damaged
from expert_cli.data.store.files import FileHashCache
from expert_cli.data.store.key import store_key
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import NullReporter
from tests.hub_server import hub_server
from tests.reading import read_training_rows

COMMIT = "a" * 40
README = """---
license: mit
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*
  - split: test
    path: data/test-*
- config_name: small
  data_files: small.jsonl
---
# Rows
"""


def row(answer: str) -> bytes:
    return (json.dumps({"question": "q", "answer": answer}) + "\n").encode()


FILES = {
    "README.md": README.encode(),
    "data/train-00000-of-00002.jsonl": row("t0"),
    "data/train-00001-of-00002.jsonl": row("t1"),
    "data/test-00000-of-00001.jsonl": row("e0"),
    "small.jsonl": row("s0"),
}
ROWS = SourceSpec("hub", "org/rows")


def data_config(spec: SourceSpec, *, offline: bool = True) -> DataConfig:
    return DataConfig((spec,), (), 0.0, ColumnMapping(), RowFilters(), True, 128, 7, offline)


@dataclass
class Listening(NullReporter):
    warned: list[str] = field(default_factory=list)

    def warning(self, text: str) -> None:
        self.warned.append(text)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub client."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return folder


def fill(cache: Path, names: list[str], tree: bool = False) -> Path:
    """Lay the cache out as the client does; with `tree` also the list of all files, as newer clients keep it."""
    repository = cache / "datasets--org--rows"
    for name in names:
        blob = repository / "blobs" / hashlib.sha256(FILES[name]).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(FILES[name])
        link = repository / "snapshots" / COMMIT / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if os.name == "nt":
            link.write_bytes(FILES[name])  # as the client does where links need a privilege
        else:
            link.symlink_to(blob)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    if tree:
        (repository / "trees").mkdir()
        listed = {name: {"size": len(content), "blob_id": "0" * 40} for name, content in FILES.items()}
        note = {"format_version": 1, "files": listed}
        (repository / "trees" / f"{COMMIT}.json").write_text(json.dumps(note), encoding="utf-8")
    return repository / "snapshots" / COMMIT


@pytest.mark.parametrize(
    ("spec", "answers"),
    [
        (ROWS, ["t0", "t1"]),
        (replace(ROWS, split="train[1:]"), ["t1"]),
        (replace(ROWS, split="test"), ["e0"]),
        (replace(ROWS, config="small"), ["s0"]),
    ],
    ids=["default", "slice", "split", "config"],
)
def test_the_cache_serves_without_a_network(cache: Path, spec: SourceSpec, answers: list[str]) -> None:
    folder = fill(cache, list(FILES))
    before = sorted(cache.rglob("*"))
    rows = read_training_rows(data_config(spec), NullReporter())
    assert rows.train.response == answers
    assert rows.located.train[0].revision == COMMIT
    assert all(path.is_relative_to(folder) for path in rows.files)
    assert sorted(cache.rglob("*")) == before


@pytest.mark.parametrize("tree", [False, True], ids=["by the shard's number", "by the list of files"])
def test_an_incomplete_cache_is_not_used(cache: Path, tree: bool) -> None:
    fill(cache, ["README.md", "data/train-00000-of-00002.jsonl"], tree)
    with pytest.raises((EnvironmentProblem, InputError)) as caught:
        locate_data(data_config(ROWS), NullReporter())
    assert "00001" in caught.value.message
    if tree:
        assert "1 of 2 files" in caught.value.message
        with pytest.raises(EnvironmentProblem, match="1 of 1 files of the split"):
            locate_data(data_config(replace(ROWS, config="small")), NullReporter())


@pytest.mark.skipif(os.name == "nt", reason="a cache without links has no blobs")
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "rows/b.jsonl",
            "gone",
            r'1 of 2 files of the split "train" are not whole in the cache: rows/b\.jsonl leads now',
        ),
        ("rows/b.jsonl", "cut", r"rows/b\.jsonl has 5 bytes, not 34"),
    ],
)
def test_a_broken_blob_is_not_passed_over(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, change: str, message: str
) -> None:
    for other in ("rows/a.jsonl", "rows/b.jsonl"):
        monkeypatch.setitem(FILES, other, row(f"r{other[5]}"))
    monkeypatch.setitem(FILES, "README.md", b"---\nconfigs: [{data_files: rows/*}]\n---\n")
    folder = fill(cache, ["README.md", "rows/a.jsonl", "rows/b.jsonl"], tree=change == "cut")
    assert read_training_rows(data_config(ROWS), NullReporter()).train.response == ["ra", "rb"]
    blob = (folder / name).resolve()
    if change == "gone":
        blob.unlink()
    else:
        blob.write_bytes(blob.read_bytes()[:5])
    with pytest.raises(EnvironmentProblem, match=message):
        locate_data(data_config(ROWS), NullReporter())


@pytest.mark.skipif(os.name == "nt", reason="a cache without links has no blobs")
def test_a_blob_whose_content_is_not_what_its_name_says_is_refused(cache: Path, tmp_path: Path) -> None:
    path = fill(cache, ["small.jsonl"]) / "small.jsonl"
    refuse_damaged(path, sha256_of(path))
    path.resolve().write_bytes(b"x" + FILES["small.jsonl"][1:])
    located = locate_data(data_config(ROWS), NullReporter())
    with pytest.raises(EnvironmentProblem, match=r"small\.jsonl: damaged in the hub client's cache") as caught:
        store_key(data_config(ROWS), located, FileHashCache(tmp_path / "memo"), tokenizer="", template="")
    assert caught.value.hint == f"Delete {path.resolve()} and download the data set again."


def test_a_revision_is_another_commit(cache: Path) -> None:
    folder = fill(cache, [*FILES])
    refs = folder.parents[1] / "refs"
    (refs / "main").unlink()
    (refs / "v1").write_text(COMMIT, encoding="utf-8")
    for revision in ("v1", COMMIT):
        read = read_training_rows(data_config(replace(ROWS, revision=revision)), NullReporter())
        assert (read.train.response, read.located.train[0].revision) == (["t0", "t1"], COMMIT)
        assert str(read.located.train[0]) == f"org/rows@{revision}"
    for revision, name in (("", "org/rows"), ("v2", "org/rows@v2")):
        with pytest.raises(EnvironmentProblem, match=f'hub data set "{name}": .* it is not in the cache'):
            locate_data(data_config(replace(ROWS, revision=revision)), NullReporter())


def test_a_readme_that_was_not_downloaded_is_missed(cache: Path) -> None:
    fill(cache, [name for name in FILES if name != "README.md"], tree=True)
    reporter = Listening()
    locate_data(data_config(ROWS), reporter)
    assert reporter.warned == [
        "org/rows: its README is not in the cache; the files were chosen by their names",
        "org/rows: not read: small.jsonl (its name has no split)",
    ]


@pytest.mark.parametrize("by", ["run", "client"])
def test_an_absent_data_set_names_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", by == "client")
    monkeypatch.setenv("HF_HUB_OFFLINE", "yes" if by == "client" else "")
    monkeypatch.setattr(constants, "ENDPOINT", "http://must.not.be.asked.invalid")
    local = Path("/data/train.jsonl")
    with pytest.raises(EnvironmentProblem) as caught:
        locate_data(data_config(ROWS, offline=by == "run"), NullReporter(), alternatives=[local])
    why = "--offline is given" if by == "run" else "the variable HF_HUB_OFFLINE is set (HF_HUB_OFFLINE=yes)"
    assert caught.value.message == (
        f'hub data set "org/rows": the network may not be used ({why}), and it is not in the cache {cache}'
    )
    assert caught.value.hint == f"Give the rows as a local file or folder: --dataset PATH. On this machine: {local}."


@pytest.mark.parametrize("name", ["my data", "../x/y"])
def test_what_is_no_id_is_never_looked_up(cache: Path, name: str) -> None:
    with pytest.raises(InputError, match="neither a file nor the id of a hub data set"):
        locate_data(data_config(SourceSpec("hub", name)), NullReporter())
    assert not cache.exists()


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A hub on this machine; yields the paths that were asked for."""
    with hub_server(monkeypatch, "datasets", "org/rows", COMMIT, FILES) as asked:
        yield asked


def test_a_download_fetches_the_split_alone_and_serves_later_runs(
    cache: Path, hub: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    rows = read_training_rows(data_config(ROWS, offline=False), NullReporter())
    assert rows.train.response == ["t0", "t1"]
    assert rows.located.train[0].revision == COMMIT
    assert {path.rpartition("/")[2] for path in hub if "/resolve/" in path} == {
        "README.md",
        "train-00000-of-00002.jsonl",
        "train-00001-of-00002.jsonl",
    }
    assert capfd.readouterr() == ("", "")
    asked = len(hub)
    assert read_training_rows(data_config(ROWS), NullReporter()).train.response == ["t0", "t1"]
    assert len(hub) == asked
    assert (cache / "datasets--org--rows" / "refs" / "main").read_text(encoding="utf-8") == COMMIT


def test_a_revision_is_downloaded_and_found_again(cache: Path, hub: list[str]) -> None:
    spec = replace(ROWS, revision="v1", config="small")
    assert read_training_rows(data_config(spec, offline=False), NullReporter()).train.response == ["s0"]
    assert "/api/datasets/org/rows/revision/v1" in hub
    assert {path for path in hub if path.endswith("small.jsonl")} == {
        f"/datasets/org/rows/resolve/{COMMIT}/small.jsonl"
    }
    assert read_training_rows(data_config(spec), NullReporter()).train.response == ["s0"]
    assert [path.name for path in (cache / "datasets--org--rows" / "refs").iterdir()] == ["v1"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("org/absent", "the hub has no such data set, or it is private"),
        ("org/gated", "access has to be asked for on its page"),
        ("org/down", "the hub answered 501"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_what_the_hub_refuses_is_said_in_a_line(name: str, reason: str) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        locate_data(data_config(SourceSpec("hub", name), offline=False), NullReporter())
    assert f'hub data set "{name}": {reason}' in caught.value.message
    assert "\n" not in caught.value.message


def test_an_unreachable_hub_is_replaced_by_the_cache_with_a_warning(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(EnvironmentProblem, match="the hub cannot be reached"):
        locate_data(data_config(ROWS, offline=False), NullReporter())
    fill(cache, list(FILES))
    reporter = Listening()
    assert read_training_rows(data_config(ROWS, offline=False), reporter).train.response == ["t0", "t1"]
    assert len(reporter.warned) == 1
    assert f"using commit {COMMIT[:12]} from the cache" in reporter.warned[0]
