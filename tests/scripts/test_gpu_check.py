"""The measurement of a GPU's steps, in tiny shapes on a CPU: every way trains the same, and what fails costs no other one."""

from __future__ import annotations

import json
from collections import UserDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import gpu_check
from benchmarks.gpu_check import Way, main
from benchmarks.lib.step_meter import kernel_seconds

pytestmark = pytest.mark.filterwarnings("default")  # the stock Trainer's libraries warn of each other
AT = "smollm2 4096"
LORA = ("eager", "captured", "captured without Liger")
"""Ways that have fused LoRA; on a CPU nothing else tells them apart."""


def test_all_ways_train_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = main(["--only", "qwen3", "--json", str(tmp_path / "found.json")])
    assert json.loads((tmp_path / "found.json").read_text(encoding="utf-8")) == found
    assert {"attention, documents", "bitsandbytes", "NF4 with copy"} <= found["checks"].keys()
    rows = found["rows"]
    assert list(rows) == [" ".join(map(str, row)) for row in gpu_check.ROWS if row[0] == "qwen3"]
    for tokens in (4096, 16_384):
        ours = {way: rows[f"qwen3 {tokens} {way} bf16"] for way in (*LORA, "captured, plain PEFT")}
        assert len({ours[way]["loss"] for way in LORA}) == 1
        assert ours["captured, plain PEFT"]["loss"] == pytest.approx(ours["captured"]["loss"], abs=1e-3)
        assert {way: row["kernels"]["fused"][:4] for way, row in ours.items()} == {
            **dict.fromkeys(LORA, "lora"),
            "captured, plain PEFT": "off:",
        }
        stock = rows[f"qwen3 {tokens} stock bf16"]["loss"]
        assert stock == pytest.approx(ours["captured"]["loss"], abs=0.1), "its steps end some documents away"
    copied, packed, bf16 = (rows[f"qwen3 16384 captured {weights}"] for weights in ("NF4 with copy", "NF4", "bf16"))
    assert copied["loss"] == pytest.approx(packed["loss"], abs=1e-3)
    assert [row["kernels"]["copy"][:4] for row in (copied, packed)] == ["bf16", "off:"]
    told = capsys.readouterr().out
    speed = packed["tokens_per_s"] / bf16["tokens_per_s"]
    assert f"qwen3 16384 captured NF4 / qwen3 16384 captured bf16: {speed:.2f} (bar >= 0.85)\n" in told
    assert "\nsmollm2 " not in told


def test_a_way_that_fails_costs_no_other_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(gpu_check.WAYS, "eager", Way({"rank": 0}))
    found = main(["--only", f"{AT} eager", f"{AT} captured bf16"])["rows"]
    assert found[f"{AT} eager bf16"]["failed"].startswith("ManifestError: ")
    assert found[f"{AT} captured bf16"]["loss"] > 0
    assert f"{AT} eager bf16: failed: ManifestError: " in capsys.readouterr().out


class Stopped(UserDict[str, Any]):
    """Settings at whose reading someone presses Ctrl-C."""

    def keys(self) -> Any:
        raise KeyboardInterrupt


def test_what_was_measured_before_it_is_stopped_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu_check.WAYS, "captured", Way(config=Stopped()))
    with pytest.raises(KeyboardInterrupt):
        main(["--only", f"{AT} eager", f"{AT} captured bf16", "--json", str(tmp_path / "found.json")])
    assert list(json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["rows"]) == [f"{AT} eager bf16"]


def test_nothing_begins_after_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--minutes", "0", "--only", f"{AT} eager"])["rows"] == {}
    assert f"{AT} eager bf16: no time left" in capsys.readouterr().out


def test_kernels_alone_count_as_the_gpus_time() -> None:
    def event(device: str, microseconds: float, *, annotation: bool = False) -> SimpleNamespace:
        return SimpleNamespace(
            device_type=f"DeviceType.{device}", self_device_time_total=microseconds, is_user_annotation=annotation
        )

    assert kernel_seconds([event("CUDA", 2e6), event("CUDA", 9e6, annotation=True), event("CPU", 5e6)]) == 2
