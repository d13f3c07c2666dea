"""Every data set of a small world: caches, token stores, experts' folders; and what is broken in it."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import Dataset

from expert_cli.errors import InputError
from expert_cli.inventory.catalog import take_inventory
from expert_cli.inventory.hf_cache import arrow_name, hf_caches
from expert_cli.inventory.manifest_references import default_experts
from expert_cli.utils import reporter
from expert_cli.utils.reporter import NullReporter
from tests.dataset_world import COMMIT, Words, expert, hub, listed, made, parquet, states, store


@pytest.fixture
def world(tmp_path: Path) -> Path:
    (tmp_path / "project" / "experts").mkdir(parents=True)
    return tmp_path


def test_the_whole_world(world: Path) -> None:
    hub(world, "org/named", {"train.parquet": parquet(world / "p", 7), "README.md": b"# it\n"})
    hub(world, "idle", {"data.jsonl": b"{}\n"})
    stores = world / "project" / "datasets_optimized"
    store(stores / "one" / "tokenized")
    made(stores / "one" / "tokenized" / ".memo.json", b"{}")
    experts = world / "project" / "experts"
    expert(world, "one", {"path": "org/named", "test_path": "datasets/test.jsonl"})
    expert(world, "two", {"path": "datasets/rows", "validation_path": "gone/valid.csv"})
    expert(world, "three", {"path": "org/named"})
    expert(world, "four", {"path": "org/absent"})
    made(experts / "one" / "datasets" / "test.jsonl")
    made(experts / "one" / "datasets" / "old.jsonl")
    made(experts / "one" / "datasets" / "older.jsonl")
    made(experts / "one" / "weights" / "m" / "metrics.jsonl")
    made(experts / "one" / "tests" / "cases.jsonl")
    made(experts / "one" / "out" / "metrics.jsonl")
    made(experts / "one" / "out" / "run.json")
    parquet(experts / "two" / "datasets" / "rows" / "a.parquet", 3)
    parquet(experts / "two" / "datasets" / "rows" / "b.parquet", 4)
    made(experts / "nobody" / "data" / "x.csv", b"a\n1\n")
    rows = listed(world)
    assert states(rows) == {
        "org/named": ("hub", "used", ("one", "three")),
        "idle": ("hub", "unused", ()),
        "org/absent": ("hub", "missing", ("four",)),
        "one/tokenized/0123456789ab": ("token_store", "used", ("one",)),
        "one/datasets": ("folder", "used", ("one",)),
        "two/datasets/rows": ("folder", "used", ("two",)),
        "gone/valid.csv": ("file", "missing", ("two",)),
        "nobody/data/x.csv": ("file", "unused", ()),
    }
    assert {name: (len(row.tree.inodes), row.rows) for name, row in rows.items()} == {
        "org/named": (2, 7),
        "idle": (1, 1),
        "org/absent": (0, None),
        "one/tokenized/0123456789ab": (5, 2),
        "one/datasets": (3, 3),
        "two/datasets/rows": (2, 7),
        "gone/valid.csv": (0, None),
        "nobody/data/x.csv": (1, None),
    }
    assert rows["org/absent"].path == world / "hf" / "hub" / "datasets--org--absent"
    assert rows["one/datasets"].tree.bytes == 9
    assert {name: row.note for name, row in rows.items() if row.note} == {"one/datasets": "1 of 3 files named"}


def test_compressed_rows_patterns_and_lists_are_seen(world: Path) -> None:
    home = world / "project" / "experts" / "one"
    expert(world, "one", {"path": ["rows/*.jsonl.gz", "more/a.txt"], "test_path": ["t.tsv", "gone.tsv"]})
    for name in ("rows/a.jsonl.gz", "rows/b.jsonl.gz"):
        made(home / name, gzip.compress(b"{}\n{}\n"))
    made(home / "more" / "a.txt", b"one\n\ntwo\n")
    made(home / "more" / "notes.txt", b"words\n")
    made(home / "t.tsv", b"q\ta\n1\t2\n")
    made(home / "beside" / "c.csv.xz", lzma.compress(b"q,a\n1,2\n"))
    rows = listed(world)
    assert states(rows) == {
        "one/rows": ("folder", "used", ("one",)),
        "one/more/a.txt": ("file", "used", ("one",)),
        "one/t.tsv": ("file", "used", ("one",)),
        "gone.tsv": ("file", "missing", ("one",)),
        "one/beside/c.csv.xz": ("file", "unused", ()),
    }
    counted = {name: row.rows for name, row in rows.items() if row.rows is not None}
    assert counted == {"one/rows": 4, "one/more/a.txt": 2}


def test_what_to_type_to_train_on_it(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world / "project")
    experts = world / "project" / "experts"
    expert(world, "one", {"path": "datasets/train.jsonl", "validation_path": "datasets/valid.jsonl"})
    expert(world, "two", {"path": "../../../elsewhere/rows.jsonl"})
    expert(world, "three", {"path": "org/named"})
    hub(world, "org/named", {"train.parquet": parquet(world / "p", 7)})
    made(world / "elsewhere" / "rows.jsonl")
    made(world / "elsewhere" / "train.jsonl")
    for name in ("one/datasets/train", "one/datasets/valid", "two/flat/train", "two/flat/test", "two/deep/train"):
        made(experts / f"{name}.jsonl")
    for name in ("two/deep/more/train", "three/tests/train", "three/plain/a", "three/held/test-a", "three/held/test-b"):
        made(experts / f"{name}.jsonl")
    store(world / "project" / "datasets_optimized" / "one" / "tokenized")
    Dataset.from_dict({"text": ["a"]}).save_to_disk(experts / "three" / "saved")
    assert {name: row.option for name, row in listed(world).items()} == {
        "one/tokenized/0123456789ab": "",
        str(world / "elsewhere" / "rows.jsonl"): str(world / "elsewhere" / "rows.jsonl"),
        "one/datasets": "experts/one/datasets",
        "two/flat": "experts/two/flat",
        "two/deep/train.jsonl": "experts/two/deep/train.jsonl",
        "two/deep/more/train.jsonl": "experts/two/deep/more/train.jsonl",
        "three/plain/a.jsonl": "experts/three/plain/a.jsonl",
        "three/held": "",
        "three/saved": "experts/three/saved",
        "org/named": "org/named",
    }


def test_a_file_with_many_names_counts_once(world: Path) -> None:
    folder = hub(world, "org/rows", {"train.jsonl": b"12345"})
    hub(world, "org/rows", {"README.md": b"12"}, "b" * 40, ref=False)
    (folder / "snapshots" / ("b" * 40) / "train.jsonl").symlink_to(f"../../blobs/{COMMIT[:8]}{0:032x}")
    os.link(folder / "blobs" / f"{COMMIT[:8]}{0:032x}", folder / "blobs" / "twin")
    rows = listed(world)
    assert (rows["org/rows"].tree.bytes, len(rows["org/rows"].tree.inodes)) == (7, 2)
    made(world / "project" / "experts" / "a" / "data" / "x.jsonl", b"123")
    os.link(world / "project" / "experts" / "a" / "data" / "x.jsonl", folder / "snapshots" / COMMIT / "x.jsonl")
    found = take_inventory(world / "project" / "experts", hf_caches(world / "hf"), NullReporter())
    assert [row.tree.bytes for row in found.datasets] == [10, 3]
    assert found.bytes == 10


def test_rows_are_those_of_the_snapshot_that_is_read(world: Path) -> None:
    folder = hub(world, "org/rows", {"train.parquet": parquet(world / "p", 7)})
    hub(world, "org/rows", {"train.parquet": parquet(world / "p", 5)}, "b" * 40, ref=False)
    assert listed(world)["org/rows"].rows == 7
    (folder / "refs" / "main").write_text("c" * 40)
    assert (listed(world)["org/rows"].rows, listed(world)["org/rows"].note) == (
        None,
        "refs/main names no snapshot that is here",
    )


def only_refs(folder: Path) -> None:
    for path in [*(folder / "snapshots").rglob("*")]:
        if path.is_symlink():
            path.unlink()
    for path in (folder / "blobs").iterdir():
        path.unlink()


def lost_blob(folder: Path) -> None:
    next((folder / "blobs").iterdir()).unlink()


def half_download(folder: Path) -> None:
    made(folder / "blobs" / "1234.incomplete", b"half")


def link_to_elsewhere(folder: Path) -> None:
    made(folder.parent.parent / "other" / "lost.parquet", b"not one")
    (folder / "snapshots" / COMMIT / "other").symlink_to(folder.parent.parent / "other", target_is_directory=True)


def spoilt_parquet(folder: Path) -> None:
    made(folder / "snapshots" / COMMIT / "b.parquet", b"PAR1, it says")


def no_refs(folder: Path) -> None:
    (folder / "refs" / "main").unlink()


def a_fifo(folder: Path) -> None:
    os.mkfifo(folder / "snapshots" / COMMIT / "pipe.parquet")


@pytest.mark.skipif(os.name == "nt", reason="links and pipes")
@pytest.mark.parametrize(
    ("harm", "named", "status", "note"),
    [
        (only_refs, True, "missing", "no data file is downloaded"),
        (lost_blob, True, "damaged", "1 link leads nowhere"),
        (half_download, True, "used", "1 download is not finished"),
        (link_to_elsewhere, True, "used", ""),
        (spoilt_parquet, True, "damaged", "b.parquet does not open"),
        (no_refs, True, "used", ""),
        (a_fifo, False, "unused", ""),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_hub_entry_that_is_not_whole(
    world: Path, harm: Callable[[Path], None], named: bool, status: str, note: str
) -> None:
    folder = hub(world, "org/rows", {"a.parquet": parquet(world / "p", 2)})
    expert(world, "one", {"path": "org/rows" if named else "datasets/train.jsonl"})
    harm(folder)
    row = listed(world)["org/rows"]
    assert (row.status, row.note) == (status, note)


def test_the_arrow_cache_is_listed_and_does_not_serve_training(world: Path) -> None:
    cache = world / "hf" / "datasets"
    Dataset.from_list([{"a": 1}, {"a": 2}], split="train").to_json(made(world / "rows.jsonl"))
    from datasets import load_dataset

    load_dataset("json", data_files=str(world / "rows.jsonl"), cache_dir=str(cache))
    (built,) = (cache / "json").iterdir()
    built.rename(made(cache / "org___my_rows" / "x").parent / "default")
    made(cache / "downloads" / "0123")
    expert(world, "one", {"path": "org/MyRows"})
    rows = listed(world)
    assert states(rows) == {
        "org/MyRows": ("hub", "missing", ("one",)),
        "arrow:org/my_rows": ("arrow_cache", "used", ("one",)),
    }
    assert rows["arrow:org/my_rows"].rows == 2
    made(cache / "org___my_rows" / "default" / "1.0.0" / "hash" / "dataset_info.json")
    assert listed(world)["arrow:org/my_rows"].rows is None


@pytest.mark.parametrize(
    ("hub_id", "name"),
    [
        ("org/OpenHermes", "org/open_hermes"),
        ("b-mc2/sql-create-context", "b-mc2/sql-create-context"),
        ("IMDb", "im_db"),
    ],
)
def test_the_arrow_cache_spells_names_its_own_way(hub_id: str, name: str) -> None:
    from datasets.naming import camelcase_to_snakecase

    assert arrow_name(hub_id) == name
    assert camelcase_to_snakecase(hub_id.rpartition("/")[2]) == name.rpartition("/")[2]


def test_a_manifest_that_does_not_load_is_a_warning(world: Path) -> None:
    made(world / "project" / "experts" / "bad" / "manifest.json", b'{"name": ')
    made(world / "project" / "experts" / "bad" / "data" / "x.jsonl")
    expert(world, "good", {"path": "org/rows"})
    report = Words()
    assert states(listed(world, report=report)) == {
        "org/rows": ("hub", "missing", ("good",)),
        "bad/data/x.jsonl": ("file", "unused", ()),
    }
    (line,) = report.lines
    assert line.startswith(f"warning: {world / 'project' / 'experts' / 'bad' / 'manifest.json'}:1:")
    assert line.endswith("what this manifest names is not known")


def test_caches_and_experts_that_are_not_there(world: Path) -> None:
    assert take_inventory(None, hf_caches(world / "none"), NullReporter()).datasets == ()
    with pytest.raises(InputError, match="none: no such folder of experts"):
        take_inventory(world / "none", hf_caches(world / "none"), NullReporter())


@pytest.mark.parametrize("asked", ["hf", "hf/hub", "hf/datasets"])
def test_a_cache_may_be_named_by_its_parts(world: Path, asked: str) -> None:
    hub(world, "org/rows", {"a.jsonl": b"{}"})
    made(world / "hf" / "datasets" / "org___built" / "default" / "1.0.0" / "hash" / "a.arrow", b"x")
    found = take_inventory(None, hf_caches(world / asked), NullReporter())
    expected = {"hf": ["org/rows", "org/built"], "hf/hub": ["org/rows"], "hf/datasets": ["org/built"]}
    assert [row.name for row in found.datasets] == expected[asked]
    assert found.as_json()["hf_cache"] == str(world / asked)


def test_the_nearest_experts_folder_is_the_default(world: Path) -> None:
    home = world / "project" / "experts" / "one" / "datasets"
    home.mkdir(parents=True)
    assert default_experts(home) == world / "project" / "experts"
    assert default_experts(world / "project") == world / "project" / "experts"


@pytest.mark.parametrize(("after_s", "bars"), [(0.0, ["looking at data sets"]), (60.0, [])])
def test_a_long_search_shows_that_it_lives(
    world: Path, monkeypatch: pytest.MonkeyPatch, after_s: float, bars: list[str]
) -> None:
    monkeypatch.setattr(reporter, "QUIET_S", after_s)
    for number in range(300):
        made(world / "project" / "experts" / "one" / "data" / f"{number}.jsonl")
    report = Words()
    listed(world, report=report)
    assert report.bars == bars
