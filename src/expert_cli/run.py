"""The main path: a plan goes in, a run directory comes out. Top to bottom, one line a stage."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from peft import PeftModel
from transformers import set_seed

from expert_cli.artifacts.loading import adapter_lines, put_loading, write_base
from expert_cli.artifacts.report import write_report
from expert_cli.basemodel import load_base_of
from expert_cli.card import model_card
from expert_cli.console import Reporter, Silent
from expert_cli.data.loader import PackedDataset, plan_packs
from expert_cli.data.sources import first_rows
from expert_cli.data.tokenise import Tokenised
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import Asked
from expert_cli.evaluation.experts import accuracy_of, sample_cases, try_out
from expert_cli.expert import Speaker, speak_as_trained
from expert_cli.files import sha256_of, sync_folder, write_json, write_text
from expert_cli.locked import identity, require_same
from expert_cli.machine import Machine
from expert_cli.model import isolation
from expert_cli.model.adapter import attach
from expert_cli.model.generate import answers
from expert_cli.model.kernels import KernelPlan, kernel_plan, settle, settle_adapter, switch_on
from expert_cli.model.quantise import DTYPES
from expert_cli.model.recompute import decoder_layers, recompute
from expert_cli.model.sources import LocalModel
from expert_cli.model.tokenizer import TokenizerInfo
from expert_cli.outcome import RunResult, Sample, document, finished
from expert_cli.paths import RunPaths
from expert_cli.plan import Plan, require_free
from expert_cli.pretokenise import Inputs, describe, find_inputs, staged_store, store_for
from expert_cli.runconfig import EXECUTION_ACCURACY, RunConfig
from expert_cli.runlock import contents, hold
from expert_cli.training.fit import Continuity, TrainingData, fit
from expert_cli.training.result import FitResult
from expert_cli.training.resume import AUTO, find

SAMPLE_TOKENS = 64


@dataclass(frozen=True)
class RunOptions:
    """What the command line asks of a run besides its settings.

    overwrite: move a run that lies in the output folder aside. resume: "auto" (the newest good checkpoint, if there is one),
    a checkpoint's folder, or "" for a new run; drift: keys of the identity that may differ then. locked: a run.json that
    this run must agree with in data, tokenizer, base model, settings and code. trust_store: use a data set that another
    program saved where the token store should be. stage: a folder (a faster disk) that the token store is copied to, and
    read from. command: what the user typed, --resume and --overwrite left out.
    max_loss_spike: warn of a loss so many times the median of the last 20; 0: never.
    """

    overwrite: bool = False
    resume: str = ""
    drift: tuple[str, ...] = ()
    locked: Path | None = None
    trust_store: bool = False
    stage: Path | None = None
    command: str = "expert-cli train"
    max_loss_spike: float = 0.0


def train(plan: Plan, machine: Machine, report: Reporter, options: RunOptions = RunOptions()) -> RunResult:
    """Train one expert and leave its run directory; `COMPLETE` in it is written last.

    Raises ExpertErrors: data or settings that cannot be used, a model that is not to be had, training that went wrong,
    an output folder that another run owns. In a job of several processes each calls this; the first one alone writes.
    """
    job = PartialState(cpu=plan.run.compute.device == "cpu")
    with hold(plan.run.output) if job.is_main_process else nullcontext():
        done = finished(plan.run.output) if options.resume == AUTO else None
        if done is not None:
            report.say(f"the run in {plan.run.output} is complete: nothing is left to do")
            return done
        done = _train(plan, machine, report if job.is_main_process else Silent(), options, job)
        if job.num_processes > 1:
            job.wait_for_everyone()  # one that left early would be taken for one that failed
            job.destroy_process_group()
        return done


def _train(plan: Plan, machine: Machine, report: Reporter, options: RunOptions, job: PartialState) -> RunResult:
    started = time.monotonic()
    run, paths = plan.run, RunPaths(plan.run.output)
    inputs = find_inputs(run, report)
    continuity = _continuity(run, inputs, job.num_processes, options, report)
    speaker, cases = Speaker(inputs.tokenizer, inputs.template), _cases(plan, report)
    if job.is_main_process:
        _make_room(run.output, report, options)
    with job.main_process_first():
        store = _store(run, inputs, options, report)
    data = _data(store, inputs.tokenizer, run, report)
    set_seed(run.seed)
    switch_on(run.compute)
    model, kernels = _model(inputs.source, run, kernel_plan(run.compute, run.model, machine), report)
    if job.is_main_process:
        _write_run_json(paths, plan, machine, inputs, store, kernels, continuity)
    question = _question(run, inputs) if job.is_main_process else None
    before = _ask(model, question, speaker, report) if question else ""
    set_seed(run.seed)
    done = fit(
        model,
        replace(data, run_answers=accuracy_of(model, speaker, cases, report, plan) if cases else None),
        run=run,
        kernels=kernels,
        paths=paths,
        continuity=continuity,
        report=report,
        max_loss_spike=options.max_loss_spike,
    )
    if not job.is_main_process:
        return RunResult(run.output, {})
    sample = Sample(*question, before, _ask(model, question, speaker, report)) if question else None
    sha256 = _save_adapter(model, inputs.source, speaker, plan, done, paths)
    seconds = time.monotonic() - started
    origin = continuity.resumed.path if continuity.resumed else None
    found = document(run.output, done, describe(run, store).as_json(), kernels, sha256, origin, sample, seconds)
    write_json(paths.report_json, found)
    write_report([run.output], paths.report_html)
    write_text(paths.complete, f"{sha256}  adapter/adapter_model.safetensors\n")
    return RunResult(run.output, found)


def _continuity(run: RunConfig, inputs: Inputs, processes: int, options: RunOptions, report: Reporter) -> Continuity:
    """Return what the run is, held against the one it must agree with, and the checkpoint that it goes on from."""
    what = identity(
        run,
        files=inputs.located.files(),
        base=inputs.source.sha256,
        tokenizer=inputs.tokenizer.sha256,
        template=inputs.template.fingerprint,
        processes=processes,
    )
    if options.locked is not None:
        require_same(options.locked, what)
    checkpoints = RunPaths(run.output).checkpoints
    resumed = find(checkpoints, options.resume, what, options.drift, report) if options.resume else None
    return Continuity(what, resumed, options.command)


def _cases(plan: Plan, report: Reporter) -> list[Asked]:
    """Return the cases that are answered during training, each of which can be judged here."""
    cases = sample_cases(plan)
    try_out(cases, report, decides=plan.run.watch.metric_for_best_model == EXECUTION_ACCURACY)
    return cases


def _make_room(output: Path, report: Reporter, options: RunOptions) -> None:
    """Make the output folder; one that holds something is refused, moved aside with `overwrite`, kept to be gone on with."""
    require_free(output, overwrite=options.overwrite or bool(options.resume))
    if contents(output) and not options.resume:
        aside = output.with_name(f"{output.name}.{datetime.now():%Y%m%d-%H%M%S-%f}")
        output.rename(aside)
        report.say(f"the run that lay there is now {aside}")
    output.mkdir(parents=True, exist_ok=True)
    RunPaths(output).complete.unlink(missing_ok=True)  # a run that goes on has not ended


def _store(run: RunConfig, inputs: Inputs, options: RunOptions, report: Reporter) -> Tokenised:
    store = store_for(run, inputs, report, locked=options.locked is not None, trusting=options.trust_store)
    return staged_store(store, options.stage, report) if options.stage is not None else store


def _data(store: Tokenised, tokenizer: TokenizerInfo, run: RunConfig, report: Reporter) -> TrainingData:
    train_set = _packs(store, "train", run, report)
    held_out = _packs(store, "validation", run, report) if run.watch.eval_strategy != "no" else None
    if train_set is None:
        raise InputError(f"the token store {store.home} has no training rows", "check training.dataset")
    return TrainingData(train_set, held_out, tokenizer.pad_id)


def _packs(store: Tokenised, split: str, run: RunConfig, report: Reporter) -> PackedDataset | None:
    documents = store.split(split)
    if documents is None:
        return None
    packs = plan_packs(documents, run.data.max_seq_length, run.loader.packing, run.loader.overflow)
    told = store.stats[split]
    report.say(
        f"{split:9} {told['rows']:,} documents, {told['tokens']:,} tokens, {told['trained_tokens']:,} trained -> "
        f"{len(packs):,} rows of {run.data.max_seq_length}, {packs.packs.fill():.1%} full"
    )
    if packs.fitted is not None and packs.fitted.rows:
        report.warn(
            f"{packs.fitted.rows} documents are longer than max_seq_length {run.data.max_seq_length}: "
            f"{packs.fitted.tokens:,} tokens left out (overflow: {run.loader.overflow})"
        )
    return packs


def _model(source: LocalModel, run: RunConfig, kernels: KernelPlan, report: Reporter) -> tuple[PeftModel, KernelPlan]:
    """Load the base model, prove that packed documents do not see each other, and put on it what the manifest asks."""
    base = load_base_of(run, source.folder)
    kernels = settle(kernels, base, run.compute)
    autocast = None if run.compute.dtype == "fp32" else DTYPES[run.compute.dtype]
    isolation.require(isolation.measure(base, kernels.layout, autocast=autocast), kernels.attention)
    model = attach(base, run.adapter)
    kernels = settle_adapter(kernels, model, run.compute)
    recompute(base, run.compute.checkpointing, reentrant=run.compute.reentrant)
    if run.compute.torch_compile:
        for layer in decoder_layers(base):
            layer.compile(backend=run.compute.compile_backend, mode=run.compute.compile_mode)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    report.say(f"model     {source.name}: {trainable:,} trainable parameters in a {run.adapter.type} adapter")
    for name, kernel in kernels.lines.items():
        report.say(f"{name:9} {kernel.used}: {kernel.reason}")
    return model, kernels


def _question(run: RunConfig, inputs: Inputs) -> tuple[str, str] | None:
    """Return (prompt, expected answer) of the shortest of the first held-out rows, or training rows without others."""
    rows, _ = first_rows(run.data, inputs.located.validation or inputs.located.train)
    if rows.kind != "pair" or not len(rows):
        return None
    row = min(range(len(rows)), key=rows.characters)
    prompt = rows.instruction[row] + (f"{inputs.template.joint}{rows.input[row]}" if rows.input[row] else "")
    return prompt, rows.response[row]


def _ask(model: Any, question: tuple[str, str], speaker: Speaker, report: Reporter) -> str:
    report.say("answering one prompt")
    prompts = [speaker.prompt(question[0])]
    (written,) = answers(model, prompts, end_ids=speaker.end_ids, max_new_tokens=SAMPLE_TOKENS, batch_size=1)
    return speaker.text(written).strip()


def _save_adapter(
    model: PeftModel, source: LocalModel, speaker: Speaker, plan: Plan, done: FitResult, paths: RunPaths
) -> str:
    """Write the adapter folder beside its place and rename it; return the hash of its weights."""
    beside = paths.adapter.with_name(".adapter.tmp")
    shutil.rmtree(beside, ignore_errors=True)  # a run that was killed here
    model.save_pretrained(beside, safe_serialization=True)
    write_base(beside, plan.run, source, speaker.template.fingerprint)
    speak_as_trained(speaker.tokenizer, speaker.template)
    speaker.tokenizer.hf.save_pretrained(beside)
    write_text(beside / "README.md", model_card(plan, done))
    put_loading(beside / "README.md", adapter_lines(plan.run, source, speaker))
    sync_folder(beside)
    shutil.rmtree(paths.adapter, ignore_errors=True)
    beside.rename(paths.adapter)
    return sha256_of(paths.adapter / "adapter_model.safetensors")


def _write_run_json(
    paths: RunPaths,
    plan: Plan,
    machine: Machine,
    inputs: Inputs,
    store: Tokenised,
    kernels: KernelPlan,
    continuity: Continuity,
) -> None:
    """Write what the run is; one that goes on keeps its start and adds where it went on."""
    resumed = continuity.resumed
    files = [str(path) for path in inputs.located.files()]
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    earlier = json.loads(paths.run_json.read_text(encoding="utf-8")) if resumed and paths.run_json.is_file() else {}
    resumes = [*earlier.get("resumes", []), {"time": now, "from": str(resumed.path)}] if resumed is not None else []
    write_json(
        paths.run_json,
        {
            "schema_version": 1,
            "started": earlier.get("started", now),
            "resumes": resumes,
            "command": continuity.command,
            "identity": dict(continuity.identity),
            "config": asdict(plan.run),
            "effects": [effect.as_json() for effect in plan.effects],
            "kernels": {name: asdict(kernel) for name, kernel in kernels.lines.items()},
            "template": inputs.template.name,
            "data": {"files": dict(zip(files, continuity.identity["data"], strict=True)), **store.stats},
            "store": {"path": str(store.home), "key": store.key.sha256, "parts": dict(store.key.parts)},
            "model": {"name": inputs.source.name, "kind": inputs.source.kind, "sha256": inputs.source.sha256},
            "machine": asdict(machine),
            "torch_threads": torch.get_num_threads(),
        },
    )
