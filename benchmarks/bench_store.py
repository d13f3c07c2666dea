"""Measure the memory of `pretokenize` on inputs of several sizes, and how fast batches are read from a store.

    python -m benchmarks.bench_store [--gb 0.1,0.5,1] [--folder DIR]

Each size is a process of its own. Rows are as in bench_tokenize.py, which numbers them; where the installed packages hold less
text than a size asks for, it is taken again (memory does not ask for distinct text). anonymous_mb: the peak of what the
process itself holds, asked every 20 ms; resident_mb: that and the pages of mapped files and libraries. The loader is read
from the smallest store: packs of 2,048 tokens, 8 a batch, no worker process, a whole epoch in shuffled order, median of 3.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

from benchmarks.bench_tokenize import MODEL, ROW_CHARACTERS, texts
from benchmarks.lib.memory import watch


def main() -> None:
    """Print a line a size, then the loader's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", default="0.1,0.5,1")
    parser.add_argument("--folder", type=Path, help="where 2.5 times the largest size is free")
    options = parser.parse_args()
    for number, size in enumerate(sorted(map(float, options.gb.split(",")))):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            store = build(Path(folder), size * 1e9)
            if not number:
                read(store)


def build(folder: Path, size: float) -> Path:
    """Run `pretokenize` on `size` bytes of rows in `folder`, print its memory and speed, and return its store."""
    with (folder / "rows.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        half = ROW_CHARACTERS // 2
        for number, text in enumerate(cycle(texts())):
            row = {"instruction": f"Go on with file {number}.", "input": text[:half], "output": text[half:]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            if file.tell() >= size:
                break
    manifest = {
        "name": "expert-bench",
        "schema_version": "2.0",
        "base_models": [{"name": MODEL, "quantization": "none"}],
        "training": {"dataset": {"path": "rows.jsonl"}, "config": {"adapter_type": "lora", "rank": 8, "alpha": 16}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    command = [sys.executable, "-m", "expert_cli", "pretokenize", "-m", str(folder / "manifest.json"), "--json"]
    with subprocess.Popen([*command, "--quiet"], stdout=subprocess.PIPE, text=True) as process:
        anonymous, resident = watch(process)
        row = json.loads(process.stdout.read() if process.stdout else "")["stores"][0]
    print(
        f"{size / 1e9:.1f} GB  anonymous_mb {anonymous:,.0f}  resident_mb {resident:,.0f}  rows {row['rows']:,}  "
        f"tokens {row['tokens']:,}  {row['mb_per_s']:.0f} MB/s  {row['encoder']}  load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return Path(row["path"])


def read(store: Path) -> None:
    """Read every batch of an epoch and print the real tokens a second."""
    from torch.utils.data import DataLoader

    from expert_cli.data.packing.batches import Collator, PackedBatchSampler
    from expert_cli.data.packing.dataset import PackedDataset
    from expert_cli.data.packing.order import epoch_order
    from expert_cli.data.packing.step_schedule import Schedule
    from expert_cli.data.store.documents import Documents

    packs = PackedDataset(Documents(store / "train"), 2048, "random", "truncate")
    speeds = []
    for _ in range(3):
        schedule = Schedule(packs.packs.count, packs_per_step=8, batch_size=8, processes=1, epochs=1.0, max_steps=-1)
        batches = PackedBatchSampler(schedule, lambda epoch: epoch_order(len(packs), 42, epoch))
        loader = DataLoader(packs, batch_sampler=batches, collate_fn=Collator(0))
        started = time.perf_counter()
        tokens = sum(int(batch["real_tokens"]) for batch in loader)
        speeds.append(tokens / (time.perf_counter() - started))
    print(
        f"loader  {statistics.median(speeds) / 1e6:.1f} M tokens/s, {len(packs):,} packs, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
