"""Measure the H200 bars in one call: correctness first, then our own steps and the stock libraries; a table and JSON.

    python -m benchmarks.bench_gpu [--minutes 8.5] [--json FILE] [--only NAME ...]

The model has Qwen3-0.6B's shape and random weights (speed and memory do not depend on their values), LoRA r16 on all linear
layers, packs of 2,048 tokens. The tokenizer is a BPE trained on the rows of the shipped experts, which are the data. Our own
steps are watched by lib/own_step.py: syncs are those that torch's sync debug mode counts, a loss is a mean over ten steps.
The stock libraries are measured by `expert-cli benchmark --against`, each in the largest micro-batches that its full logits
leave room for (lib/stock_size.py). What no longer fits into --minutes is left out and named, and so is what runs out of memory.
Without a GPU everything runs in miniature, so that the code is exercised; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lib.own_step import answer, measure, tokens_per_s, write_manifest
from benchmarks.lib.step_check import check
from benchmarks.lib.stock_size import choose, in_words, sizes_for
from expert_cli.hardware.devices import DEVICES

EXPERTS = Path(__file__).parents[1] / "experts"
QWEN3: dict[str, Any] = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
MINIATURE = {
    "vocab_size": 4096,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
CONFIG: dict[str, Any] = {
    "adapter_type": "lora",
    "rank": 16,
    "alpha": 32,
    "dropout": 0.0,
    "target_modules": "all-linear",
    "learning_rate": 2e-4,
    "lr_scheduler": "constant",
    "warmup_steps": 0,
    "batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_seq_length": 2048,
    "packing": True,
    "dataloader_num_workers": 2,
    "dataloader_pin_memory": True,
    "bf16": True,
    "optim": "adamw_torch_fused",
    "logging_steps": 10,
    "save_strategy": "no",
    "report_to": "none",
}
CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


WITH_COPY = {"dequantized_copy": "always"}
WITHOUT = {"dequantized_copy": "never"}


@dataclass(frozen=True)
class Measurement:
    """One row of the table. way: of lib/own_step.py, or what the tool is measured against. cap_gb: memory it may take."""

    way: str
    quantization: str
    config: dict[str, Any] = field(default_factory=dict)
    long: bool = False
    cap_gb: float = 0.0


MEASUREMENTS = {
    "ours, NF4 with copy": Measurement("ours", "int4", WITH_COPY),
    "Trainer + PEFT, NF4, packed": Measurement("flattening", "int4", WITH_COPY, long=True),
    "Trainer + PEFT, NF4, padded": Measurement("padded", "int4", WITH_COPY),
    "ours, bf16": Measurement("ours", "bf16"),
    "ours, NF4": Measurement("ours", "int4", WITHOUT),
    "ours, NF4 with copy, compiled": Measurement("ours", "int4", {**WITH_COPY, "torch_compile": True}),
    "TRL, NF4, padding-free": Measurement("trl", "int4", WITH_COPY),
    "ours, NF4, 2 x 4 packs, 24 GB": Measurement(
        "ours", "int4", {**WITHOUT, "batch_size": 2, "gradient_accumulation_steps": 4}, cap_gb=24
    ),
    "plain loop, NF4 with copy": Measurement("bare", "int4", WITH_COPY),
}
BARS = {"flattening": ">= 1.5, the losses within 0.5 %", "padded": ">= 2", "trl": "-"}
"""What the ratio of our speed to a stock way's is to be."""


def main() -> None:
    """Check, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS))
    options = parser.parse_args()
    import torch

    on_gpu = torch.cuda.is_available()
    began = time.monotonic()
    machine = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}" if on_gpu else "CPU, in miniature"
    print(f"{machine}, torch {torch.__version__}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        model, rows = make_model(home, on_gpu=on_gpu), make_rows(home, on_gpu=on_gpu)
        checks = check(model, on_gpu=on_gpu)
        print("\n".join(f"{name}: {text}" for name, text in checks.items()), flush=True)
        results = measure_all(options, began, home, model, rows, on_gpu=on_gpu)
    peak = _peak(torch.cuda.get_device_name()) if on_gpu else None
    show(results, peak)
    verdicts(results)
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine, "checks": checks, "results": results}), encoding="utf-8"
        )


def measure_all(
    options: argparse.Namespace, began: float, home: Path, model: Path, rows: Path, *, on_gpu: bool
) -> dict[str, dict[str, Any] | None]:
    """Measure each way that is asked for, as long as there is time; None for one that cannot run here."""
    warm, steps, long = (20, 50, 180) if on_gpu else (1, 2, 3)
    results: dict[str, dict[str, Any] | None] = {}
    took = 0.0
    for number, name in enumerate(options.only):
        asked, started = MEASUREMENTS[name], time.monotonic()
        if (started - began + took) / 60 > options.minutes:
            print(f"{name}: no time left")
            continue
        base = {"name": str(model), "quantization": asked.quantization}
        config = {**CONFIG, **asked.config, **({} if on_gpu else {"max_seq_length": 128, "batch_size": 2})}
        config["pretokenized_cache"] = "store"
        manifest = write_manifest(home / str(number), base, rows, config)
        measured = long if asked.long else steps
        if asked.way in BARS:
            sizes, free = sizes_for(asked.way, manifest, warm + measured), free_bytes(on_gpu=on_gpu)
            size = choose(sizes, free)
            vocabulary = (QWEN3 if on_gpu else MINIATURE)["vocab_size"]
            print(f"{name}: {in_words(sizes, size, vocabulary, free)}", flush=True)
            manifest = write_manifest(home / str(number), base, rows, {**config, **size.config})
            found = compare(asked.way, manifest, warm, measured)
            results[name] = {**found, "size": asdict(size), "free": free} if found else None
        else:
            results[name] = measure(asked.way, manifest, warm, measured, asked.cap_gb)
        took = time.monotonic() - started
        print(f"{name}: {took:.0f} s", flush=True)
    return results


def free_bytes(*, on_gpu: bool) -> int:
    """Return the bytes that a process that is started now finds free."""
    device = DEVICES["cuda" if on_gpu else "cpu"]
    device.empty_cache()  # of the checks
    return device.memory()[0]


def compare(way: str, manifest: Path, warm: int, measured: int) -> dict[str, Any] | None:
    """Let the tool measure itself against a way of the stock libraries; return its document, None if that cannot run here."""
    words = [
        "expert_cli",
        "benchmark",
        f"--manifest={manifest}",
        f"--against={way}",
        "--repeats=1",
        "--offline",
        "--json",
    ]
    return answer(way, [*words, f"--steps={measured}", f"--warmup={warm}"])


def make_model(home: Path, *, on_gpu: bool) -> Path:
    """Save a model of random weights and a tokenizer trained on the experts' rows; return the folder."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    shape = QWEN3 if on_gpu else MINIATURE
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=16_000 if on_gpu else 1000,
        special_tokens=CONTROL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train([str(path) for path in _sources(on_gpu=on_gpu)], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=CONTROL_TOKENS[0])
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(home / "model")
    torch.manual_seed(0)
    config = Qwen3Config(
        **shape,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        bos_token_id=None,
        eos_token_id=0,
    )
    model: Any = Qwen3ForCausalLM(config)  # its `to` is wrapped, and declared without its arguments
    model.to(torch.bfloat16).save_pretrained(home / "model")
    return home / "model"


def make_rows(home: Path, *, on_gpu: bool) -> Path:
    """Write the experts' rows as questions and answers; return the file."""
    lines = []
    for path in _sources(on_gpu=on_gpu):
        for line in path.read_text(encoding="utf-8").splitlines()[: None if on_gpu else 100]:
            question, *others = [str(value) for value in json.loads(line).values() if isinstance(value, str)]
            row = {"question": question, "context": "\n".join(others[:-1]), "answer": others[-1] if others else "-"}
            lines.append(json.dumps(row) + "\n")
    (home / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    return home / "rows.jsonl"


def _sources(*, on_gpu: bool) -> list[Path]:
    return sorted(EXPERTS.glob("*/datasets/train.jsonl"))[: None if on_gpu else 1]


def _peak(name: str) -> float | None:
    from expert_cli.model.flops import peak_flops

    found = peak_flops(name)
    return found[0] if found else None


def show(results: dict[str, dict[str, Any] | None], peak: float | None) -> None:
    """Print a row for each of our own ways, and one for each stock way beside ours in the same call."""
    found = {name: one for name, one in results.items() if one}
    own = {name: one for name, one in found.items() if "step_s" in one}
    common = min((len(one["losses"]) for one in own.values()), default=0)
    print("\n| way | real tokens/s | p50 step | MFU | peak memory | idle | syncs a step | loss after the same steps |")
    print("|---|---|---|---|---|---|---|---|")
    for name, one in own.items():
        step = statistics.median(one["step_s"])
        mfu = f"{one['flops'] / step / peak:.1%}" if peak else "-"
        idle = f"{one['idle']:.1%}" if one.get("idle") is not None else "-"
        print(
            f"| {name} | {tokens_per_s(one):,.0f} | {step * 1000:.1f} ms | {mfu} | {one['peak_mb'] / 1024:.1f} GB "
            f"| {idle} | {one.get('syncs', '-')} | {one['losses'][common - 1]:.4f} |"
        )
    print("\n| way | real tokens/s, ours | ratio | bar | peak memory, ours | loss, ours |")
    print("|---|---|---|---|---|---|")
    for name, one in found.items():
        if "step_s" not in one:
            theirs, mine = one["b"], one["a"]
            print(
                f"| {name} | {theirs['tokens_per_s']['mean']:,.0f}, {mine['tokens_per_s']['mean']:,.0f} "
                f"| {one['ratio']['mean']:.3f} | {BARS[theirs['name']]} | {theirs['peak_memory_mb'] / 1024:.1f}, "
                f"{mine['peak_memory_mb'] / 1024:.1f} GB | {theirs['loss']:.4f}, {mine['loss']:.4f} |"
            )
    for name in results.keys() - found.keys():
        print(f"{name}: not measured")


def verdicts(results: dict[str, dict[str, Any] | None]) -> None:
    """Print the bars that are ratios of our own ways."""
    rates = {name: tokens_per_s(found) for name, found in results.items() if found and "step_s" in found}
    for mine, other, bar in (
        ("ours, NF4", "ours, bf16", ">= 0.92"),
        ("ours, NF4 with copy", "ours, bf16", ">= 0.99"),
        ("ours, NF4 with copy", "plain loop, NF4 with copy", ">= 0.97"),
    ):
        if mine in rates and other in rates:
            print(f"{mine} / {other}: {rates[mine] / rates[other]:.3f} (bar {bar})")


if __name__ == "__main__":
    main()
