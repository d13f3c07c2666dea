"""Steps of expert-cli's own training, and of a plain PyTorch loop over the same batches.

    ours      as `expert-cli train` does: `pipeline.train._model` and `fit`
    bare      a loop that a person would write for these batches, collated beforehand, with the same loss module
    paired    a step of ours and one of bare in turn, in one process, on a model each: what disturbs one disturbs both

How it compares with the stock libraries, `expert-cli benchmark --against` tells. Each way runs in a process of its own:
`python -m benchmarks.lib.own_step WAY MANIFEST WARM MEASURED CAP_GB` prints one JSON document.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib.step_meter import WATCHED, make_meter
from expert_cli.utils.out_of_memory import is_out_of_memory


@dataclass(frozen=True)
class Job:
    """What the ways have in common. batches: the packs of every step; meter: the callback that takes the times."""

    run: Any
    inputs: Any
    data: Any
    batches: Any
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

    def tokens(self, steps: range) -> list[tuple[int, int]]:
        """Return the real and the trained tokens of these steps."""
        found = []
        for epoch, packs in map(self.batches.packs_of, steps):
            labels = [label for pack in packs for label in self.data.train[epoch, int(pack)]["labels"].tolist()]
            found.append((len(labels), len(labels) - labels.count(-100)))
        return found


def make_job(manifest: Path, steps: int, way: str) -> Job:
    """Read a manifest, build or open its token store, and lay down what each step trains."""
    from expert_cli.config.plan import make_plan
    from expert_cli.config.resolve import Overrides
    from expert_cli.data.packing.batches import PackedBatchSampler, orders_of, schedule_of
    from expert_cli.hardware import machine
    from expert_cli.pipeline.pretokenize import resolve_inputs, store_for
    from expert_cli.pipeline.training_data import training_data
    from expert_cli.utils.reporter import NullReporter

    facts = machine.inspect()
    watched = 2 * WATCHED if facts.device != "cpu" else 0
    output = manifest.parent / f"run-{way}-{os.getpid()}"
    run = make_plan(manifest, facts, Overrides(max_steps=steps + watched, output=output, offline=True)).run
    inputs = resolve_inputs(run, NullReporter())
    data = training_data(store_for(run, inputs, NullReporter()), inputs, run, NullReporter())
    batches = PackedBatchSampler(schedule_of(run, data.train, 1), orders_of(run, data.train))
    return Job(run, inputs, data, batches, make_meter(steps, on_gpu=run.compute.device == "cuda"))


def child(way: str, manifest: Path, warm: int, measured: int, cap_gb: float = 0.0) -> dict[str, Any]:
    """Train `warm` + `measured` steps in one way and return what was measured.

    cap_gb: let the process have this much of the GPU's memory.
    """
    from expert_cli.utils.process_setup import prepare_process

    prepare_process()
    import torch

    from expert_cli.model.flops import flops

    if cap_gb and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(cap_gb * 2**30 / torch.cuda.get_device_properties(0).total_memory)
    job = make_job(manifest, warm + measured, way)
    losses, model = WAYS[way](job)
    part = slice(warm, warm + measured)
    real, trained = zip(*job.tokens(range(warm, warm + measured)), strict=True)
    cost = flops(model.get_base_model(), job.data.train.packs.document_lengths, recomputed=False)
    peak = torch.cuda.max_memory_allocated() / 2**20 if job.on_gpu else 0.0
    return {
        "step_s": job.meter.seconds()[part],
        "between_s": job.meter.seconds_between()[part],
        "real": real,
        "trained": trained,
        "losses": losses[: (warm + measured) // job.logged],
        "peak_mb": peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "flops": cost.of(sum(real), sum(trained)) / measured,
        **job.meter.found,
    }


def ours(job: Job) -> tuple[list[float], Any]:
    """Train as `expert-cli train` does."""
    from expert_cli.runs.status import RunStatus
    from expert_cli.training import fit
    from expert_cli.utils.reporter import NullReporter

    model, kernels = our_model(job)
    job.run.output.mkdir(parents=True, exist_ok=True)
    done = fit.fit(
        model,
        job.data,
        run=job.run,
        kernels=kernels,
        resume_context=fit.ResumeContext({"processes": 1}, None, RunStatus()),
        report=NullReporter(),
        callbacks=[job.meter],
    )
    job.meter.found |= {"shares": dict(done.step_time_shares), "adjusted": done.adjusted}
    return job.means(list(done.losses)), model


def our_model(job: Job) -> tuple[Any, Any]:
    """Return model and kernel plan as `expert-cli train` makes them."""
    from transformers import set_seed

    from expert_cli.hardware import machine
    from expert_cli.hardware.devices import DEVICES
    from expert_cli.pipeline import train as pipeline
    from expert_cli.utils.reporter import NullReporter

    DEVICES[job.run.compute.device].set_flags(tf32=job.run.compute.tf32)
    set_seed(job.run.seed)
    made: tuple[Any, Any] = pipeline._model(job.inputs, job.run, machine.inspect(), job.data, None, NullReporter())
    return made


def bare(job: Job) -> tuple[list[float], Any]:
    """Train with the plain loop."""
    model, kernels = our_model(job)
    losses = []
    coming = bare_steps(job, model, kernels)
    next(coming)
    job.meter.begin()
    for loss in coming:
        losses.append(loss)
        job.meter.end()
    return job.means(losses), model


def paired(job: Job) -> tuple[list[float], Any]:
    """Let a step of ours and one of the plain loop follow each other."""
    model, kernels = our_model(job)
    coming = bare_steps(job, model, kernels)
    next(coming)
    job.meter.between = lambda: next(coming)
    return ours(job)


def bare_steps(job: Job, model: Any, kernels: Any) -> Iterator[Any]:
    """Make everything ready, yield, then yield the loss of one step after another."""
    import torch

    from expert_cli.data.packing.batches import Collator
    from expert_cli.model.kernels.chunked_loss import CausalLoss
    from expert_cli.model.loading.quantize import DTYPES

    module = CausalLoss(model, full_logits=kernels.full_logits).train()
    optim, device, schedule = job.run.optim, job.run.compute.device, job.batches.schedule
    collate = Collator(job.data.pad_id, kernels.layout, 0)
    micro = [collate([job.data.train[place] for place in places]) for places in job.batches]
    for batch in micro:
        del batch["real_tokens"]
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=optim.learning_rate, weight_decay=optim.weight_decay, fused=True)
    dtype, coming = DTYPES[job.run.compute.dtype], iter(micro)
    yield None
    for step in range(schedule.steps):
        batches = [next(coming) for _ in range(schedule.micro_steps(step))]
        trained = sum(len(batch["targets"]) for batch in batches)
        total = torch.zeros((), device=device)
        for batch in batches:
            placed = {k: v.to(device, non_blocking=True) if hasattr(v, "to") else v for k, v in batch.items()}
            with torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32):
                loss = module(**placed) / trained
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(parameters, optim.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        yield total


WAYS: dict[str, Callable[[Job], tuple[list[float], Any]]] = {"ours": ours, "bare": bare, "paired": paired}


def write_manifest(folder: Path, base: dict[str, Any], dataset: Path, config: dict[str, Any]) -> Path:
    """Write a manifest for these settings into `folder`; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = {"instruction": "question", "input": "context", "response": "answer"}
    manifest = {
        "name": "expert-bench",
        "schema_version": "2.0",
        "base_models": [base],
        "training": {"dataset": {"path": str(dataset.resolve()), "field_mapping": fields}, "config": config},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder / "manifest.json"


def measure(way: str, manifest: Path, warm: int, measured: int, cap_gb: float = 0.0) -> dict[str, Any] | None:
    """Run a way in a fresh process and return what it measured; None, with a line, if it cannot run here."""
    numbers = map(str, (warm, measured, cap_gb))
    return answer(way, ["benchmarks.lib.own_step", way, str(manifest), *numbers])


def answer(name: str, words: list[str]) -> dict[str, Any] | None:
    """Run `python -m WORDS` and return the JSON document in its last line; None, with a line, if there is none."""
    root = Path(__file__).parents[2]
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print(f"{name}: failed: {_why(done.stdout, done.stderr)[:400]}", flush=True)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _why(stdout: str, stderr: str) -> str:
    """Return why a process ended: what `--json` says of it; else its line of memory, with the bytes; else its last one."""
    with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
        return str(json.loads(stdout.splitlines()[-1])["error"]["message"])
    lines = stderr.strip().splitlines() or ["?"]
    return next((line.strip() for line in lines if is_out_of_memory(RuntimeError(line))), lines[-1])


def tokens_per_s(found: dict[str, Any]) -> float:
    """Return real tokens a second, by the median step."""
    return float(statistics.median(r / s for r, s in zip(found["real"], found["step_s"], strict=True)))


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        result = child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    print(json.dumps(result))
