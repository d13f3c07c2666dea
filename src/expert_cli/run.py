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
from expert_cli.data.encode import Encoder, encode, template_for
from expert_cli.data.loader import DocumentDataset
from expert_cli.data.rows import Rows
from expert_cli.data.segments import Segment
from expert_cli.data.skeleton import RenderChat
from expert_cli.data.sources import DataRows, read_training_rows
from expert_cli.data.templates import Template
from expert_cli.errors import InputError, LockedOrDamaged
from expert_cli.files import sha256_of, sync_folder, write_json, write_text
from expert_cli.machine import Machine
from expert_cli.model.adapter import attach
from expert_cli.model.generate import answer
from expert_cli.model.kernels import Kernel, kernel_plan, switch_on
from expert_cli.model.quantise import DTYPES, load_base
from expert_cli.model.recompute import decoder_layers, recompute
from expert_cli.model.sources import LocalModel, locate
from expert_cli.model.tokenizer import TokenizerInfo
from expert_cli.model.tokenizer import load as load_tokenizer
from expert_cli.paths import RunPaths, cache_folder
from expert_cli.plan import Plan
from expert_cli.runconfig import RunConfig
from expert_cli.training.fit import fit
from expert_cli.training.result import FitResult

SAMPLE_TOKENS = 96


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
            "store": None,
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


def train(plan: Plan, machine: Machine, report: Reporter, *, overwrite: bool = False) -> RunResult:
    """Train one expert and leave its run directory; `COMPLETE` in it is written last.

    Raises ExpertErrors: data or settings that cannot be used, a model that is not to be had, training that went wrong.
    """
    started = time.monotonic()
    run = plan.run
    paths = RunPaths(run.output)
    _make_room(run.output, report, overwrite=overwrite)
    kernels = kernel_plan(run.compute, run.model, machine)
    for name, kernel in kernels.items():
        report.say(f"{name:9} {kernel.used}: {kernel.reason}")
    rows = _read_rows(run, report)
    search = (run.manifest.parent, run.root, Path.cwd())
    source = locate(
        run.model.name,
        search=search,
        sha256=run.model.sha256,
        cache=cache_folder(),
        offline=run.data.offline,
        report=report,
    )
    tokenizer = load_tokenizer(source.folder)
    template = _template(tokenizer, run, rows)
    train_set = _documents(rows.train, template, tokenizer, run, report)
    evaluates = run.watch.eval_strategy != "no"
    held_out = _documents(rows.validation, template, tokenizer, run, report) if evaluates and rows.validation else None
    _write_run_json(paths, plan, machine, source, tokenizer, rows, kernels, template)
    set_seed(run.seed)
    switch_on(run.compute)
    model = _model(source, run, report)
    question = _question(rows, template)
    before = _ask(model, question, template, tokenizer, report) if question else ""
    set_seed(run.seed)
    done = fit(model, train_set, held_out, pad_id=tokenizer.pad_id, run=run, paths=paths, report=report)
    after = _ask(model, question, template, tokenizer, report) if question else ""
    sample = Sample(*question, before, after) if question else None
    sha256 = _save_adapter(model, source, tokenizer, plan, done, paths)
    result = RunResult(run.output, done, kernels, sha256, time.monotonic() - started, sample)
    write_json(paths.report_json, result.as_json())
    write_text(paths.complete, f"{sha256}  adapter/adapter_model.safetensors\n")
    return result


def _make_room(output: Path, report: Reporter, *, overwrite: bool) -> None:
    """Make the output folder; one that holds something is refused, or moved aside with `overwrite`."""
    if output.is_dir() and any(output.iterdir()):
        if not overwrite:
            hint = "give another folder with --output, or move this one aside with --overwrite"
            raise LockedOrDamaged(f"{output} holds a run already", hint)
        aside = output.with_name(f"{output.name}.{datetime.now():%Y%m%d-%H%M%S-%f}")
        output.rename(aside)
        report.say(f"the run that lay there is now {aside}")
    elif output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file, not a folder", "give another folder with --output")
    output.mkdir(parents=True, exist_ok=True)


def _read_rows(run: RunConfig, report: Reporter) -> DataRows:
    local = run.manifest.parent / "datasets" / "train.jsonl"
    rows = read_training_rows(run.data, report, alternatives=(local,) if local.is_file() else ())
    report.say(
        f"data      {len(rows.train):,} rows to train, {len(rows.validation or ()):,} to evaluate; {rows.train_report.mapping}"
    )
    return rows


def _template(tokenizer: TokenizerInfo, run: RunConfig, rows: DataRows) -> Template:
    return template_for(
        tokenizer.backend,
        run.model.template,
        render_chat=_render_chat(tokenizer) if tokenizer.has_chat_template else None,
        eos_token=tokenizer.eos_token,
        completion_only=run.data.completion_only,
        input_column=rows.train_report.input_column,
    )


def _render_chat(tokenizer: TokenizerInfo) -> RenderChat:
    return lambda messages, prompt: tokenizer.render_chat(messages, add_generation_prompt=prompt)


def _documents(
    rows: Rows | None, template: Template, tokenizer: TokenizerInfo, run: RunConfig, report: Reporter
) -> DocumentDataset:
    forms: dict[str, int] = {}
    documents = template.documents(rows or Rows("pair"), forms=forms)
    encoded = encode(documents, tokenizer.backend)
    dataset = DocumentDataset(encoded, run.data.max_seq_length)
    trained = int(encoded.trained.sum())
    report.say(f"tokens    {len(encoded.ids):,}, of them {trained:,} trained; template: {template.name}")
    if forms:
        report.say(f"form      {', '.join(f'{count:,} rows {form}' for form, count in forms.items())}")
    if encoded.dropped:
        report.warn(f"{encoded.dropped} rows have no trained token and are left out")
    if dataset.truncated_rows:
        report.warn(
            f"{dataset.truncated_rows} rows are longer than max_seq_length {run.data.max_seq_length}: "
            f"{dataset.truncated_tokens:,} tokens cut out of the middle of their prompts"
        )
    return dataset


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


def _question(rows: DataRows, template: Template) -> tuple[str, str] | None:
    """Return (prompt, expected answer) of the shortest held-out row, or training row where there is no other."""
    source = rows.validation if rows.validation is not None and len(rows.validation) else rows.train
    if source.kind != "pair":
        return None
    row = min(range(len(source)), key=source.characters)
    prompt = source.instruction[row] + (f"{template.joint}{source.input[row]}" if source.input[row] else "")
    return prompt, source.response[row]


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
    paths: RunPaths,
    plan: Plan,
    machine: Machine,
    source: LocalModel,
    tokenizer: TokenizerInfo,
    rows: DataRows,
    kernels: dict[str, Kernel],
    template: Template,
) -> None:
    write_json(
        paths.run_json,
        {
            "schema_version": 1,
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "config": asdict(plan.run),
            "effects": [effect.as_json() for effect in plan.effects],
            "kernels": {name: asdict(kernel) for name, kernel in kernels.items()},
            "template": template.name,
            "data": {
                "files": {str(path): sha256_of(path) for path in rows.files},
                "mapping": rows.train_report.mapping,
                "dropped": rows.train_report.dropped,
            },
            "model": {"name": source.name, "kind": source.kind, "sha256": source.sha256},
            "tokenizer": {"sha256": tokenizer.sha256},
            "code_sha256": _code_sha256(),
            "machine": asdict(machine),
            "torch_threads": torch.get_num_threads(),
        },
    )


def _code_sha256() -> str:
    """Return one hash over the package's own source files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _one_line(text: str, limit: int = 220) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"
