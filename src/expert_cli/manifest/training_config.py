"""`training.config` as it was written. The docstring under a field is its line in docs/EXPERT_FORMAT.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from expert_cli.manifest.types import (
    LARGEST,
    TIME,
    AdapterType,
    Modules,
    NotNegative,
    NotNegativeNumber,
    Positive,
    PositiveNumber,
    Seed,
    Share,
    Strategy,
    Strict,
    Text,
)

Epochs = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
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
SCHEDULE_BOUNDS: dict[str, tuple[float, float]] = {
    "num_cycles": (0, 1e6),
    "power": (0, 1e3),
    "timescale": (1, LARGEST),
    "num_stable_steps": (0, LARGEST),
    "num_decay_steps": (0, LARGEST),
    "pct_start": (0, 1),
    "div_factor": (1, 1e9),
    "final_div_factor": (1, 1e9),
    "min_lr": (0, 1e6),
    "min_lr_rate": (0, 1),
    "min_lr_ratio": (0, 1),
    "warmup_lr_rate": (0, 1),
    "lr_end": (0, 1e6),
}
"""What the settings of schedulers may be, both ends included."""
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


class TrainingConfig(Strict):
    """`training.config`: how the expert is trained."""

    old_names: ClassVar[Mapping[str, str]] = {"num_epochs": "epochs", "evaluation_strategy": "eval_strategy"}

    method: Literal["sft"] | None = None
    """Supervised fine-tuning; the only method."""
    adapter_type: AdapterType | None = None
    """Kind of adapter; lora where it is not written."""
    rank: Annotated[int, Field(gt=0, le=2**16)] | None = None
    """Rank of the adapter's matrices; needed unless `adapter_type` is ia3."""
    alpha: PositiveNumber | None = None
    """Scale of the adapter: alpha / rank (rslora: alpha / sqrt(rank)); twice the rank where it is not written."""
    dropout: Share | None = None
    """Dropout on the adapter's input; 0 where it is not written."""
    target_modules: Modules | None = None
    """Names of the linear layers that get an adapter, or "all-linear" (the default)."""
    feedforward_modules: Annotated[list[Text], Field(min_length=1)] | None = None
    """ia3: which of `target_modules` are feed-forward layers (scaled at their input)."""
    epochs: Epochs | None = None
    """Passes over the data, fractions allowed; 1 where it is not written."""
    num_epochs: Epochs | None = None
    """Old name of `epochs`."""
    max_steps: Positive | None = None
    """Optimizer steps; decides instead of `epochs`."""
    learning_rate: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] | None = None
    """Peak learning rate; 2e-4 where it is not written. Above 1 it is warned of."""
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
    max_seq_length: Annotated[int, Field(ge=8, le=2**24)] | None = None
    """Longest document in tokens; 2048 where it is not written."""
    packing: bool | Literal["random", "best_fit", "concat"] | None = None
    """Fill each row with several documents that do not see each other: "random" (true, the default) draws them anew for every
    epoch, "best_fit" puts documents of like length together, "concat" cuts them; false: one document a row."""
    overflow: Literal["truncate", "drop", "split", "error"] | None = None
    """What becomes of a document longer than `max_seq_length`: truncate (the middle of its prompt; the default), drop, split,
    error."""
    group_by_length: bool | None = None
    """Batches of rows of similar length."""
    pretokenized_cache: Text | None = None
    """Folder of the token store, relative to the project root."""
    dataloader_num_workers: Annotated[int, Field(ge=0, le=1024)] | None = None
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
    """What the compiler optimizes for."""
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
    save_every: Annotated[str, Field(pattern=TIME)] | None = None
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
    """End with the best step by `metric_for_best_model`, which is saved when it is evaluated, instead of the last one."""
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
    system_prompt: str | None = None
    """System message of every prompt, in training and after it; "": none, not even the chat template's own."""
    seed: Seed | None = None
    """Seed of everything random; 42 where it is not written."""
    report_to: (
        Literal["tensorboard", "trackio", "wandb", "none"] | list[Literal["tensorboard", "trackio", "wandb"]] | None
    ) = None
    """Where metrics go besides metrics.jsonl."""
    neftune_noise_alpha: PositiveNumber | None = None
    """Noise on the embeddings (NEFTune)."""
    completion_only_loss: bool | None = None
    """Train the answers only (the default), or prompt and answer."""
