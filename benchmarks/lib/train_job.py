"""What every way to train has in common: settings, documents, and which of them each optimizer step trains."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.lib.step_meter import WATCHED, make_meter


@dataclass(frozen=True)
class Job:
    """All that the ways have in common. documents: (ids, labels) of every piece; steps: their numbers by optimizer step."""

    run: Any
    inputs: Any
    data: Any
    documents: list[dict[str, list[int]]]
    steps: list[list[int]]
    meter: Any

    @property
    def on_gpu(self) -> bool:
        """Whether it trains on a GPU."""
        return bool(self.run.compute.device == "cuda")

    @property
    def logged(self) -> int:
        """Steps between two losses: asking a GPU for one waits for it."""
        return 10 if self.on_gpu else 1

    def means(self, losses: list[Any]) -> list[float]:
        """Return the losses of all steps as a Trainer logs them."""
        read = [float(loss) for loss in losses]
        return [sum(read[n : n + self.logged]) / self.logged for n in range(0, len(read), self.logged)]

    def tokens(self) -> list[int]:
        """Return the real tokens of every step."""
        return [sum(len(self.documents[n]["input_ids"]) for n in step) for step in self.steps]

    def trained(self) -> list[int]:
        """Return the trained tokens of every step."""
        return [sum(label != -100 for n in step for label in self.documents[n]["labels"]) for step in self.steps]


def make_job(project: Path, steps: int, way: str) -> Job:
    """Read the manifest in `project`, build or open its token store, and lay down what each step trains."""
    from expert_cli.config.plan import make_plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.data.packing.batches import PackedBatchSampler
    from expert_cli.hardware import machine
    from expert_cli.pipeline import train as pipeline
    from expert_cli.pipeline.pretokenize import resolve_inputs, store_for
    from expert_cli.training import fit
    from expert_cli.utils.reporter import NullReporter

    facts = machine.inspect()
    watched = 2 * WATCHED if facts.cuda_usable else 0
    overrides = Overrides(max_steps=steps + watched, output=project / f"run-{way}-{os.getpid()}", offline=True)
    config = make_plan(project / "manifest.json", facts, overrides).run
    inputs = resolve_inputs(config, NullReporter())
    data = pipeline._data(store_for(config, inputs, NullReporter()), inputs, config, NullReporter())
    train = data.train
    schedule = fit.schedule_of(config, train, 1)
    batches = PackedBatchSampler(schedule, fit.orders_of(config, train))
    documents: list[dict[str, list[int]]] = []
    taken: list[list[int]] = []
    for step in range(schedule.steps):
        epoch, packs = batches.packs_of(step)
        pieces = [piece for pack in packs for piece in _documents(train[epoch, int(pack)])]
        taken.append(list(range(len(documents), len(documents) + len(pieces))))
        documents += pieces
    meter = make_meter(steps, on_gpu=config.compute.device == "cuda")
    return Job(config, inputs, data, documents, taken, meter)


def _documents(pack: dict[str, Any]) -> list[dict[str, list[int]]]:
    """Return the documents of a pack, one after another."""
    ids, labels = pack["input_ids"].tolist(), pack["labels"].tolist()
    starts = (pack["position_ids"] == 0).nonzero().flatten().tolist()
    return [{"input_ids": ids[a:b], "labels": labels[a:b]} for a, b in pairwise([*starts, len(ids)])]


def flops_of(job: Job, model: Any, part: slice) -> float:
    """Return the operations of a measured step, on average, by the formula that expert-cli reports."""
    from expert_cli.model.flops import flops

    cost = flops(model.get_base_model(), job.data.train.document_lengths, recomputed=False)
    total: float = cost.of(sum(job.tokens()[part]), sum(job.trained()[part]))
    return total / len(job.tokens()[part])


def write_project(folder: Path, base: dict[str, Any], dataset: Path, config: dict[str, Any]) -> Path:
    """Write a manifest for these settings into `folder`; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = {"instruction": "question", "input": "context", "response": "answer"}
    manifest = {
        "name": "expert-bench",
        "schema_version": "2.0",
        "base_models": [base],
        "training": {"dataset": {"path": str(dataset.resolve()), "field_mapping": fields}, "config": config},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def measure(
    way: str, project: Path, warm: int, measured: int, extra_path: str = "", cap_gb: float = 0.0
) -> dict[str, Any] | None:
    """Run a way in a fresh process and return what it measured; None, with a line, if it cannot run here."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""), extra_path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    words = [
        sys.executable,
        "-m",
        "benchmarks.lib.train_ways",
        way,
        str(project),
        str(warm),
        str(measured),
        str(cap_gb),
    ]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print(f"{way}: failed: {(done.stderr.strip().splitlines() or ['?'])[-1][:300]}", flush=True)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def tokens_per_s(found: dict[str, Any]) -> float:
    """Return real tokens a second, by the median step."""
    return float(statistics.median(r / s for r, s in zip(found["real"], found["step_s"], strict=True)))
