"""The ways in which people train without this tool, to compare with: the stock libraries on the same manifest.

    padded       transformers' Trainer and PEFT, every row padded to the longest of its batch
    flattening   the same with DataCollatorWithFlattening: the rows of a batch end to end, none sees another
    trl          TRL's SFTTrainer, padding-free, loss on completions alone; as it comes it recomputes activations
    unoptimized  what unchanged scripts do: fp16 on a GPU, fp32 on a CPU; no TF32; eager attention; activations recomputed;
                 AdamW that is not fused; rows tokenized one by one in the loop, by `tokenizers`, without worker processes;
                 every row padded to max_seq_length

Everything that decides what is learned is the manifest's: base model and its quantization, rows, template, which tokens are
trained, adapter and its first random tensors (same seed), learning rate and schedule, clipping. Kinder than many a script:
`prepare_model_for_kbit_training` is left out, which would hold norms and head in fp32.

The first three train the documents of this tool's own steps, micro-batch by micro-batch, tokenized beforehand; their batches
are held against these documents before anything is trained. `unoptimized` takes rows: two packs of 512 tokens hold nine rows
of the SQL data. With as many rows as there are packs, it would take four times the steps for the same tokens, each of a
quarter of the size, and at equal tokens the losses would differ for that alone. So a step takes as many rows as one of the
tool's steps does on average, in the order in which the tool's packs hold them: both sides see the same rows in the same order,
in as many optimizer steps, and losses at equal trained tokens are of the same rows. Borders of steps fall on other rows by a
few. The micro-batch is the manifest's batch_size, as rows; the rest is accumulated.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers import DataCollatorForSeq2Seq, DataCollatorWithFlattening, set_seed

from expert_cli.benchmark.experiment.baseline_rows import documents_of_steps, texts_of_steps
from expert_cli.benchmark.experiment.baseline_trainer import StockRun, fit_stock
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.data.packing.dataset import IGNORE_INDEX, PackedDataset, truncate_middle
from expert_cli.data.templates.segment import Document
from expert_cli.data.tokenize.encoder import Encoder
from expert_cli.errors import InputError
from expert_cli.hardware import machine
from expert_cli.hardware.devices import DEVICES
from expert_cli.inference.base_model import load_base_of
from expert_cli.manifest.types import Dtype
from expert_cli.model.adapter import add_adapter
from expert_cli.pipeline.pretokenize import DataInputs, describe, store_for, training_inputs
from expert_cli.pipeline.token_rows import choose_token_rows
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import write_json
from expert_cli.utils.reporter import NullReporter


def train_baseline(way: str, manifest: Path, overrides: Overrides) -> None:
    """Train, and leave metrics.jsonl, run.json and report.json in the output folder as the tool does.

    way: of `WAYS`. Raises ExpertErrors, TrainingFailed when memory runs out.
    """
    facts = machine.inspect()
    run = make_plan(manifest, facts, overrides).run
    if run.optim.scheduler == "one_cycle":
        hint = "--set training.config.lr_scheduler=linear"
        raise InputError("lr_scheduler one_cycle: the stock Trainer has none", hint)
    paths = RunPaths(run.output)
    paths.output.mkdir(parents=True, exist_ok=True)
    inputs = training_inputs(run, NullReporter())
    tokenizer = inputs.tokenizer.hf
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token  # neither transformers nor TRL pads without one
    store = store_for(run, inputs, NullReporter())
    packs = PackedDataset(store.training(), run.data.max_seq_length, run.loader.packing, run.loader.overflow, run.seed)
    stock = WAYS[way](run, inputs, packs)
    model = _model(stock.run, inputs)
    origin = {"name": inputs.source.name, "kind": inputs.source.kind, "sha256": inputs.source.sha256}
    made = {"store": {"parts": dict(store.key.parts)}, "model": origin, "machine": asdict(facts)}
    write_json(paths.run_json, {"config": asdict(stock.run), **made})
    peak_memory_mb = fit_stock(model, stock, paths)
    write_json(paths.report_json, {"peak_memory_mb": peak_memory_mb, "store": describe(run, store).as_json()})


def trl(run: RunConfig, inputs: DataInputs, packs: PackedDataset) -> StockRun:
    """Return the run of TRL's SFTTrainer, without padding."""
    library = importlib.import_module("trl")
    recomputing = replace(run, compute=replace(run.compute, checkpointing="all"))
    stock = _on_documents(recomputing, packs, processing_class=inputs.tokenizer.hf)
    return replace(
        stock,
        data=replace(stock.data, rows=datasets.Dataset.from_list(stock.data.rows)),
        trainer=library.SFTTrainer,
        arguments=library.SFTConfig,
        # Prepared as they are: TRL would leave out documents that train nothing, and the numbers would be of others.
        settings={"padding_free": True, "max_length": None, "dataset_kwargs": {"skip_prepare_dataset": True}},
    )


def unoptimized(run: RunConfig, inputs: DataInputs, packs: PackedDataset) -> StockRun:
    """Return the run of a Trainer where everything that decides its speed is as it is when nobody has decided."""
    data, batch = texts_of_steps(run, inputs, packs)
    stock = stock_config(run)
    quantization = run.model.quantization if run.model.quantization in ("int4", "int8") else "none"
    dtype: Dtype = "fp32" if run.compute.device == "cpu" else "fp16"
    config = replace(
        stock,
        model=replace(run.model, quantization=quantization),
        optim=replace(run.optim, batch_size=batch, gradient_accumulation_steps=data.accumulation, optim="adamw_torch"),
        loader=replace(stock.loader, num_workers=0, pin_memory=False, prefetch_factor=None),
        compute=replace(stock.compute, dtype=dtype, tf32=False, attention="eager", checkpointing="all"),
    )
    collator = TokenizeAndPad(Encoder(inputs.tokenizer.backend), inputs.tokenizer.pad_id, run.data.max_seq_length)
    return StockRun(config, data, {"data_collator": collator})


WAYS: dict[str, Callable[[RunConfig, DataInputs, PackedDataset], StockRun]] = {
    "padded": lambda run, inputs, packs: _on_documents(
        run, packs, data_collator=DataCollatorForSeq2Seq(inputs.tokenizer.hf)
    ),
    "flattening": lambda run, _, packs: _on_documents(run, packs, data_collator=DataCollatorWithFlattening()),
    "trl": trl,
    "unoptimized": unoptimized,
}


def _on_documents(run: RunConfig, packs: PackedDataset, **parts: Any) -> StockRun:
    """Return a run on the documents of the tool's own steps."""
    return StockRun(stock_config(run), documents_of_steps(run, packs), parts)


def stock_config(run: RunConfig) -> RunConfig:
    """Return the run without what the stock libraries do not have, or do not do by themselves."""
    loader = replace(run.loader, packing="off", group_by_length=False)
    compute = replace(run.compute, torch_compile=False, fused_kernels="off", dequantized_copy="never")
    return replace(run, loader=loader, compute=compute)


def _model(run: RunConfig, inputs: DataInputs) -> Any:
    """Load the base and put a fresh adapter on it, at the same place in the random numbers as the tool does."""
    set_seed(run.seed)
    DEVICES[run.compute.device].set_flags(tf32=run.compute.tf32)
    base = load_base_of(run, inputs.source.folder)
    model = add_adapter(base, run.adapter, choose_token_rows(base, run, inputs.renderer).indices)
    set_seed(run.seed)
    return model


@dataclass(frozen=True)
class TokenizeAndPad:
    """Texts -> a batch of rows as long as max_seq_length: `input_ids`, `attention_mask`, `labels`, int64 [rows, length].

    Rows longer than `length` tokens are shortened as the tool shortens them.
    """

    encoder: Encoder
    pad_id: int
    length: int

    def __call__(self, texts: Sequence[Document]) -> dict[str, torch.Tensor]:
        """Return one batch."""
        ids = torch.full((len(texts), self.length), self.pad_id)
        labels = torch.full_like(ids, IGNORE_INDEX)
        mask = torch.zeros_like(ids)
        for row, text in enumerate(texts):
            encoded = self.encoder.encode([text])
            tokens, trained = (torch.from_numpy(a) for a in truncate_middle(encoded.ids, encoded.trained, self.length))
            ids[row, : len(tokens)] = tokens
            labels[row, : len(tokens)] = torch.where(trained, tokens, IGNORE_INDEX)
            mask[row, : len(tokens)] = 1
        labels[:, 0] = IGNORE_INDEX
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
