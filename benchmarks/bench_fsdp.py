"""What a process holds of a base model that two share out (FSDP2), against one that it holds whole (DDP).

    python -m benchmarks.bench_fsdp [--layers 24] [--quantization bf16|int4] [--tokens 256]

A Llama with random weights is written to a temporary folder (24 layers of width 1024, vocabulary 8,192: 325 million weights),
loaded as training loads it, given a LoRA adapter, and trained for three steps by two processes (gloo, CPU) in each of the two
ways. Told for the larger of the two processes: bytes of frozen tensors between steps, the most anonymous memory (RssAnon,
looked at every 2 ms) beyond that before the model is loaded, while it is loaded and in the steps, and the losses. Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.elastic_test import variables_of

PROCESSES = 2
STEPS = 3
WAYS = ("ddp", "fsdp")
TITLES = {
    "held": "base weights between steps",
    "loading": "most memory while loading",
    "peak": "most memory in the steps",
}


def anonymous_bytes() -> int:
    """Return the memory of this process that no file stands behind."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


class Peak(threading.Thread):
    """The most anonymous memory since the start, beyond what there was then."""

    def __init__(self) -> None:
        """Take what there is now."""
        super().__init__(daemon=True)
        self.before, self.most = anonymous_bytes(), 0

    def run(self) -> None:
        """Look every 2 ms."""
        while True:
            self.most = max(self.most, anonymous_bytes() - self.before)
            time.sleep(0.002)


def write_model(folder: Path, layers: int) -> None:
    """Write a Llama of so many layers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 16,
        "num_hidden_layers": layers,
    }
    config = LlamaConfig(vocab_size=8192, tie_word_embeddings=False, **shape)
    model: Any = LlamaForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)


def train(folder: Path, way: str, quantization: Any, tokens: int) -> dict[str, Any]:
    """Train in this process, one of several; return its figures."""
    import torch
    from accelerate import PartialState
    from peft import LoraConfig, get_peft_model
    from torch.distributed.tensor import DTensor
    from torch.nn.parallel import DistributedDataParallel

    from expert_cli.model.fsdp import shard_base, sharded
    from expert_cli.model.kernels.chunked_loss import CausalLoss
    from expert_cli.model.loading.quantize import load_base
    from expert_cli.utils.distributed import leave

    rank = PartialState(cpu=True).process_index
    peak = Peak()
    peak.start()
    settings: dict[str, Any] = {"device": "cpu", "attention": "sdpa", "rope_scaling": {}}
    base = load_base(folder, quantization=quantization, dtype=torch.bfloat16, **settings)
    torch.manual_seed(0)
    model = get_peft_model(base, LoraConfig(r=8, target_modules="all-linear"))
    if way == "fsdp":
        shard_base(model, "cpu", full_logits=False)
    loading, peak.most = peak.most, 0
    loss: Any = CausalLoss(model)
    loss._ddp_params_and_buffers_to_ignore = sharded(loss)
    together = DistributedDataParallel(loss)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-3)
    random, losses = torch.Generator().manual_seed(rank), []
    for _ in range(STEPS):
        ids = torch.randint(8192, (1, tokens), generator=random)
        places = torch.arange(tokens - 1)
        with torch.autocast("cpu", torch.bfloat16):
            value = together(ids, torch.arange(tokens)[None], places, ids[0, 1:]) / tokens
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(value.detach()))
    frozen = {id(one): one for one in base.parameters() if not one.requires_grad}.values()
    held = sum(one.to_local().nbytes if isinstance(one, DTensor) else one.nbytes for one in frozen)
    leave()
    return {"held": held, "loading": loading, "peak": peak.most, "losses": losses}


def measured(folder: Path, way: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train in two processes; return the figures of each."""
    told = [folder / f"{way}{rank}.json" for rank in range(PROCESSES)]
    words = ["--layers", str(options.layers), "--quantization", options.quantization, "--tokens", str(options.tokens)]
    jobs = []
    for out, variables in zip(told, variables_of(PROCESSES), strict=True):
        command = [sys.executable, "-m", "benchmarks.bench_fsdp", *words, "--worker", way, str(folder), str(out)]
        # what is freed goes back to the system at once: memory is what tensors take
        environment = {
            **os.environ,
            "MALLOC_MMAP_THRESHOLD_": "65536",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            **variables,
        }
        jobs.append(subprocess.Popen(command, env=environment))
    codes = [job.wait() for job in jobs]
    if any(codes):
        raise SystemExit(f"{way}: a process failed")
    return [json.loads(out.read_text(encoding="utf-8")) for out in told]


def main() -> None:
    """Measure both ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--quantization", choices=("bf16", "int4"), default="bf16")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        way, folder, out = options.worker
        figures = train(Path(folder) / "model", way, options.quantization, options.tokens)
        Path(out).write_text(json.dumps(figures), encoding="utf-8")
        return
    with tempfile.TemporaryDirectory(prefix="bench-fsdp-") as home:
        folder = Path(home)
        write_model(folder / "model", options.layers)
        found = {way: measured(folder, way, options) for way in WAYS}
    whole, shared = ({name: max(one[name] for one in found[way]) for name in TITLES} for way in WAYS)
    for name, title in TITLES.items():
        mb = [figures[name] / 2**20 for figures in (whole, shared)]
        print(f"{title}: whole {mb[0]:,.0f} MB, shared out {mb[1]:,.0f} MB, ratio {mb[1] / mb[0]:.3f}")
    pairs = [
        pair
        for one, other in zip(*found.values(), strict=True)
        for pair in zip(one["losses"], other["losses"], strict=True)
    ]
    print(f"losses: largest difference {max(abs(a - b) / a for a, b in pairs):.1e} of each")


if __name__ == "__main__":
    main()
