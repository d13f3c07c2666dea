"""The work of a token, by hand, and what a card can do of it in a second."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from peft import LoraConfig, get_peft_model

from expert_cli.model.flops import flops, peak_flops
from expert_cli.utils.length_histogram import LengthHistogram
from tests import tiny


def test_flops_of_a_token_by_hand() -> None:
    base: Any = tiny.tiny_model()
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    hidden, inner, heads, head_dim, layers, vocabulary = 64, 128, 4, 16, 2, 384
    linear = layers * (hidden * 64 + 2 * hidden * 32 + 64 * hidden + 3 * hidden * inner)
    adapter = layers * ((hidden * 2 + 2 * 64) + (hidden * 2 + 2 * 32))
    lengths = LengthHistogram.of(np.array([3, 5]))
    s_eff = (9 + 25) / 8
    attention = s_eff * heads * head_dim * layers
    cost = flops(base, lengths, recomputed=False)
    assert cost.per_token == pytest.approx(4 * linear + 6 * adapter + 6 * attention)
    assert cost.per_trained_token == 4 * vocabulary * hidden
    assert cost.of(10, 2) == pytest.approx(10 * cost.per_token + 2 * cost.per_trained_token)
    again = flops(base, lengths, recomputed=True)
    assert again.per_token - cost.per_token == pytest.approx(2 * linear + 2 * adapter + 2 * attention)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989.0),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA L4", 121.0),
        ("Tesla T4", 65.0),
        ("NVIDIA GeForce RTX 4090", 165.2),
        *((name, None) for name in ("NVIDIA RTX A1000", "NVIDIA L40", "NVIDIA T400 4GB", "NVIDIA GH200 480GB")),
        *((name, None) for name in ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4080 SUPER")),
        *((name, None) for name in ("NVIDIA H100 NVL", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "Some other card")),
    ],
)
def test_peaks_are_looked_up_by_whole_words(name: str, tflops: float | None) -> None:
    found = peak_flops(name)
    assert (found and found[0]) == (tflops and tflops * 1e12)


def test_the_peak_of_a_job_is_that_of_all_its_cards() -> None:
    # tokens are counted over all processes, so the peak is, too
    assert peak_flops("NVIDIA H200", 4) == (4 * 989e12, "4 x H200, 989 TFLOP/s dense bf16 each by its datasheet")
