"""How run.json writes a RunConfig: every key by name, so that none of them changes when the code renames a field.

`--resume`, `--locked`, reports and later runs compare what is written here with what runs of every earlier version wrote. A key
may be added; none is renamed or removed. `config` is run.json's block of that name; its parts are in `identity` too.
"""

from __future__ import annotations

from typing import Any

from expert_cli.config.run_config import (
    AdapterConfig,
    ColumnMapping,
    ComputeConfig,
    DataConfig,
    LoaderConfig,
    LogSaveEvalConfig,
    ModelConfig,
    OptimConfig,
    RowFilters,
    RunConfig,
    SourceSpec,
)


def config(run: RunConfig) -> dict[str, Any]:
    """Return run.json's `config`. Paths are Path objects, lists are tuples, as in the RunConfig."""
    return {
        "expert": run.expert,
        "manifest": run.manifest,
        "root": run.root,
        "output": run.output,
        "store": run.store,
        "seed": run.seed,
        "model": _model(run.model),
        "data": _data(run.data),
        "adapter": _adapter(run.adapter),
        "optim": _optim(run.optim),
        "loader": _loader(run.loader),
        "compute": _compute(run.compute),
        "watch": watch_block(run.watch),
        "origins": run.origins,
    }


def settings(run: RunConfig) -> dict[str, dict[str, Any]]:
    """Return the blocks whose values are the same in two equal runs: what `identity` holds as "block.key"."""
    return {
        "model": _model(run.model),
        "adapter": _adapter(run.adapter),
        "optim": _optim(run.optim),
        "loader": _loader(run.loader),
        "compute": _compute(run.compute),
    }


def _model(model: ModelConfig) -> dict[str, Any]:
    """Return the block "model"."""
    return {
        "name": model.name,
        "sha256": model.sha256,
        "quantization": model.quantization,
        "template": model.template,
        "system_prompt": model.system_prompt,
        "rope_scaling": model.rope_scaling,
    }


def _data(data: DataConfig) -> dict[str, Any]:
    """Return the block "data"."""
    return {
        "train": tuple(_source(spec) for spec in data.train),
        "validation": tuple(_source(spec) for spec in data.validation),
        "validation_share": data.validation_share,
        "mapping": column_mapping(data.mapping),
        "filters": row_filters(data.filters),
        "completion_only": data.completion_only,
        "max_seq_length": data.max_seq_length,
        "seed": data.seed,
        "offline": data.offline,
    }


def _source(spec: SourceSpec) -> dict[str, Any]:
    """Return one entry of `data.train` or `data.validation`."""
    return {
        "kind": spec.kind,
        "path": spec.path,
        "config": spec.config,
        "split": spec.split,
        "weight": spec.weight,
        "task": spec.task,
        "tried": spec.tried,
    }


def column_mapping(columns: ColumnMapping) -> dict[str, str]:
    """Return the block "data.mapping", which is part of a token store's key as well."""
    return {
        "instruction": columns.instruction,
        "input": columns.input,
        "response": columns.response,
        "text": columns.text,
        "messages": columns.messages,
    }


def row_filters(filters: RowFilters) -> dict[str, Any]:
    """Return the block "data.filters", which is part of a token store's key as well."""
    return {"deduplicate": filters.deduplicate, "min_chars": filters.min_chars, "max_chars": filters.max_chars}


def _adapter(adapter: AdapterConfig) -> dict[str, Any]:
    """Return the block "adapter"."""
    return {
        "type": adapter.type,
        "rank": adapter.rank,
        "alpha": adapter.alpha,
        "dropout": adapter.dropout,
        "target_modules": adapter.target_modules,
        "feedforward_modules": adapter.feedforward_modules,
    }


def _optim(optim: OptimConfig) -> dict[str, Any]:
    """Return the block "optim"."""
    return {
        "epochs": optim.epochs,
        "max_steps": optim.max_steps,
        "batch_size": optim.batch_size,
        "gradient_accumulation_steps": optim.gradient_accumulation_steps,
        "learning_rate": optim.learning_rate,
        "scheduler": optim.scheduler,
        "scheduler_kwargs": optim.scheduler_kwargs,
        "warmup": optim.warmup,
        "weight_decay": optim.weight_decay,
        "max_grad_norm": optim.max_grad_norm,
        "optim": optim.optim,
        "neftune_noise_alpha": optim.neftune_noise_alpha,
    }


def _loader(loader: LoaderConfig) -> dict[str, Any]:
    """Return the block "loader"."""
    return {
        "num_workers": loader.num_workers,
        "pin_memory": loader.pin_memory,
        "prefetch_factor": loader.prefetch_factor,
        "packing": loader.packing,
        "overflow": loader.overflow,
        "group_by_length": loader.group_by_length,
    }


def _compute(compute: ComputeConfig) -> dict[str, Any]:
    """Return the block "compute"."""
    return {
        "device": compute.device,
        "dtype": compute.dtype,
        "tf32": compute.tf32,
        "attention": compute.attention,
        "checkpointing": compute.checkpointing,
        "reentrant": compute.reentrant,
        "torch_compile": compute.torch_compile,
        "compile_backend": compute.compile_backend,
        "compile_mode": compute.compile_mode,
        "fused_kernels": compute.fused_kernels,
        "dequantized_copy": compute.dequantized_copy,
        "on_oom": compute.on_oom,
    }


def watch_block(watch: LogSaveEvalConfig) -> dict[str, Any]:
    """Return the block "watch"."""
    return {
        "logging_steps": watch.logging_steps,
        "save_strategy": watch.save_strategy,
        "save_steps": watch.save_steps,
        "save_every_s": watch.save_every_s,
        "save_total_limit": watch.save_total_limit,
        "eval_strategy": watch.eval_strategy,
        "eval_steps": watch.eval_steps,
        "load_best_model_at_end": watch.load_best_model_at_end,
        "metric_for_best_model": watch.metric_for_best_model,
        "greater_is_better": watch.greater_is_better,
        "early_stopping_patience": watch.early_stopping_patience,
        "judge_every": watch.execution_eval_steps,
        "judge_sample": watch.execution_eval_sample,
        "report_to": watch.report_to,
    }
