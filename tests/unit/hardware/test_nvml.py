"""What NVML tells, through a tiny double of it."""

from __future__ import annotations

import inspect
import os
import re
import sys
from types import SimpleNamespace

import pynvml
import pytest

from expert_cli.hardware import machine, nvml
from tests.fake_nvml import FakeNvml, NvmlError, told


def test_a_sample_has_every_figure_in_its_unit() -> None:
    fake = FakeNvml()
    assert told(fake, nvml.sample) == [
        nvml.GpuSample(
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
            (9, 0),
        )
    ]
    assert fake.open == 0


def test_what_a_card_does_not_tell_is_none() -> None:
    silent = {name: NvmlError("Not Supported") for name in FakeNvml.usual if name != "nvmlDeviceGetName"}
    silent["nvmlDeviceGetEnforcedPowerLimit"] = FakeNvml.NVMLLibraryMismatchError("too old")
    assert told(FakeNvml(**silent), nvml.sample) == [
        nvml.GpuSample(0, "NVIDIA H200", None, None, None, None, None, None, None, (), "", None)
    ]
    assert told(FakeNvml(**silent), nvml.gpu_of_process, os.getpid()) is None
    assert told(FakeNvml(**silent), nvml.driver_info) == nvml.Driver("", None, "")


def test_what_is_asked_is_there_and_stays() -> None:
    """The library's source says above a function that it goes away; of what was renamed, the new name has to be there."""
    asked = set(re.findall(r"\b(?:nvml[A-Z]|NVML_|NVMLError|NVMLLib)\w*", inspect.getsource(nvml))) - {
        "nvmlClocksEventReasons"
    }
    assert {name for name in asked if not hasattr(pynvml, name)} == set()
    assert len(asked) > 15
    assert (nvml.SM_CLOCK, nvml.OF_THE_GPU) == (pynvml.NVML_CLOCK_SM, pynvml.NVML_TEMPERATURE_GPU)
    leaving = set(re.findall(r"^# DEPRECATED.*\n(?:@.*\n)*def (\w+)", inspect.getsource(pynvml), re.MULTILINE))
    assert leaving & asked == set()


def test_a_lost_card_hides_no_other_and_is_named_also_where_it_still_has_a_name() -> None:
    found = [(row.index, row.name, row.problem) for row in told(FakeNvml(cards=3, lost=1), nvml.sample)]
    assert found == [(0, "NVIDIA H200", ""), (1, "", "GPU is lost"), (2, "NVIDIA H200", "")]
    fake = FakeNvml(nvmlDeviceGetMemoryInfo=NvmlError("GPU requires restart", 16))
    assert [(row.problem, row.utilization) for row in told(fake, nvml.sample)] == [("GPU requires restart", None)]


VISIBLE: dict[str, tuple[str | None, list[int]]] = {
    "not set": (None, [0, 1, 2]),
    "none": ("", []),
    "none, as a number": ("-1", []),
    "another one": ("1", [1]),
    "another order": ("2, 0", [2, 0]),
    "up to what is none": ("2,7,0", [2]),
    "by name": ("GPU-1a1a-beef,GPU-0a0a-beef", [1, 0]),
    "by the beginning of a name": ("GPU-2a", [2]),
    "no such name": ("GPU-77", []),
}


@pytest.mark.parametrize(("chosen", "indices"), VISIBLE.values(), ids=VISIBLE.keys())
def test_the_cards_that_cuda_shows(chosen: str | None, indices: list[int]) -> None:
    environment = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    assert told(FakeNvml(cards=3), nvml.visible, environment) == indices


def test_the_machine_has_the_cards_that_cuda_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"nvmlDeviceGetName": lambda card: ("NVIDIA T4", "NVIDIA H200")[card]}
    capabilities = {"nvmlDeviceGetCudaComputeCapability": lambda card: ((7, 5), (9, 0))[card]}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(cards=2, **names, **capabilities))
    for chosen, name in (("1", "NVIDIA H200"), ("GPU-1a,0", "NVIDIA H200"), ("0", "NVIDIA T4")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
        assert machine.inspect().gpus[0].name == name
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.inspect().gpus == ()


@pytest.mark.parametrize(
    "error",
    [NvmlError("Driver Not Loaded"), FakeNvml.NVMLLibraryMismatchError("Driver Not Loaded")],
    ids=["nvml", "old"],
)
def test_without_a_driver_there_is_nothing_and_a_reason(error: Exception) -> None:
    fake = FakeNvml(init=error)
    assert told(fake, nvml.driver_info) == nvml.Driver("", None, "Driver Not Loaded")
    assert told(fake, nvml.sample) == []


def test_the_driver() -> None:
    assert told(FakeNvml(), nvml.driver_info) == nvml.Driver("580.65.06", (13, 1), "")


def test_the_gpu_that_a_process_computes_on() -> None:
    processes = lambda card: [SimpleNamespace(pid=(7, os.getpid())[card])]
    fake = FakeNvml(cards=2, nvmlDeviceGetComputeRunningProcesses=processes)
    assert [told(fake, nvml.gpu_of_process, pid) for pid in (7, os.getpid(), 8, None)] == [0, 1, None, None]
