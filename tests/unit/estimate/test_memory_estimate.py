"""Bytes that the plan counts are the bytes that are there, and a probe is started with what can be probed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from expert_cli.config.resolve import Overrides, resolve
from expert_cli.errors import InputError
from expert_cli.estimate.memory_estimate import (
    StepSettings,
    activation_bytes,
    head_bytes,
    linear_weights,
    shape_of,
    stored_bytes,
)
from expert_cli.estimate.throughput import probe, probe_overrides, speed
from expert_cli.manifest.key import Dtype, Quantization
from expert_cli.manifest.keys.peft import AdapterConfig
from expert_cli.manifest.reader import load_manifest
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CHUNK_BYTES, CausalLoss, head_loss
from expert_cli.model.kernels.dequantize import copy_bytes
from expert_cli.model.kernels.kernel_plan import Kernel, KernelPlan
from expert_cli.model.kernels.lora import fuse, patch_dora
from expert_cli.model.layers import enable_activation_checkpointing
from expert_cli.model.loading.quantize import DTYPES, load_base
from tests import manifests, run_blocks, tiny
from tests.adapted import meta_model
from tests.live_memory import Alive
from tests.machines import CPU
from tests.varlen_kernel import varlen_on_cpu

TOKENS = 256
ODD = {"hidden_size": 88, "intermediate_size": 200, "num_attention_heads": 4, "head_dim": 22}
LORA = replace(run_blocks.ADAPTER, rank=8, alpha=16.0)


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "head_dim": 32}
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / request.param, request.param, **shape)


RUN = resolve(load_manifest(manifests.SHIPPED[0]), CPU)
NOTHING = KernelPlan("documents", "packed", False, False, False, False, {"fused": Kernel("off", "")})
KERNELS = {"attention", "dequantized", "fused", "full_logits"}
COMPUTE = {"device", "dtype", "checkpointing"}


def setting(
    adapter: AdapterConfig = LORA, *, quantization: Quantization = "none", fused_lora: bool = False, **changes: Any
) -> StepSettings:
    """Return bf16 on a CPU, everything off, but for `changes` of the kernels or of how a step is computed."""
    compute = {"device": "cpu", "dtype": "bf16", "checkpointing": "off", **pick(changes, COMPUTE)}
    kernels = replace(NOTHING, **pick(changes, KERNELS))
    assert changes.keys() <= COMPUTE | KERNELS
    run = replace(
        RUN,
        model=replace(RUN.model, quantization=quantization),
        adapter=adapter,
        compute=replace(RUN.compute, **compute),
        optim=replace(RUN.optim, optim="adamw_torch"),
    )
    if fused_lora:
        kernels = kernels.with_line("fused", "lora", "")
    return StepSettings(run, kernels, TOKENS, TOKENS // 2, TOKENS - 1)


def pick(changes: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if name in names}


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
    shape = shape_of(meta_model(folder, LORA, dtype=torch.bfloat16, attention="sdpa"))
    assert stored_bytes(shape, quantization, 2) == real
    assert copy_bytes(base) == (2 * linear_weights(shape) if quantization == "int4" else 0)


@pytest.mark.parametrize("kind", ["lora", "dora", "rslora"])
def test_the_adapter_has_as_many_parameters(folder: Path, kind: Any) -> None:
    adapter = replace(LORA, type=kind)
    base = load_base(folder, quantization="none", dtype=torch.float32, device="cpu", attention="sdpa", rope_scaling={})
    real = sum(p.numel() for p in add_adapter(base, adapter).parameters() if p.requires_grad)
    assert shape_of(meta_model(folder, adapter, dtype=torch.float32, attention="sdpa")).adapter_parameters == real


@pytest.mark.parametrize("trained", [300, 1500, 5000], ids=["part of a chunk", "a chunk", "chunks"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_head_takes_as_many_bytes(folder: Path, device: Any, dtype: Dtype, trained: int) -> None:
    """Counted on tensors without contents, for which torch takes the same operations as for a GPU's bf16."""
    shape = replace(shape_of(meta_model(folder, LORA, dtype=torch.bfloat16, attention="sdpa")), vocabulary=151_936)
    with torch.device("meta"):
        hidden = torch.empty(trained, shape.hidden, dtype=DTYPES[dtype], requires_grad=True)
        head = torch.nn.Linear(shape.hidden, shape.vocabulary, bias=False, dtype=DTYPES[dtype]).requires_grad_(False)
        targets = torch.empty(trained, dtype=torch.int64)
    with Alive() as alive:
        head_loss(hidden, head, targets, CHUNK_BYTES[device])
    said = head_bytes(shape, replace(setting(device=device, dtype=dtype), trained=trained))
    assert hidden.nbytes + alive.peak == pytest.approx(said, rel=0.01)


KEPT: dict[str, tuple[AdapterConfig, dict[str, Any]]] = {
    "lora, mixed": (LORA, {}),
    "lora, fused": (LORA, {"fused_lora": True}),
    "lora, fp32": (LORA, {"dtype": "fp32"}),
    "lora, varlen": (LORA, {"attention": "varlen"}),
    "lora on q and v": (replace(LORA, target_modules=("q_proj", "v_proj")), {}),
    "lora with dropout": (replace(LORA, dropout=0.1), {}),
    "dora": (replace(LORA, type="dora"), {}),
}


@pytest.mark.parametrize(("adapter", "changes"), KEPT.values(), ids=KEPT.keys())
def test_kept_activations_are_as_many_bytes(folder: Path, adapter: AdapterConfig, changes: dict[str, Any]) -> None:
    shape = shape_of(meta_model(folder, adapter, dtype=torch.bfloat16, attention="sdpa"))
    chosen = setting(adapter, **changes)
    gradient = chosen.trained * shape.hidden * chosen.element  # of the head, made in the forward pass
    real = kept(folder, chosen)
    assert activation_bytes(shape, chosen) + gradient == pytest.approx(real, rel=0.05)


def test_recomputed_layers_keep_their_input(folder: Path) -> None:
    shape = shape_of(meta_model(folder, LORA, dtype=torch.bfloat16, attention="sdpa"))
    off, chosen = setting(), setting(checkpointing="all")
    saved = kept(folder, off) - kept(folder, chosen)
    within = activation_bytes(shape, off) - activation_bytes(shape, chosen)
    # The plan also counts the one layer that is being recomputed, which the forward pass does not show.
    layer = activation_bytes(shape, off) / len(shape.layers)
    assert within < saved < within + 1.1 * layer


def kept(folder: Path, chosen: StepSettings) -> int:
    """Return the bytes that a real forward pass saves for the backward pass, weights left out."""
    compute = chosen.run.compute
    dtype = DTYPES[compute.dtype]
    base = load_base(folder, quantization="none", dtype=dtype, device="cpu", attention="sdpa", rope_scaling={})
    attention.use(base, chosen.kernels.attention)
    model = add_adapter(base, chosen.run.adapter)
    patch_dora(model)
    if chosen.kernels.lines["fused"].used == "lora":
        fuse(model)
    loss = CausalLoss(model).train()
    enable_activation_checkpointing(base, compute.checkpointing, reentrant=False)
    weights = {tensor.untyped_storage().data_ptr() for tensor in (*loss.parameters(), *loss.buffers())}
    found: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    ids = torch.arange(TOKENS)[None] % 384
    rows = torch.arange(TOKENS - 1)
    half = TOKENS // 2
    borders = torch.tensor([0, half, TOKENS], dtype=torch.int32)
    with (
        varlen_on_cpu(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=compute.dtype == "bf16"),
    ):
        loss(ids, (torch.arange(TOKENS) % half)[None], rows, ids[0, 1:], borders, half)
    return sum(size for size, _ in found.values())


def test_a_probe_that_cannot_train_says_why(tmp_path: Path) -> None:
    path = manifests.write(tmp_path, manifests.small())
    with pytest.raises(InputError, match=r"the probe failed: .*train\.jsonl"):
        probe(resolve(load_manifest(path), CPU), Overrides(offline=True))


def test_the_first_step_does_not_count_and_the_spread_is_told() -> None:
    rate, spread = speed([(100, 9.0), (200, 10.0), (300, 12.0), (400, 13.0)])
    assert rate == 75.0
    assert spread == 50.0  # 50 to 100 tokens a second


@pytest.mark.parametrize("chosen_by", ["execution_accuracy", "eval_loss"])
def test_a_run_that_chooses_its_best_step_can_be_probed(tmp_path: Path, chosen_by: str) -> None:
    best = {"load_best_model_at_end": True, "early_stopping_patience": 2, "metric_for_best_model": chosen_by}
    steps = {"eval_strategy": "steps", "save_strategy": "steps"} if chosen_by == "eval_loss" else {}
    written = {**manifests.small(**best, **steps), "evaluation": {"every_steps": 5}}
    path, machine = manifests.write(tmp_path, written), CPU
    settings = probe_overrides(resolve(load_manifest(path), machine), Overrides()).settings
    watch = resolve(load_manifest(path, settings), machine).watch
    assert (watch.execution_eval_steps, watch.load_best_model_at_end) == (0, False)
    assert watch.eval_strategy == ("steps" if steps else "no"), "the store has the same rows"


def test_what_was_set_by_hand_gives_way_to_the_probe(tmp_path: Path) -> None:
    path, by_hand = manifests.write(tmp_path, manifests.small()), "training.config.gradient_accumulation_steps=8"
    overrides = Overrides(settings=(by_hand, "training.config.rank=2"))
    found = probe_overrides(resolve(load_manifest(path, overrides.settings), CPU), overrides)
    run = resolve(load_manifest(path, found.settings), CPU)
    assert (run.optim.gradient_accumulation_steps, run.adapter.rank) == (1, 2)
