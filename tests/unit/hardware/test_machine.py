"""No GPU that torch can use is left out in silence, whoever has to be asked for it: the driver, torch, or a package's files."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from expert_cli.hardware import machine
from expert_cli.hardware.machine import Gpu, Machine
from tests.fake_nvml import FakeNvml, NvmlError
from tests.fake_torch import package

FOR_CUDA, FOR_CPUS = "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None", "cuda: Optional[str] = None"
NO_DRIVER = NvmlError("Driver Not Loaded")
UNTOLD = NvmlError("Not Supported")
GB10: dict[str, Any] = {
    "nvmlDeviceGetName": "NVIDIA GB10",
    "nvmlDeviceGetMemoryInfo": UNTOLD,
    "nvmlDeviceGetCudaComputeCapability": (12, 1),
}
SEEN = SimpleNamespace(name="what torch sees", total_memory=7, major=8, minor=7)


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Machine]:
    """Return a function that looks at a machine with this driver and this torch, whose functions for `module` may be asked."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())

    def looked(nvml: FakeNvml, build: str = FOR_CUDA, cards: tuple[Any, ...] = (), *, module: str = "") -> Machine:
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        package(monkeypatch, tmp_path, build, module, lambda: list(cards))
        return machine.inspect()

    return looked


def test_a_card_that_shares_the_host_s_memory_is_used(look: Callable[..., Machine]) -> None:
    """NVML does not tell what memory a GB10 has, as it has none of its own; torch need not be asked."""
    here = look(FakeNvml(**GB10))
    assert here.gpus == (Gpu("NVIDIA GB10", psutil.virtual_memory().total, (12, 1)),)
    assert (here.device, here.first_words) == ("cuda", "")


@pytest.mark.parametrize(
    "nvml",
    [FakeNvml(init=NO_DRIVER), FakeNvml(nvmlDeviceGetCudaComputeCapability=UNTOLD), FakeNvml(cards=1, lost=0)],
    ids=["no driver", "no capability", "a lost card"],
)
def test_where_the_driver_does_not_tell_torch_does(look: Callable[..., Machine], nvml: FakeNvml) -> None:
    here = look(nvml, cards=(SEEN, SEEN), module="cuda")
    assert here.gpus == (Gpu("what torch sees", 7, (8, 7)),) * 2
    assert here.device == "cuda"


def test_without_the_driver_s_library_torch_is_not_loaded(
    look: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel that pip takes on Linux is built for CUDA, on machines without a GPU too."""

    def absent(_: str) -> Any:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    here = look(FakeNvml(init=NO_DRIVER), module="nothing")
    assert (here.gpus, here.device, here.torch_device) == ((), "cpu", "cuda")


def test_a_card_with_a_torch_for_cpus_is_told_without_loading_it(look: Callable[..., Machine]) -> None:
    here = look(FakeNvml(**GB10), FOR_CPUS, module="nothing")
    assert (here.gpus[0].name, here.device, here.torch_build) == ("NVIDIA GB10", "cpu", "CPUs")
    assert here.first_words.startswith("NVIDIA GB10 is here, but the installed torch is a CPU build")


FOR_AMD = "cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43484-123eb5128'"


@pytest.mark.parametrize("cards", [(), (SEEN,)], ids=["no card", "a card"])
def test_of_amd_s_cards_torch_tells(look: Callable[..., Machine], cards: tuple[Any, ...]) -> None:
    here = look(FakeNvml(init=NO_DRIVER), FOR_AMD, cards, module="cuda")
    assert here.gpus == tuple(Gpu(card.name, card.total_memory, (8, 7)) for card in cards)
    assert (here.torch_device, here.torch_build) == ("cuda", "ROCm 6.4.43484-123eb5128")
    assert here.device == ("cuda" if cards else "cpu")


def test_a_process_is_prepared_before_torch_is_asked(
    look: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")
    for name in settings:
        monkeypatch.setenv(name, "put back when the test is over")
        monkeypatch.delenv(name)
    seen: list[set[str]] = []

    class Asked(tuple[Any, ...]):
        def __iter__(self) -> Any:
            seen.append(set(settings) & os.environ.keys())
            return super().__iter__()

    look(FakeNvml(init=NO_DRIVER), FOR_AMD, Asked(), module="cuda")
    assert seen
    assert all(seen)
