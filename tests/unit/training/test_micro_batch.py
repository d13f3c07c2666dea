"""Which micro-steps a GPU would wait for, by the shapes of real models: nothing is computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from expert_cli.estimate.gpu_fit import merged_run
from peft import PeftModel
from transformers import AutoConfig

from benchmarks.gpu_roofline import CARDS, MODELS
from expert_cli.config.resolve import Overrides, resolve
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.dataset import PackedDataset
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.estimate.memory import components, step_settings
from expert_cli.estimate.model_shape import meta_model, shape_of
from expert_cli.estimate.workload import Workload
from expert_cli.hardware.devices import DEVICES
from expert_cli.manifest.reader import load_manifest
from expert_cli.model.kernels.select import Kernel, KernelPlan
from expert_cli.training.fit import _merged
from expert_cli.training.micro_batch import merge_factor, merged, smaller
from tests import manifests, run_blocks
from tests.fake_torch import as_if
from tests.machines import H200
from tests.packs import packed
from tests.small_trainer import small_trainer

H100 = CARDS["H100"].gpu
NOTHING = KernelPlan("documents", "packed", False, False, False, False, {"fused": Kernel("off", "")})


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """Twenty-four packs of 2,048 tokens."""
    return packed(tmp_path_factory.mktemp("store"), *((100, 28),) * (24 * 16), capacity=2048)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PeftModel]:
    """Shapes without weights, with LoRA r16 on all linear layers."""
    made, adapter = {}, replace(run_blocks.ADAPTER, rank=16)
    for name, shape in MODELS.items():
        folder = tmp_path_factory.mktemp(name)
        config = dict(shape)
        AutoConfig.for_model(config.pop("model_type"), **config).save_pretrained(folder)
        made[name] = meta_model(folder, adapter, dtype=torch.bfloat16, attention="sdpa")
    return made


def a_run(folder: Path, **config: Any) -> RunConfig:
    written = manifests.small(**{"bf16": True, "max_seq_length": 2048, **config})
    written["base_models"][0]["quantization"] = "int4"
    machine = replace(H200, gpus=(H100,))
    return resolve(load_manifest(manifests.write(folder, written)), machine, Overrides(device="cuda"))


MICRO_STEPS = {
    "small model, fast card": ("Qwen3-0.6B", "H100", 1, 8, 4),
    "as far as there are micro-steps": ("Qwen3-0.6B", "H100", 1, 2, 2),
    "into all of twelve": ("Qwen3-0.6B", "H100", 1, 12, 4),
    "of nine, three are too few": ("Qwen3-0.6B", "H100", 1, 9, 9),
    "larger already": ("Qwen3-0.6B", "H100", 4, 8, 1),
    "slower card": ("Qwen3-0.6B", "RTX 4090", 1, 8, 1),
    "large model": ("Llama-3-8B", "H100", 1, 8, 1),
}


@pytest.mark.parametrize(("model", "gpu", "batch", "accumulation", "factor"), MICRO_STEPS.values(), ids=MICRO_STEPS)
def test_micro_steps_are_merged_where_they_are_launched_longer_than_computed(
    tmp_path: Path,
    packs: PackedDataset,
    models: dict[str, PeftModel],
    model: str,
    gpu: str,
    batch: int,
    accumulation: int,
    factor: int,
) -> None:
    """Of Qwen3-0.6B, 7,123 tokens are 13.4 ms of arithmetic at an H100's peak, as long as 2,240 launches."""
    schedule = Schedule(packs.packs.count, batch * accumulation, batch, 1, 1.0, -1)
    base, card = models[model].get_base_model(), CARDS[gpu].gpu.name
    found = merge_factor(schedule, base, packs, a_run(tmp_path), "packed", card)
    assert found == factor
    assert merged(schedule, found).packs_per_step == schedule.packs_per_step


@pytest.mark.parametrize(
    ("layout", "card", "on_oom"),
    [("padded", H100.name, "fit"), ("packed", "NVIDIA H100 NVL", "fit"), ("packed", H100.name, "error")],
    ids=["padded rows", "unknown card", "nothing may be adjusted"],
)
def test_what_is_not_merged(
    tmp_path: Path, packs: PackedDataset, models: dict[str, PeftModel], layout: Any, card: str, on_oom: str
) -> None:
    schedule, base = Schedule(packs.packs.count, 8, 1, 1, 1.0, -1), models["Qwen3-0.6B"].get_base_model()
    assert merge_factor(schedule, base, packs, a_run(tmp_path, on_oom=on_oom), layout, card) == 1


def test_merged_micro_steps_are_split_into_multiples_of_what_was_asked_for(packs: PackedDataset) -> None:
    whole = merged(Schedule(packs.packs.count, 30, 3, 1, 1.0, -1), 10)
    sizes = [whole]
    while sizes[-1].batch_size > 3:
        sizes.append(smaller(sizes[-1], 3))
    assert [(one.batch_size, one.accumulation) for one in sizes] == [(30, 1), (15, 2), (3, 10)]


@pytest.mark.parametrize(("gigabytes", "batch"), [(80, 4), (16, 2), (9, 1)])
def test_a_plan_merges_what_its_memory_fits_the_card(
    tmp_path: Path, packs: PackedDataset, models: dict[str, PeftModel], gigabytes: int, batch: int
) -> None:
    run, model = a_run(tmp_path, batch_size=1, gradient_accumulation_steps=8), models["Qwen3-0.6B"]
    machine = replace(H200, gpus=(replace(H100, memory_bytes=gigabytes * 2**30),))
    work, shape = Workload(Schedule(packs.packs.count, 8, 1, 1, 1.0, -1), packs, 24 * 2048, 0.2, 0), shape_of(model)
    found = merged_run(run, machine, model, shape, work, 25)
    assert (found.optim.batch_size, found.optim.gradient_accumulation_steps) == (batch, 8 // batch)
    assert replace(found, optim=run.optim) == run

    def needed(size: int) -> float:
        optim = replace(run.optim, batch_size=size)
        setting = step_settings(replace(run, optim=optim), machine, model, shape, work, machine.gpus[0].memory_bytes)
        return 1.25 * sum(components(shape, setting, 500 << 20).values()) / 2**30

    assert batch == 1 or needed(batch) <= gigabytes
    assert batch == 4 or needed(2 * batch) > gigabytes


def test_a_run_asks_its_own_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, made = a_run(tmp_path), small_trainer(tmp_path, batch=1, accumulation=6)
    asked = made.batches.schedule
    assert _merged(made, made.model.model, run, NOTHING) == asked
    made.timer.device = DEVICES["cuda"]
    for card, found in ((H100.name, merged(asked, 6)), ("a card", asked)):
        as_if(monkeypatch, "cuda", name=card)
        assert _merged(made, made.model.model, run, NOTHING) == found
