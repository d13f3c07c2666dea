"""Which card a run fits, and what makes it fit: a model of 7 billion weights in shapes, without weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from expert_cli.config.resolve import Overrides, resolve
from expert_cli.data.packing.step_schedule import Schedule
from expert_cli.estimate.gpu_fit import SIZES_GB, GpuFit, fit_gpus
from expert_cli.estimate.model_shape import meta_model, shape_of
from expert_cli.estimate.workload import Workload
from expert_cli.hardware.machine import Gpu
from expert_cli.manifest.reader import load_manifest
from tests import manifests
from tests.machines import H200
from tests.packs import packed

SEVEN_BILLION = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
AMPERE = replace(H200, gpus=(Gpu("a card", 0, (8, 6)),))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    packs = packed(tmp_path_factory.mktemp("store"), *((1024, 1024),) * 16, capacity=2048)
    return Workload(Schedule(packs.packs.count, 16, 8, 1, 1.0, -1), packs, 16 * 2048, 0.5, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    LlamaConfig(**SEVEN_BILLION, vocab_size=32000).save_pretrained(folder)
    return folder


Judge = Callable[..., dict[int, GpuFit]]


@pytest.fixture
def judged(work: Workload, folder: Path, tmp_path: Path) -> Judge:
    """Return what judges a run of that many packs a micro-batch, in two micro-steps a step."""

    def judge(batch_size: int, quantization: str = "int4", adapter: str = "lora") -> dict[int, GpuFit]:
        sizes = {"rank": 16, "batch_size": batch_size, "gradient_accumulation_steps": 2, "max_seq_length": 2048}
        written = manifests.small(adapter_type=adapter, bf16=True, fused_kernels="off", **sizes)
        written["base_models"][0]["quantization"] = quantization
        run = resolve(load_manifest(manifests.write(tmp_path, written)), AMPERE, Overrides(device="cuda"))
        model = meta_model(folder, run.adapter, dtype=torch.bfloat16, attention="sdpa")
        return {card.gb: card for card in fit_gpus(run, AMPERE, model, shape_of(model), work, 25)}

    return judge


def test_each_card_is_told_what_makes_it_fit(judged: Judge) -> None:
    cards = judged(8)
    assert tuple(cards) == SIZES_GB
    assert [card.fits for card in cards.values()] == [False] * 6
    small = ("batch_size 1", "gradient_accumulation_steps 16")
    assert cards[8].settings == (*small, "gradient_checkpointing true")
    assert cards[24].settings == small
    assert cards[80].settings == ("batch_size 2", "gradient_accumulation_steps 8")


def test_a_run_that_fits_needs_no_setting(judged: Judge) -> None:
    cards = judged(1)
    assert (cards[24].fits, cards[24].settings) == (True, ())
    assert cards[80].fits


def test_weights_that_are_too_large_are_quantized(judged: Judge) -> None:
    cards = judged(1, quantization="bf16")
    assert cards[12].settings is not None
    assert cards[12].settings[-1] == "quantization int4"
    assert cards[48].fits


def test_cards_that_share_the_base_model_out_hold_less_each(judged: Judge) -> None:
    """7 billion weights of 2 bytes: 12.6 GB whole; two layers of 0.4 GB, which are gathered, beside a share."""
    cards = judged(1, quantization="bf16")
    assert [cards[gb].fsdp_cards for gb in (16, 24, 48, 80)] == [None, 4, 2, 2]
    whole, half = cards[48].needs_mb, cards[48].fsdp_needs_mb
    assert half is not None
    weights, layer = 2 * 6_738_415_616 / 2**20, 2 * (4 * 4096 * 4096 + 3 * 4096 * 11008) / 2**20
    assert whole - half == pytest.approx(weights / 2 - 2 * layer, abs=1)
    assert judged(1, quantization="int8")[80].fsdp_cards is None


def test_nothing_helps_where_peft_has_no_four_bit_layers(judged: Judge) -> None:
    assert judged(1, quantization="bf16", adapter="lokr")[8].settings is None


def test_the_effective_batch_stays(judged: Judge) -> None:
    for card in judged(8).values():
        if card.settings:
            size, accumulation = (int(words.split()[1]) for words in card.settings[:2])
            assert size * accumulation == 16
