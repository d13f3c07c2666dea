"""Measure what the tool adds to a plain PyTorch loop over the same batches, a step of each in turn in one process.

    python -m benchmarks.bench_train [--manifest M] [--runs 5] [--steps 40]

Without M: 28 decoder layers of Qwen3-0.6B's form, so narrow that computing vanishes, and what a step of ours takes longer in
milliseconds. Against plain layers: `expert-cli benchmark --manifest M --against padded|flattening`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import TrainerCallback

from benchmarks.lib.own_step import CONFIG, own_step, write_manifest
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.utils.statistics import paired_ratio
from tests.tiny import tiny_model_folder

WARM = 5
"""Steps of a run that are not counted."""
SMALL_STEPS: dict[str, Any] = {
    **CONFIG,
    "batch_size": 1,
    "gradient_accumulation_steps": 4,
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
Pairs = list[tuple[float, float]]
"""Seconds of a step of ours, and of the plain loop's on the same batches."""


class PlainSteps(TrainerCallback):
    """After each step of the Trainer takes one as a person would write it: same model and loss, same batches, its own AdamW.

    pairs: from the end of its step to the end of ours, and of the next of its own. Batches are collated beforehand. Both train
    the same values, on which the time does not depend. On a CPU, in fp32.
    """

    def __init__(self) -> None:
        self.pairs: Pairs = []
        self.losses: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:  # noqa: ARG002
        """Make everything ready."""
        self.loss = CausalLoss(parts["model"]).train()
        batches = list(parts["train_dataloader"])
        self.batches = cycle(
            {key: batch[key] for key in batch if key not in ("real_tokens", "trained_tokens")} for batch in batches
        )
        self.trained = [parameter for parameter in self.loss.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=args.learning_rate, fused=True)
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Take the step."""
        ended = time.perf_counter()
        batches = list(islice(self.batches, args.gradient_accumulation_steps))
        trained, total = sum(len(batch["targets"]) for batch in batches), torch.zeros(())
        for batch in batches:
            loss = self.loss(**batch) / trained
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.trained, args.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        began, self.began = self.began, time.perf_counter()
        self.pairs.append((ended - began, self.began - ended))
        self.losses.append(float(total))


def main() -> None:
    """Measure what the command line asks for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    names = ("torch", "transformers", "peft", "bitsandbytes", "accelerate")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    print(f"{versions}, OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'unset')}, {os.cpu_count()} cores")
    pairs: Pairs = []
    with tempfile.TemporaryDirectory() as folder:
        manifest = options.manifest or narrow_project(Path(folder))
        for _ in range(options.runs):
            steps = PlainSteps()
            own_step(manifest, WARM + options.steps, [steps])
            pairs += steps.pairs[WARM:]
    ours, loops = zip(*pairs, strict=True)
    ratio = paired_ratio(ours, loops)
    low, high = ratio.ci95 or (0.0, float("inf"))
    print(
        f"a step of ours takes {ratio.mean:.3f} ({low:.3f}-{high:.3f}) times the loop's, median "
        f"{median(a / b for a, b in pairs):.3f}, {len(pairs)} pairs; {1000 * median(a - b for a, b in pairs):+.2f} ms a "
        f"step (median), loop {1000 * median(loops):.1f} ms"
    )


def narrow_project(folder: Path) -> Path:
    """Write a manifest of Qwen3-0.6B's tree of modules with tiny layers, four micro-steps a step; return its path."""
    model = tiny_model_folder(folder / "model", "qwen3", **NARROW)
    rows = [(f"Add {n} and {n % 7}", str(n + n % 7)) for n in range(400)]
    return write_manifest(folder / "project", model, "none", rows, SMALL_STEPS)


if __name__ == "__main__":
    main()
