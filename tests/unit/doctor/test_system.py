"""What the doctor says of a machine, from its facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from expert_cli.doctor import facts, gpus
from expert_cli.doctor.check import CheckResult, worst
from expert_cli.hardware import nvml
from expert_cli.hardware.machine import Gpu, Machine
from expert_cli.hardware.nvml import Driver, GpuSample
from tests.fake_nvml import FakeNvml, NvmlError, told
from tests.machines import MI300X

H200 = GpuSample(0, "NVIDIA H200", memory_total_mb=150_000.0, capability=(9, 0))
ABSENT = Driver("", None, "NVML Shared Library Not Found")
HERE = Driver("580.65", (13, 0), "")
CPU = Machine("Linux", 8, 32_000_000_000, (), False, "", (("python", "3.11.7"), ("torch", "2.13.0+cpu")))


def test_a_gpu_with_a_cpu_torch_is_the_first_word() -> None:
    line = gpus.torch_build(replace(CPU, gpus=(Gpu("NVIDIA H200", 1, (9, 0)),)), ABSENT)
    assert (line.name, line.state) == ("torch build", "fail")
    assert line.found.startswith("NVIDIA H200 is here, but the installed torch is a CPU build")
    assert line.fix.startswith("pip install torch --index-url https://download.pytorch.org/whl/cu")
    assert gpus.torch_build(CPU, ABSENT).state == "ok"


@pytest.mark.parametrize(
    ("version", "bits", "state"),
    [("3.11.7", 64, "ok"), ("3.9.18", 64, "fail"), ("3.14.0rc1", 64, "ok"), ("3.12.1", 32, "fail")],
)
def test_python(version: str, bits: int, state: str) -> None:
    line = facts.python(version, ">=3.10", bits)
    assert (line.state, bool(line.fix)) == (state, state == "fail")


def test_little_memory_is_worth_a_warning() -> None:
    assert facts.system(CPU).state == "ok"
    assert facts.system(replace(CPU, memory_bytes=4_000_000_000)).state == "warn"


@pytest.mark.parametrize(
    ("found", "device", "state", "says"),
    [
        (HERE, True, "ok", "NVIDIA 580.65, runs CUDA up to 13.0"),
        (ABSENT, False, "ok", "no NVIDIA driver (NVML Shared Library Not Found)"),
        (ABSENT, True, "fail", "its driver does not answer"),
        (Driver("", None, "Driver/library version mismatch"), True, "fail", "mismatch"),
    ],
    ids=["here", "no card", "card without driver", "updated without restart"],
)
def test_driver(found: Driver, device: bool, state: str, says: str) -> None:
    line = gpus.check_driver(found, device)
    assert (line.state, bool(line.fix)) == (state, state == "fail")
    assert says in line.found


@pytest.mark.parametrize(
    ("cuda", "torch", "driver", "state", "fix"),
    [
        ("", "2.13.0+cpu", ABSENT, "ok", ""),
        ("", "not installed", ABSENT, "fail", "pip install torch"),
        ("13.0", "2.13.0", HERE, "ok", ""),
        ("12.8", "2.13.0", HERE, "ok", ""),
        ("13.0", "2.13.0", Driver("560.1", (12, 6), ""), "fail", "whl/cu126"),
        ("13.0", "2.13.0", ABSENT, "ok", ""),
    ],
    ids=["cpu", "none", "fits", "older build", "driver too old", "no driver"],
)
def test_torch_build(cuda: str, torch: str, driver: Driver, state: str, fix: str) -> None:
    line = gpus.torch_build(replace(CPU, torch_cuda=cuda, versions=(("torch", torch),)), driver)
    assert line.state == state
    assert fix in line.fix


@pytest.mark.parametrize(
    ("card", "state", "found"),
    [
        (H200, "ok", "NVIDIA H200, 150 GB, compute capability 9.0, bf16 TF32 FP8"),
        (replace(H200, capability=(8, 6)), "ok", "NVIDIA H200, 150 GB, compute capability 8.6, bf16 TF32, no FP8"),
        (replace(H200, capability=(7, 5)), "warn", "NVIDIA H200, 150 GB, compute capability 7.5, no bf16 TF32 FP8"),
        (replace(H200, capability=None), "ok", "NVIDIA H200, 150 GB, compute capability not told"),
        (
            replace(H200, memory_total_mb=None),
            "ok",
            "NVIDIA H200, shares the system's memory, compute capability 9.0, bf16 TF32 FP8",
        ),
        (replace(H200, model="TCC"), "ok", "NVIDIA H200, 150 GB, compute capability 9.0, bf16 TF32 FP8, TCC"),
        (replace(H200, model="WDDM"), "warn", "NVIDIA H200, 150 GB, compute capability 9.0, bf16 TF32 FP8, WDDM"),
        (GpuSample(1, problem="GPU is lost"), "fail", "a card does not answer: GPU is lost"),
    ],
    ids=[
        "H200",
        "Ampere",
        "Turing",
        "capability untold",
        "memory untold",
        "TCC",
        "WDDM",
        "lost",
    ],
)
def test_a_gpu(card: GpuSample, state: str, found: str) -> None:
    (line,) = gpus.check_gpus([card], None)
    assert (line.state, line.found, bool(line.fix)) == (state, found, state != "ok")


def test_a_gpu_of_another_maker() -> None:
    """The driver of NVIDIA knows of none, which is no reason to say that there is none."""
    (line,) = gpus.check_gpus([], None, MI300X.gpus)
    assert (line.name, line.state) == ("GPU 0", "ok")
    assert line.found.startswith(MI300X.gpus[0].name)


def test_several_gpus_and_who_chooses() -> None:
    assert [line.state for line in gpus.check_gpus([], None)] == ["warn"]
    two = [H200, replace(H200, index=1)]
    assert [line.name for line in gpus.check_gpus(two, None)] == ["GPU 0", "GPU 1", "GPU choice"]
    assert [line.state for line in gpus.check_gpus(two, "1")] == ["ok"] * 3
    assert [line.state for line in gpus.check_gpus(two, "")] == ["ok", "ok", "warn"]
    assert [line.state for line in gpus.check_gpus(two, "-1")] == ["ok", "ok", "warn"]


def test_memory_in_use() -> None:
    from types import SimpleNamespace

    fake = FakeNvml(
        nvmlDeviceGetMemoryInfo=SimpleNamespace(used=40e9, total=150e9),
        nvmlDeviceGetComputeRunningProcesses=[
            SimpleNamespace(pid=2**22 + n, usedGpuMemory=held) for n, held in enumerate((1e9, 30e9, None, 2e9))
        ],
    )
    (line,) = gpus.memory_in_use(told(fake, nvml.sample), told(fake, nvml.holders))
    assert line == CheckResult(
        "GPU 0 memory",
        "warn",
        "40,000 MB of 150,000 MB in use; processes: 4194305 (30,000 MB), 4194307 (2,000 MB), 4194304 (1,000 MB) and 1 more",
        "memory comes back when its process ends: Ctrl-C where it was started, or shut down the kernel of a notebook",
    )
    idle = FakeNvml()
    assert [row.state for row in gpus.memory_in_use(told(idle, nvml.sample), told(idle, nvml.holders))] == ["ok"]
    untold = FakeNvml(nvmlDeviceGetMemoryInfo=NvmlError("Not Supported"))
    assert gpus.memory_in_use(told(untold, nvml.sample), told(untold, nvml.holders)) == []


def test_a_card_without_driver_is_seen_on_the_bus(tmp_path: Path) -> None:
    assert not gpus.has_nvidia_device(tmp_path / "none")
    for name, vendor, kind in (("a", "0x8086", "0x030000"), ("b", "0x10de", "0x020000"), ("c", "0x10de", "0x030200")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n", encoding="utf-8")
        (tmp_path / name / "class").write_text(f"{kind}\n", encoding="utf-8")
        assert gpus.has_nvidia_device(tmp_path) == (name == "c")


def test_the_worst_state_counts() -> None:
    fine, warned, failed = (CheckResult("x", state, "") for state in ("ok", "warn", "fail"))
    assert [worst(rows) for rows in ([], [fine], [fine, warned], [warned, failed, fine])] == [
        "ok",
        "ok",
        "warn",
        "fail",
    ]
