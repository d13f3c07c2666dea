"""The main path, from a plan to a run directory: one line for each stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from peft import PeftModel
from transformers import set_seed

from expert_cli.artifacts.export import save_adapter
from expert_cli.config.data_sources import require_apart
from expert_cli.config.plan import Plan
from expert_cli.config.run_config import AUTO, RunConfig
from expert_cli.config.run_identity import begun_as, require_same
from expert_cli.data.packing.packed_dataset import TrainingData
from expert_cli.data.store.build import TokenStore, trusted_sha256
from expert_cli.data.store.store_files import Documents, foreign_store
from expert_cli.errors import InputError
from expert_cli.hardware.devices import DEVICES
from expert_cli.hardware.machine import Machine
from expert_cli.inference.expert import load_base_of
from expert_cli.inference.expert_config import decoding_of, json_separators
from expert_cli.inference.prompts import PromptRenderer
from expert_cli.model import isolation
from expert_cli.model.adapter import add_adapter, fused_experts
from expert_cli.model.fsdp import require_processes, shard_base
from expert_cli.model.kernels.dequantize import copy_bytes
from expert_cli.model.kernels.kernel_plan import (
    KernelPlan,
    apply_adapter_kernels,
    apply_kernels,
    free_bytes,
    kernel_plan,
    with_capture,
)
from expert_cli.model.layers import compile_layers, enable_activation_checkpointing
from expert_cli.model.loading.quantize import autocast_of
from expert_cli.pipeline.before_after import accuracy, ask, cases_while_training, choose, samples
from expert_cli.pipeline.forgetting import TEXTS, measure, missed, neutral_texts
from expert_cli.pipeline.options import RunOptions
from expert_cli.pipeline.pretokenize import describe, store_for
from expert_cli.pipeline.remote_run import remote_run
from expert_cli.pipeline.run_directory import (
    RunResult,
    Work,
    begin_run,
    finish,
    finished,
    identity_of,
    recorded,
    write_run_json,
)
from expert_cli.pipeline.staging import staged_store
from expert_cli.pipeline.token_rows import choose_token_rows
from expert_cli.pipeline.training_data import DataInputs, laid_out, training_data, training_inputs
from expert_cli.runs.lock import run_lock
from expert_cli.runs.log import Logged, RunLog
from expert_cli.runs.metrics import part, read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.runs.signals import StopRequest
from expert_cli.runs.status import RunStatus
from expert_cli.training.checkpoint import Checkpoints, CheckpointState, find_checkpoint
from expert_cli.training.fit import fit
from expert_cli.utils.disk_errors import disk_errors
from expert_cli.utils.distributed import barrier, broadcast_rank0, leave, naming_lost_processes, rank0_first
from expert_cli.utils.reporter import NullReporter, Reporter


def train(
    plan: Plan, machine: Machine, report: Reporter, options: RunOptions = RunOptions(), log: RunLog | None = None
) -> RunResult:
    """Train one expert and write its run directory, with `COMPLETE` last.

    log: contains the lines reported before the run had a folder. Raises an ExpertError for unusable data or settings, an
    unavailable model, failed training, an output folder of another run, a signal or a STOP file. status.json says which,
    log.txt has all lines. In a job of several processes, each calls this; only the first one writes.
    """
    job, log = PartialState(cpu=plan.run.compute.device == "cpu"), log or RunLog()
    owned = run_lock(plan.run.output) if job.is_main_process else nullcontext()
    is_kept = options.stored_at and job.is_main_process
    kept = remote_run(plan.run, options, Logged(report, log)) if is_kept else nullcontext(options.written)
    with naming_lost_processes(), owned, kept as written:
        done = train_here(Work(plan, machine, report, replace(options, written=written), job, log=log))
        leave()
        return done


def train_here(work: Work) -> RunResult:
    """Train as `train` does, in a folder that is locked already; keep the processes connected for further runs."""
    plan, report, options, job, log = work.plan, work.report, work.options, work.job, work.log
    if options.resume == AUTO:  # a node without the run's files would start a new run, and wait for the others
        done = broadcast_rank0(partial(finished, plan.run, options.allow_drift if work.status.stage else None, report))
        if done is not None:
            if job.is_main_process:
                report.info(f"the run in {plan.run.output} is complete: nothing is left to do")
            return replace(done, missed=missed(done.document, options.max_forget))
    stages: Callable[..., RunResult] = _train
    if plan.run.rft is not None:
        from expert_cli.pipeline.rounds import train_in_rounds

        stages = partial(train_in_rounds, train_one=train_here)
    if not job.is_main_process:
        return stages(Work(plan, work.machine, NullReporter(), options, job))
    status = RunStatus(RunPaths(plan.run.output).status, options.command, job.num_processes, options.written)
    work = replace(work, report=Logged(report, log), status=status)
    told = disk_errors(f"cannot write the run in {plan.run.output}", "give another folder with --output")
    with recorded(status, log), naming_lost_processes(), told:
        done = stages(work)
        log.write("\n".join(filter(None, (done.summary(), done.missed))))
    return done


def _train(work: Work) -> RunResult:
    started = time.monotonic()
    run, report, options, job = work.plan.run, work.report, work.options, work.job
    paths = RunPaths(run.output)
    require_apart(run.data, run.output, "--output DIR")
    require_processes(run.compute, job.num_processes)
    if run.compute.fsdp and options.max_forget is not None:
        raise InputError("--max-forget does not go with fsdp: no process has the whole model", "leave one of them out")
    inputs = training_inputs(run, report)
    checkpoints = _checkpoints(work, inputs)
    resumed = checkpoints.resumed
    plan = laid_out(work.plan, inputs, report)  # only now, because the identity is that of the run as requested
    work, run, renderer = replace(work, plan=plan), plan.run, inputs.renderer
    texts = neutral_texts(TEXTS) if options.max_forget is not None else ()
    if job.is_main_process:
        begin_run(work)
    with rank0_first():
        store = _store(run, inputs, options, report)
    data = training_data(store, inputs, run, report)
    set_seed(run.seed)
    DEVICES[run.compute.device].set_flags(tf32=run.compute.tf32)
    model, kernels = _model(inputs, run, work.machine, data, resumed, report)
    if job.is_main_process:
        more: dict[str, Any] = {"kernels": kernels.as_json(), "template": inputs.template.name, "data": store.stats}
        more |= {"store": {"path": store.place, "key": store.key.sha256, "parts": dict(store.key.parts)}}
        origin = str(resumed.path) if resumed else ""
        write_run_json(work, inputs, checkpoints.identity, resumed_from=origin, more=more)
    cases = choose(plan, report, options) if job.is_main_process else []
    asked = cases_while_training(plan, report, options) if job.is_main_process else []
    decoding = decoding_of(plan.loaded.manifest, json_separators(trained_texts(data.train.documents, renderer)))
    before = ask(model, cases, renderer, decoding, report)
    data = replace(data, accuracy=partial(accuracy, model, asked, renderer, decoding, report, options))
    barrier()
    set_seed(run.seed)
    with StopRequest(run.output, report) as stop:  # until everything is written, so that no training is lost
        done, kernels = fit(
            model,
            data,
            run=run,
            kernels=kernels,
            checkpoints=checkpoints,
            report=report,
            stop=stop,
            callbacks=options.callbacks,
        )
        if not job.is_main_process:
            return RunResult(run.output, {})
        sha256 = save_adapter(model, inputs.source, renderer, plan, done, decoding)
        if stop.asked():
            cases, before, texts = [], [], ()
        found = {"output": str(run.output), **done, "adapter_sha256": sha256, "kernels": kernels.as_json()}
        found |= {"store": describe(run, store, data.train.documents).as_json()}
        found |= {"samples": samples(cases, before, ask(model, cases, renderer, decoding, report))}
        forgot = measure(model, inputs.tokenizer, texts, paths.adapter / "README.md", report)
        found |= {"forgetting": forgot} if forgot else {}
        found |= {"resumed_from": str(resumed.path) if resumed else None, "seconds": time.monotonic() - started}
        return finish(work, found)


def trained_texts(documents: Documents, renderer: PromptRenderer) -> Iterator[str]:
    """Yield the trained texts of the first documents, without the end token."""
    for number in range(min(64, len(documents))):
        ids, trained = documents.document(number)
        yield renderer.decode([token for token in ids[trained].tolist() if token not in renderer.stop_token_ids])


def _checkpoints(work: Work, inputs: DataInputs) -> Checkpoints:
    run, options, report = work.plan.run, work.options, work.report
    foreign = foreign_store(run.store) if options.trust_store else None
    trusted = trusted_sha256(foreign, inputs.hashes) if foreign else ""
    what = identity_of(work, inputs, trusted)
    resumed = None
    if options.resume:
        resumed, what = broadcast_rank0(partial(_goes_on, run.output, what, options, report))
    if options.locked is not None:
        require_same(options.locked, what, report)
    return Checkpoints(RunPaths(run.output).checkpoints, what, resumed, work.status)


def _goes_on(
    output: Path, what: Mapping[str, Any], options: RunOptions, report: Reporter
) -> tuple[CheckpointState | None, dict[str, Any]]:
    """Return the checkpoint to continue from, None if the run was killed before its first one, and the run's identity."""
    paths = RunPaths(output)
    resumed = find_checkpoint(paths.checkpoints, options.resume, what, options.allow_drift, report)
    before = resumed.state["identity"] if resumed else part(read_json(paths.run_json), "identity")
    return resumed, begun_as(before, what, options.allow_drift)


def _store(run: RunConfig, inputs: DataInputs, options: RunOptions, report: Reporter) -> TokenStore:
    how = {"locked": options.locked is not None, "trusting": options.trust_store}
    store = store_for(run, inputs, report, **how)
    report.info(f"store     {store.status}: {store.place}" + (f", in {store.seconds:.1f} s" if store.seconds else ""))
    return staged_store(store, options.stage, report) if options.stage else store


def _model(
    inputs: DataInputs,
    run: RunConfig,
    machine: Machine,
    data: TrainingData,
    resumed: CheckpointState | None,
    report: Reporter,
) -> tuple[PeftModel, KernelPlan]:
    """Load the base model, prove that packed documents do not affect each other, and add the adapter."""
    base = load_base_of(run, inputs.source.folder, on_host=run.compute.fsdp)
    free = free_bytes(run.compute.device)
    kernels = kernel_plan(run.compute, run.model, machine, base, unpacked=copy_bytes(base), free=free)
    apply_kernels(kernels, base, run.compute)
    autocast = autocast_of(run.compute.dtype)
    one_document = run.loader.packing == "off" and (kernels.layout == "padded" or run.optim.batch_size == 1)
    one_document |= kernels.layout == "rows"
    prove = partial(isolation.prove, longest=data.longest, one_document=one_document, autocast=autocast)
    if not run.compute.fsdp:
        prove(base, kernels.layout, kernels.attention)
    rows = choose_token_rows(base, run, inputs.renderer, resumed.adapter_config if resumed else None)
    model = add_adapter(base, run.adapter, rows.indices)
    kernels = apply_adapter_kernels(kernels, model, run.compute)
    enable_activation_checkpointing(base, run.compute.checkpointing, reentrant=run.compute.reentrant)
    compile_layers(base, run.compute)
    if run.compute.fsdp:  # before that, the model may be too large for one GPU
        shard_base(model, run.compute.device, full_logits=kernels.full_logits)
        prove(base, kernels.layout, kernels.attention)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    report.info(f"model     {inputs.source.name}: {trainable:,} trainable parameters in a {run.adapter.type} adapter")
    if experts := fused_experts(base):
        report.warning(f"{', '.join(experts)}: experts whose weights are one tensor get no adapter")
    if rows.line:
        report.info(f"tokens    {rows.line}")
    if rows.missing:
        report.warning(rows.missing)
    kernels = with_capture(kernels, run)
    report.info(f"computed  {kernels.summary()}")
    for name, kernel in kernels.lines.items():
        if name != "capture":  # reported after the trial
            report.detail(f"{name:9} {kernel.used}: {kernel.reason}")
    return model, kernels
