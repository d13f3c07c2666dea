"""The ways to train that are measured against each other, over the very same documents in the very same steps.

    ours      expert-cli's own step: `pipeline.train._model` and `fit`
    bare      a plain PyTorch loop over the same batches, collated beforehand, with the same loss module
    paired    a step of ours and a step of bare in turn, in one process
    padded    transformers' Trainer + PEFT, rows padded to the longest of a step
    flat      the same with DataCollatorWithFlattening
    trl       TRL's SFTTrainer, padding-free, loss on completions alone; with Liger's kernels on a GPU

An optimizer step of each trains the documents of ours: model, adapter, its first values, effective batch and order are equal.
A way runs in a process of its own: `python -m benchmarks.lib.train_ways WAY PROJECT WARM MEASURED CAP_GB` prints one JSON
document.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.lib.stock_ways import flat, padded, trl
from benchmarks.lib.train_job import Job, flops_of, make_job


def child(way: str, project: Path, warm: int, measured: int, cap_gb: float = 0.0) -> dict[str, Any]:
    """Train `warm` + `measured` steps in one way and return what was measured.

    cap_gb: let the process have this much of the GPU's memory.
    """
    from expert_cli._compat import quiet_imports

    quiet_imports()
    import torch

    if cap_gb and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(cap_gb * 2**30 / torch.cuda.get_device_properties(0).total_memory)
    job = make_job(project, warm + measured, way)
    losses, model = WAYS[way](job)
    seconds = job.meter.seconds()
    part = slice(warm, warm + measured)
    on_gpu = job.on_gpu
    peak = torch.cuda.max_memory_allocated() / 2**20 if on_gpu else 0.0
    reserved = torch.cuda.max_memory_reserved() / 2**20 if on_gpu else 0.0
    return {
        "step_s": seconds[part],
        "between_s": job.meter.seconds_between()[part],
        "real": job.tokens()[part],
        "trained": job.trained()[part],
        "losses": losses[: (warm + measured) // job.logged],
        "peak_mb": peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "reserved_mb": reserved,
        "flops": flops_of(job, model, part),
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
        resume_context=fit.ResumeContext({}, None, RunStatus()),
        report=NullReporter(),
        callbacks=[job.meter],
    )
    shares = dict(done.step_time_shares)
    job.meter.found |= {"shares": shares, "adjusted": done.adjusted, "loop_s": done.here.seconds}
    return job.means(list(done.losses)), model


def our_model(job: Job) -> tuple[Any, Any]:
    """Return model and kernel plan as `expert-cli train` makes them."""
    from transformers import set_seed

    from expert_cli.hardware import machine
    from expert_cli.model.kernels.select import kernel_plan, set_torch_flags
    from expert_cli.pipeline import train as pipeline
    from expert_cli.utils.reporter import NullReporter

    set_torch_flags(job.run.compute)
    set_seed(job.run.seed)
    plan = kernel_plan(job.run.compute, job.run.model, machine.inspect())
    made: tuple[Any, Any] = pipeline._model(job.inputs.source, job.run, plan, job.data, NullReporter())
    return made


def bare(job: Job) -> tuple[list[float], Any]:
    """Train with a loop that a person would write for these batches."""
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
    """Let a step of ours and one of the plain loop follow each other, on a model each: what disturbs one disturbs both."""
    model, kernels = our_model(job)
    coming = bare_steps(job, model, kernels)
    next(coming)
    job.meter.between = lambda: next(coming)
    return ours(job)


def bare_steps(job: Job, model: Any, kernels: Any) -> Iterator[Any]:
    """Make everything ready, yield, then yield the loss of one step after another."""
    import torch

    from expert_cli.data.packing.batches import Collator, PackedBatchSampler
    from expert_cli.model.kernels.chunked_loss import CausalLoss
    from expert_cli.model.loading.quantize import DTYPES
    from expert_cli.training import fit

    module = CausalLoss(model, full_logits=kernels.full_logits).train()
    train, optim, device = job.data.train, job.run.optim, job.run.compute.device
    schedule = fit.schedule_of(job.run, train, 1)
    collate = Collator(job.data.pad_id, kernels.layout, 0)
    micro = [
        collate([train[n] for n in packs]) for packs in PackedBatchSampler(schedule, fit.orders_of(job.run, train))
    ]
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


WAYS: dict[str, Callable[[Job], tuple[list[float], Any]]] = {
    "ours": ours,
    "bare": bare,
    "paired": paired,
    "padded": padded,
    "flat": flat,
    "trl": trl,
}


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        result = child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    print(json.dumps(result))
