"""The token store: found by content, verified before use, whole or absent."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from expert_cli.config.plan import Plan, make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.data.encode import Encoded
from expert_cli.data.packing.pack_plan import Pieces
from expert_cli.data.sources import Located, LocatedData
from expert_cli.data.store.build import TokenStore, build, convert_foreign_store, tokenize
from expert_cli.data.store.lookup import StoreInputs, StoreKey, StoreState, inspect_store, store_key
from expert_cli.data.store.store_files import FINGERPRINT, Documents, read_fingerprint, verify_store, write_shard
from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.hardware.machine import inspect
from expert_cli.utils import files
from expert_cli.utils.files import FileHashCache, write_sealed
from expert_cli.utils.paths import cache_folder, folder_of_url
from expert_cli.utils.reporter import NullReporter, Reporter
from tests import manifests
from tests.packs import encoded
from tests.tiny import TinyTokenizer, template_for, tiny_tokenizer
from tests.words import Words

KEY = StoreKey((("format", "1"), ("train data", "abc")))
BUILDING = f".building-{KEY.name}"
ROOT = str(Path(__file__).parents[4])
LENGTHS = [3, 2, 4, *[2] * 20]
SHARDS = {"train": [encoded((1, 2), (1, 1)), encoded((1, 3)), encoded(*[(1, 1)] * 20)], "validation": [encoded((1, 2))]}


def fill(building: Path) -> dict[str, Any]:
    for split, shards in SHARDS.items():
        for number, shard in enumerate(shards):
            write_shard(building / split, number, shard)
    return {"rows": 24}


def make(folder: Path, key: StoreKey = KEY, filled: Callable[[Path], dict[str, Any]] = fill) -> Path:
    return build(folder, key, filled, FileHashCache(folder), NullReporter())


def state(folder: Path, key: StoreKey = KEY, **how: bool) -> StoreState:
    return inspect_store(folder, key, FileHashCache(folder), **how)


def contents(home: Path) -> dict[str, bytes]:
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def breaks(building: Path) -> dict[str, Any]:
    write_shard(building / "train", 0, SHARDS["train"][0])
    raise KeyboardInterrupt


def test_what_was_written_is_read(tmp_path: Path) -> None:
    home = make(tmp_path)
    documents = Documents(home / "train")
    ids, trained = documents.document(2)
    assert ids.tolist() == [100, 200, 201, 9]
    assert trained.tolist() == [False, True, True, True]
    numbers = np.arange(23)
    for start in (0, 1):
        pieces = Pieces(numbers, start + 0 * numbers, documents.lengths)
        assert documents.trained_in(pieces).tolist() == [length - 1 - start for length in LENGTHS]
    assert documents.lengths.tolist() == LENGTHS
    assert documents.id_range() == (9, 201)
    assert home.name == KEY.name


def test_what_a_piece_trains_is_counted_in_it(tmp_path: Path) -> None:
    """Of two documents with two answers each, in two shards."""
    trained = np.array([0, 0, 1, 1, 0, 0, 0, 0, 1, 1], np.bool_)
    for shard in range(2):
        write_shard(tmp_path, shard, Encoded(np.arange(10, dtype=np.int32), np.array([0, 10]), trained))
    pieces = Pieces(np.repeat([0, 1], 3), np.tile([0, 4, 7], 2), np.tile([4, 8, 10], 2))
    assert Documents(tmp_path).trained_in(pieces).tolist() == [2, 0, 2] * 2


def test_the_datasets_library_opens_it(tmp_path: Path) -> None:
    opened = datasets.load_from_disk(str(make(tmp_path)))
    assert list(opened) == ["train", "validation"]
    assert opened["train"][1] == {"input_ids": [100, 9], "completion_mask": [False, True]}
    assert opened["train"].num_rows == 23


def test_an_interrupted_build_is_no_store_and_the_next_begins_anew(tmp_path: Path) -> None:
    whole = contents(make(tmp_path / "a"))
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "b", filled=breaks)
    assert state(tmp_path / "b").state == "missing"
    made = make(tmp_path / "b")
    assert contents(made) == whole
    assert not (made.parent / BUILDING).exists()


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def zero(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 3
    raw[middle : middle + 4096] = bytes(len(raw[middle : middle + 4096]))
    path.write_bytes(raw)


def flip_unseen(path: Path) -> None:
    seen = path.stat()
    flip(path)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


DAMAGES = {
    "delete": Path.unlink,
    "cut a byte": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "flip": flip,
    "flip, with the time restored": flip_unseen,
    "zero": zero,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_every_damage_to_every_file_is_found_and_mended(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    home = make(tmp_path)
    whole = contents(home)
    for name in whole:
        assert state(tmp_path).state == "hit"
        damage(home / name)
        found = state(tmp_path)
        assert (found.state, Path(name).name in found.reason) == ("damaged", True), name
        assert contents(make(tmp_path)) == whole


def test_a_hit_hashes_nothing_and_verify_hashes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make(tmp_path)
    hashed: list[Path] = []
    real = files.sha256_of
    monkeypatch.setattr(files, "sha256_of", lambda path: hashed.append(path) or real(path))
    assert state(tmp_path).state == "hit"
    assert hashed == []
    assert state(tmp_path, hash_all=True).state == "hit"
    assert len(hashed) == len(contents(home)) - 1


def test_a_full_disk_leaves_no_debris_and_the_old_store_intact(tmp_path: Path) -> None:
    old = make(tmp_path)
    whole = contents(old)
    other = StoreKey((("format", "1"), ("train data", "other")))

    def full(building: Path) -> dict[str, Any]:
        write_shard(building / "train", 0, SHARDS["train"][0])
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(EnvironmentProblem, match="No space left") as caught:
        make(tmp_path, other, full)
    assert caught.value.exit_code == 3
    assert contents(old) == whole
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".lock")} == {".memo.json", old.name}


def test_a_stale_store_says_what_changed(tmp_path: Path) -> None:
    home, other = make(tmp_path), StoreKey((("format", "1"), ("train data", "xyz"), ("template", "chatml")))
    found = state(tmp_path, other)
    assert found.state == "stale"
    assert found.changes == ("train data: abc -> xyz", "template: nothing -> chatml")
    home.rename(tmp_path / other.name)
    assert state(tmp_path, other).state == "damaged", "it holds another key than its name says"


BUILDER = """
import sys, time
sys.path.insert(0, {tests!r})
from tests.unit.data.store import test_build as t
from pathlib import Path
def slow(building):
    with open({log!r}, "a") as log:
        log.write("begun\\n")
    time.sleep({pause})
    return t.fill(building)
t.make(Path({folder!r}), filled=slow)
"""


def start_builder(folder: Path, log: Path, pause: float) -> subprocess.Popen[bytes]:
    code = BUILDER.format(tests=ROOT, log=str(log), pause=pause, folder=str(folder))
    return subprocess.Popen([sys.executable, "-c", code])


def test_builders_at_once_build_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    running = [start_builder(tmp_path / "store", log, 0.5) for _ in range(3)]
    assert [process.wait(timeout=600) for process in running] == [0] * 3
    assert log.read_text(encoding="utf-8").split() == ["begun"]


def test_a_dead_owners_lock_is_taken_over(tmp_path: Path) -> None:
    log = tmp_path / "log"
    owner = start_builder(tmp_path / "store", log, 600)
    while not log.exists():
        assert owner.poll() is None
        time.sleep(0.1)
    owner.kill()
    owner.wait()
    assert len(Documents(make(tmp_path / "store") / "train")) == 23


DATA = DataConfig(
    train=(SourceSpec("file", "x"),),
    validation=(),
    validation_share=0.0,
    mapping=ColumnMapping(),
    filters=RowFilters(),
    completion_only=True,
    max_seq_length=512,
    seed=1,
    offline=True,
)


def key_of(folder: Path, raw: bytes = b"rows", **changes: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.jsonl"
    path.write_bytes(raw)
    data = replace(DATA, **{name: value for name, value in changes.items() if name in DataConfig.__dataclass_fields__})
    located = LocatedData(tuple(Located(spec, (path,), changes.get("revision", "")) for spec in data.train), ())
    made_by = {"tokenizer": changes.get("tokenizer", "t"), "template": changes.get("template", "chatml")}
    return store_key(data, located, FileHashCache(folder), **made_by).sha256


CHANGES: dict[str, dict[str, Any]] = {
    "a byte": {"raw": b"rowz"},
    "an added byte": {"raw": b"rows "},
    "tokenizer": {"tokenizer": "u"},
    "template": {"template": "alpaca"},
    "mapping": {"mapping": ColumnMapping(instruction="q")},
    "masking": {"completion_only": False},
    "slice": {"train": (SourceSpec("file", "x", split="train[:5]"),)},
    "weight": {"train": (SourceSpec("file", "x", weight=2.0),)},
    "repeated rows": {"filters": RowFilters("row")},
    "repeated answers": {"filters": RowFilters("answer")},
    "validation share": {"validation_share": 0.1},
    "revision": {"revision": "abc"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_of_content_changes_the_key(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert key_of(tmp_path / "a") != key_of(tmp_path / "b", **changes)


def test_the_rule_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(tmp_path)
    monkeypatch.setattr("expert_cli.data.store.lookup.STORE_RULE", 0)
    assert key_of(tmp_path) != before


SAME: dict[str, dict[str, Any]] = {
    "length": {"max_seq_length": 64},
    "seed that draws nothing": {"seed": 2},
    "name of the path": {"train": (SourceSpec("file", "elsewhere"),)},
    "offline": {"offline": False},
}


@pytest.mark.parametrize("changes", SAME.values(), ids=SAME.keys())
def test_what_is_not_content_does_not(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert key_of(tmp_path / "a") == key_of(tmp_path / "b", **changes)


def test_the_seed_counts_where_rows_are_drawn(tmp_path: Path) -> None:
    drawn = (SourceSpec("file", "x", weight=0.5),)
    assert key_of(tmp_path / "a", train=drawn, seed=1) != key_of(tmp_path / "b", train=drawn, seed=2)
    assert key_of(tmp_path / "a", validation_share=0.1, seed=1) != key_of(tmp_path / "b", validation_share=0.1, seed=2)


ROW = '{"instruction": "q", "output": "a"}\n'


def tokenized(rows: Path, folder: Path, reporter: Reporter) -> TokenStore:
    data = replace(DATA, train=(SourceSpec("file", str(rows)),))
    located = LocatedData((Located(data.train[0], (rows,)),), ())
    template = template_for(tiny_tokenizer())
    inputs = StoreInputs(located, TinyTokenizer(), template, FileHashCache(folder))
    return tokenize(data, inputs, folder, reporter)


class AppendsWhileRead(Words):
    """Appends a row to a file when the words `when` are told."""

    def __init__(self, path: Path, when: str) -> None:
        super().__init__()
        self.path, self.when = path, when

    def progress(self, title: str, total: float | None, unit: str = "") -> Any:
        if title.startswith(self.when):
            self.path.write_text(self.path.read_text(encoding="utf-8") + ROW, encoding="utf-8")
        return super().progress(title, total, unit)


def test_a_source_that_changes_while_it_is_read_is_not_stored(tmp_path: Path) -> None:
    source, folder = tmp_path / "rows.jsonl", tmp_path / "out"
    source.write_text(ROW * 3, encoding="utf-8")
    with pytest.raises(InputError, match=r"rows\.jsonl: changed while it was read"):
        tokenized(source, folder, AppendsWhileRead(source, "reading"))
    assert not list(folder.glob("[0-9a-f]*"))
    store = tokenized(source, folder, NullReporter())
    assert (store.status, len(store.training())) == ("built", 4)
    assert tokenized(source, folder, NullReporter()).status == "hit"


# What is read of it -------------------------------------------------------------------------------------------------------


def converted(
    folder: Path, saved: Any = None, tokenizer: TinyTokenizer = TinyTokenizer(), **columns: Any
) -> TokenStore:
    (saved or datasets.Dataset.from_dict(columns)).save_to_disk(str(folder / "rows"))
    nothing, hashes = LocatedData((), ()), FileHashCache(folder)
    inputs = StoreInputs(nothing, tokenizer, template_for(tiny_tokenizer()), hashes)
    return convert_foreign_store(folder / "rows", folder / "out", inputs, NullReporter())


def test_a_foreign_row_that_trains_nothing_is_left_out(tmp_path: Path) -> None:
    ids = [[], [1, 2], [], [], [3, 4, 5, 6], [7], []]
    labels = [[], [-100, 2], [], [], [-100, -100, -100, 6], [-100], []]
    store = converted(tmp_path, input_ids=ids, labels=labels)
    documents = store.training()
    assert store.stats["train"]["dropped"] == {"no trained token": 5}
    assert [part.tolist() for part in documents.document(0)] == [[1, 2], [False, True]]
    assert [part.tolist() for part in documents.document(1)] == [[3, 4, 5, 6], [False, False, False, True]]
    assert len(documents) == 2


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"input_ids": [[1, 2, 3]], "labels": [[-100, 3, 9]]}, "labels are not the ids at their places, as at token 1"),
        ({"input_ids": [[1, 2, 3]], "labels": [[2, 3, -100]]}, "labels are not the ids at their places, as at token 0"),
        ({"input_ids": [[1, 2, 3]]}, "completion_mask .or labels. are needed"),
        ({"labels": [[1, 2, 3]]}, "its columns are labels; input_ids and"),
        ({"input_ids": [[1, 2]], "completion_mask": [[True]]}, "or ids and mask differ in length"),
        ({"input_ids": [[1, 2], None], "labels": [[1, 2], None]}, "gaps"),
    ],
    ids=["other labels", "shifted labels", "no mask", "no ids", "short mask", "gaps"],
)
def test_foreign_rows_that_do_not_fit_are_refused(tmp_path: Path, columns: dict[str, Any], told: str) -> None:
    with pytest.raises(IntegrityError, match=told):
        converted(tmp_path, **columns)


def test_a_foreign_data_set_without_training_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="no split train among test"):
        converted(tmp_path, datasets.DatasetDict({"test": datasets.Dataset.from_dict({"input_ids": [[1]]})}))


# Where the stores of an expert lie, and what is wrong with one, by its fingerprint ---------------------------------------


def planned(folder: Path, name: str, written: str | None) -> Plan:
    home = folder / "project" / "experts" / "one"
    home.mkdir(parents=True, exist_ok=True)
    manifest = manifests.small(**({"pretokenized_cache": written} if written else {}))
    return make_plan(manifests.write(home, {**manifest, "name": name}), inspect(), Overrides())


@pytest.mark.parametrize(
    ("name", "written", "place"),
    [
        ("Expert-SQL", None, "datasets_optimized/expert-sql/tokenized"),
        ("an_expert 2.0", None, "datasets_optimized/an-expert-2-0/tokenized"),
        ("专家一", None, "datasets_optimized/model-4f7aa777/tokenized"),
        ("one", "cache\\mine", "cache/mine"),
        ("one", "./cache/../cache/mine/", "cache/mine"),
    ],
)
def test_where_the_stores_of_an_expert_lie(tmp_path: Path, name: str, written: str | None, place: str) -> None:
    assert planned(tmp_path, name, written).run.store == tmp_path / "project" / place


def test_stores_at_a_url_have_a_folder_of_this_machine(tmp_path: Path) -> None:
    run = planned(tmp_path, "one", "s3://bucket/stores/").run
    assert run.store_url == "s3://bucket/stores/"
    assert run.store == folder_of_url("stores", "s3://bucket/stores") != folder_of_url("stores", "s3://other/stores")
    assert run.store.is_relative_to(cache_folder())
    run = planned(tmp_path, "one", (tmp_path / "project" / "here").as_uri()).run
    assert (run.store, run.store_url) == (tmp_path / "project" / "here", "")
    with pytest.raises(InputError, match="outside the project root"):
        planned(tmp_path, "one", "file:///etc/x")


@pytest.mark.parametrize(
    ("fingerprint", "note"),
    [
        ({"files": {"train/gone.arrow": {"bytes": 1}}}, "train/gone.arrow is missing"),
        ({"files": {"dataset_dict.json": {"bytes": 5}}}, "dataset_dict.json has 52 bytes, not 5"),
        ({"files": {"../x": {"bytes": 5}}}, "fingerprint.json names a file outside the store, ../x"),
        ({"files": ["a"]}, "fingerprint.json is not of its form"),
    ],
)
def test_what_is_wrong_with_a_store_is_named(tmp_path: Path, fingerprint: dict[str, Any], note: str) -> None:
    home = make(tmp_path)
    write_sealed(home / FINGERPRINT, {**read_fingerprint(home), **fingerprint})
    with pytest.raises(IntegrityError, match=f"{home}: {note}"):
        verify_store(home, sha256=None)
