"""Measure how fast an expert's cases are answered, and how many answers are right: by this code, older code, and llama.cpp.

    python -m benchmarks.bench_generate --adapter RUN --manifest M --cases FILE --before DIR --gguf FILE .. --work DIR
        [--limit 150] [--rounds 3] [--threads 2] [--batch-size 16] [--ways before now now-8 ..] [--output FILE]

    before        the code in DIR, another checkout of this project, a greedy answer a case
    now, now-8    this code: a greedy answer a case; eight drawn at temperature 0.8
    now-fp32      this code, all of the model in fp32
    library       transformers' own continuous batching, the adapter in the model
    NAME.gguf     llama.cpp's server (xllamacpp) with as many slots, the same prompts as ids

Every run is a process of its own; rounds take turns. The clock starts with model and prompts in memory, and stops with the
last answer. Each run is written to --work, and what lies there already is not run again: after an interruption the same
command goes on. It ends with a table of medians, ratios to the first way in each round, and paired verdicts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

if TYPE_CHECKING:
    from expert_cli.manifest.types import Dtype

ROOT = Path(__file__).parents[1]
WAYS = ("before", "now", "now-8", "now-fp32", "library")
TEMPERATURE = 0.8
Measured = dict[str, Any]
"""tokens, seconds, cpu_s, and `answers`: of each case its id and texts."""


def asked(options: argparse.Namespace, dtype: Dtype | None = None) -> tuple[Any, Any, Any, list[list[int]]]:
    """Return the plan of the run, the adapter's origin, the cases and their prompts as ids."""
    from expert_cli.config.plan import trained_adapter
    from expert_cli.data.rows.columnar import Message
    from expert_cli.evaluation.evaluate import cases_of
    from expert_cli.inference.base_model import locate_base
    from expert_cli.inference.expert import PromptRenderer, trained_template
    from expert_cli.model.tokenizer import load_tokenizer
    from expert_cli.utils.process_setup import prepare_process
    from expert_cli.utils.reporter import NullReporter

    trained = trained_adapter(options.adapter, options.manifest, None, offline=True)
    prepare_process()
    run = trained.plan.run
    if dtype:
        run = replace(run, compute=replace(run.compute, dtype=dtype))
    tokenizer = load_tokenizer(locate_base(run, NullReporter()).folder)
    renderer = PromptRenderer(tokenizer, trained_template(run, tokenizer, trained.origin))
    cases = cases_of(trained.plan, options.cases, options.limit)
    turns = [renderer.format_user_turn(*case.asked) for case in cases]
    return run, trained.origin, cases, [renderer.encode_messages([Message("user", turn)]) for turn in turns]


def ours(options: argparse.Namespace, samples: int = 1, dtype: Dtype | None = None) -> Measured:
    """Let the code that is on the path answer, be it this or older."""
    run, origin, cases, prompts = asked(options, dtype)
    import torch

    from expert_cli.inference import generate as engine
    from expert_cli.inference.expert import open_expert
    from expert_cli.inference.generation_config import GenerationConfig
    from expert_cli.utils.reporter import NullReporter

    torch.set_num_threads(options.threads)
    expert = open_expert(run, origin, NullReporter())
    settings = GenerationConfig(options.max_new_tokens, options.batch_size, TEMPERATURE if samples > 1 else 0.0)
    timer = Timer()
    if hasattr(engine, "answers"):  # as it was before requests
        found = engine.answers(expert.model, prompts, settings, expert.renderer.stop_token_ids)
        ids = [[one] for one in found]
    else:
        from expert_cli.inference.request import Request

        requests = [Request(prompt, tuple(range(samples))) for prompt in prompts]
        ids = [[one.ids for one in of] for of in engine.generate(expert.model, requests, settings, expert.renderer)]
    return timer.measured(cases, ids, expert.renderer.decode)


def library(options: argparse.Namespace) -> Measured:
    """Let transformers' continuous batching answer, greedily."""
    run, origin, cases, prompts = asked(options)
    import torch
    from transformers import ContinuousBatchingConfig, GenerationConfig

    from expert_cli.inference.expert import open_expert
    from expert_cli.utils.reporter import NullReporter

    torch.set_num_threads(options.threads)
    expert = open_expert(run, origin, NullReporter())
    model: Any = expert.model.get_base_model()
    end = sorted(expert.renderer.stop_token_ids)
    settings = GenerationConfig(
        max_new_tokens=options.max_new_tokens, do_sample=False, eos_token_id=end, pad_token_id=end[0]
    )
    batching = ContinuousBatchingConfig(
        max_batch_tokens=options.library_tokens, max_requests_per_batch=options.batch_size
    )
    timer = Timer()
    with torch.no_grad():
        found = model.generate_batch(prompts, settings, batching)
    ids = [[[one for one in of.generated_tokens if one not in end]] for of in found.values()]
    return timer.measured(cases, ids, expert.renderer.decode)


def llama_cpp(options: argparse.Namespace, file: str) -> Measured:
    """Let llama.cpp's server answer, greedily, a slot for each answer that is written at once."""
    _, _, cases, prompts = asked(options)
    import xllamacpp  # type: ignore[import-untyped]

    settings = xllamacpp.CommonParams()
    settings.model.path, settings.n_parallel, settings.cache_prompt = file, options.batch_size, False
    settings.n_ctx = options.batch_size * (max(map(len, prompts)) + options.max_new_tokens)
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = options.threads
    server = xllamacpp.Server(settings)

    def answer(prompt: Sequence[int]) -> tuple[list[int], str]:
        body = {"prompt": prompt, "n_predict": options.max_new_tokens, "temperature": 0, "return_tokens": True}
        head = {"Content-Type": "application/json"}
        with urlopen(HttpRequest(f"{server.listening_address}/completion", json.dumps(body).encode(), head)) as reply:  # noqa: S310
            found = json.load(reply)
        return found["tokens"][: -1 if found["stop_type"] == "eos" else None], found["content"]

    timer = Timer()
    with ThreadPoolExecutor(options.batch_size) as pool:
        found = list(pool.map(answer, prompts))
    texts = iter(text for _, text in found)
    return timer.measured(cases, [[ids] for ids, _ in found], lambda _: next(texts))


class Timer:
    """Started when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def measured(
        self, cases: Sequence[Any], ids: Sequence[Sequence[Sequence[int]]], decode: Callable[[Any], str]
    ) -> Measured:
        """Stop; return the figures. ids: of the answers to each case."""
        seconds, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        answers = [{"id": case.id, "answers": [decode(one) for one in of]} for case, of in zip(cases, ids, strict=True)]
        tokens = sum(len(one) for of in ids for one in of)
        return {"tokens": tokens, "seconds": seconds, "cpu_s": cpu, "answers": answers}


def child(options: argparse.Namespace) -> Measured:
    """Run one way in this process."""
    known = {
        "before": lambda: ours(options),
        "now": lambda: ours(options),
        "now-8": lambda: ours(options, samples=8),
        "now-fp32": lambda: ours(options, dtype="fp32"),
        "library": lambda: library(options),
    }
    return known[options.child]() if options.child in known else llama_cpp(options, options.child)


def run_once(way: str, options: argparse.Namespace, file: Path) -> Measured:
    """Run a way in a process of its own, whose result goes into `file`; return what lies there where it has run."""
    if not file.exists():
        tree = options.before if way == "before" else ROOT
        path = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": str(options.threads)}
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            *sys.argv[1:],
            "--child",
            way,
            "--output",
            f"{file}.part",
        ]
        subprocess.run(command, env={**os.environ, **path}, check=True)
        Path(f"{file}.part").replace(file)
    measured: Measured = json.loads(file.read_text(encoding="utf-8"))
    return measured


def judged(measured: Measured, options: argparse.Namespace) -> dict[str, float]:
    """Return of each case the share of its answers that is right."""
    from expert_cli.config.plan import trained_adapter
    from expert_cli.evaluation.evaluate import CASE_TIMEOUT_S, cases_of
    from expert_cli.evaluation.grade import grade
    from expert_cli.utils.reporter import NullReporter

    trained = trained_adapter(options.adapter, options.manifest, None, offline=True)
    cases = {case.id: case for case in cases_of(trained.plan, options.cases, options.limit)}
    rows = [(one["id"], text) for one in measured["answers"] for text in one["answers"]]
    passed = grade([cases[name].answered(text) for name, text in rows], NullReporter(), CASE_TIMEOUT_S).passed
    right: dict[str, list[bool]] = {}
    for (name, _), is_right in zip(rows, passed, strict=True):
        right.setdefault(name, []).append(is_right)
    return {name: statistics.mean(of) for name, of in right.items()}


def figures(
    ways: Sequence[str], rounds: Sequence[dict[str, Measured]], options: argparse.Namespace
) -> dict[str, Measured]:
    """Return of each way its medians, the ratio to the first way, and its verdicts beside that one's."""
    table: dict[str, Measured] = {}
    first = ways[0]
    verdicts = {way: judged(rounds[0][way], options) for way in ways}
    texts = {way: {one["id"]: one["answers"][0] for one in rounds[0][way]["answers"]} for way in ways}
    for way in ways:
        speeds = [one[way]["tokens"] / one[way]["seconds"] for one in rounds]
        base = [one[first]["tokens"] / one[first]["seconds"] for one in rounds]
        pairs = [(verdicts[first][name], share) for name, share in verdicts[way].items()]
        table[way] = {
            "tokens": rounds[0][way]["tokens"],
            "tokens_per_s": [round(speed, 1) for speed in speeds],
            "median_tokens_per_s": statistics.median(speeds),
            "tokens_per_cpu_s": statistics.median(one[way]["tokens"] / one[way]["cpu_s"] for one in rounds),
            "ratio": statistics.median(speed / other for speed, other in zip(speeds, base, strict=True)),
            "accuracy": statistics.mean(verdicts[way].values()),
            "cases": len(pairs),
            "right_there_alone": sum(there > here for there, here in pairs),
            "right_here_alone": sum(here > there for there, here in pairs),
            "same_text": sum(texts[first][name] == text for name, text in texts[way].items()),
        }
    return table


def show(table: dict[str, Measured]) -> None:
    """Print the table."""
    first = next(iter(table))
    print(
        f"| way | tokens | tokens/s, the rounds | tokens a CPU second | ratio | right "
        f"| only by {first} | only here | same text |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for way, of in table.items():
        speeds = ", ".join(f"{one:,.1f}" for one in of["tokens_per_s"])
        print(
            f"| {Path(way).name} | {of['tokens']:,} | {speeds} | {of['tokens_per_cpu_s']:,.1f} | {of['ratio']:.2f} x "
            f"| {of['accuracy']:.1%} of {of['cases']} "
            f"| {of['right_there_alone']} | {of['right_here_alone']} | {of['same_text']} |"
        )


def main() -> None:
    """Run what has not run yet, round by round; print and write what is there."""
    options = parsed()
    if options.child:
        options.output.write_text(json.dumps(child(options)), encoding="utf-8")
        return
    options.work.mkdir(parents=True, exist_ok=True)
    ways = [*options.ways, *options.gguf]
    rounds = []
    for n in range(options.rounds):
        rounds.append({way: run_once(way, options, options.work / f"{Path(way).name}-{n}.json") for way in ways})
        for way, measured in rounds[-1].items():
            print(f"round {n} {Path(way).name}: {measured['tokens'] / measured['seconds']:,.1f} tokens/s", flush=True)
    table = figures(ways, rounds, options)
    show(table)
    if options.output:
        options.output.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", type=Path, required=True)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--gguf", nargs="*", default=[])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["before", "now", "now-8"])
    parser.add_argument("--limit", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--library-tokens", type=int, default=512, help="tokens of a forward pass of `library`")
    parser.add_argument("--output", type=Path, help="write the figures here, as JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
