"""The roofline without a GPU: what is counted as a kernel, that few layers tell all, and what the step costs today."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from benchmarks import gpu_roofline
from benchmarks.gpu_roofline import CARDS, PACKS, VARIANTS, asked
from benchmarks.lib import fake_step
from benchmarks.lib.fake_cuda import DEVICE, fake_cuda, quantize_to_nf4
from benchmarks.lib.fake_step import Asked, FakeSteps, Pack, plain_installation
from benchmarks.lib.kernel_counts import TO_HOST, KeptBytes, Kernel, KernelCounter
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.model.kernels.select import kernel_plan
from tests import manifests, tiny

SMALL: dict[str, Any] = {**tiny.SHAPE, "num_hidden_layers": 4, "model_type": "qwen3"}
ROWS: dict[str, dict[str, Pack]] = {
    "Qwen3-0.6B": {"bars": (16_384, 128, 0.2), "short": (2048, 128, 0.2)},
    "Llama-3-8B": {"bars": (16_384, 128, 0.2)},
}
HELD = {
    ("Qwen3-0.6B", "bars"): (5_446, 36_378_000),
    ("Qwen3-0.6B", "short"): (5_384, 37_407_000),
    ("Llama-3-8B", "bars"): (4_788, 102_748_000),
}
"""Kernels and bytes a token of a step of the variant `default` on an H100, without Liger. What is won is written down here."""


@pytest.fixture(scope="module")
def counted() -> dict[tuple[str, str], Any]:
    steps = FakeSteps()
    return {
        (model, name): counts
        for model, packs in ROWS.items()
        for name, counts in zip(
            packs, steps.count(asked(model, "default", CARDS["H100"]), list(packs.values())), strict=True
        )
    }


@pytest.mark.parametrize("row", HELD)
def test_what_a_step_costs_does_not_grow_unseen(counted: dict[tuple[str, str], Any], row: tuple[str, str]) -> None:
    counts, (kernels, bytes_a_token) = counted[row], HELD[row]
    assert 0.95 * kernels < counts.launches <= kernels
    assert 0.95 * bytes_a_token < counts.bytes / counts.tokens <= bytes_a_token


def test_three_layers_tell_all() -> None:
    packs = [(256, 64, 0.2)]
    few = FakeSteps().count(Asked(SMALL, "int4", {}, CARDS["H100"].gpu), packs)
    with mock.patch.object(fake_step, "FEW", SMALL["num_hidden_layers"] - 1):
        whole = FakeSteps().count(Asked(SMALL, "int4", {}, CARDS["H100"].gpu), packs)
    assert few == whole


def test_default_is_what_a_manifest_that_writes_nothing_gets(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["base_models"] = [{"name": "Qwen/Qwen3-0.6B"}]
    path = manifests.write(tmp_path, manifest)
    for card in CARDS.values():
        default = asked("Qwen3-0.6B", "default", card)
        with plain_installation():
            run = make_plan(path, default.machine, Overrides(offline=True)).run
            assert kernel_plan(run.compute, run.model, default.machine) == default.plan
        assert run.compute == default.compute


@pytest.mark.parametrize(
    ("model", "gpu", "copied"),
    [
        ("Qwen3-0.6B", "RTX 4090", True),
        ("Llama-3-8B", "H100", True),
        ("Llama-3-8B", "RTX 4090", False),
    ],
)
def test_a_copy_is_made_where_the_whole_model_leaves_room(model: str, gpu: str, copied: bool) -> None:
    with fake_cuda() as cuda, plain_installation():
        _, plan = fake_step.planned_base(asked(model, "default", CARDS[gpu]), cuda)
    assert plan.dequantized is copied


def test_a_row_is_time_over_what_the_card_can_do(counted: dict[tuple[str, str], Any]) -> None:
    counts = counted["Qwen3-0.6B", "bars"]
    row = gpu_roofline.row_of("Qwen3-0.6B", "H100", "default", counts)
    assert list(row) == [
        *("model", "gpu", "tokens", "document_tokens", "variant"),
        *("kernels", "gigabytes", "kept_gigabytes", "roofline_ms", "mfu"),
    ]
    assert json.loads(json.dumps(row)) == row
    card = CARDS["H100"]
    assert card.seconds(Kernel("mm", 0, flops=700 * 10**12)) == pytest.approx(1)
    assert card.seconds(Kernel("add", round(0.85 * 3.35e12))) == pytest.approx(1)
    assert card.seconds(Kernel("add", 1)) == 6e-6
    assert row["mfu"] == pytest.approx(counts.flops / (row["roofline_ms"] / 1000 * 989e12), rel=1e-2)
    graphs = gpu_roofline.time_s(counts, card, gpu_roofline.GRAPH_LAUNCH_S)
    assert graphs < row["roofline_ms"] / 1000


def test_what_is_a_kernel_and_what_it_moves() -> None:
    with fake_cuda() as cuda, KernelCounter() as counter:
        a, b = torch.empty(4, 8, dtype=torch.bfloat16), torch.empty(8, 16, dtype=torch.bfloat16)
        out = torch.empty(4, 16, dtype=torch.bfloat16)
        a.t()[:, None].expand(8, 3, 4)[2:].flatten(1, 1).detach()
        assert counter.kernels == Counter()
        made = {
            Kernel("mm", 2 * (4 * 8 + 8 * 16 + 4 * 16), 2 * 4 * 8 * 16): lambda: a @ b,
            Kernel("mul", 2 * (4 * 8 + 8 + 4 * 8)): lambda: a * b[:, 0].expand(4, 8),
            Kernel("add_", 2 * 2 * 4 * 8 + 2 * 4 * 8): lambda: a.add_(torch.empty_like(a)),
            Kernel("addmm_", 2 * (4 * 8 + 8 * 16 + 2 * 4 * 16), 2 * 4 * 8 * 16): lambda: out.addmm_(a, b),
            Kernel("addmm_", 2 * (4 * 8 + 8 * 16 + 4 * 16), 2 * 4 * 8 * 16): lambda: out.addmm_(a, b, beta=0),
            Kernel("copy_", 2 * 2 * 4 * 8): lambda: a.copy_(torch.empty_like(a)),
            Kernel("zero_", 2 * 4 * 8): a.zero_,
            Kernel("embedding", 3 * 8 + 2 * 3 * 16 * 2): lambda: torch.nn.functional.embedding(
                torch.empty(3, dtype=torch.int64), b
            ),
            Kernel("_to_copy" + TO_HOST, 2 * 2 * 4 * 8): a.cpu,
        }
        for kernel, run in made.items():
            counter.kernels.clear()
            run()
            assert counter.kernels == Counter({kernel: 1})
    assert cuda.waits == []


@pytest.mark.parametrize(
    ("tokens", "names"),
    [(1536, ["gemm_4bit"]), (1537, ["dequantize_blockwise", "add", "dequantize_4bit", "mm"])],
)
def test_nf4_is_unpacked_for_large_products(tokens: int, names: list[str]) -> None:
    with fake_cuda():
        model: Any = tiny.tiny_model().to(torch.bfloat16)
        quantize_to_nf4(model)
        layer = model.model.layers[0].mlp.up_proj
        with KernelCounter() as counter:
            layer(torch.empty(tokens, layer.in_features, dtype=torch.bfloat16))
    assert [kernel.name for kernel in counter.kernels] == names
    assert sum(kernel.flops for kernel in counter.kernels) == 2 * tokens * layer.in_features * layer.out_features


def gated(gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, int]:
    return torch.nn.functional.silu(gate) * up, 7


def turned(x: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
    return torch.cat((-x[:, :4], x[:, 4:]), 1) * cos


def test_what_is_compiled_counts_as_one_kernel_each_way() -> None:
    size = 4 * 8 * 2
    with fake_cuda(), KernelCounter() as counter, mock.patch.object(torch, "compile", counter.compiling):
        gate, up = (torch.empty(4, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
        with KeptBytes([]) as kept:
            result, seven = torch.compile(gated, dynamic=True)(gate, up)
        result.backward(torch.empty_like(result))
        assert counter.kernels == {
            Kernel("compiled gated", 3 * size): 1,
            Kernel("compiled gated, backward", 5 * size): 1,
        }
        assert (seven, kept.total, gate.grad.shape, up.grad.device) == (7, 2 * size, (4, 8), DEVICE)

        counter.kernels.clear()
        gate.grad = None
        with KeptBytes([]) as kept:
            result = torch.compile(dynamic=True)(turned)(gate, up.detach())
        result.backward(torch.empty_like(result))
        assert counter.kernels == {
            Kernel("compiled turned", 3 * size): 1,
            Kernel("compiled turned, backward", 3 * size): 1,
        }
        assert kept.total == size


def test_every_variant_says_what_it_changes() -> None:
    default = asked("Llama-3-8B", "default", CARDS["H100"])
    for name, variant in VARIANTS.items():
        other = asked("Llama-3-8B", name, CARDS["H100"])
        assert ((other.compute, other.quantization) == (default.compute, default.quantization)) is (name == "default")
        assert all(f'"{key}": ' in variant.changes for key in variant.config)
    assert len(PACKS) == 6
