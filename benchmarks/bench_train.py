"""Measure what the tool adds to a plain PyTorch loop over the same batches, a step of each in turn in one process.

    python -m benchmarks.bench_train [--manifest M] [--runs 5] [--json FILE]

Without M: 28 decoder layers of Qwen3-0.6B's form, so narrow that computing vanishes, and what a step of ours takes longer in
milliseconds. Against the stock libraries: `expert-cli benchmark --manifest M --against padded|flattening|trl`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.bench_gpu import CONFIG
from benchmarks.lib.own_step import measure, write_manifest
from expert_cli.utils.statistics import paired_ratio

MICRO_STEPS = 4
TINY_STEPS: dict[str, Any] = {
    "batch_size": 1,
    "gradient_accumulation_steps": MICRO_STEPS,
    "max_seq_length": 64,
    "dataloader_num_workers": 0,
    "bf16": False,
}
NARROW: dict[str, Any] = {
    "num_hidden_layers": 28,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", type=Path, help="write every measurement to this file")
    options = parser.parse_args()
    names = ("torch", "transformers", "peft", "bitsandbytes", "accelerate")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    print(f"{versions}, OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'unset')}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        manifest = options.manifest or narrow_project(Path(folder))
        rounds = [measure("paired", manifest, options.warm, options.steps) for _ in range(options.runs)]
    found = [one for one in rounds if one]
    if not found:
        raise SystemExit("nothing was measured")
    print(words_of(found))
    if options.json:
        options.json.write_text(json.dumps(found), encoding="utf-8")


def words_of(found: list[dict[str, Any]]) -> str:
    """Return the ratio of our step to the plain loop's next to it, and their difference."""
    pairs = [(a, b) for one in found for a, b in zip(one["step_s"], one["between_s"], strict=True)]
    ratio = paired_ratio([a for a, _ in pairs], [b for _, b in pairs])
    low, high = ratio.ci95 or (0.0, float("inf"))
    more = statistics.median(a - b for a, b in pairs) * 1000
    return (
        f"a step of ours takes {ratio.mean:.3f} ({low:.3f}-{high:.3f}) times the loop's, median "
        f"{statistics.median(a / b for a, b in pairs):.3f}, {len(pairs)} pairs; {more:+.2f} ms a step (median), loop "
        f"{statistics.median(b for _, b in pairs) * 1000:.1f} ms"
    )


def narrow_project(folder: Path) -> Path:
    """Write a manifest of Qwen3-0.6B's tree of modules with tiny layers, MICRO_STEPS micro-steps a step; return its path."""
    return sums_project(folder, "qwen3", NARROW, {**CONFIG, **TINY_STEPS})


def sums_project(folder: Path, architecture: Any, shape: dict[str, Any], config: dict[str, Any]) -> Path:
    """Write a manifest of a tiny model of this form, to be trained on sums with these settings; return its path."""
    from tests.tiny import tiny_model_folder

    model = tiny_model_folder(folder / "model", architecture, **shape)
    rows = folder / "rows.jsonl"
    texts = [{"question": f"Add {n} and {n % 7}", "context": "", "answer": str(n + n % 7)} for n in range(400)]
    rows.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    return write_manifest(folder / "project", {"name": str(model), "quantization": "none"}, rows, config)


if __name__ == "__main__":
    main()
