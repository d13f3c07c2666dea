"""Which card a run fits, and what makes it fit: a model of 7 billion weights in shapes, without weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.estimate.gpu_fit import SIZES_GB, BatchShape, GpuFit, fit_gpus
from expert_cli.estimate.memory import StepSettings
from expert_cli.estimate.model_shape import Layer, Norm, Part, Shape
from expert_cli.estimate.workload import Workload
from tests.packs import packed

HIDDEN, INNER, LAYERS, VOCABULARY = 4096, 11008, 32, 32000


def seven_billion() -> Shape:
    attention = Part((HIDDEN,) * 4, (HIDDEN, HIDDEN), (HIDDEN,) * 4, (), 4 * HIDDEN**2, 0, (), 0)
    outputs = (INNER, INNER, HIDDEN)
    rest = Part(
        (HIDDEN, HIDDEN, INNER), (HIDDEN, INNER), outputs, (), 3 * HIDDEN * INNER, 0, (Norm(HIDDEN),) * 2, INNER
    )
    linear = [*((HIDDEN, HIDDEN),) * 4, (INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)] * LAYERS
    adapter = tuple(torch.empty(16, size, device="meta") for rows, columns in linear for size in (rows, columns))
    layer = Layer(attention, rest, HIDDEN, HIDDEN, 32)
    return Shape(tuple(linear), 2 * VOCABULARY * HIDDEN, adapter, (layer,) * LAYERS, HIDDEN, VOCABULARY)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    packs = packed(tmp_path_factory.mktemp("store"), *((1024, 1024),) * 16, capacity=2048)
    return Workload(Schedule(packs.packs.count, 8, 2, 1, 1.0, -1), packs, 16 * 2048, 0.5, 0)


def judged(work: Workload, batch_size: int, **changes: Any) -> dict[int, GpuFit]:
    tokens, longest = work.largest(batch_size, "packed")
    values: dict[str, Any] = {
        "device": "cuda",
        "dtype": "bf16",
        "quantization": "int4",
        "dequantized": False,
        "checkpointing": "off",
        "attention": "varlen",
        "fused": False,
        "fused_lora": False,
        "full_logits": False,
        "optim": "adamw_torch",
        "adapter": "lora",
        "rank": 16,
        "dropout": False,
        "tokens": tokens,
        "longest": longest,
        "trained": tokens // 2,
        "steps": 1,
    }
    setting = StepSettings(**{**values, **changes})
    batch = BatchShape(batch_size, 2, "packed")
    return {
        card.gb: card for card in fit_gpus(seven_billion(), setting, batch, work, dequantized_copy="auto", error_pct=25)
    }


def test_each_card_is_told_what_makes_it_fit(work: Workload) -> None:
    cards = judged(work, 8)
    assert tuple(cards) == SIZES_GB
    assert [card.fits for card in cards.values()] == [False] * 6
    small = ("batch_size 1", "gradient_accumulation_steps 16")
    assert cards[8].settings == (*small, "gradient_checkpointing true")
    assert cards[24].settings == small
    assert cards[80].settings == ("batch_size 2", "gradient_accumulation_steps 8")


def test_a_run_that_fits_needs_no_setting(work: Workload) -> None:
    cards = judged(work, 1)
    assert (cards[24].fits, cards[24].settings) == (True, ())
    assert cards[80].fits


def test_weights_that_are_too_large_are_quantized(work: Workload) -> None:
    cards = judged(work, 1, quantization="bf16")
    assert cards[12].settings is not None
    assert cards[12].settings[-1] == "quantization int4"
    assert cards[48].fits


def test_nothing_helps_where_peft_has_no_four_bit_layers(work: Workload) -> None:
    assert judged(work, 1, quantization="bf16", adapter="lokr")[8].settings is None


def test_the_effective_batch_stays(work: Workload) -> None:
    for card in judged(work, 8).values():
        if card.settings:
            size, accumulation = (int(words.split()[1]) for words in card.settings[:2])
            assert size * accumulation == 16
