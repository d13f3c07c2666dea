"""Bytes that the plan counts are the bytes that are there, and a probe is started with what can be probed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from expert_cli.config.resolve import Overrides
from expert_cli.data.packing.packed_dataset import PackedDataset
from expert_cli.errors import InputError
from expert_cli.estimate import memory_estimate
from expert_cli.estimate.memory_estimate import Step, activation_bytes, head_bytes, linear_weights, stored_bytes
from expert_cli.estimate.throughput import probe, probe_overrides, speed
from expert_cli.manifest.key import AdapterType, Dtype, Quantization
from expert_cli.manifest.reader import load_manifest
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CHUNK_BYTES, CausalLoss, head_loss
from expert_cli.model.kernels.dequantize import copy_bytes
from expert_cli.model.kernels.kernel_plan import Kernel, KernelPlan
from expert_cli.model.layers import enable_activation_checkpointing
from expert_cli.model.loading.quantize import DTYPES, load_base
from tests import manifests, run_blocks, tiny
from tests.adapted import WAYS, meta_model
from tests.live_memory import Alive
from tests.machines import CPU
from tests.packs import Lengths

TOKENS = 256
ODD = {"hidden_size": 88, "intermediate_size": 200, "num_attention_heads": 4, "head_dim": 22}
LORA = replace(run_blocks.ADAPTER, rank=8, alpha=16.0)
PLAN = KernelPlan("documents", "packed", False, False, False, False, {"fused": Kernel("off", "")})
RUN = manifests.resolve(load_manifest(manifests.SHIPPED[0]), CPU)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "head_dim": 32}
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "qwen3", "qwen3", **shape)


def planned(folder: Path, dtype: Dtype = "bf16", adapter: AdapterType = "lora", **compute: Any) -> Step:
    """Return a step of two documents with everything off, but for how it is computed."""
    run = replace(
        RUN,
        model=replace(RUN.model, quantization="none"),
        adapter=replace(LORA, type=adapter),
        compute=replace(RUN.compute, **{"device": "cpu", "dtype": dtype, "checkpointing": "off", **compute}),
    )
    model = meta_model(folder, run.adapter, dtype=DTYPES[dtype], attention="sdpa")
    return Step(model, run, PLAN, TOKENS, TOKENS // 2, TOKENS - 1)


def held(tensor: torch.Tensor) -> int:
    """Return the bytes of a weight and of what its quantization keeps beside it."""
    state = getattr(tensor, "quant_state", None)
    tables = [state.absmax, state.code, state.offset, state.state2.absmax, state.state2.code] if state else []
    return tensor.nbytes + sum(table.nbytes for table in tables)


@pytest.mark.parametrize("quantization", ["int4", "int8", "bf16", "none"])
@pytest.mark.parametrize("overrides", [{}, ODD], ids=["blocks fit", "odd sizes"])
def test_stored_weights_are_as_many_bytes(
    tmp_path: Path, quantization: Quantization, overrides: dict[str, int]
) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "m", **overrides)
    base = load_base(
        folder, quantization=quantization, dtype=torch.bfloat16, device="cpu", attention="sdpa", rope_scaling={}
    )
    scales = sum(m.state.SCB.nbytes for m in base.modules() if hasattr(m, "init_8bit_state"))
    real = sum(held(parameter) for parameter in base.parameters()) + scales
    model = meta_model(folder, LORA, dtype=torch.bfloat16, attention="sdpa")
    assert stored_bytes(model, quantization, 2) == real
    assert copy_bytes(base) == (2 * linear_weights(model) if quantization == "int4" else 0)


@pytest.mark.parametrize("trained", [300, 5000], ids=["part of a chunk", "chunks"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_head_takes_as_many_bytes(folder: Path, device: Any, dtype: Dtype, trained: int) -> None:
    """Counted on tensors without contents, for which torch takes the same operations as for a GPU's bf16."""
    step = replace(planned(folder, dtype, device=device), trained=trained)
    vocabulary, width = 151_936, step.head.weight.shape[1]
    with torch.device("meta"):
        hidden = torch.empty(trained, width, dtype=DTYPES[dtype], requires_grad=True)
        head = torch.nn.Linear(width, vocabulary, bias=False, dtype=DTYPES[dtype]).requires_grad_(False)
        targets = torch.empty(trained, dtype=torch.int64)
    step.head.weight = head.weight
    with Alive() as alive:
        head_loss(hidden, head, targets, CHUNK_BYTES[device])
    assert hidden.nbytes + alive.peak == pytest.approx(head_bytes(step), rel=0.01)


@pytest.mark.parametrize(("adapter", "dtype"), [("lora", "bf16"), ("lora", "fp32"), ("dora", "bf16")])
@pytest.mark.parametrize("checkpointing", ["off", "all"])
def test_kept_activations_are_as_many_bytes(
    folder: Path, adapter: AdapterType, dtype: Dtype, checkpointing: Any
) -> None:
    step, whole = (planned(folder, dtype, adapter, checkpointing=what) for what in (checkpointing, "off"))
    WAYS[adapter](step.model), WAYS[adapter](whole.model)
    base = load_base(folder, quantization="none", dtype=DTYPES[dtype], device="cpu", attention="sdpa", rope_scaling={})
    attention.use(base, "documents")
    model = add_adapter(base, step.run.adapter)
    WAYS[adapter](model)
    enable_activation_checkpointing(base, checkpointing, reentrant=False)
    loss, made = CausalLoss(model, autocast=torch.bfloat16 if dtype == "bf16" else None).train(), []
    ids, half = torch.arange(TOKENS)[None] % 384, TOKENS // 2
    borders = torch.tensor([0, half, TOKENS], dtype=torch.int32)
    with Alive() as alive:
        made.append(loss(ids, (torch.arange(TOKENS) % half)[None], torch.arange(TOKENS - 1), ids[0, 1:], borders, half))
        kept = alive.alive
    if checkpointing == "all":  # the plan counts the layer that is being recomputed, too
        kept += activation_bytes(whole) // 4
    assert activation_bytes(step) == pytest.approx(kept, rel=0.15)


def test_the_largest_micro_batch_is_that_of_the_longest_packs() -> None:
    packs = PackedDataset(Lengths(np.array([5, 9, 3, 7])), 10, "off", "truncate")
    work = memory_estimate.Workload(None, packs, 24, 0.5, 0)  # type: ignore[arg-type]
    assert work.largest(2, "packed") == (9 + 7, 9)
    assert work.largest(2, "padded") == (2 * 9, 9)


def test_a_probe_that_cannot_train_says_why(tmp_path: Path) -> None:
    path = manifests.write(tmp_path, manifests.small())
    with pytest.raises(InputError, match=r"the probe failed: .*train\.jsonl"):
        probe(manifests.resolve(load_manifest(path), CPU), Overrides(offline=True))


def test_the_first_step_does_not_count_and_the_spread_is_told() -> None:
    rate, spread = speed([(100, 9.0), (200, 10.0), (300, 12.0), (400, 13.0)])
    assert rate == 75.0
    assert spread == 50.0  # 50 to 100 tokens a second


def test_a_run_that_chooses_its_best_step_can_be_probed(tmp_path: Path) -> None:
    best = {"load_best_model_at_end": True, "early_stopping_patience": 2}
    path, machine = manifests.write(tmp_path, manifests.small(**best, eval_strategy="steps")), CPU
    settings = probe_overrides(manifests.resolve(load_manifest(path), machine), Overrides()).settings
    watch = manifests.resolve(load_manifest(path, settings), machine).watch
    assert (watch.load_best_model_at_end, watch.eval_strategy) == (False, "steps"), "the store has the same rows"


def test_what_was_set_by_hand_gives_way_to_the_probe(tmp_path: Path) -> None:
    path, by_hand = manifests.write(tmp_path, manifests.small()), "training.config.gradient_accumulation_steps=8"
    overrides = Overrides(settings=(by_hand, "training.config.rank=2"))
    found = probe_overrides(manifests.resolve(load_manifest(path, overrides.settings), CPU), overrides)
    run = manifests.resolve(load_manifest(path, found.settings), CPU)
    assert (run.optim.gradient_accumulation_steps, run.adapter.rank) == (1, 2)
