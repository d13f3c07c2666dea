"""A token store in object storage, on a real S3 server: whole or no store; its copies verified, fetched when they are read."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expert_cli.data.store import copies as store_copies
from expert_cli.data.store.copies import Copies, StoredDocuments
from expert_cli.data.store.documents import Documents
from expert_cli.data.store.files import FINGERPRINT, ShardRecord
from expert_cli.data.store.key import StoreKey
from expert_cli.data.store.stored import StoreWriter, stored_fingerprint
from expert_cli.errors import IntegrityError
from expert_cli.utils.files import parse_json, read_sealed, sealed
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import NullReporter
from tests.object_storage import S3Server
from tests.unit.data.store.test_token_store import KEY, make


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make(tmp_path / "disk")


@pytest.fixture
def there(bucket: str) -> StoredFolder:
    return StoredFolder(bucket) / KEY.sha256[:12]


def put(there: StoredFolder, home: Path) -> None:
    StoreWriter(there, NullReporter()).seal(home)


def copies_of(there: StoredFolder, folder: Path, limit: int = 0) -> Copies:
    found = stored_fingerprint(there, KEY)
    assert found is not None
    return Copies.of(there, found, folder, limit)


def test_documents_are_those_of_the_disk_and_only_what_is_read_is_fetched(
    tmp_path: Path, home: Path, there: StoredFolder, s3_server: S3Server
) -> None:
    put(there, home)
    copies = copies_of(there, tmp_path / "copies")
    assert copies.documents("other") is None
    for split, shards in (("train", 3), ("validation", 1)):
        whole, stored = Documents(home / split), copies.documents(split)
        assert stored is not None
        assert len(stored) == len(whole)
        measured = [[column.tolist() for part in of.measured() for column in part] for of in (stored, whole)]
        assert measured[0] == measured[1]
        assert stored.histogram().counts.tolist() == whole.histogram().counts.tolist()
        some = np.arange(0, len(whole), 2)
        assert stored.lengths_of(some).tolist() == whole.lengths_of(some).tolist()
        assert stored.prompt_lengths_of(some).tolist() == whole.prompt_lengths_of(some).tolist()
        s3_server.door.requests.clear()
        sent = pickle.loads(pickle.dumps(stored))  # noqa: S301
        for number in [*range(len(whole)), 0]:
            for read, written in zip(sent.document(number), whole.document(number), strict=True):
                assert read.tolist() == written.tolist()
        asked = [line for line in s3_server.door.requests if line.startswith("GET")]
        assert len(asked) == shards, "each shard once; one without documents never"


def test_a_store_that_is_written_over_is_none_until_it_is_whole(
    home: Path, there: StoredFolder, s3_server: S3Server
) -> None:
    put(there, home)
    assert stored_fingerprint(there, KEY) == read_sealed(home / FINGERPRINT)
    writer = StoreWriter(there, NullReporter())
    record = ShardRecord(**parse_json((home / FINGERPRINT).read_bytes())["shards"][0])
    writer.shard(home, record)
    assert stored_fingerprint(there, KEY) is None
    writer.seal(home)
    assert stored_fingerprint(there, KEY)
    puts = [line for line in s3_server.door.requests if line.startswith("PUT") and record.file in line]
    assert len([line for line in puts if ".put/" not in line]) == 2, "the notes of the first write are gone"


def test_what_an_interrupted_write_has_put_is_not_sent_again(
    home: Path, there: StoredFolder, s3_server: S3Server
) -> None:
    first, second, *_ = (ShardRecord(**one) for one in parse_json((home / FINGERPRINT).read_bytes())["shards"])
    StoreWriter(there, NullReporter()).shard(home, first)
    StoreWriter(there, NullReporter()).shard(home, second)
    there.write(second.file, b"?" * second.bytes)
    put(there, home)
    sent = [line for line in s3_server.door.requests if line.startswith("PUT") and ".put/" not in line]
    counts = [
        len([line for line in sent if f"{shard.file} " in line or f"{shard.file}?" in line])
        for shard in (first, second)
    ]
    assert counts == [1, 3], "what is of another version than was noted is sent again"
    assert there.read(second.file) == (home / second.file).read_bytes()


def test_an_object_that_another_program_replaces_meanwhile_makes_no_store(
    home: Path, there: StoredFolder, s3_server: S3Server
) -> None:
    name = "train/data-00000.arrow"

    def replace(line: str) -> None:
        if line.startswith("PUT") and "lengths.json" in line:
            raw = (home / name).read_bytes()
            s3_server.files.pipe_file(there.url_of(name).removeprefix("s3://"), raw[:-1] + b"?")

    s3_server.door.before = replace
    with pytest.raises(IntegrityError, match=rf"{name}: is ObjectInfo\(.*\), not ObjectInfo\(.*\), as it was put"):
        put(there, home)
    assert stored_fingerprint(there, KEY) is None


def told_otherwise(**other: Any) -> Any:
    return lambda body: sealed({**body, **other})


@pytest.mark.parametrize(
    ("written", "damage"),
    [
        (lambda body: sealed(body)[:-9], "is not of its form"),
        (lambda body: sealed(body).replace(b'"bytes": ', b'"bytes": 1', 1), "does not match its own hash"),
        (told_otherwise(format=2), "is of format 2, not 1"),
        (told_otherwise(key="f" * 64), "belongs to another store, ffffffffffff"),
        (told_otherwise(files={"../x": {"bytes": 1, "sha256": ""}}), "names a file outside the store, ../x"),
        (told_otherwise(shards=[{"file": "/etc/x"}]), "names a file outside the store, /etc/x"),
        (told_otherwise(files=None), "is not of its form"),
    ],
)
def test_a_fingerprint_that_cannot_be_trusted_is_refused(
    home: Path, there: StoredFolder, written: Any, damage: str
) -> None:
    put(there, home)
    there.write(FINGERPRINT, written(read_sealed(home / FINGERPRINT)))
    with pytest.raises(IntegrityError, match=f"fingerprint.json {damage}"):
        stored_fingerprint(there, KEY)


def test_lengths_that_are_not_those_of_the_store_are_refused(tmp_path: Path, home: Path, there: StoredFolder) -> None:
    put(there, home)
    raw = there.read("train/lengths.npy")
    there.write("train/lengths.npy", raw[:-1] + b"\1")
    with pytest.raises(IntegrityError, match=r"train/lengths.npy is damaged: SHA-256"):
        copies_of(there, tmp_path / "a").documents("train")
    there.write("train/lengths.npy", raw)
    copies = copies_of(there, tmp_path / "b")
    assert copies.documents("train")
    np.save(copies.folder / "train" / "lengths.npy", np.zeros((3, 5), np.int32))
    with pytest.raises(IntegrityError, match=r"is of shape \(3, 5\), not \(3, 23\)"):
        StoredDocuments(copies, "train")
    assert copies.documents("train"), "a copy that is damaged is fetched again"


def test_copies_of_an_earlier_run_are_used_if_they_are_what_they_were(
    tmp_path: Path, home: Path, there: StoredFolder, s3_server: S3Server
) -> None:
    put(there, home)
    copies = copies_of(there, tmp_path / "copies")
    copies.fetch_all("train")
    first, second = copies.split("train")[:2]
    path = copies.folder / first.file
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    unfinished = path.with_name(f".{path.name}.1-ab.tmp")
    unfinished.write_bytes(b"a")
    again = copies_of(there, tmp_path / "copies")
    written, left = (path.with_name(f".lengths.npy.{number}-ab.tmp") for number in (2, 3))
    written.write_bytes(b"another process writes it just now")
    left.write_bytes(b"a process that wrote it was killed")
    os.utime(left, (0, 0))
    again.check(NullReporter())
    assert [again.has(first), again.has(second), unfinished.exists()] == [False, True, False]
    assert [written.exists(), left.exists()] == [True, False]
    s3_server.door.requests.clear()
    again.fetch_all("train")
    assert len([line for line in s3_server.door.requests if line.startswith("GET")]) == 1
    assert path.read_bytes() == (home / first.file).read_bytes()


def test_who_reads_waits_for_who_fetches_ahead_and_lets_go_of_what_was_evicted(
    tmp_path: Path, home: Path, there: StoredFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(there, home)
    copies = copies_of(there, tmp_path / "copies", limit=10**6)
    documents = copies.documents("train")
    assert documents is not None
    first, second, _, last = documents.shards
    slept = []

    def fetch(_: float) -> None:
        slept.append(first)
        if len(slept) == 3:
            copies.fetch(first)

    monkeypatch.setattr(store_copies.time, "sleep", fetch)
    with copies.ahead():
        assert documents.document(0)[0].tolist() == [1, 2, 3]
    assert len(slept) == 3
    assert documents.document(2)[0].tolist() == [6, 7, 8, 9], "nobody fetches ahead"
    assert copies.evict(first)
    assert documents.document(0)[0].tolist() == [1, 2, 3], "it is mapped"
    assert documents.document(3)[0].tolist() == [10, 11]
    assert {documents.shards[at] for at in documents._opened} == {second, last}
    monkeypatch.setattr(store_copies, "PATIENCE_S", -1.0)
    with copies.ahead():
        assert documents.document(0)[0].tolist() == [1, 2, 3], "a copy that went is fetched in the end"


def test_another_key_is_another_store(home: Path, there: StoredFolder) -> None:
    put(there, home)
    with pytest.raises(IntegrityError, match="belongs to another store"):
        stored_fingerprint(there, StoreKey((("format", "2"),)))
