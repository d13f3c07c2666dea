"""What NVML tells, through a tiny double of it: there is no GPU where the tests run."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from expert_cli import gpu


class NvmlError(Exception):
    """As pynvml's: a number, printed as a sentence."""

    def __init__(self, text: str, value: int = 3) -> None:
        super().__init__(text)
        self.value = value


class FakeNvml:
    """As many cards as `cards` says; a question in `refused` is answered with an error, one in `answers` otherwise."""

    NVMLError = NvmlError
    NVMLLibraryMismatchError = type("NVMLLibraryMismatchError", (Exception,), {})
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1
    NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED = 15, 16
    usual: ClassVar[dict[str, Any]] = {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2e9, total=150e9),
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetCurrentDriverModel": NvmlError("Not Supported"),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=8, memory=3),
        "nvmlDeviceGetTemperature": 41,
        "nvmlDeviceGetPowerUsage": 123_400,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1 | 0x4 | 0x40,
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlSystemGetDriverVersion": "580.65.06",
        "nvmlSystemGetCudaDriverVersion": 13010,
    }

    def __init__(self, cards: int = 1, init: Exception | None = None, lost: int = -1, **answers: Any) -> None:
        self.cards, self.init, self.lost, self.answers, self.open = cards, init, lost, {**self.usual, **answers}, 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init:
            raise self.init
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.cards

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index == self.lost:
            raise NvmlError("GPU is lost", 15)
        return index

    def __getattr__(self, question: str) -> Any:
        def answer(*_: Any) -> Any:
            assert self.open, "asked while NVML was closed"
            if isinstance(self.answers[question], Exception):
                raise self.answers[question]
            return self.answers[question]

        return answer


def test_a_sample_has_every_figure_in_its_unit() -> None:
    nvml = FakeNvml()
    assert gpu.sample(nvml) == [
        gpu.GpuSample(
            0,
            "NVIDIA H200",
            8.0,
            2000.0,
            150_000.0,
            41.0,
            123.4,
            700.0,
            1980.0,
            ("power cap", "thermal (hardware)"),
            "",
        )
    ]
    assert nvml.open == 0


def test_what_a_card_does_not_tell_is_none() -> None:
    silent = {name: NvmlError("Not Supported") for name in FakeNvml.usual if name != "nvmlDeviceGetName"}
    silent["nvmlDeviceGetEnforcedPowerLimit"] = FakeNvml.NVMLLibraryMismatchError("too old")
    assert gpu.sample(FakeNvml(**silent)) == [
        gpu.GpuSample(0, "NVIDIA H200", None, None, None, None, None, None, None, (), "")
    ]
    assert gpu.cards(FakeNvml(**silent)) == [gpu.Card(0, "NVIDIA H200", None, None, "", False, "")]
    assert gpu.holders(FakeNvml(**silent)) == []
    assert gpu.driver(FakeNvml(**silent)) == gpu.Driver("", None, "")


def test_one_lost_card_hides_no_other() -> None:
    nvml = FakeNvml(cards=3, lost=1)
    assert [(row.index, row.name, row.problem) for row in gpu.sample(nvml)] == [
        (0, "NVIDIA H200", ""),
        (1, "", "GPU is lost"),
        (2, "NVIDIA H200", ""),
    ]
    assert [card.problem for card in gpu.cards(nvml)] == ["", "GPU is lost", ""]
    assert gpu.holders(nvml) == []


@pytest.mark.parametrize(
    "error",
    [NvmlError("Driver Not Loaded"), FakeNvml.NVMLLibraryMismatchError("Driver Not Loaded")],
    ids=["nvml", "old"],
)
def test_without_a_driver_there_is_nothing_and_a_reason(error: Exception) -> None:
    nvml = FakeNvml(init=error)
    assert gpu.driver(nvml) == gpu.Driver("", None, "Driver Not Loaded")
    assert gpu.cards(nvml) == gpu.sample(nvml) == gpu.holders(nvml) == []


def test_the_driver_and_its_cards() -> None:
    nvml = FakeNvml(nvmlDeviceGetMigMode=[1, 1], nvmlDeviceGetCurrentDriverModel=1)
    assert gpu.driver(nvml) == gpu.Driver("580.65.06", (13, 1), "")
    assert gpu.cards(nvml) == [gpu.Card(0, "NVIDIA H200", 150_000_000_000, (9, 0), "TCC", True, "")]


def test_holders_name_each_process_once() -> None:
    ours, gone = os.getpid(), 2**22 + 1
    processes = [SimpleNamespace(pid=gone, usedGpuMemory=None), SimpleNamespace(pid=ours, usedGpuMemory=3e9)]
    twice = [SimpleNamespace(pid=ours, usedGpuMemory=1e9)]
    nvml = FakeNvml(nvmlDeviceGetComputeRunningProcesses=processes, nvmlDeviceGetGraphicsRunningProcesses=twice)
    first, second = gpu.holders(nvml)
    assert (first.pid, first.memory_mb) == (ours, 3000.0)
    assert first.user
    assert "pytest" in first.command
    assert second == gpu.Holder(0, gone, "", "", None)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["python", "train.py", "--hub-token", "abc", "--seed", "1"], "python train.py --hub-token *** --seed 1"),
        (["python", "--api_key=abc", "WANDB_API_KEY=abc"], "python --api_key=*** WANDB_API_KEY=***"),
        (["x", "hf_abcdefghijklmnopqrstuv"], "x ***"),
        (["x", "https://me:pw@host/y"], "x https://***@host/y"),
        (["python", "--token", "--lr", "1e-4"], "python --token --lr 1e-4"),
    ],
    ids=["next word", "after =", "hub token", "url", "option without value"],
)
def test_a_command_line_shows_no_secret(words: list[str], shown: str) -> None:
    assert gpu.command_text(words) == shown


def test_the_real_library_has_every_function_that_is_asked() -> None:
    import pynvml

    assert [name for name in FakeNvml.usual if not hasattr(pynvml, name)] == []
    with gpu.session() as problem:
        assert isinstance(problem, str)
    assert isinstance(gpu.sample(), list)
