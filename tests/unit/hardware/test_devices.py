"""Every device of the registry does on stand-ins of torch what is asked of one, and says what a machine lacks for it."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest
import torch
from expert_cli.hardware.device import FIGURES, Device
from transformers import AutoModelForCausalLM

import expert_cli
from expert_cli.config.resolve import Overrides, resolve
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.hardware import device as device_module
from expert_cli.hardware.devices import DEVICES, device_of, present
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.keys.compute import DeviceChoice, DeviceName
from expert_cli.manifest.reader import load_manifest
from expert_cli.model.kernels.attention_backends import BACKENDS
from expert_cli.model.kernels.select import kernel_plan
from expert_cli.model.loading.quantize import load_base
from expert_cli.training.arguments import training_arguments
from expert_cli.training.checkpointing.serialization import capture_rng, restore_rng
from expert_cli.training.gradients import Gradients
from expert_cli.training.health import TrainingHealth
from expert_cli.training.state import TrainingState
from expert_cli.training.step_timer import StepTimer
from tests import manifests, tiny
from tests.fake_torch import MB, FakeEvent, as_if
from tests.machines import ARC, CPU, H200, MAC, MI300X, OF_DEVICES

EVERY = pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES.keys())
GPUS = [name for name, device in DEVICES.items() if device.is_gpu]


def test_the_registry_the_manifest_and_the_back_ends_know_the_same_names() -> None:
    assert tuple(DEVICES) == get_args(DeviceName) == tuple(OF_DEVICES)
    assert get_args(DeviceChoice) == ("auto", *DEVICES)
    known = {backend.name for backend in BACKENDS}
    required = {backend.name for backend in BACKENDS if backend.required or backend.layout == "padded"}
    for device in DEVICES.values():
        assert required <= set(device.attention) <= known
        assert set(device.figures) <= set(FIGURES)
    assert set().union(*(device.attention for device in DEVICES.values())) == known


@EVERY
def test_memory_is_that_of_the_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, device.name)
    free, total = device.memory()
    if device.name == "cpu":
        assert total == psutil.virtual_memory().total > free > 0
        assert device.held("memory_allocated") == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    else:
        assert (free, total, device.held("memory_allocated")) == (20 * MB, 80 * MB, 5 * MB)
    assert device.held("max_memory_allocated") == (None if device.name in ("cpu", "mps") else 7 * MB)
    assert device.held("max_memory_reserved") == (None if device.name in ("cpu", "mps") else 95 * MB)
    assert device.held("memory_reserved") == {"cpu": device.held("memory_allocated"), "mps": 60 * MB}.get(
        device.name, 90 * MB
    )
    assert device.spilled() == (0 if device.name in ("cpu", "mps") else 10 * MB)


@EVERY
def test_what_is_called_for_its_effect_reaches_torch(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = as_if(monkeypatch, device.name)
    device.empty_cache()
    device.reset_peak()
    known = {"cpu": [], "mps": ["empty_cache"]}
    assert calls == known.get(device.name, ["empty_cache", "reset_peak"])


@EVERY
def test_the_model_goes_to_the_card_of_this_process(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, device.name, cards=3)
    assert device.place(5) == {"cpu": "cpu", "mps": "mps"}.get(device.name, 2)
    assert device.is_available()
    names = {"cpu": "cpu", "mps": "Apple GPU"}
    assert device.card_name() == names.get(device.name, "a card")


@pytest.mark.parametrize("name", GPUS)
def test_a_phase_takes_what_lies_between_two_events(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, name)
    timer = StepTimer(DEVICES[name])
    for _ in range(3):
        with timer.phase("forward"):
            pass
    assert timer.totals["forward"] == 0
    timer.lap()
    assert timer.totals["forward"] == pytest.approx(3 * 0.002)
    assert FakeEvent.clock is not None


@EVERY
def test_torch_s_own_device_leads_to_the_entry(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, device.name)
    assert device_of(torch.device(device.type)) is device
    assert present() == ([device] if device.is_gpu else [])


@EVERY
def test_random_generators_come_back_from_a_checkpoint(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = as_if(monkeypatch, device.name)
    state = capture_rng()
    assert set(state) == {"python", "numpy", "torch", "cuda", *({device.type} - {"cpu"})}
    restore_rng(state)
    one = ["state 0 of card 0"]
    assert calls == {"cpu": [], "mps": one}.get(device.name, [*one, "state 1 of card 1"])
    restore_rng({name: value for name, value in state.items() if name not in ("xpu", "mps")})  # as older ones are
    drawn = torch.rand(1), DEVICES["cpu"].set_rng_states(DEVICES["cpu"].rng_states())
    restore_rng(state)
    assert torch.rand(1) == drawn[0]


def test_a_card_tells_of_itself_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, "rocm")
    told = {"utilization": 93.0, "memory_mb": 60.0, "power_w": 650.0, "temperature_c": 61.0}
    assert DEVICES["rocm"].sample() == told
    monkeypatch.setattr(torch.cuda, "power_draw", lambda: 1 / 0)
    assert DEVICES["rocm"].sample() == {**told, "power_w": None}
    as_if(monkeypatch, "xpu")
    assert DEVICES["xpu"].sample() == {"utilization": None, "memory_mb": 60.0, "power_w": None, "temperature_c": 61.0}
    assert DEVICES["mps"].sample() is DEVICES["cpu"].sample() is None


def test_a_card_that_shares_the_host_s_memory_has_what_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA counts the host's page cache as taken, and would leave no room for what does fit."""
    as_if(monkeypatch, "cuda", is_integrated=1)
    free, total = DEVICES["cuda"].memory()
    assert total == psutil.virtual_memory().total > free > 20 * MB


def test_an_intel_card_within_the_processor_does_not_tell_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    as_if(monkeypatch, "xpu")

    def silent() -> Any:
        raise RuntimeError("The device doesn't support querying the available free memory.")

    monkeypatch.setattr(torch.xpu, "mem_get_info", silent)
    monkeypatch.setattr(torch.xpu, "memory_reserved", lambda: 30 * MB)
    assert DEVICES["xpu"].memory() == (50 * MB, 80 * MB)


class OnMetal(torch.Tensor):
    """A tensor that says it lies on Apple's GPU."""

    device = torch.device("mps")


def test_figures_of_a_step_are_read_at_once_where_no_memory_is_pinned() -> None:
    """What lies on a device without pinned memory must not be copied as if it had some."""
    layer = torch.nn.Linear(1, 1)
    layer.weight.grad = torch.ones(1, 1)
    for place in ("cpu", "mps"):
        progress = TrainingState()
        health = TrainingHealth(progress, Gradients([("weight", layer.weight)]), str, scaled=False)
        figures = torch.tensor([1.5, 0.5, 1.0])
        health.record(figures if place == "cpu" else figures.as_subclass(OnMetal))
        assert (progress.losses, health.grad_norm) == ([1.5], 0.5)


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
    assert places == [{"": "cpu"}, {"": 0}, {"": 0}, {"": 0}, {"": "mps"}]


@EVERY
def test_every_device_is_planned_on_its_own_machine_and_refused_elsewhere(device: Device, tmp_path: Path) -> None:
    loaded = load_manifest(manifests.write(tmp_path, manifests.small()))
    here = OF_DEVICES[device.name]
    run = resolve(loaded, here, Overrides(device=device.name))
    assert (run.compute.device, run.compute.dtype) == (device.name, "bf16")
    assert run.loader.pin_memory == device.pins_memory
    arguments: Any = training_arguments(run, tmp_path, dict)  # type: ignore[arg-type]
    assert (arguments["use_cpu"], arguments["tf32"]) == (device.name == "cpu", False if device.name == "cuda" else None)
    plan = kernel_plan(run.compute, run.model, here)
    assert plan.attention in device.attention
    assert here.words_of(device.name) == plan.lines["device"].reason
    assert resolve(loaded, here).compute.device == (device.name if device.automatic else "cpu")
    for name, other in DEVICES.items():
        if name in (device.name, "cpu"):
            continue
        assert other.lacks(here)
        with pytest.raises(EnvironmentProblem, match=f"--device {name}: ") as raised:
            resolve(loaded, here, Overrides(device=name))
        assert raised.value.hint


LACKS: dict[str, tuple[Machine, str, str, str]] = {
    "rocm, torch for NVIDIA": (H200, "rocm", "the installed torch is built for CUDA 13.0", "wheel for ROCm"),
    "cuda, torch for AMD": (MI300X, "cuda", "the installed torch is built for ROCm 6.4.43484", "whl/cu130"),
    "xpu, torch for CPUs": (CPU, "xpu", "the installed torch is built for CPUs", "whl/xpu"),
    "mps on Linux": (CPU, "mps", "this is Linux; Apple GPUs are used on Darwin", "auto"),
    "rocm on a Mac": (MAC, "rocm", "this is Darwin; AMD GPUs are used on Linux and Windows", "auto"),
    "no card of AMD": (replace(MI300X, gpus=()), "rocm", "torch finds no AMD GPU", "rocminfo"),
    "no card of Intel": (replace(ARC, gpus=()), "xpu", "torch finds no Intel GPU", "sycl-ls"),
    "no card of NVIDIA": (replace(H200, gpus=()), "cuda", "no usable GPU", "a machine with an NVIDIA GPU"),
}


@pytest.mark.parametrize(("here", "name", "says", "remedy"), LACKS.values(), ids=LACKS.keys())
def test_a_refusal_says_what_is_missing(tmp_path: Path, here: Machine, name: str, says: str, remedy: str) -> None:
    manifest = manifests.small()
    manifest["training"]["config"]["device"] = name
    for said, words in ((Overrides(device=name), f"--device {name}: {says}"), (Overrides(), f"device {name}: {says}")):
        with pytest.raises(EnvironmentProblem) as raised:
            resolve(load_manifest(manifests.write(tmp_path, manifest)), here, said)
        assert raised.value.message == words
        assert remedy in raised.value.hint


def test_the_command_line_goes_before_the_manifest_and_an_unknown_device_lists_all(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["training"]["config"]["device"] = "cpu"
    loaded = load_manifest(manifests.write(tmp_path, manifest))
    assert (
        resolve(loaded, H200).compute.device == resolve(loaded, H200, Overrides(device="auto")).compute.device == "cpu"
    )
    assert resolve(loaded, H200, Overrides(device="cuda")).compute.device == "cuda"
    with pytest.raises(InputError, match="--device tpu: must be") as raised:
        resolve(loaded, H200, Overrides(device="tpu"))
    assert all(name in raised.value.message for name in get_args(DeviceChoice))


def test_what_bitsandbytes_lacks_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["base_models"][0]["quantization"] = "int4"
    path = manifests.write(tmp_path, manifest)
    old = replace(MAC, bitsandbytes_lacks=("mps",))
    with pytest.raises(EnvironmentProblem, match="int4: the installed bitsandbytes has no kernels for Apple GPUs"):
        resolve(load_manifest(path), old, Overrides(device="mps"))
    assert resolve(load_manifest(path), old).compute.device == "cpu"
    small = ("training.config.optim=adamw_8bit",)
    with pytest.raises(EnvironmentProblem, match="adamw_8bit: bitsandbytes has no such optimizer for Apple GPUs"):
        resolve(load_manifest(path, small), MAC, Overrides(device="mps"))
    assert resolve(load_manifest(path, small), ARC, Overrides(device="xpu")).compute.device == "xpu"


def test_torch_s_functions_of_a_gpu_are_called_in_one_place_alone() -> None:
    root = Path(inspect.getfile(expert_cli)).parent
    found = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(value=ast.Attribute(value=ast.Name("torch"), attr="cuda" | "xpu" | "mps")):
                    found.append(path.relative_to(root).as_posix())
    assert {name for name in found if not name.startswith("hardware/")} <= {"_compat.py"}


@pytest.mark.parametrize(
    ("system", "release", "has"),
    [
        ("linux", "6.8.0-45-generic", True),
        ("linux", "6.6.87.2-microsoft-standard-WSL2", False),
        ("linux", "4.4.0-19041-Microsoft", False),
        ("win32", "11", False),
        ("darwin", "24.5.0", False),
    ],
)
def test_blocks_that_grow_are_asked_for_where_they_work(
    monkeypatch: pytest.MonkeyPatch, system: str, release: str, *, has: bool
) -> None:
    monkeypatch.setattr(device_module.sys, "platform", system)
    monkeypatch.setattr(device_module.platform, "release", lambda: release)
    assert device_module.has_expandable_segments() is has
    asked: list[str] = []
    monkeypatch.setattr(device_module, "expandable_segments", lambda: asked.append(release))
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        DEVICES["cuda"].set_flags(tf32=before[0])
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    assert asked == [release] * has


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_switches_are_set_where_a_device_has_them(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    newer = hasattr(torch._C, "_accelerator_setAllocatorSettings")
    where = (torch._C, "_accelerator_setAllocatorSettings") if newer else (torch.cuda.memory, "_set_allocator_settings")
    monkeypatch.setattr(*where, told.append)
    monkeypatch.setattr(device_module.sys, "platform", "linux")
    monkeypatch.setattr(device_module.platform, "release", lambda: "6.8.0-45-generic")
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = False
        device.set_flags(tf32=True)
        is_set = [switch.allow_tf32 for switch in switches]
    finally:
        for switch, allowed in zip(switches, before, strict=True):
            switch.allow_tf32 = allowed
    assert (told, is_set) == (
        (["expandable_segments:True"], [True] * 2) if device.name == "cuda" else ([], [False] * 2)
    )
