import hashlib
import threading
from pathlib import Path
from typing import IO

import pytest

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.utils.object_storage import (
    READ_AHEAD,
    ObjectInfo,
    StoredFolder,
    is_url,
    storage_errors,
    without_file_scheme,
)
from tests.object_storage import S3Server

BYTES = bytes(range(256)) * 4000


def read_far(file: IO[bytes], url: str) -> bytes:
    with storage_errors(url):
        file.seek(90_000_000)
        return file.read(10)


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("s3://bucket/a", True),
        ("gs://bucket", True),
        ("hf://datasets/a/b", True),
        ("file:///a", False),
        ("/a/b", False),
        ("C:\\a", False),
        ("C:/a", False),
        ("org/name", False),
        (Path("a"), False),
    ],
)
def test_a_url_is_told_from_a_path(written: str, url: bool) -> None:
    assert is_url(written) is url


def test_a_scheme_that_is_not_read_is_refused() -> None:
    with pytest.raises(InputError, match="ftp://a/b: ftp:// is not read") as raised:
        is_url("ftp://a/b")
    assert raised.value.hint == "These are: s3://, gs://, hf://, file://."


def test_a_file_url_is_the_path_that_it_names(tmp_path: Path) -> None:
    assert Path(without_file_scheme((tmp_path / "a b").as_uri())) == tmp_path / "a b"
    assert without_file_scheme("a%20b") == "a%20b"


def test_what_is_written_is_listed_and_read_whole_or_by_range(bucket: str) -> None:
    folder = StoredFolder(bucket) / "some"
    assert folder.list() == {}
    assert folder.info("a") is None
    folder.write("a", BYTES)
    folder.write("deep/er/b c%", b"xyz")
    etag = hashlib.md5(BYTES, usedforsecurity=False).hexdigest()
    assert folder.info("a") == ObjectInfo(len(BYTES), etag)
    assert folder.info("deep") is None
    assert list(folder.list()) == ["a", "deep/er/b c%"]
    assert folder.list()["a"] == folder.info("a")
    assert (folder / "deep").list() == {"er/b c%": folder.info("deep/er/b c%")}
    assert folder.read("deep/er/b c%") == b"xyz"
    assert folder.read("a", 5, 9) == BYTES[5:9]
    assert (folder / "a").read("", 1000) == BYTES[1000:]
    folder.write("a", b"new")
    assert (folder.read("a"), folder.list()["a"].size) == (b"new", 3)
    folder.remove(["a", "never there"])
    assert list(folder.list()) == ["deep/er/b c%"]


def test_an_object_that_is_open_is_read_in_large_ranges(bucket: str, s3_server: S3Server) -> None:
    whole = BYTES * 20
    folder = StoredFolder(bucket)
    folder.write("a", whole)
    s3_server.door.requests.clear()
    with folder.open("a") as file:
        read = b"".join(iter(lambda: file.read(60_000), b""))
        file.seek(1_000_000)
        assert file.read(10) == whole[1_000_000:1_000_010]
    assert read == whole
    assert len([line for line in s3_server.door.requests if line.startswith("GET")]) <= len(whole) // READ_AHEAD + 2


def test_files_are_put_and_fetched_with_progress(bucket: str, tmp_path: Path) -> None:
    folder, moved = StoredFolder(bucket), list[int]()
    (tmp_path / "from").write_bytes(BYTES)
    folder.put(tmp_path / "from", "x/y", advance=moved.append)
    assert sum(moved) == len(BYTES)
    moved.clear()
    folder.fetch("x/y", tmp_path / "to" / "it", sha256=hashlib.sha256(BYTES).hexdigest(), advance=moved.append)
    assert ((tmp_path / "to" / "it").read_bytes(), sum(moved)) == (BYTES, len(BYTES))
    folder.fetch("x/y", tmp_path / "unverified")
    assert (tmp_path / "unverified").read_bytes() == BYTES


def test_what_arrives_damaged_is_not_left(bucket: str, tmp_path: Path) -> None:
    folder = StoredFolder(bucket)
    folder.write("a", b"one")
    with pytest.raises(IntegrityError, match=r"s3://rows/a is damaged: SHA-256 7692\w*, not 00"):
        folder.fetch("a", tmp_path / "it", sha256="00")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_named(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="s3://rows/a: cannot read"):
        StoredFolder(bucket).read("a")
    with pytest.raises(InputError, match="s3://none/a: cannot read"):
        StoredFolder("s3://none").fetch("a", tmp_path / "a")
    with pytest.raises(InputError, match="s3://none: cannot list"):
        StoredFolder("s3://none").list()
    with pytest.raises(InputError, match="s3://none/a: cannot write"):
        StoredFolder("s3://none").write("a", b"")


def test_a_key_that_may_not_is_named_with_what_gives_one(bucket: str, s3_server: S3Server) -> None:
    StoredFolder(bucket).write("a", b"")
    s3_server.deny()
    with pytest.raises(EnvironmentProblem, match="s3://rows/a: cannot read") as raised:
        StoredFolder(bucket).info("a")
    assert raised.value.hint.startswith("give a key that may read it: AWS_ACCESS_KEY_ID")
    with pytest.raises(EnvironmentProblem, match="s3://rows/a: cannot write"):
        StoredFolder(bucket).write("a", b"")


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_gone_is_named_and_found_again(
    bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StoredFolder(bucket)
    folder.write("a", BYTES * 100)
    with folder.open("a") as file:
        file.read(10)
        s3_server.door.close()
        with pytest.raises(EnvironmentProblem, match="s3://rows/a: cannot read"):
            read_far(file, folder.url_of("a"))
    with pytest.raises(EnvironmentProblem, match="s3://rows/a: cannot read") as raised:
        folder.read("a")
    assert "try again" in raised.value.hint
    monkeypatch.undo()  # as patient as it is for users
    threading.Timer(0.3, s3_server.door.open).start()
    assert folder.read("a", 3, 5) == BYTES[3:5], "a short break is bridged"


def test_an_object_that_is_replaced_while_it_is_read_is_named(bucket: str) -> None:
    folder = StoredFolder(bucket)
    folder.write("a", BYTES * 100)
    with folder.open("a") as file:
        file.read(10)
        folder.write("a", BYTES * 100 + b"!")
        with pytest.raises(InputError, match="was replaced while it was read"):
            read_far(file, folder.url_of("a"))


def test_a_token_in_a_url_is_not_shown() -> None:
    assert str(StoredFolder("hf://datasets/hf_abcdefghijabcdefghijabcdefghij1234/a")) == "hf://datasets/***/a"


def test_errors_of_the_hubs_own_client_are_told() -> None:
    from huggingface_hub.utils import get_session

    with (
        pytest.raises(EnvironmentProblem, match="hf://datasets/a/b: cannot read: "),
        storage_errors("hf://datasets/a/b"),
    ):
        get_session().get("http://127.0.0.1:1/")
