"""Measure packing: documents a second and fill on log-normal lengths, one core, best of three.

    python scripts/bench_packing.py [--documents 1000000] [--capacity 2048]

Where `trl` is importable, its `pack_dataset` ("bfd") runs on the first 200,000 of the same documents: with batches of 1000
rows, its default, and with all rows in one. Its time includes copying the ids (one byte each here), which it does at once
and expert-cli does as batches are read.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.order import epoch_order
from expert_cli.data.packing import concat, pack, recommend, right_size, single

MEDIANS = (100, 200, 400, 900)
TRL_DOCUMENTS = 200_000


def lengths_of(documents: int, median: int, capacity: int) -> NDArray[np.int64]:
    """Draw log-normal lengths (sigma 0.8) between 1 and `capacity`; the same ones every time."""
    drawn = np.random.default_rng(median).lognormal(np.log(median), 0.8, documents)
    return np.clip(drawn.astype(np.int64), 1, capacity)


def best_seconds(work: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """Return the shortest time of a few runs, and the last result."""
    seconds = []
    result = None
    for _ in range(times):
        started = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - started)
    return min(seconds), result


def show(what: str, documents: int, seconds: float, packs: int, fill: float) -> None:
    """Print one line of figures."""
    print(f"{what:32}{documents / seconds:>14,.0f} documents/s{packs:>10,} packs{fill:>10.3%} full")


def bench_trl(lengths: NDArray[np.int64], capacity: int) -> None:
    """Pack rows of zeros with TRL."""
    import datasets
    import pyarrow as pa

    trl = importlib.import_module("trl")
    datasets.disable_progress_bars()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    ids = pa.ListArray.from_arrays(offsets, np.zeros(offsets[-1], np.int8))
    rows = datasets.Dataset(pa.table({"input_ids": ids}))
    for batch_size, name in ((1000, "  trl, batches of 1000"), (len(lengths), "  trl, all at once")):
        options = {"batch_size": batch_size, "keep_in_memory": True, "load_from_cache_file": False}
        seconds, packed = best_seconds(partial(trl.pack_dataset, rows, capacity, "bfd", options), times=1)
        show(name, len(lengths), seconds, len(packed), lengths.sum() / (len(packed) * capacity))


def main() -> None:
    """Print the figures for every median, then those of the sizes and of the epoch's order."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--capacity", type=int, default=2048)
    options = parser.parse_args()
    has_trl = importlib.util.find_spec("trl") is not None
    for median in MEDIANS:
        lengths = lengths_of(options.documents, median, options.capacity)
        print(f"median {median}")
        for way in (pack, concat, single):
            seconds, packs = best_seconds(partial(way, lengths, options.capacity))
            show(f"  {way.__name__}", len(lengths), seconds, len(packs), packs.fill())
        if has_trl:
            bench_trl(lengths[:TRL_DOCUMENTS], options.capacity)
    lengths = lengths_of(options.documents, MEDIANS[-1], 1 << 20)
    prompts = lengths // 2
    print(f"right_size {best_seconds(partial(right_size, lengths, options.capacity))[0]:.2f} s")
    print(
        f"recommend {best_seconds(partial(recommend, lengths, prompts, lengths - prompts, options.capacity))[0]:.2f} s"
    )
    print(f"epoch_order {best_seconds(epoch_order(options.documents, 42, 0).permutation)[0]:.2f} s")


if __name__ == "__main__":
    main()
