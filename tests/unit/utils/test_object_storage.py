"""Objects by URL: told from paths, written, listed, read by range, and what is said where that cannot be, or may not."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from expert_cli.errors import EnvironmentProblem, InputError
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


def test_a_url_is_told_from_a_path(tmp_path: Path) -> None:
    assert all(map(is_url, ("s3://bucket/a", "gs://bucket", "hf://datasets/a/b", "memory://a")))
    assert not any(map(is_url, ("file:///a", "/a/b", "C:\\a", "C:/a", "org/name", Path("a"))))
    with pytest.raises(InputError, match="none://a/b: cannot list: Protocol not known"):
        StoredFolder("none://a/b").list()
    assert Path(without_file_scheme((tmp_path / "a b").as_uri())) == tmp_path / "a b"
    assert without_file_scheme("a%20b") == "a%20b"


def test_what_is_written_is_listed_and_read_whole_or_by_range(bucket: str, s3_server: S3Server, tmp_path: Path) -> None:
    folder = StoredFolder(bucket) / "some"
    assert (folder.list(), folder.info("a")) == ({}, None)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "a").write_bytes(BYTES)
    (tmp_path / "deep" / "er" / "b c%").write_bytes(b"xyz")
    folder.put(tmp_path, ["a", "deep/er/b c%"])
    etag = hashlib.md5(BYTES, usedforsecurity=False).hexdigest()
    assert folder.list() == {"a": ObjectInfo(len(BYTES), etag), "deep/er/b c%": folder.info("deep/er/b c%")}
    assert folder.info("deep") is None
    assert (folder.read("deep/er/b c%"), (folder / "deep").read("er/b c%")) == (b"xyz", b"xyz")
    folder.get(["a", "deep/er/b c%"], tmp_path / "back")
    assert (tmp_path / "back" / "deep" / "er" / "b c%").read_bytes() == b"xyz"
    s3_server.door.requests.clear()
    with folder.open("a") as file:
        assert b"".join(iter(lambda: file.read(60_000), b"")) == BYTES
    assert sum(line.startswith("GET") for line in s3_server.door.requests) <= len(BYTES) // READ_AHEAD + 2
    folder.remove("a")
    folder.remove("never there")
    assert list(folder.list()) == ["deep/er/b c%"]


def test_what_is_not_there_or_not_allowed_is_named(bucket: str, s3_server: S3Server, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(InputError, match="s3://rows/a: cannot read"):
        StoredFolder(bucket).read("a")
    with pytest.raises(InputError, match="s3://none: cannot list"):
        StoredFolder("s3://none").list()
    with pytest.raises(InputError, match="s3://none: cannot write"):
        StoredFolder("s3://none").put(tmp_path, ["a"])
    s3_server.deny()
    with pytest.raises(EnvironmentProblem, match="s3://rows/a: cannot read") as raised:
        StoredFolder(bucket).info("a")
    assert "that the credentials for s3 may read it" in raised.value.hint


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_gone_is_named_and_found_again(
    bucket: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StoredFolder(bucket)
    (tmp_path / "a").write_bytes(BYTES * 20)
    folder.put(tmp_path, ["a"])
    with folder.open("a") as file:
        file.read(10)
        s3_server.door.close()
        file.seek(19_000_000)
        with (
            pytest.raises(EnvironmentProblem, match="s3://rows/a: cannot read") as raised,
            storage_errors(f"{bucket}/a"),
        ):
            file.read(10)
    assert "check that it can be reached" in raised.value.hint
    monkeypatch.undo()  # as patient as it is for users
    threading.Timer(0.3, s3_server.door.open).start()
    assert folder.read("a") == BYTES * 20, "a short break is bridged"


def test_a_web_server_that_does_not_answer_is_no_missing_file() -> None:
    with pytest.raises(EnvironmentProblem, match=r"^http://127.0.0.1:9/x: cannot read: Cannot connect to host"):
        StoredFolder("http://127.0.0.1:9/x").info()


def test_a_token_in_a_url_is_not_shown() -> None:
    assert str(StoredFolder("hf://datasets/hf_abcdefghijabcdefghijabcdefghij1234/a")) == "hf://datasets/***/a"


ASK = (
    "import sys; from expert_cli.utils.object_storage import forbidden_by; print(forbidden_by(asked=len(sys.argv) > 1))"
)


@pytest.mark.parametrize(
    ("variables", "is_set"),
    [({}, False), ({"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"}, False), ({"TRANSFORMERS_OFFLINE": "1"}, True)],
    ids=["nothing", "the first decides", "older"],
)
def test_what_forbids_the_network(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, is_set: bool) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    told = "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set" if is_set else ""
    for option, first in (([], ""), (["--offline"], "--offline is given")):
        done = subprocess.run([sys.executable, "-c", ASK, *option], capture_output=True, text=True, check=True)
        assert done.stdout == " and ".join(filter(None, (first, told))) + "\n"
