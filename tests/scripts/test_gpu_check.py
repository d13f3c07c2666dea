"""The measurements of a step, in tiny shapes on a CPU: every way trains the same, and what fails costs no other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import gpu_check
from benchmarks.gpu_check import Way, main
from expert_cli.runs.metrics import read_json

pytestmark = pytest.mark.filterwarnings("default")  # the stock Trainer's libraries warn of each other
AT = "smollm2 4096"
LORA = ("eager", "captured", "captured without Liger")
"""Ways that have fused LoRA; on a CPU nothing else tells them apart."""


def test_all_ways_train_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = main(["--only", "qwen3", "--json", str(tmp_path / "found.json")])
    assert read_json(tmp_path / "found.json") == found
    assert {"attention, documents", "bitsandbytes", "NF4 with copy"} <= found["checks"].keys()
    rows = found["rows"]
    assert list(rows) == [" ".join(map(str, row)) for row in gpu_check.ROWS if row[0] == "qwen3"]
    for tokens in (4096, 16_384):
        ours = {way: rows[f"qwen3 {tokens} {way} bf16"] for way in (*LORA, "captured, plain PEFT")}
        assert len({ours[way]["loss"] for way in LORA}) == 1
        assert ours["captured, plain PEFT"]["loss"] == pytest.approx(ours["captured"]["loss"], abs=1e-3)
        assert [way for way, row in ours.items() if "lora" in row["kernels"]] == [*LORA]
        stock = rows[f"qwen3 {tokens} stock bf16"]["loss"]
        assert stock == pytest.approx(ours["captured"]["loss"], abs=0.1), "its steps end some documents away"
    copied, packed, bf16 = (rows[f"qwen3 16384 captured {weights}"] for weights in ("NF4 with copy", "NF4", "bf16"))
    assert copied["loss"] == pytest.approx(packed["loss"], abs=1e-3)
    assert [row["kernels"]["copy"].startswith("off:") for row in (copied, packed)] == [False, True]
    told = capsys.readouterr().out
    speed = packed["tokens_per_s"] / bf16["tokens_per_s"]
    assert f"qwen3 16384 captured NF4 / qwen3 16384 captured bf16: {speed:.2f} (bar >= 0.85)\n" in told
    assert "\nsmollm2 " not in told


def test_a_way_that_fails_costs_no_other(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(gpu_check.WAYS, "eager", Way({"rank": 0}))
    found = main(["--only", f"{AT} eager", f"{AT} captured bf16"])["rows"]
    assert found[f"{AT} eager bf16"]["failed"].startswith("ManifestError: ")
    assert found[f"{AT} captured bf16"]["loss"] > 0
    assert f"{AT} eager bf16: failed: ManifestError: " in capsys.readouterr().out
