"""Where 4-bit weights save no memory that is needed, as far as can be said without the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import manifests
import pytest

from expert_cli.check import FOR_EVERY_BASE, check
from expert_cli.machine import Gpu, Machine

CPU = Machine("Linux", 2, 2**34, (), True, "", ())
GPU = replace(CPU, gpus=(Gpu("NVIDIA GeForce RTX 4090", 24 * 2**30, (8, 9)),), torch_cuda="13.0")


@pytest.mark.parametrize(
    ("machine", "name", "quantization", "config", "told"),
    [
        pytest.param(CPU, "Qwen/Qwen3-8B", "int4", {}, "a CPU with room for it keeps these weights unpacked", id="cpu"),
        pytest.param(CPU, "Qwen/Qwen3-8B", "int4", {"dequantized_copy": "never"}, "", id="cpu, no copy"),
        pytest.param(CPU, "Qwen/Qwen3-8B", "none", {}, "", id="not quantised"),
        pytest.param(GPU, "Qwen/Qwen3-0.6B", "int4", {}, "take about 1.2 GB of NVIDIA GeForce RTX 4090's", id="small"),
        pytest.param(GPU, "HuggingFaceTB/SmolLM2-135M", "int4", {}, "take about 0.3 GB", id="in millions"),
        pytest.param(GPU, "Qwen/Qwen3-8B", "int4", {}, "", id="large"),
        pytest.param(GPU, "Qwen/Qwen2.5-mini", "int4", {}, "", id="a name without a size"),
    ],
)
def test_int4_that_saves_nothing(
    tmp_path: Path, machine: Machine, name: str, quantization: str, config: dict[str, str], told: str
) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "train.jsonl").touch()
    manifest = manifests.small(**config)
    manifest["base_models"][0] = {"name": name, "quantization": quantization}
    warnings = check(manifests.write(tmp_path, manifest), machine, None).warnings
    assert [told in warning and FOR_EVERY_BASE in warning for warning in warnings] == ([True] if told else [])
