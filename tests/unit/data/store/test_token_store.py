"""The token store: found by content, verified before use, whole or absent."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
from expert_cli.data.located import Located, LocatedData
from expert_cli.data.rows.cache import Unchanged
from expert_cli.data.store import token_store as stores
from expert_cli.data.store.documents import Documents
from expert_cli.data.store.files import FileHashCache
from expert_cli.data.store.inspect import inspect_store
from expert_cli.data.store.key import StoreKey, store_key
from expert_cli.data.store.token_store import Contents, build
from expert_cli.data.tokenize.assemble import Encoded
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.utils.reporter import NullReporter

KEY = StoreKey((("format", "1"), ("train data", "abc")))

ROOT = str(Path(__file__).parents[4])


def encoded(documents: list[list[int]], prompt: int = 1) -> Encoded:
    """Documents whose first `prompt` tokens are not trained."""
    lengths = [len(ids) for ids in documents]
    trained = np.concatenate([np.arange(n) >= prompt for n in lengths] or [np.empty(0, bool)])
    ids = np.concatenate([np.array(d, np.int32) for d in documents] or [np.empty(0, np.int32)])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Encoded(ids, offsets, trained, np.arange(len(documents)), 0)


SHARDS = {
    "train": [encoded([[1, 2, 3], [4, 5]]), encoded([[6, 7, 8, 9]]), encoded([]), encoded([[10, 11]] * 20)],
    "validation": [encoded([[12, 13, 14]])],
}


def shards(split: str, skip: int) -> Iterator[Encoded]:
    yield from SHARDS[split][skip:]


def make(folder: Path, key: StoreKey = KEY, source: Any = shards) -> Path:
    filled = Contents(("train", "validation"), source, lambda _: {"rows": 24})
    return build(folder, key, filled, FileHashCache(folder / ".memo.json"), NullReporter())


def contents(home: Path) -> dict[str, bytes]:
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    home = make(tmp_path)
    documents = Documents(home / "train")
    ids, trained = documents.document(2)
    assert ids.tolist() == [6, 7, 8, 9]
    assert trained.tolist() == [False, True, True, True]
    tokens, prompts, trained_tokens = map(np.concatenate, zip(*documents.measured(), strict=True))
    assert tokens.tolist() == [3, 2, 4, *[2] * 20]
    assert prompts.tolist() == [1] * 23
    assert trained_tokens.tolist() == [2, 1, 3, *[1] * 20]
    assert documents.histogram().counts.tolist() == [0, 0, 21, 1, 1]
    assert documents.id_range() == (1, 11)
    assert home.name == KEY.sha256[:12]


def test_the_datasets_library_opens_it(tmp_path: Path) -> None:
    opened = datasets.load_from_disk(str(make(tmp_path)))
    assert list(opened) == ["train", "validation"]
    assert opened["train"][1] == {"input_ids": [4, 5], "completion_mask": [False, True]}
    assert opened["train"].num_rows == 23


def test_an_interrupted_build_goes_on_and_the_result_is_the_same(tmp_path: Path) -> None:
    whole = contents(make(tmp_path / "a"))
    asked: list[tuple[str, int]] = []

    def breaks(split: str, skip: int) -> Iterator[Encoded]:
        yield SHARDS[split][0]
        yield SHARDS[split][1]
        raise KeyboardInterrupt

    def watched(split: str, skip: int) -> Iterator[Encoded]:
        asked.append((split, skip))
        return shards(split, skip)

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "b", source=breaks)
    assert inspect_store(tmp_path / "b", KEY, FileHashCache(tmp_path / "m")).state == "missing"
    assert contents(make(tmp_path / "b", source=watched)) == whole
    assert asked == [("train", 2), ("validation", 0)]


def test_a_shard_that_was_harmed_between_two_builds_is_made_again(tmp_path: Path) -> None:
    whole = contents(make(tmp_path / "a"))

    def breaks(split: str, skip: int) -> Iterator[Encoded]:
        yield from SHARDS[split][:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "b", source=breaks)
    flip(next((tmp_path / "b").glob(".building-*/train/data-00001.arrow")))
    assert contents(make(tmp_path / "b")) == whole


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def zero(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 3
    raw[middle : middle + 4096] = bytes(len(raw[middle : middle + 4096]))
    path.write_bytes(raw)


DAMAGES = {
    "delete": Path.unlink,
    "cut a byte": lambda p: p.write_bytes(p.read_bytes()[:-1]),
    "flip": flip,
    "zero": zero,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_every_damage_to_every_file_is_found_and_mended(tmp_path: Path, damage: Any) -> None:
    home = make(tmp_path)
    whole = contents(home)
    for name in whole:
        assert inspect_store(tmp_path, KEY, FileHashCache(tmp_path / ".memo.json")).state == "hit"
        damage(home / name)
        state = inspect_store(tmp_path, KEY, FileHashCache(tmp_path / ".memo.json"))
        assert (state.state, Path(name).name in state.reason) == ("damaged", True), name
        assert contents(make(tmp_path)) == whole


def test_a_flip_with_size_and_mtime_restored_is_found(tmp_path: Path) -> None:
    home = make(tmp_path)
    path = home / "train" / "data-00000.arrow"
    stat = path.stat()
    flip(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert inspect_store(tmp_path, KEY, FileHashCache(tmp_path / ".memo.json")).state == "damaged"


def test_a_hit_hashes_nothing_and_verify_hashes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path)
    hashed: list[Path] = []
    real = stores.FileHashCache.sha256.__globals__["sha256_of"]
    monkeypatch.setitem(
        stores.FileHashCache.sha256.__globals__, "sha256_of", lambda path: hashed.append(path) or real(path)
    )
    assert inspect_store(tmp_path, KEY, FileHashCache(tmp_path / ".memo.json")).state == "hit"
    assert hashed == []
    assert inspect_store(tmp_path, KEY, FileHashCache(tmp_path / ".memo.json"), hash_all=True).state == "hit"
    assert len(hashed) == len(contents(tmp_path / KEY.sha256[:12])) - 1


def test_a_read_only_store_is_used(tmp_path: Path) -> None:
    home = make(tmp_path)
    for path in [*tmp_path.rglob("*"), tmp_path]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert inspect_store(tmp_path, KEY, FileHashCache(tmp_path / ".memo.json")).state == "hit"
        assert len(Documents(home / "train")) == 23
    finally:
        for path in [tmp_path, *tmp_path.rglob("*")]:
            path.chmod(0o755)


def test_a_full_disk_leaves_no_debris_and_the_old_store_intact(tmp_path: Path) -> None:
    old = make(tmp_path)
    whole = contents(old)
    other = StoreKey((("format", "1"), ("train data", "other")))

    def full(split: str, skip: int) -> Iterator[Encoded]:
        yield SHARDS["train"][0]
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(EnvironmentProblem, match="No space left") as caught:
        make(tmp_path, other, full)
    assert caught.value.exit_code == 3
    assert contents(old) == whole
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".lock")} == {".memo.json", old.name}


def test_a_stale_store_says_what_changed(tmp_path: Path) -> None:
    make(tmp_path)
    other = StoreKey((("format", "1"), ("train data", "xyz"), ("template", "chatml")))
    state = inspect_store(tmp_path, other, FileHashCache(tmp_path / "m"))
    assert state.state == "stale"
    assert state.changes == ("train data: abc -> xyz", "template: nothing -> chatml")


BUILDER = """
import sys, time
sys.path.insert(0, {tests!r})
from tests.unit.data.store import test_token_store as t
from pathlib import Path
def slow(split, skip):
    with open({log!r}, "a") as log:
        log.write(split + "\\n")
    for shard in t.shards(split, skip):
        time.sleep({pause})
        yield shard
t.make(Path({folder!r}), source=slow)
"""


def start_builder(folder: Path, log: Path, pause: float) -> subprocess.Popen[bytes]:
    code = BUILDER.format(tests=ROOT, log=str(log), pause=pause, folder=str(folder))
    return subprocess.Popen([sys.executable, "-c", code])


def test_builders_at_once_build_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    running = [start_builder(tmp_path / "store", log, 0.1) for _ in range(3)]
    assert [process.wait(timeout=600) for process in running] == [0] * 3
    assert log.read_text(encoding="utf-8").split() == ["train", "validation"]


def test_a_dead_owners_lock_is_taken_over_and_its_work_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    owner = start_builder(tmp_path / "store", log, 5.0)
    deadline = time.monotonic() + 60
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    owner.kill()
    owner.wait()
    started = time.monotonic()
    home = make(tmp_path / "store")
    assert time.monotonic() - started < 10
    assert len(Documents(home / "train")) == 23


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
    tokenizer, template = changes.get("tokenizer", "t"), changes.get("template", "chatml")
    return store_key(
        data,
        located,
        FileHashCache(folder / "m"),
        tokenizer=tokenizer,
        template=template,
    ).sha256


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
    monkeypatch.setattr("expert_cli.data.store.key.STORE_RULE", 0)
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


def test_the_key_is_the_same_in_another_process(tmp_path: Path) -> None:
    key_of(tmp_path / "a")
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); from pathlib import Path; "
        f"from tests.unit.data.store import test_token_store as t; print(t.key_of(Path({str(tmp_path / 'b')!r})))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == key_of(tmp_path / "a")


def test_a_source_that_changes_while_it_is_read_is_not_stored(tmp_path: Path) -> None:
    """Neither in what is sealed nor in the shards that a later build would go on with."""
    source = tmp_path / "rows.jsonl"
    source.write_text("one\n", encoding="utf-8")
    files = Unchanged([source])

    def changing(split: str, skip: int) -> Iterator[Encoded]:
        source.write_text("two\n", encoding="utf-8")
        yield SHARDS["train"][0]

    filled = Contents(("train",), changing, lambda _: {}, files.require)
    with pytest.raises(InputError, match=r"rows\.jsonl: changed while it was read"):
        build(tmp_path / "out", KEY, filled, FileHashCache(tmp_path / "m"), NullReporter())
    assert inspect_store(tmp_path / "out", KEY, FileHashCache(tmp_path / "m")).state == "missing"
    (progress,) = (tmp_path / "out").glob(".building-*/progress.json")
    assert json.loads(progress.read_text(encoding="utf-8"))["shards"] == []


def test_a_source_that_changes_after_the_last_shard_is_not_stored(tmp_path: Path) -> None:
    looks = iter([False, True])

    def require() -> None:
        if next(looks):
            raise InputError("changed", "")

    filled = Contents(("train",), lambda _, skip: [SHARDS["train"][0]][skip:], lambda _: {}, require)
    with pytest.raises(InputError, match="changed"):
        build(tmp_path / "out", KEY, filled, FileHashCache(tmp_path / "m"), NullReporter())
    assert not list((tmp_path / "out").glob("[0-9a-f]*"))


DAMAGED = {
    "list": b"[]",
    "not UTF-8": b"\xff",
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_progress_file_is_none(tmp_path: Path, damage: bytes) -> None:
    building = tmp_path / f".building-{KEY.sha256[:12]}"
    (building / "train").mkdir(parents=True)
    (building / "progress.json").write_bytes(damage)
    (building / "train" / "data-00009.arrow").touch()
    whole = contents(make(tmp_path / "other"))
    assert contents(make(tmp_path)) == whole


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_memo_is_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / ".memo.json").write_bytes(damage)
    make(tmp_path)
    assert inspect_store(tmp_path, KEY, FileHashCache(tmp_path / ".memo.json")).state == "hit"


def test_a_memo_with_one_digit_changed_is_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"abc")
    hash_cache = FileHashCache(tmp_path / "m")
    true = hash_cache.sha256(path)
    hash_cache.save()
    assert FileHashCache(tmp_path / "m").known
    (tmp_path / "m").write_text((tmp_path / "m").read_text().replace(true[:8], "00000000"))
    assert FileHashCache(tmp_path / "m").sha256(path) == true


IN_THE_WAY: dict[str, Any] = {
    "folder": lambda out: out.touch(),
    "store": lambda out: (out.mkdir(), (out / KEY.sha256[:12]).touch()),
    "lock": lambda out: (out / f".lock-{KEY.sha256[:12]}").mkdir(parents=True),
}


@pytest.mark.parametrize("lay", IN_THE_WAY.values(), ids=IN_THE_WAY.keys())
def test_something_else_in_the_place_of_a_store_is_named(tmp_path: Path, lay: Any) -> None:
    out = tmp_path / "stores" / "out"
    out.parent.mkdir()
    lay(out)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(EnvironmentProblem, match=r"cannot write the token store in .*stores") as caught:
        make(out)
    assert "move it away" in caught.value.hint
    assert before <= set(tmp_path.rglob("*"))


BUILDING = f".building-{KEY.sha256[:12]}"
FOREIGN: dict[str, Callable[[Path], Any]] = {
    "folder": lambda at: (
        (at / "train").mkdir(parents=True),
        (at / "train" / "data-00000.arrow").write_bytes(b"theirs"),
    ),
    "file": lambda at: at.write_bytes(b"theirs"),
}


@pytest.mark.parametrize("lay", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_no_build_began_is_not_removed(tmp_path: Path, lay: Callable[[Path], Any]) -> None:
    (tmp_path / "out").mkdir()
    lay(tmp_path / "out" / BUILDING)
    with pytest.raises(EnvironmentProblem, match=rf"{BUILDING}: was not made by a build of this store") as caught:
        make(tmp_path / "out")
    assert "move it away" in caught.value.hint
    assert b"theirs" in contents(tmp_path / "out").values()


BEGUN: dict[str, list[str]] = {
    "nothing": [],
    "sealed": ["fingerprint.json", "stats.json"],
}


@pytest.mark.parametrize("names", BEGUN.values(), ids=BEGUN.keys())
def test_what_a_killed_build_leaves_is_its_own(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / BUILDING).mkdir()
    for name in names:
        (tmp_path / BUILDING / name).touch()
    whole = contents(make(tmp_path / "other"))
    assert contents(make(tmp_path)) == whole
    assert not (tmp_path / BUILDING).exists()


@pytest.mark.parametrize("kind", ["link to a folder", "link to nothing"])
def test_a_build_writes_through_no_link(tmp_path: Path, kind: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    if kind == "link to a folder":  # one that could be gone on with

        def breaks(split: str, skip: int) -> Iterator[Encoded]:
            yield SHARDS[split][0]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "other", source=breaks)
        next((tmp_path / "other").glob(".building-*")).rename(elsewhere)
    before = contents(elsewhere)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / BUILDING).symlink_to(elsewhere)
    home = make(tmp_path / "out")
    assert not home.is_symlink()
    assert len(Documents(home / "train")) == 23
    assert contents(elsewhere) == before
