"""The main path: a plan goes in, a run directory comes out. Top to bottom, one line a stage."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import set_seed

from expert_cli.card import model_card
from expert_cli.console import Reporter
from expert_cli.data.encode import Encoder
from expert_cli.data.loader import PackedDataset, plan_packs
from expert_cli.data.segments import Segment
from expert_cli.data.sources import first_rows
from expert_cli.data.templates import Template
from expert_cli.data.tokenise import Tokenised
from expert_cli.errors import InputError
from expert_cli.files import sha256_of, sync_folder, write_json, write_text
from expert_cli.locked import require_same
from expert_cli.machine import Machine
from expert_cli.model.adapter import attach
from expert_cli.model.generate import answer
from expert_cli.model.kernels import Kernel, kernel_plan, switch_on
from expert_cli.model.quantise import DTYPES, load_base
from expert_cli.model.recompute import decoder_layers, recompute
from expert_cli.model.sources import LocalModel
from expert_cli.model.tokenizer import TokenizerInfo
from expert_cli.paths import RunPaths
from expert_cli.plan import Plan, require_free
from expert_cli.pretokenise import Inputs, describe, find_inputs, staged_store, store_for
from expert_cli.runconfig import RunConfig
from expert_cli.runlock import contents
from expert_cli.training.fit import fit
from expert_cli.training.result import FitResult

SAMPLE_TOKENS = 64


@dataclass(frozen=True)
class Sample:
    """One prompt, answered by the base model and by the expert."""

    prompt: str
    expected: str
    before: str
    after: str


@dataclass(frozen=True)
class RunResult:
    """What `train` leaves and prints."""

    output: Path
    fit: FitResult
    store: dict[str, Any]
    kernels: dict[str, Kernel]
    adapter_sha256: str
    seconds: float
    sample: Sample | None

    def as_json(self) -> dict[str, Any]:
        """Return the document that INTERFACE describes; what is not measured yet is null."""
        done = self.fit
        return {
            "output": str(self.output),
            "steps": done.steps,
            "epochs": done.epochs,
            "loss": {"first": done.first_loss, "last": done.last_loss},
            "eval_loss": done.eval_loss,
            "tokens": {"real": done.real_tokens, "trained": done.trained_tokens, "padded": done.padded_tokens},
            "tokens_per_s": done.tokens_per_s,
            "mfu": None,
            "step_time_shares": None,
            "store": self.store,
            "kernels": {name: asdict(kernel) for name, kernel in self.kernels.items()},
            "resumed_from": None,
            "adapter_sha256": self.adapter_sha256,
            "seconds": self.seconds,
            "peak_memory_mb": done.peak_memory_mb,
            "sample": asdict(self.sample) if self.sample else None,
        }

    def summary(self) -> str:
        """Return the lines a person reads at the end."""
        done = self.fit
        first, last = done.mean_losses()
        lines = [
            f"loss {first:.3f} -> {last:.3f} (means of the first and last 5 of {done.steps} steps), {done.seconds:.0f} s, "
            f"{done.tokens_per_s:,.0f} real tokens/s, peak memory {done.peak_memory_mb / 1024:.1f} GB"
        ]
        if done.eval_loss is not None:
            lines.append(f"evaluation loss {done.eval_loss:.3f}")
        if self.sample:
            sample = self.sample
            named = {
                "prompt": sample.prompt,
                "before": sample.before,
                "after": sample.after,
                "expected": sample.expected,
            }
            lines += [f"{name:9} {_one_line(text)}" for name, text in named.items()]
        return "\n".join([*lines, f"adapter   {self.output / 'adapter'}"])


def train(
    plan: Plan,
    machine: Machine,
    report: Reporter,
    *,
    overwrite: bool = False,
    locked: Path | None = None,
    trust_store: bool = False,
    stage: Path | None = None,
) -> RunResult:
    """Train one expert and leave its run directory; `COMPLETE` in it is written last.

    locked: a run.json that this run must agree with in data, tokenizer, base model, settings and code. trust_store: use a
    data set that another program saved where the token store should be. stage: a folder (a faster disk) that the token
    store is copied to, and read from.
    Raises ExpertErrors: data or settings that cannot be used, a model that is not to be had, training that went wrong.
    """
    started = time.monotonic()
    run = plan.run
    paths = RunPaths(run.output)
    inputs = find_inputs(run, report)
    if locked is not None:
        require_same(locked, _identity(run, inputs))
    _make_room(run.output, report, overwrite=overwrite)
    kernels = kernel_plan(run.compute, run.model, machine)
    for name, kernel in kernels.items():
        report.say(f"{name:9} {kernel.used}: {kernel.reason}")
    source, tokenizer, template = inputs.source, inputs.tokenizer, inputs.template
    store = store_for(run, inputs, report, locked=locked is not None, trusting=trust_store)
    if stage is not None:
        store = staged_store(store, stage, report)
    train_set = _packs(store, "train", run, report)
    held_out = _packs(store, "validation", run, report) if run.watch.eval_strategy != "no" else None
    if train_set is None:
        raise InputError(f"the token store {store.home} has no training rows", "check training.dataset")
    _write_run_json(paths, plan, machine, inputs, store, kernels)
    set_seed(run.seed)
    switch_on(run.compute)
    model = _model(source, run, report)
    question = _question(run, inputs)
    before = _ask(model, question, template, tokenizer, report) if question else ""
    set_seed(run.seed)
    done = fit(model, train_set, held_out, pad_id=tokenizer.pad_id, run=run, paths=paths, report=report)
    after = _ask(model, question, template, tokenizer, report) if question else ""
    sample = Sample(*question, before, after) if question else None
    sha256 = _save_adapter(model, source, tokenizer, plan, done, paths)
    result = RunResult(
        run.output, done, describe(run, store).as_json(), kernels, sha256, time.monotonic() - started, sample
    )
    write_json(paths.report_json, result.as_json())
    write_text(paths.complete, f"{sha256}  adapter/adapter_model.safetensors\n")
    return result


def _make_room(output: Path, report: Reporter, *, overwrite: bool) -> None:
    """Make the output folder; one that holds something is refused, or moved aside with `overwrite`."""
    require_free(output, overwrite=overwrite)
    if contents(output):
        aside = output.with_name(f"{output.name}.{datetime.now():%Y%m%d-%H%M%S-%f}")
        output.rename(aside)
        report.say(f"the run that lay there is now {aside}")
    output.mkdir(parents=True, exist_ok=True)


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


def _model(source: LocalModel, run: RunConfig, report: Reporter) -> PeftModel:
    """Load the base model and put on it what the manifest asks: adapter, recomputation, compilation."""
    base = load_base(
        source.folder,
        quantization=run.model.quantization,
        dtype=DTYPES[run.compute.dtype],
        device=run.compute.device,
        attention=run.compute.attention,
        rope_scaling=dict(run.model.rope_scaling),
    )
    model = attach(base, run.adapter)
    recompute(base, run.compute.checkpointing, reentrant=run.compute.reentrant)
    if run.compute.torch_compile:
        for layer in decoder_layers(base):
            layer.compile(backend=run.compute.compile_backend, mode=run.compute.compile_mode)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    report.say(f"model     {source.name}: {trainable:,} trainable parameters in a {run.adapter.type} adapter")
    return model


def _question(run: RunConfig, inputs: Inputs) -> tuple[str, str] | None:
    """Return (prompt, expected answer) of the shortest of the first held-out rows, or training rows without others."""
    rows, _ = first_rows(run.data, inputs.located.validation or inputs.located.train)
    if rows.kind != "pair" or not len(rows):
        return None
    row = min(range(len(rows)), key=rows.characters)
    prompt = rows.instruction[row] + (f"{inputs.template.joint}{rows.input[row]}" if rows.input[row] else "")
    return prompt, rows.response[row]


def _ask(model: Any, question: tuple[str, str], template: Template, tokenizer: TokenizerInfo, report: Reporter) -> str:
    report.say("answering one prompt")
    encoder = Encoder(tokenizer.backend)
    ids = encoder.ids(template.prompt(question[0]))
    end_id = encoder.ids((Segment(template.end_token, control=True, trained=True),))[0]
    return answer(model, ids, tokenizer.backend, end_id=end_id, max_new_tokens=SAMPLE_TOKENS)


def _save_adapter(
    model: PeftModel, source: LocalModel, tokenizer: TokenizerInfo, plan: Plan, done: FitResult, paths: RunPaths
) -> str:
    """Write the adapter folder beside its place and rename it; return the hash of its weights."""
    beside = paths.adapter.with_name(".adapter.tmp")
    base_name = source.name if source.kind == "hub" else str(source.folder)
    for config in model.peft_config.values():
        config.base_model_name_or_path = base_name
    model.save_pretrained(beside, safe_serialization=True)
    tokenizer.hf.save_pretrained(beside)
    write_text(beside / "README.md", model_card(plan, done))
    sync_folder(beside)
    beside.rename(paths.adapter)
    return sha256_of(paths.adapter / "adapter_model.safetensors")


def _write_run_json(
    paths: RunPaths, plan: Plan, machine: Machine, inputs: Inputs, store: Tokenised, kernels: dict[str, Kernel]
) -> None:
    write_json(
        paths.run_json,
        {
            "schema_version": 1,
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "identity": _identity(plan.run, inputs),
            "config": asdict(plan.run),
            "effects": [effect.as_json() for effect in plan.effects],
            "kernels": {name: asdict(kernel) for name, kernel in kernels.items()},
            "template": inputs.template.name,
            "data": {"files": {str(path): sha256_of(path) for path in inputs.located.files()}, **store.stats},
            "store": {"path": str(store.home), "key": store.key.sha256, "parts": dict(store.key.parts)},
            "model": {"name": inputs.source.name, "kind": inputs.source.kind, "sha256": inputs.source.sha256},
            "machine": asdict(machine),
            "torch_threads": torch.get_num_threads(),
        },
    )


def _identity(run: RunConfig, inputs: Inputs) -> dict[str, Any]:
    """Return what a run with `--locked` must have in common with this one: contents and settings, no paths, no machine."""
    settings = {name: asdict(getattr(run, name)) for name in ("model", "adapter", "optim", "loader", "compute")}
    return {
        "data": [sha256_of(path) for path in inputs.located.files()],
        "rows": [[spec.split, spec.weight] for spec in run.data.train],
        "base model": inputs.source.sha256,
        "tokenizer": inputs.tokenizer.sha256,
        "template": inputs.template.fingerprint,
        "code": _code_sha256(),
        "seed": run.seed,
        "max_seq_length": run.data.max_seq_length,
        **{f"{block}.{name}": value for block, values in settings.items() for name, value in values.items()},
    }


def _code_sha256() -> str:
    """Return one hash over the package's own source files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _one_line(text: str, limit: int = 220) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"
