"""Every device of the registry does on stand-ins of torch what is asked of one, and says what a machine lacks for it."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM

import expert_cli
from expert_cli.config.resolve import Overrides, decide, resolve
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.hardware import devices as device_module
from expert_cli.hardware.devices import DEVICES, Device, device_of, is_out_of_memory
from expert_cli.manifest.keys.compute import DeviceChoice, DeviceName
from expert_cli.manifest.reader import load_manifest
from expert_cli.model.kernels.kernel_plan import kernel_plan
from expert_cli.model.loading.quantize import load_base
from expert_cli.runs.metrics import SHARES
from expert_cli.training.arguments import training_arguments
from expert_cli.training.step_timer import StepTimer
from tests import manifests, tiny
from tests.fake_nvml import FakeNvml
from tests.fake_torch import MB, FakeEvent, as_if
from tests.machines import MI300X, OF_DEVICES

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
        assert device.held("memory_allocated") == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    else:
        assert (free, total, device.held("memory_allocated")) == (20 * MB, 80 * MB, 5 * MB)
    assert device.held("max_memory_allocated") == (None if device.name == "cpu" else 7 * MB)
    assert device.held("max_memory_reserved") == (None if device.name == "cpu" else 95 * MB)
    assert device.held("memory_reserved") == (device.held("memory_allocated") if device.name == "cpu" else 90 * MB)
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


@pytest.mark.parametrize(("chosen", "found"), [("1", 90.0), ("1,0", 90.0), ("GPU-0a", 10.0), ("7", None)])
def test_the_card_that_is_looked_at_is_the_one_in_use(
    monkeypatch: pytest.MonkeyPatch, chosen: str, found: float | None
) -> None:
    nvml = FakeNvml(cards=2, nvmlDeviceGetUtilizationRates=lambda card: SimpleNamespace(gpu=(10, 90)[card]))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    sampled = DEVICES["cuda"].sample()
    assert (sampled and sampled["utilization"]) == found


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
                folder,
                quantization="none",
                dtype=torch.bfloat16,
                device=device,
                attention="sdpa",
                rope_scaling={},
            )
    assert places == [{"": "cpu"}, {"": 0}]


@EVERY
def test_every_device_is_planned_on_its_own_machine_and_refused_elsewhere(device: Device, tmp_path: Path) -> None:
    loaded = load_manifest(manifests.write(tmp_path, manifests.small()))
    here = OF_DEVICES[device.name]
    run = resolve(loaded, here, Overrides(device=device.name))
    assert (run.compute.device, run.compute.dtype) == (device.name, "bf16")
    assert run.loader.pin_memory == device.is_gpu
    if device.name == "cpu":  # transformers looks for the others
        arguments = training_arguments(run, tmp_path)
        assert (arguments.use_cpu, arguments.bf16, arguments.tf32) == (True, True, None)
    plan = kernel_plan(run.compute, run.model, here)
    assert here.words_of(device.name) == plan.lines["device"].reason
    assert resolve(loaded, here).compute.device == device.name
    for name in DEVICES:
        if name in (device.name, "cpu"):
            continue
        with pytest.raises(EnvironmentProblem, match=f"--device {name}: ") as raised:
            resolve(loaded, here, Overrides(device=name))
        assert raised.value.hint


def test_to_torch_the_cards_of_amd_are_cuda(tmp_path: Path) -> None:
    run, told = decide(load_manifest(manifests.write(tmp_path, manifests.small(device="rocm", bf16=True))), MI300X)
    assert (run.compute.device, run.compute.dtype, run.compute.tf32) == ("cuda", "bf16", False)
    assert told.outcomes["config", "device"].status == "adjusted"
    assert kernel_plan(run.compute, run.model, MI300X).attention == "documents"
    with pytest.raises(InputError, match="--device xpu: must be"):
        resolve(load_manifest(manifests.write(tmp_path, manifests.small())), MI300X, Overrides(device="xpu"))


def test_torch_s_functions_of_a_gpu_are_called_in_one_place_alone() -> None:
    root = Path(inspect.getfile(expert_cli)).parent
    found = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(value=ast.Attribute(value=ast.Name("torch"), attr="cuda")):
                    found.append(path.relative_to(root).as_posix())
    assert {name for name in found if not name.startswith("hardware/")} <= {"_compat.py", "training/captured_step.py"}


@pytest.mark.parametrize(
    ("device", "release", "grows"),
    [("cpu", "6.8.0-45-generic", False), ("cuda", "6.8.0-45-generic", True), ("cuda", "6.6-microsoft-WSL2", False)],
)
def test_switches_are_set_where_a_device_has_them(
    monkeypatch: pytest.MonkeyPatch, device: str, release: str, *, grows: bool
) -> None:
    told: list[str] = []
    newer = hasattr(torch._C, "_accelerator_setAllocatorSettings")
    where = (torch._C, "_accelerator_setAllocatorSettings") if newer else (torch.cuda.memory, "_set_allocator_settings")
    monkeypatch.setattr(*where, told.append)
    monkeypatch.setattr(device_module.sys, "platform", "linux")
    monkeypatch.setattr(device_module.platform, "release", lambda: release)
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = False
        DEVICES[device].set_flags(tf32=True)
        is_set = [switch.allow_tf32 for switch in switches]
    finally:
        for switch, allowed in zip(switches, before, strict=True):
            switch.allow_tf32 = allowed
    assert told == (["expandable_segments:True"] if grows else [])
    assert is_set == [device == "cuda"] * 2


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


def test_what_a_cpu_really_raises() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


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
