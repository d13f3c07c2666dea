"""No GPU that torch can use is left out in silence; every device does what is asked of one, on stand-ins of torch and NVML."""

from __future__ import annotations

import ast
import ctypes
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, get_args

import psutil
import pynvml
import pytest
import torch
from transformers import AutoModelForCausalLM

import expert_cli
from expert_cli.config.resolve import Overrides
from expert_cli.errors import InputError
from expert_cli.hardware import machine, nvml
from expert_cli.hardware.devices import DEVICES, Device, device_of, is_out_of_memory
from expert_cli.hardware.machine import Gpu, Machine
from expert_cli.manifest.keys.compute import DeviceChoice, DeviceName
from expert_cli.manifest.reader import load_manifest
from expert_cli.model.kernels.kernel_plan import kernel_plan
from expert_cli.model.loading.quantize import load_base
from expert_cli.runs.metrics import SHARES
from expert_cli.training.arguments import training_arguments
from expert_cli.training.step_timer import StepTimer
from tests import manifests, tiny
from tests.fake_torch import MB, FakeEvent, as_if, package
from tests.machines import MI300X, OF_DEVICES


class NvmlError(Exception):
    """As pynvml's, printed as a sentence."""


class FakeNvml:
    """As many cards as `cards` says, each its own handle; `answers` to questions: values, errors, functions of the handle."""

    NVMLError = NvmlError
    NVMLLibraryMismatchError = type("NVMLLibraryMismatchError", (Exception,), {})
    usual: ClassVar[dict[str, Any]] = {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2e9, total=150e9),
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=8, memory=3),
        "nvmlDeviceGetTemperatureV": 41,
        "nvmlDeviceGetPowerUsage": 123_400,
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
            raise NvmlError("GPU is lost")
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


def test_a_sample_has_every_figure_in_its_unit() -> None:
    fake = FakeNvml()
    assert told(fake, nvml.sample) == [nvml.GpuSample(0, "NVIDIA H200", 8.0, 2000.0, 150_000.0, 41.0, 123.4, (9, 0))]
    assert fake.open == 0


def test_what_a_card_does_not_tell_is_none() -> None:
    silent = {name: NvmlError("Not Supported") for name in FakeNvml.usual if name != "nvmlDeviceGetName"}
    silent["nvmlDeviceGetPowerUsage"] = FakeNvml.NVMLLibraryMismatchError("too old")
    assert told(FakeNvml(**silent), nvml.sample) == [
        nvml.GpuSample(0, "NVIDIA H200", None, None, None, None, None, None)
    ]
    assert told(FakeNvml(**silent), nvml.driver_info) == nvml.Driver("", None, "")


def test_what_is_asked_is_there_and_stays() -> None:
    """The library's source says above a function that it goes away; of what was renamed, the new name has to be there."""
    asked = set(re.findall(r"\b(?:nvml[A-Z]|NVML_|NVMLError|NVMLLib)\w*", inspect.getsource(nvml)))
    assert {name for name in asked if not hasattr(pynvml, name)} == set()
    assert len(asked) > 12
    assert nvml.OF_THE_GPU == pynvml.NVML_TEMPERATURE_GPU
    leaving = set(re.findall(r"^# DEPRECATED.*\n(?:@.*\n)*def (\w+)", inspect.getsource(pynvml), re.MULTILINE))
    assert leaving & asked == set()


def test_a_lost_card_hides_no_other() -> None:
    assert [row.index for row in told(FakeNvml(cards=3, lost=1), nvml.sample)] == [0, 2]


VISIBLE: dict[str, tuple[str | None, list[int]]] = {
    "not set": (None, [0, 1, 2]),
    "none": ("", []),
    "none, as a number": ("-1", []),
    "another one": ("1", [1]),
    "another order": ("2, 0", [2, 0]),
    "up to what is none": ("2,7,0", [2]),
    "by name, of which torch tells": ("GPU-1a1a-beef,GPU-0a0a-beef", []),
}


@pytest.mark.parametrize(("chosen", "indices"), VISIBLE.values(), ids=VISIBLE.keys())
def test_the_cards_that_cuda_shows(chosen: str | None, indices: list[int]) -> None:
    environment = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    assert [card.index for card in told(FakeNvml(cards=3), nvml.visible, environment)] == indices


@pytest.mark.parametrize(
    "error",
    [NvmlError("Driver Not Loaded"), FakeNvml.NVMLLibraryMismatchError("Driver Not Loaded")],
    ids=["nvml", "old"],
)
def test_without_a_driver_there_is_nothing_and_a_reason(error: Exception) -> None:
    fake = FakeNvml(init=error)
    assert told(fake, nvml.driver_info) == nvml.Driver("", None, "Driver Not Loaded")
    assert told(fake, nvml.sample) == []


EVERY = pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES.keys())


def test_the_registry_and_the_manifest_know_the_same_names() -> None:
    assert tuple(DEVICES) == get_args(DeviceName) == tuple(OF_DEVICES)
    assert get_args(DeviceChoice) == ("auto", *DEVICES, "rocm")


@EVERY
def test_memory_is_that_of_the_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, device.name)
    free, total = device.memory()
    if device.name == "cpu":
        assert total == psutil.virtual_memory().total > free > 0
        resident = pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
        assert [device.held(f"memory_{what}") for what in ("allocated", "reserved")] == [resident, resident]
    else:
        assert (free, total) == (20 * MB, 80 * MB)
        assert [device.held(f"memory_{what}") for what in ("allocated", "reserved")] == [5 * MB, 90 * MB]
    assert device.held("max_memory_allocated") == (None if device.name == "cpu" else 7 * MB)
    assert device.held("max_memory_reserved") == (None if device.name == "cpu" else 95 * MB)
    assert device.spilled() == (0 if device.name == "cpu" else 10 * MB)


@EVERY
def test_the_model_goes_to_the_card_of_this_process(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = as_if(monkeypatch, device.name, cards=3)
    assert device.place(5) == ("cpu" if device.name == "cpu" else 2)
    assert device.card_name() == ("cpu" if device.name == "cpu" else "a card")
    assert device_of(torch.device(device.name)) is device
    device.empty_cache()
    device.reset_peak()
    assert calls == ([] if device.name == "cpu" else ["empty_cache", "reset_peak"])


def test_a_phase_takes_what_lies_between_two_events(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, "cuda")
    timer = StepTimer(DEVICES["cuda"])
    for _ in range(3):
        with timer.phase("forward"):
            pass
    assert timer.totals["forward"] == 0
    timer.lap()
    assert timer.totals["forward"] == pytest.approx(3 * 0.002)
    assert FakeEvent.clock is not None


def test_the_base_model_is_loaded_where_this_process_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several GPUs each process has its own: on one of them, the first would hold every process's copy."""
    places = []

    def loads(*_: Any, device_map: Any, **__: Any) -> Any:
        places.append(device_map)
        raise ValueError("seen enough")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", loads)
    folder = tiny.tiny_model_folder(tmp_path)
    for device in DEVICES:
        as_if(monkeypatch, device, cards=3)
        with pytest.raises(InputError, match="seen enough"):
            load_base(
                folder, quantization="none", dtype=torch.bfloat16, device=device, attention="sdpa", rope_scaling={}
            )
    assert places == [{"": "cpu"}, {"": 0}]


@EVERY
def test_every_device_is_planned_on_its_own_machine_and_the_cpu_elsewhere(device: Device, tmp_path: Path) -> None:
    loaded = load_manifest(manifests.write(tmp_path, manifests.small()))
    here = OF_DEVICES[device.name]
    run = manifests.resolve(loaded, here, Overrides(device=device.name))
    assert (run.compute.device, run.compute.dtype) == (device.name, "bf16")
    assert run.loader.pin_memory == device.is_gpu
    if device.name == "cpu":  # transformers looks for the others
        arguments = training_arguments(run, tmp_path)
        assert (arguments.use_cpu, arguments.bf16, arguments.tf32) == (True, True, None)
    plan = kernel_plan(run.compute, run.model, here, tiny.tiny_model(), unpacked=0, free=0)
    assert here.words_of(device.name) == plan.lines["device"].reason
    assert manifests.resolve(loaded, here).compute.device == device.name
    for name in DEVICES:
        if name in (device.name, "cpu"):
            continue
        assert manifests.resolve(loaded, here, Overrides(device=name)).compute.device == "cpu"


def test_to_torch_the_cards_of_amd_are_cuda(tmp_path: Path) -> None:
    run = manifests.resolve(load_manifest(manifests.write(tmp_path, manifests.small(bf16=True))), MI300X)
    assert (run.compute.device, run.compute.dtype, run.compute.tf32) == ("cuda", "bf16", False)
    assert kernel_plan(run.compute, run.model, MI300X, tiny.tiny_model(), unpacked=0, free=0).attention == "documents"
    with pytest.raises(InputError, match="--device: must be"):
        manifests.resolve(load_manifest(manifests.write(tmp_path, manifests.small())), MI300X, Overrides(device="xpu"))


def test_torch_s_functions_of_a_gpu_are_called_in_one_place_alone() -> None:
    root = Path(inspect.getfile(expert_cli)).parent
    found = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(value=ast.Attribute(value=ast.Name("torch"), attr="cuda")):
                    found.append(path.relative_to(root).as_posix())
    assert {name for name in found if not name.startswith("hardware/")} <= {"_compat.py", "training/captured_step.py"}


@EVERY
def test_tf32_is_switched_on_where_a_device_has_it(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    switches = [SimpleNamespace(allow_tf32=False) for _ in range(2)]
    monkeypatch.setattr(torch.backends.cuda, "matmul", switches[0])
    monkeypatch.setattr(torch.backends, "cudnn", switches[1])
    device.set_flags(tf32=True)
    assert [switch.allow_tf32 for switch in switches] == [device.is_gpu] * 2


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be reported later", 2), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (48x64 and 7x1)"), False),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (FileNotFoundError("out of memory.txt"), False),
    ],
)
def test_what_is_told_of_memory(error: Exception, *, is_memory: bool) -> None:
    assert is_out_of_memory(error) == is_memory


def test_every_moment_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    for module in ("training.step_timer", "hardware.devices"):
        monkeypatch.setattr(f"expert_cli.{module}.time", SimpleNamespace(perf_counter=lambda: now))
    timer = StepTimer(DEVICES["cpu"])
    timer.lap()
    with timer.phase("forward"):
        now += 0.03
    now += 0.02
    timer.begin("data")
    now += 0.01
    timer.end()
    wall, shares = timer.lap()
    assert tuple(shares) == SHARES
    assert wall == pytest.approx(0.06)
    assert {name: share * wall for name, share in shares.items() if share} == pytest.approx(
        {"forward": 0.03, "data": 0.01, "other": 0.02}
    )
    now += 0.06
    assert timer.lap()[1] == pytest.approx(dict.fromkeys(SHARES, 0.0) | {"other": 1.0})
    assert timer.shares()["other"] == pytest.approx(8 / 12)
