"""A check is of all base models, and tells each fault once."""

from __future__ import annotations

from pathlib import Path

from expert_cli.config.plan import validate
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
