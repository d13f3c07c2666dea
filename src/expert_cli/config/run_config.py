"""What will happen in a run, decided in full: frozen, no defaults left open, every path absolute.

`config.resolve` makes it from a manifest; everything downstream reads it and decides nothing again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from expert_cli.manifest.types import AdapterType, Dtype, Quantization, Strategy

SourceKind = Literal["file", "folder", "hub"]
Attention = Literal["fused", "flash", "eager"]
Checkpointing = Literal["off", "all", "selective", "attention_only"]
Packing = Literal["random", "best_fit", "concat", "off"]
Overflow = Literal["truncate", "drop", "split", "error"]
Deduplicate = Literal["off", "row", "answer"]
DeviceName = Literal["cpu", "cuda"]
Layout = Literal["packed", "padded"]

AUTO = "auto"
"""`--resume auto`: go on with the newest good checkpoint of the output folder."""

QUANTIZED: tuple[Quantization, ...] = ("int4", "int8")
"""Base weights other than those that most programs load."""
EXECUTION_ACCURACY = "execution_accuracy"
"""The metric of answers that are run, as against the loss of validation rows."""


@dataclass(frozen=True)
class SourceSpec:
    """One place that rows come from.

    kind "file" and "folder": `path` is an absolute path. kind "hub": `path` is a data set id, `config` its configuration
    ("" = the default one). `split` is a split name with an optional slice, "train[:1000]", "train[10%:20%]"; a file is one
    split, "train" or that of its name. `weight` 0.4 takes 40 % of the rows, 2.0 takes every row twice. `tried` names the
    places where a local path was looked for and not found; empty when it is there.
    """

    kind: SourceKind
    path: str
    config: str = ""
    split: str = "train"
    weight: float = 1.0
    task: str = ""
    tried: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnMapping:
    """Which columns hold what; "" = not named. Where nothing is named, columns are recognized by their usual names."""

    instruction: str = ""
    input: str = ""
    response: str = ""
    text: str = ""
    messages: str = ""

    def is_empty(self) -> bool:
        """Whether the manifest names no column at all."""
        return not (self.instruction or self.input or self.response or self.text or self.messages)


@dataclass(frozen=True)
class RowFilters:
    """Rows to leave out: repeated ones, and those outside a length in characters (prompt and answer together).

    deduplicate: rows repeat when all their text is equal ("row"), or the answer alone ("answer"); the first one stays.
    """

    deduplicate: Deduplicate = "off"
    min_chars: int = 0
    max_chars: int | None = None


@dataclass(frozen=True)
class DataConfig:
    """Which rows train and which evaluate. `validation_share` > 0 splits rows off `train` by `seed`."""

    train: tuple[SourceSpec, ...]
    validation: tuple[SourceSpec, ...]
    validation_share: float
    mapping: ColumnMapping
    filters: RowFilters
    completion_only: bool
    max_seq_length: int
    seed: int
    offline: bool


@dataclass(frozen=True)
class ModelConfig:
    """The base model as named, how it is stored, and the prompt template ("" = the tokenizer's own, else alpaca).

    `system_prompt`: the system message of every prompt; "" = none; None = what the template puts by itself, if anything.
    `rope_scaling`: (name, value) pairs in a form that transformers knows; empty = the model's own.
    """

    name: str
    sha256: str
    quantization: Quantization
    template: str
    system_prompt: str | None
    rope_scaling: tuple[tuple[str, float | str], ...]


@dataclass(frozen=True)
class AdapterConfig:
    """What is trained on top of the base model."""

    type: AdapterType
    rank: int
    alpha: float
    dropout: float
    target_modules: tuple[str, ...]
    feedforward_modules: tuple[str, ...]


@dataclass(frozen=True)
class OptimConfig:
    """Steps, learning rate, optimizer. `max_steps` -1 = `epochs` decide. `warmup` < 1 is a share of all steps."""

    epochs: float
    max_steps: int
    batch_size: int
    gradient_accumulation_steps: int
    learning_rate: float
    scheduler: str
    scheduler_kwargs: tuple[tuple[str, float], ...]
    warmup: float
    weight_decay: float
    max_grad_norm: float
    optim: str
    neftune_noise_alpha: float | None


@dataclass(frozen=True)
class LoaderConfig:
    """How batches reach the step. `prefetch_factor` is None without workers, where it has no meaning."""

    num_workers: int
    pin_memory: bool
    prefetch_factor: int | None
    packing: Packing
    overflow: Overflow
    group_by_length: bool


@dataclass(frozen=True)
class ComputeConfig:
    """Where and in which precision the step runs."""

    device: DeviceName
    dtype: Dtype
    tf32: bool
    attention: Attention
    checkpointing: Checkpointing
    reentrant: bool
    torch_compile: bool
    compile_backend: str
    compile_mode: str
    fused_kernels: Literal["auto", "off"]
    dequantized_copy: Literal["auto", "always", "never"]
    on_oom: Literal["fit", "error"]

    @property
    def fuses_lora(self) -> bool:
        """Whether LoRA's products are added in place: measured on CPUs alone, and torch.compile fuses them by itself."""
        plain = self.dtype != "fp32" and not self.torch_compile
        return self.device == "cpu" and self.fused_kernels != "off" and plain


@dataclass(frozen=True)
class LogSaveEvalConfig:
    """What is logged, saved and evaluated, and when. `save_total_limit` None keeps every checkpoint.

    save_every_s > 0: checkpoints by time, whatever `save_strategy` says of steps. execution_eval_steps > 0: so many
    steps between two evaluations that run the answers to `execution_eval_sample` cases.
    """

    logging_steps: int
    save_strategy: Strategy
    save_steps: int
    save_every_s: float
    save_total_limit: int | None
    eval_strategy: Strategy
    eval_steps: int
    load_best_model_at_end: bool
    metric_for_best_model: str
    greater_is_better: bool
    early_stopping_patience: int
    execution_eval_steps: int
    execution_eval_sample: int
    report_to: tuple[str, ...]


@dataclass(frozen=True)
class RunConfig:
    """One run, decided.

    `store` is the folder that holds token stores, one folder a key. `origins` says for every key of `training.config` where
    its value came from.
    """

    expert: str
    manifest: Path
    root: Path
    output: Path
    store: Path
    seed: int
    model: ModelConfig
    data: DataConfig
    adapter: AdapterConfig
    optim: OptimConfig
    loader: LoaderConfig
    compute: ComputeConfig
    watch: LogSaveEvalConfig
    origins: tuple[tuple[str, str], ...]
