"""A double of pynvml: there is no GPU where the tests run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest


class NvmlError(Exception):
    """As pynvml's: a number, printed as a sentence."""

    def __init__(self, text: str, value: int = 3) -> None:
        super().__init__(text)
        self.value = value


class FakeNvml:
    """As many cards as `cards` says, each its own handle; `answers` to questions: values, errors, functions of the handle."""

    NVMLError = NvmlError
    NVMLLibraryMismatchError = type("NVMLLibraryMismatchError", (Exception,), {})
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1
    NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED = 15, 16
    usual: ClassVar[dict[str, Any]] = {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetUUID": lambda card: f"GPU-{card}a{card}a-beef",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2e9, total=150e9),
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=8, memory=3),
        "nvmlDeviceGetTemperatureV": 41,
        "nvmlDeviceGetPowerUsage": 123_400,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x1 | 0x4 | 0x40,
        "nvmlDeviceGetComputeRunningProcesses": [],
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
        if question not in self.answers:
            raise AttributeError(question)

        def answer(*about: Any) -> Any:
            assert self.open, "asked while NVML was closed"
            found = self.answers[question]
            if isinstance(found, Exception):
                raise found
            return found(*about) if callable(found) else found

        return answer


def told(nvml: FakeNvml, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function says where pynvml is this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", nvml)
        return function(*arguments)
