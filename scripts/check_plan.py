"""Hold `train --plan` against real peaks and speeds: what was predicted, what a probe of real steps measured, the error.

    python scripts/check_plan.py --rows rows.jsonl MODEL:int4 MODEL:bf16 TINY:none

rows.jsonl has the columns instruction, input and output. On a CPU each model is measured at two lengths, by the resident set
of the probe's process; on a GPU (--device cuda) at six, from 512 to 8192 tokens, by what PyTorch allocated. The machine
should have nothing else to do: with a load above 5 it says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LENGTHS = {"cpu": (512, 1024), "cuda": (512, 1024, 2048, 3072, 4096, 8192)}
BUSY = 5.0


def main() -> int:
    """Print a line a setting; the exit code is 1 if an error is larger than the plan says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL:QUANTIZATION")
    parser.add_argument("--rows", type=Path, required=True, help="training rows (jsonl)")
    parser.add_argument("--device", choices=sorted(LENGTHS), default="cpu")
    parser.add_argument("--batch-size", type=int, default=2)
    options = parser.parse_args()
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > BUSY:
        print(f"load {os.getloadavg()[0]:.1f}: speeds mean little, memory is not affected", file=sys.stderr)
    print("model quantization tokens | memory MB predicted measured error | tokens/s predicted measured error")
    missed = 0
    for named in options.models:
        model, _, quantization = named.rpartition(":")
        for length in LENGTHS[options.device]:
            missed += one(Path(model), quantization, length, options)
    return 1 if missed else 0


def one(model: Path, quantization: str, length: int, options: argparse.Namespace) -> int:
    """Compare one setting; return 1 if the memory is further off than the plan says."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "manifest.json"
        path.write_text(json.dumps(manifest(model, quantization, length, options)), encoding="utf-8")
        told, real = (plan(path, options.device, *more) for more in ((), ("--probe",)))
    memory, measured = told["vram_mb"], real["vram_mb"]["total"]
    off, slower = memory["total"] / measured - 1, told["tokens_per_s"] / real["tokens_per_s"] - 1
    places = length * options.batch_size
    print(
        f"{model.name} {quantization} {places} | {memory['total']:,.0f} {measured:,.0f} {off:+.1%} | "
        f"{told['tokens_per_s']:,.0f} {real['tokens_per_s']:,.0f} {slower:+.1%}",
        flush=True,
    )
    return int(100 * abs(off) > memory["error_pct"])


def plan(manifest: Path, device: str, *more: str) -> Any:
    """Return what `train --plan` says in a process of its own: its size is a part of what it predicts."""
    words = ["train", "--manifest", str(manifest), "--plan", "--device", device, "--json", "--quiet", *more]
    ran = subprocess.run([sys.executable, "-m", "expert_cli", *words], stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)


def manifest(model: Path, quantization: str, length: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return a manifest that trains a LoRA of rank 16 on every linear layer."""
    return {
        "name": "expert-check",
        "schema_version": "2.0",
        "base_models": [{"name": str(model.resolve()), "quantization": quantization}],
        "training": {
            "dataset": {"path": str(options.rows.resolve())},
            "config": {
                "adapter_type": "lora",
                "rank": 16,
                "alpha": 32,
                "learning_rate": 2e-4,
                "batch_size": options.batch_size,
                "max_seq_length": length,
                "bf16": True,
                "pretokenized_cache": "stores",
            },
        },
    }


if __name__ == "__main__":
    sys.exit(main())
