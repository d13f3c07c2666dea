"""Where 4-bit weights save no memory that is needed, as far as can be said without the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import FOR_EVERY_BASE, validate
from expert_cli.hardware.machine import Machine
from tests import manifests
from tests.machines import CPU
from tests.machines import RTX_4090 as GPU


@pytest.mark.parametrize(
    ("machine", "name", "quantization", "config", "told"),
    [
        pytest.param(CPU, "Qwen/Qwen3-8B", "int4", {}, "a CPU with room for it keeps these weights unpacked", id="cpu"),
        pytest.param(CPU, "Qwen/Qwen3-8B", "int4", {"dequantized_copy": "never"}, "", id="cpu, no copy"),
        pytest.param(CPU, "Qwen/Qwen3-8B", "none", {}, "", id="not quantized"),
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
    warnings = validate(manifests.write(tmp_path, manifest), machine, None).warnings
    assert [told in warning and FOR_EVERY_BASE in warning for warning in warnings] == ([True] if told else [])


LONG: dict[str, Callable[[dict[str, Any], int], object]] = {
    "a list of numbers": lambda m, n: m.update(tags=list(range(n))),
    "a list of no modules": lambda m, n: m["training"]["config"].update(target_modules=[1] * n),
    "a block of keys": lambda m, n: m.update(quality_metrics={f"k{i}": i for i in range(n)}),
    "old names": lambda m, n: m.update(base_models=[{"nam": "a", "config": {"num_epochs": 1}}] * (n // 8)),
}


@pytest.mark.parametrize("change", LONG.values(), ids=LONG.keys())
def test_the_time_of_a_check_grows_with_the_file_not_with_its_square(
    tmp_path: Path, change: Callable[[dict[str, Any], int], object]
) -> None:
    """The place of every element was counted from the beginning of the file: 600 kB took 71 s."""

    def seconds(entries: int) -> float:
        manifest = manifests.small()
        change(manifest, entries)
        path = manifests.write(tmp_path, manifest)
        started = time.process_time()
        validate(path, CPU, None)
        return time.process_time() - started

    few, many = (min(seconds(entries), seconds(entries)) for entries in (5_000, 40_000))
    assert many < 20 * few, "8 times as many entries; their square is 64"


def test_every_base_model_is_checked_though_two_have_one_name(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["base_models"] += [
        {"name": "Qwen/Qwen3-0.6B", "alias": "small", "quantization": "none", "config": {"rank": 8}},
        {"name": "Qwen/Qwen3-0.6B", "alias": "both", "config": {"fp16": True, "bf16": True}},
    ]
    (fault,) = validate(manifests.write(tmp_path, manifest), CPU, None).errors
    assert fault.key == "base_models[2].config.fp16"
    assert "fp16 and bf16 are both true" in fault.message


def test_a_fault_that_all_base_models_have_is_told_once(tmp_path: Path) -> None:
    manifest = manifests.small(lr_scheduler="warmup_stable_decay")
    manifest["base_models"].append({"name": "org/other"})
    assert len(validate(manifests.write(tmp_path, manifest), CPU, None).errors) == 1
