"""What a training step asks of an NVIDIA GPU, counted without one: kernels, bytes, kept activations, and a time from them.

    python -m benchmarks.gpu_roofline [--json] [--model NAME ...] [--variant NAME ...] [--small]

The tool's own modules run on fake CUDA tensors (lib/fake_step.py): a base model, what the kernel plan of a machine with that
GPU makes of it, LoRA r16 on all linear layers without dropout; one micro-step, forward and backward, over packed documents
of one length, a fifth of whose tokens are trained. Data, optimizer and host are left out.

Modeled, not measured. A kernel takes the longest of its products, its bytes and its launch; what is assumed is printed
above the table. The variant `default` is what a plain installation does on Linux; each other one says what it changes.
--small shows instead what becomes of small micro-steps: from a CUDA graph, and merged into large ones.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from benchmarks.bench_gpu import QWEN3
from benchmarks.lib.fake_step import Asked, Counts, FakeSteps
from benchmarks.lib.kernel_counts import Kernel
from expert_cli.hardware.machine import Gpu
from expert_cli.model.flops import peak_flops

REACHED = 700 / 989
"""Share of the datasheet's dense bf16 peak that matrix products reach: 700 TFLOP/s on an H100 or H200."""
OF_ATTENTION = 0.5
"""Share of that which FlashAttention 2 reaches."""
OF_BANDWIDTH = 0.85
"""Share of the datasheet's bandwidth that a kernel reaches."""
LAUNCH_S = 6e-6
GRAPH_LAUNCH_S = 2.5e-6
"""A kernel's launch from a CUDA graph; by the host: LAUNCH_S."""
PUBLISHED = 12_473
"""Tokens/s: NeMo AutoModel's performance summary, LoRA in bf16, Llama-3-8B, one H100, sequences of 4,096 (402 TFLOP/s)."""


@dataclass(frozen=True)
class Card:
    """A GPU and its datasheet's bandwidth in bytes a second."""

    gpu: Gpu
    bandwidth: float

    @property
    def peak(self) -> float:
        """The datasheet's dense bf16 peak in FLOP/s."""
        return (peak_flops(self.gpu.name) or (0.0, ""))[0]

    def seconds(self, kernel: Kernel, launch_s: float = LAUNCH_S) -> float:
        """Return how long a kernel takes."""
        reached = self.peak * REACHED * (OF_ATTENTION if kernel.attention else 1)
        return max(kernel.flops / reached, kernel.bytes / (OF_BANDWIDTH * self.bandwidth), launch_s)


CARDS = {
    "H100": Card(Gpu("NVIDIA H100 80GB HBM3", 80 * 2**30, (9, 0)), 3.35e12),
    "H200": Card(Gpu("NVIDIA H200", 141 * 10**9, (9, 0)), 4.8e12),
    "RTX 4090": Card(Gpu("NVIDIA GeForce RTX 4090", 24 * 2**30, (8, 9)), 1.008e12),
}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "Qwen3-0.6B": {"model_type": "qwen3", **QWEN3, "tie_word_embeddings": True},
    "Llama-3-8B": {
        "model_type": "llama",
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": False,
    },
}
TOKENS, DOCUMENTS, TRAINED = (2048, 16_384, 65_536), (128, 2048), 0.2
PACKS = tuple((tokens, document, TRAINED) for tokens in TOKENS for document in DOCUMENTS)


@dataclass(frozen=True)
class Variant:
    """What a row changes: the base model's quantization, keys of `training.config`."""

    changes: str
    quantization: str = "int4"
    config: Mapping[str, Any] = field(default_factory=dict)


VARIANTS = {
    "default": Variant("nothing: NF4, a copy in bf16 where there is room"),
    "NF4, no copy": Variant('"dequantized_copy": "never"', config={"dequantized_copy": "never"}),
    "bf16": Variant('"quantization": "bf16"', "bf16"),
    "nothing fused": Variant('"fused_kernels": "off"', config={"fused_kernels": "off"}),
}


def asked(model: str, variant: str, card: Card) -> Asked:
    """Return the settings of a row."""
    chosen = VARIANTS[variant]
    return Asked(MODELS[model], chosen.quantization, chosen.config, card.gpu)


def time_s(counts: Counts, card: Card, launch_s: float = LAUNCH_S) -> float:
    """Return how long a micro-step takes."""
    return sum(number * card.seconds(kernel, launch_s) for kernel, number in counts.kernels.items())


def row_of(model: str, gpu: str, variant: str, counts: Counts) -> dict[str, Any]:
    """Return a row of the table."""
    seconds = time_s(counts, CARDS[gpu])
    return {
        "model": model,
        "gpu": gpu,
        "tokens": counts.tokens,
        "document_tokens": counts.document_tokens,
        "variant": variant,
        "kernels": counts.launches,
        "gigabytes": round(counts.bytes / 1e9, 1),
        "kept_gigabytes": round(counts.kept / 1e9, 2),
        "roofline_ms": round(1000 * seconds, 2),
        "mfu": round(counts.flops / seconds / CARDS[gpu].peak, 4),
    }


def rows(models: Sequence[str], variants: Sequence[str]) -> list[dict[str, Any]]:
    """Return the table: every model, GPU and variant, packs of every size."""
    steps = FakeSteps()
    return [
        row_of(model, gpu, variant, counts)
        for model in models
        for gpu, card in CARDS.items()
        for variant in variants
        for counts in steps.count(asked(model, variant, card), PACKS)
    ]


def small(model: str, variant: str, gpu: str = "H100") -> Iterator[list[str]]:
    """Yield the lines of a table: micro-steps of few tokens, launched one by one, from a graph, and merged into one."""
    card, sizes = CARDS[gpu], (512, *TOKENS[:1], 4096, 8192, *TOKENS[1:2])
    found = FakeSteps().count(asked(model, variant, card), [(tokens, DOCUMENTS[0], TRAINED) for tokens in sizes])

    def told(counts: Counts, seconds: float) -> str:
        return f"{1000 * seconds:.1f} ms, {counts.flops / seconds / card.peak:.1%}"

    whole = found[-1]
    yield [
        "tokens a micro-step",
        "kernels",
        "launched by the host",
        "from a graph",
        f"merged into {whole.tokens:,} tokens",
    ]
    for counts in found:
        merged = time_s(whole, card) * counts.tokens / whole.tokens
        yield [
            f"{counts.tokens:,}",
            f"{counts.launches:,}",
            told(counts, time_s(counts, card)),
            told(counts, time_s(counts, card, GRAPH_LAUNCH_S)),
            told(counts, merged),
        ]


def published() -> str:
    """Return how far the model is from a published speed, whose kernels are others, with and without what ours launch more."""
    card, tokens = CARDS["H100"], 4096
    (counts,) = FakeSteps().count(asked("Llama-3-8B", "bf16", card), [(tokens, tokens, 1.0)])
    products = [(kernel, number) for kernel, number in counts.kernels.items() if kernel.flops]
    least = sum(number * card.seconds(kernel) for kernel, number in products)
    found = {"the bf16 step": tokens / time_s(counts, card), "its matrix products and attention alone": tokens / least}
    told = "; ".join(f"{name}: {speed:,.0f} tokens/s, {speed / PUBLISHED - 1:+.0%}" for name, speed in found.items())
    return (
        f"NeMo AutoModel publishes {PUBLISHED:,} tokens/s (LoRA, bf16, Llama-3-8B, one H100, 4,096 tokens). Here {told}"
    )


def assumptions() -> str:
    """Return what the table rests on."""
    reached = ", ".join(f"{name} {card.peak * REACHED / 1e12:.0f}" for name, card in CARDS.items())
    moved = ", ".join(f"{name} {card.bandwidth / 1e12:g}" for name, card in CARDS.items())
    peaks = ", ".join(f"{name} {card.peak / 1e12:g}" for name, card in CARDS.items())
    return (
        f"matrix products reach {reached} TFLOP/s, attention {OF_ATTENTION:g} of that; kernels reach {OF_BANDWIDTH:g} of "
        f"{moved} TB/s;\na launch takes {LAUNCH_S * 1e6:g} us, from a CUDA graph {GRAPH_LAUNCH_S * 1e6:g} us; MFU is over "
        f"{peaks} TFLOP/s dense bf16;\n{TRAINED:.0%} of the tokens are trained"
    )


def show(table: Iterable[Sequence[Any]]) -> None:
    """Print lines as a table, the first one above it."""
    for number, line in enumerate(table):
        print(f"| {' | '.join(map(str, line))} |" + ("" if number else f"\n|{'---|' * len(line)}"))


def main() -> None:
    """Count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--variant", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    options = parser.parse_args()
    if options.json:
        print(json.dumps({"rows": rows(options.model, options.variant)}))
        return
    print(f"Modeled, not measured: {assumptions()}")
    for name in options.variant:
        print(f"variant {name} changes {VARIANTS[name].changes}")
    if options.small:
        for model, variant in product(options.model, options.variant):
            print(f"\n{model}, H100, {variant}, documents of {DOCUMENTS[0]}\n")
            show(small(model, variant))
        return
    table = rows(options.model, options.variant)
    print()
    show([list(table[0]), *([*list(row.values())[:-1], f"{row['mfu']:.1%}"] for row in table)])
    print(f"\n{published()}")


if __name__ == "__main__":
    main()
