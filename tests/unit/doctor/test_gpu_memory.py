"""Who holds GPU memory, and what is said of it."""

from __future__ import annotations

import os
from types import SimpleNamespace

from expert_cli.doctor import gpus
from tests.fake_nvml import FakeNvml, NvmlError, told


def test_holders_are_named_and_nobody_is_ended() -> None:
    ours = SimpleNamespace(pid=os.getpid(), usedGpuMemory=1.9e9)
    found = told(FakeNvml(nvmlDeviceGetComputeRunningProcesses=[ours]), gpus.memory_holders)
    assert found["problem"] == ""
    assert found["gpus"] == [
        {"index": 0, "name": "NVIDIA H200", "memory_used_mb": 2000.0, "memory_total_mb": 150_000.0, "problem": ""}
    ]
    assert [(row["gpu"], row["pid"], row["memory_mb"]) for row in found["holders"]] == [(0, os.getpid(), 1900.0)]
    assert [said[:12] for said in found["advice"]] == ["Memory comes", '"Clear the C']


def test_memory_without_a_name_is_mentioned() -> None:
    found = told(FakeNvml(nvmlDeviceGetMemoryInfo=SimpleNamespace(used=5e9, total=150e9)), gpus.memory_holders)
    assert found["advice"][0].startswith("GPU 0: 5,000 MB belong to nobody that the driver names")


def test_where_windows_hides_each_share_none_is_called_nobodys() -> None:
    hidden = SimpleNamespace(pid=os.getpid(), usedGpuMemory=None)
    memory = SimpleNamespace(used=5e9, total=24e9)
    found = told(
        FakeNvml(nvmlDeviceGetComputeRunningProcesses=[hidden], nvmlDeviceGetMemoryInfo=memory), gpus.memory_holders
    )
    assert not any("nobody" in said for said in found["advice"])


def test_without_nvml() -> None:
    found = told(FakeNvml(init=NvmlError("Driver Not Loaded")), gpus.memory_holders)
    assert found == {"problem": "Driver Not Loaded", "gpus": [], "holders": [], "advice": []}
