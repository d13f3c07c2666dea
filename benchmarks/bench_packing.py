"""Measure packing: documents a second, fill, and how alike the documents of a pack are; one core, the median of three.

    python -m benchmarks.bench_packing [--documents 1000000] [--spider DIR]

Log-normal lengths first. Where `trl` is importable, its `pack_dataset` ("bfd") runs on the first 200,000 of the same
documents: with batches of 1000 rows, its default, and with all rows in one. Its time includes copying the ids (one byte each
here), which it does at once and expert-cli does as batches are read.

Then the four experts' rows with SmolLM2's tokenizer, and Spider's where DIR holds its train.jsonl: likeness is the share of
pairs in a pack that have the same key (a template: the answer with names, strings and numbers left out; a world: its schema
or database), against that of all pairs. Means of three seeds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import expert_cli
from expert_cli.data.packing.pack_plan import PackingPlan, Pieces, best_fit, concat
from expert_cli.data.packing.random_fit import epoch_order, random_fit
from expert_cli.pipeline.right_size import length_table, recommend
from expert_cli.utils.length_histogram import LengthHistogram

Lengths = NDArray[np.int64]
CAPACITY = 2048
MEDIANS = (100, 200, 400, 900)
TRL_DOCUMENTS = 200_000
EXPERTS = Path(__file__).parents[1] / "experts"
ANSWERS = {"json": "output", "typescript": "output", "neo4j": "cypher", "sql": "answer", "spider": "answer"}
WORLDS = {"neo4j": "schema", "sql": "context", "spider": "db_id"}
SEEDS = range(3)


def lengths_of(documents: int, middle: int, most: int) -> Lengths:
    """Draw log-normal lengths (sigma 0.8) between 1 and `most`; the same ones every time."""
    drawn = np.random.default_rng(middle).lognormal(np.log(middle), 0.8, documents)
    return np.clip(drawn.astype(np.int64), 1, most)


def median_seconds(work: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """Return the median processor time of a few runs, and the last result."""
    seconds = []
    result = None
    for _ in range(times):
        started = time.process_time()
        result = work()
        seconds.append(time.process_time() - started)
    return median(seconds), result


def whole(lengths: Lengths) -> Pieces:
    """Return documents of these lengths, each in one piece."""
    return Pieces(np.arange(len(lengths)), np.zeros_like(lengths), lengths)


def fill(packs: PackingPlan, capacity: int) -> float:
    """Return the share of all room that holds tokens."""
    return float(packs.lengths.sum() / (len(packs) * capacity))


def bench_way(name: str, lengths: Lengths, way: Callable[[], Any], times: int = 3) -> None:
    """Pack documents in one way and print a line of figures."""
    seconds, packs = median_seconds(way, times)
    speed, full = len(lengths) / seconds, lengths.sum() / (len(packs) * CAPACITY)
    print(f"  {name:30}{speed:>14,.0f} documents/s{len(packs):>10,} packs{full:>10.3%} full")


def bench_trl(lengths: Lengths) -> None:
    """Pack rows of zeros with TRL."""
    import datasets
    import pyarrow as pa

    trl = importlib.import_module("trl")
    datasets.disable_progress_bars()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    rows = datasets.Dataset(pa.table({"input_ids": pa.ListArray.from_arrays(offsets, np.zeros(offsets[-1], np.int8))}))
    for batch_size, name in ((1000, "trl, batches of 1000"), (len(lengths), "trl, all at once")):
        options = {"batch_size": batch_size, "keep_in_memory": True, "load_from_cache_file": False}
        bench_way(name, lengths, partial(trl.pack_dataset, rows, CAPACITY, "bfd", options), times=1)


def rows_of(name: str, file: Path) -> tuple[Lengths, list[dict[str, str]]]:
    """Return the tokens of every row of a file with SmolLM2's tokenizer, and the rows."""
    manifest = EXPERTS / f"expert-{'sql' if name == 'spider' else name}" / "manifest.json"
    documents = expert_cli.pretokenize(manifest, base_model="smollm2", dataset=str(file)).store.split("train")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    if documents is None or len(documents) != len(rows):
        raise SystemExit(f"{file}: rows were left out, keys would not fit")
    return documents.lengths, rows


def template(answer: str) -> str:
    """Return an answer without its names, strings and numbers."""
    bare = re.sub(r"\"[^\"]*\"|'[^']*'|`[^`]*`|\d+(\.\d+)?", "#", answer)
    return re.sub(r"\b[a-z]\w*(\.\w+)?", "w", bare)


def likeness(packs: PackingPlan, keys: list[str]) -> tuple[float, float]:
    """Return the share of pairs in a pack that have the same key, and that of all pairs."""
    numbers = np.unique(keys, return_inverse=True)[1]
    pack_of = np.empty(len(keys), np.int64)
    pack_of[packs.pieces.documents] = np.repeat(np.arange(len(packs)), np.diff(packs.offsets))

    def pairs(groups: Lengths) -> int:
        counts = np.unique(groups, return_counts=True)[1]
        return int((counts * (counts - 1) // 2).sum())

    together = pairs(pack_of * (numbers.max() + 1) + numbers) / max(1, pairs(pack_of))
    return together, pairs(numbers) / (len(keys) * (len(keys) - 1) / 2)


def bench_likeness(name: str, file: Path) -> None:
    """Print fill and likeness of one set with both ways to pack."""
    lengths, rows = rows_of(name, file)
    keys = {"template": [template(row[ANSWERS[name]]) for row in rows]}
    if name in WORLDS:
        keys["world"] = [row[WORLDS[name]].split(" ")[0 if name != "sql" else 2] for row in rows]
    for capacity in (512, 1024, 2048):
        cut = whole(np.minimum(lengths, capacity))
        alike = best_fit(cut, capacity)
        drawn = [random_fit(cut, capacity, seed, 0) for seed in SEEDS]
        fills = fill(alike, capacity), mean(fill(packs, capacity) for packs in drawn)
        told = f"| {name} | {capacity} | {fills[0]:.2%} | {fills[1]:.2%} |"
        for key, values in keys.items():
            share, chance = likeness(alike, values)
            ratio = mean(likeness(packs, values)[0] for packs in drawn) / chance
            told += f" {key}: {share:.1%}, {share / chance:.2f} x | {ratio:.2f} x |"
        print(told)


def main() -> None:
    """Print the figures for every median, those of the sizes and of the epoch's order, and the likeness of real rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--spider", type=Path)
    options = parser.parse_args()
    for middle in MEDIANS:
        lengths = lengths_of(options.documents, middle, CAPACITY)
        print(f"median {middle}")
        bench_way("random", lengths, partial(random_fit, whole(lengths), CAPACITY, 42, 0))
        bench_way("best_fit", lengths, partial(best_fit, whole(lengths), CAPACITY))
        bench_way("concat", lengths, partial(concat, whole(lengths), CAPACITY))
        if find_spec("trl"):
            bench_trl(lengths[:TRL_DOCUMENTS])
    counted = LengthHistogram.of(lengths_of(options.documents, MEDIANS[-1], 1 << 20))
    print(f"right_size {median_seconds(partial(length_table, counted, CAPACITY))[0]:.2f} s")
    print(f"recommend {median_seconds(partial(recommend, counted, CAPACITY))[0]:.2f} s")
    print(f"epoch_order {median_seconds(partial(epoch_order, options.documents, 42, 0))[0]:.2f} s")
    print("| set | capacity | fill, best fit | fill, random | likeness, best fit: share, against chance | random |")
    print("|---|---|---|---|---|---|")
    for name in ("json", "typescript", "neo4j", "sql"):
        bench_likeness(name, EXPERTS / f"expert-{name}" / "datasets" / "train.jsonl")
    if options.spider:
        bench_likeness("spider", options.spider / "train.jsonl")


if __name__ == "__main__":
    main()
