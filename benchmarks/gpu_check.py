"""What a step costs on this machine's GPU, way by way, in one call: correctness first, then a line a way as it goes.

    python -m benchmarks.gpu_check [--minutes 8] [--json FILE] [--only NAME ...]

    stock      transformers' Trainer and PEFT, packed by DataCollatorWithFlattening
    eager      our step without a CUDA graph
    captured   our step as `train` takes it; also without its fused LoRA, without Liger, without both; with DoRA; with
               compiled layers

All ways of a shape train the same documents in the same order from the same first values, so their losses can be compared.
The models have SmolLM2-135M's and Qwen3-0.6B's shape and random weights: speed and memory do not depend on their values.
--json is written anew after every way. Of what would begin after --minutes only the name is told. --only: parts of names.
Without a GPU the shapes are tiny, so that the code is exercised; the figures mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.lib.own_step import CONFIG, own_step, stock_step, write_manifest
from benchmarks.lib.step_meter import StepMeter
from expert_cli.config.settings import Settings
from expert_cli.config.training_defaults import adapter
from expert_cli.doctor.probes import try_attention, try_bitsandbytes
from expert_cli.errors import Interrupted
from expert_cli.hardware import machine
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.flops import peak_flops
from expert_cli.model.kernels.attention_backends import BACKENDS
from expert_cli.model.kernels.dequantize import dequantize_linears
from expert_cli.model.loading.quantize import load_base
from expert_cli.utils.files import write_json
from tests.tiny import tiny_model_folder

SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "smollm2": ("llama", {"vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
                          "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64}),
    "qwen3": ("qwen3", {"vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
                        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}),
}  # fmt: skip
TOKENS = (4096, 16_384)
WEIGHTS: dict[str, tuple[str, dict[str, str]]] = {
    "bf16": ("bf16", {}),
    "NF4 with copy": ("int4", {"dequantized_copy": "always"}),
    "NF4": ("int4", {"dequantized_copy": "never"}),
}
"""Name -> the base model's quantization, and keys of `training.config`."""
DEQUANTIZES = 1537
"""Tokens from which bitsandbytes 0.50.2 multiplies with the dequantized weight on a GPU (its _gemm_4bit_use_custom_cuda);
shorter inputs go through kernels of its own, which add up in another order."""


@dataclass(frozen=True)
class Way:
    """How a step is taken. config: keys of `training.config`. replaced: as `own_step` takes it."""

    config: Mapping[str, Any] = field(default_factory=dict)
    stock: bool = False
    replaced: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


GRAPH = {"use_cuda_graphs": True}
WAYS = {
    "stock": Way(stock=True),
    "eager": Way({"use_cuda_graphs": False}),
    "captured": Way(GRAPH),
    "captured without fused LoRA": Way(GRAPH, replaced={"fuse": lambda _: 0}),
    "captured without Liger": Way(GRAPH, replaced={"liger_knows": lambda _: False}),
    "captured, plain PEFT": Way({**GRAPH, "fused_kernels": "off"}),
    "captured, DoRA": Way({**GRAPH, "adapter_type": "dora"}),
    "captured, compiled layers": Way({**GRAPH, "torch_compile": True}),
}
ROWS = [
    *product(SHAPES, TOKENS, ("stock", "eager", "captured"), ("bf16",)),
    *product(SHAPES, TOKENS[1:], ("captured",), ("NF4 with copy", "NF4")),
    *product(SHAPES, TOKENS, [way for way in WAYS if "without" in way or "plain" in way], ("bf16",)),
    ("qwen3", TOKENS[0], "captured, DoRA", "bf16"),
    *product(SHAPES, TOKENS[1:], ("stock",), ("NF4",)),
    *product(SHAPES, TOKENS[1:], ("captured, compiled layers",), ("bf16",)),
]
"""Shape, tokens a step, way and weights of what is measured, what matters most first."""
RATIOS = [
    *((f"{one} captured bf16", f"{one} stock bf16", "") for one in (f"{a} {b}" for a, b in product(SHAPES, TOKENS))),
    *(
        (f"{shape} {TOKENS[1]} captured {weights}", f"{shape} {TOKENS[1]} captured bf16", f" (bar >= {bar})")
        for (weights, bar), shape in product((("NF4 with copy", 0.98), ("NF4", 0.85)), SHAPES)
    ),
]
"""Two rows whose speeds are compared, and the bar in words."""


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    """Check, measure, print; return what --json holds. words: the command line's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[""])
    options = parser.parse_args(words)
    ends, on_gpu = time.monotonic() + 60 * options.minutes, torch.cuda.is_available()
    card = torch.cuda.get_device_name() if on_gpu else "CPU, tiny shapes"
    found: dict[str, Any] = {"machine": card, "versions": dict(machine.inspect().versions)}
    print(found, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        found |= {"checks": check(make_model(home, "qwen3", on_gpu=on_gpu), on_gpu=on_gpu), "rows": {}}
        rows = found["rows"]
        for shape, tokens, way, weights in ROWS:
            name = f"{shape} {tokens} {way} {weights}"
            if not any(part in name for part in options.only):
                continue
            if time.monotonic() > ends:
                print(f"{name}: no time left", flush=True)
                continue
            try:
                rows[name] = measure(home, shape, tokens, WAYS[way], weights, on_gpu=on_gpu)
                print(f"{name}: {in_words(rows[name])}", flush=True)
            except Interrupted:
                raise
            except Exception as error:  # noqa: BLE001  a way that fails costs no other one
                rows[name] = {"failed": f"{type(error).__name__}: {error}"}
                print(f"{name}: failed: {rows[name]['failed'][:300]}", flush=True)
            gc.collect()
            if on_gpu:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            if options.json:
                write_json(options.json, found)
    speeds = {name: row["tokens_per_s"] for name, row in rows.items() if "tokens_per_s" in row}
    for one, other, bar in RATIOS:
        if {one, other} <= speeds.keys():
            print(f"{one} / {other}: {speeds[one] / speeds[other]:.2f}{bar}")
    return found


def check(model: Path, *, on_gpu: bool) -> dict[str, str]:
    """Return what was proven, a line each. Raises what is wrong: figures of a wrong step are worth nothing."""
    found = {f"attention, {backend.name}": try_attention(backend) for backend in BACKENDS}
    found["bitsandbytes"] = try_bitsandbytes()
    plain, copied = (_loss_and_gradients(model, on_gpu=on_gpu, copy=copy) for copy in (False, True))
    if not all(torch.equal(a, b) for a, b in zip(plain, copied, strict=True)):
        raise SystemExit("NF4 with a copy is not NF4")
    found["NF4 with copy"] = f"loss and {len(plain) - 1} gradients are NF4's to the last bit, of {DEQUANTIZES} tokens"
    print("\n".join(f"{name}: {text}" for name, text in found.items()), flush=True)
    return found


def _loss_and_gradients(folder: Path, *, on_gpu: bool, copy: bool) -> list[torch.Tensor]:
    """Return the loss of one made-up document and the adapter's gradients, B not zero, so that A has some too."""
    device = "cuda" if on_gpu else "cpu"
    base = load_base(
        folder, quantization="int4", dtype=torch.bfloat16, device=device, attention="sdpa", rope_scaling={}
    )
    if copy:
        dequantize_linears(base, torch.bfloat16)
    torch.manual_seed(0)
    model: Any = add_adapter(base, adapter(Settings(TrainingConfig(rank=16))))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.data.normal_(std=0.02)
    ids = 1 + torch.arange(DEQUANTIZES, device=device)[None] % (base.config.vocab_size - 1)
    # FlashAttention's backward pass adds up in no fixed order.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), torch.autocast(device, torch.bfloat16):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in trained)]


def make_model(home: Path, shape: str, *, on_gpu: bool) -> Path:
    """Return the folder of a model of this shape and a tokenizer, made when first asked for; tiny without a GPU."""
    folder, (architecture, sizes) = home / shape, SHAPES[shape]
    if not folder.exists():
        with torch.device("cuda" if on_gpu else "cpu"):
            tiny_model_folder(folder, architecture, dtype=torch.bfloat16, **(sizes if on_gpu else {}))
    return folder


def documents(longest: int) -> list[tuple[str, str]]:
    """Return 2,000 questions and answers of up to `longest` words, a quarter of them the answer's."""
    words, random_numbers = ("name", "city", "items", "SELECT", "Berlin", "order"), random.Random(1)
    texts = [random_numbers.choices(words, k=random_numbers.randint(4 + longest // 8, longest)) for _ in range(2000)]
    return [(" ".join(text[len(text) // 4 :]), " ".join(text[: len(text) // 4])) for text in texts]


def measure(home: Path, shape: str, tokens: int, way: Way, weights: str, *, on_gpu: bool) -> dict[str, Any]:
    """Return the row of one way."""
    meter, length, longest = (StepMeter(10, 20), 2048, 170) if on_gpu else (StepMeter(1, 2, 1), 64, 12)
    quantization, its_config = WEIGHTS[weights]
    config = {
        **CONFIG,
        **way.config,
        **its_config,
        "batch_size": tokens // 2048,
        "max_seq_length": length,
        "logging_steps": meter.measured // 2,
        "pretokenized_cache": "store",
        "torch_compile_backend": "inductor" if on_gpu else "aot_eager",
    }
    model = make_model(home, shape, on_gpu=on_gpu)
    manifest = write_manifest(home / "project", model, quantization, documents(longest), config)
    asked = manifest, meter.steps, [meter]
    done = stock_step(*asked) if way.stock else own_step(*asked, way.replaced)
    work = meter.cost.per_token * done.real + meter.cost.per_trained_token * done.trained
    peak = peak_flops(torch.cuda.get_device_name()) if on_gpu else None
    return {
        "ms": 1000 * meter.step_s,
        "tokens_per_s": done.real / meter.step_s,
        "mfu": work / meter.step_s / peak if peak else None,
        "busy": meter.kernel_s / meter.step_s if meter.kernel_s is not None else None,
        "peak_gb": meter.peak_gb,
        "loss": meter.loss,
        "kernels": dict(done.kernels),
    }


def in_words(row: dict[str, Any]) -> str:
    """Return a row as a line; what captured the step, where the kernel plan tells."""
    mfu, busy = (f"{row[name]:.1%}" if row[name] is not None else "-" for name in ("mfu", "busy"))
    captured = row["kernels"].get("capture", "")
    return (
        f"{row['ms']:.1f} ms  {row['tokens_per_s']:,.0f} tokens/s  MFU {mfu}  busy {busy}  {row['peak_gb']:.1f} GB  "
        f"loss {row['loss']:.4f}{f'  capture {captured}' * bool(captured)}"
    )


if __name__ == "__main__":
    main()
