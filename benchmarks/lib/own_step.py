"""A manifest trained for some steps in this process: by `expert_cli.train`, or by the stock Trainer on its documents."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from transformers import DataCollatorWithFlattening, PrinterCallback, Trainer, TrainerCallback, set_seed

import expert_cli
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.packing.batches import PackedBatchSampler, documents_of, orders_of, schedule_of
from expert_cli.data.packing.packed_dataset import IGNORE_INDEX
from expert_cli.hardware import machine
from expert_cli.inference.expert import load_base_of
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels import kernel_plan
from expert_cli.pipeline.pretokenize import store_for
from expert_cli.pipeline.training_data import packed, training_inputs
from expert_cli.training.arguments import training_arguments
from expert_cli.utils.reporter import NullReporter

KEYS = ("input_ids", "labels")

CONFIG: dict[str, Any] = {
    "adapter_type": "lora",
    "rank": 16,
    "alpha": 32,
    "dropout": 0.0,
    "target_modules": "all-linear",
    "learning_rate": 2e-4,
    "lr_scheduler": "constant",
    "warmup_steps": 0,
    "gradient_accumulation_steps": 1,
    "packing": True,
    "bf16": True,
    "optim": "adamw_torch_fused",
    "save_strategy": "no",
    "report_to": "none",
}
"""`training.config` of a measured step, but for its sizes."""


class Trained(NamedTuple):
    """Real and trained tokens a step, and the kernel plan's lines."""

    real: float
    trained: float
    kernels: Mapping[str, str]


def write_manifest(
    folder: Path, model: Path, quantization: str, rows: Sequence[tuple[str, str]], config: Mapping[str, Any]
) -> Path:
    """Write a manifest and its rows, questions and answers, into `folder`; return the manifest's path."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"instruction": question, "output": answer}) + "\n" for question, answer in rows]
    (folder / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    manifest = {
        "name": "expert-bench",
        "schema_version": "2.0",
        "base_models": [{"name": str(model), "quantization": quantization}],
        "training": {"dataset": {"path": "rows.jsonl"}, "config": dict(config)},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder / "manifest.json"


def own_step(
    manifest: Path,
    steps: int,
    callbacks: Sequence[TrainerCallback],
    replaced: Mapping[str, Any] | None = None,
) -> Trained:
    """Train as `expert-cli train` does. replaced: functions of the kernel plan that are others, to leave a kernel out."""
    kernels = mock.patch.multiple(kernel_plan, **replaced) if replaced else nullcontext()
    asked: dict[str, Any] = {
        "max_steps": steps,
        "settings": ["evaluation.sample_answers=0"],
        "offline": True,
        "callbacks": callbacks,
    }
    with tempfile.TemporaryDirectory() as output, kernels:
        done = expert_cli.train(manifest, output=output, **asked).document
    lines = {name: f"{line['used']}: {line['reason']}" for name, line in done["kernels"].items()}
    lines |= {"adjusted": "; ".join(done["adjusted"])} if done["adjusted"] else {}
    return Trained(done["tokens"]["real"] / steps, done["tokens"]["trained"] / steps, lines)


def stock_step(manifest: Path, steps: int, callbacks: Sequence[TrainerCallback]) -> Trained:
    """Train with the stock Trainer and PEFT on the same packs, the documents of a batch end to end by its own collator."""
    asked, report = Overrides(max_steps=steps, output=manifest.parent / "run", offline=True), NullReporter()
    run = make_plan(manifest, machine.inspect(), asked).run
    inputs = training_inputs(run, report)
    packs = packed(store_for(run, inputs, report).training(), run)
    batches, flatten = (
        PackedBatchSampler(schedule_of(run, packs, 1), orders_of(run, packs)),
        DataCollatorWithFlattening(),
    )
    taken = [
        packs[epoch, number] for epoch, of_step in map(batches.packs_of, range(steps)) for number in of_step.tolist()
    ]

    def collate(rows: Sequence[Any]) -> Any:
        return flatten([{key: part[key].tolist() for key in KEYS} for row in rows for part in documents_of(row)])

    set_seed(run.seed)
    trainer = Trainer(
        model=add_adapter(load_base_of(run, inputs.source.folder), run.adapter),
        args=training_arguments(run, run.output / "checkpoints", train_sampling_strategy="sequential"),
        train_dataset=taken,
        data_collator=collate,
        callbacks=[*callbacks],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    real, trained = (sum(int(count(pack)) for pack in taken) / steps for count in (_tokens, _trained))
    return Trained(real, trained, {})


def _tokens(pack: Mapping[str, Any]) -> int:
    return len(pack["input_ids"])


def _trained(pack: Mapping[str, Any]) -> int:
    return int((pack["labels"] != IGNORE_INDEX).sum())
