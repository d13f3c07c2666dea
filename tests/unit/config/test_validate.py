"""A check is of all base models, and tells each fault once."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.config.plan import trained_adapter, validate
from tests import manifests
from tests.machines import CPU


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
    manifest = manifests.small(fp16=True, bf16=True)
    manifest["base_models"].append({"name": "org/other"})
    assert len(validate(manifests.write(tmp_path, manifest), CPU, None).errors) == 1


def test_a_gpu_that_is_not_here_is_a_warning_at_its_key_and_an_expert_answers_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = manifests.write(tmp_path, manifests.small(device="cuda"))
    found = validate(manifest, CPU, None)
    lack = "cuda: no usable GPU: torch  is built for CPUs"
    told = f"{manifest}:19:7: training.config.device: {lack}; only train and benchmark need one"
    assert (found.errors, found.warnings[0]) == ([], told)
    monkeypatch.setattr("expert_cli.config.plan.inspect", lambda: CPU)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    plan = trained_adapter(tmp_path, manifest, None, offline=True).plan
    assert (plan.run.compute.device, plan.loading) == ("cpu", f"loading the model on the CPU: device {lack}")
