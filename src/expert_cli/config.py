"""Manifest + machine + command line -> `RunConfig`. The only module that knows both what was written and what will happen.

A value comes from, in this order: the command line (`--set` and its shorter forms), the chosen base model's `config`,
`training.config`, and last the default, which is decided here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from expert_cli.errors import EnvironmentProblem, Fault, InputError, ManifestError
from expert_cli.machine import Machine
from expert_cli.manifest.reader import LoadedManifest
from expert_cli.manifest.schema import SCHEDULERS, Adapter, AdapterType, Base, EvaluationBlock, TrainingConfig
from expert_cli.paths import is_inside, normalise, project_root
from expert_cli.runconfig import (
    EXECUTION_ACCURACY,
    AdapterConfig,
    Checkpointing,
    ComputeConfig,
    DataConfig,
    DeviceName,
    Dtype,
    LoaderConfig,
    ModelConfig,
    OptimConfig,
    Packing,
    RunConfig,
    Strategy,
    WatchConfig,
)
from expert_cli.sourcespec import resolve_sources

ROPE_TYPES = ("linear", "dynamic", "yarn", "longrope", "llama3")
DEFAULT_SAVE_EVERY = "5m"
QUANTIZED_TABLE = (
    "supported: lora, dora, rslora with int4, int8, bf16, fp16, none; ia3, lokr with bf16, fp16, none "
    "(peft cannot train them on 4- and 8-bit layers)"
)


@dataclass(frozen=True)
class Overrides:
    """What the command line says; None = not said."""

    dataset: str | None = None
    validation: str | None = None
    base_model: str | None = None
    output: Path | None = None
    device: str = "auto"
    epochs: float | None = None
    max_steps: int | None = None
    seed: int | None = None
    settings: tuple[str, ...] = ()
    offline: bool = False


@dataclass(frozen=True)
class Written:
    """`training.config` as it stands for one base model: the merged values and where each came from."""

    values: TrainingConfig
    origins: dict[str, str]


def choose_base(loaded: LoadedManifest, wanted: str | None) -> tuple[Base, int | None]:
    """Return the base model and its index in the manifest; None as index for a model that the manifest does not list."""
    bases = loaded.manifest.bases
    if loaded.manifest.base_model is not None and loaded.manifest.adapters:
        bases = (bases[0].model_copy(update={"adapters": loaded.manifest.adapters}),)
    if wanted is None:
        return bases[0], 0
    named = wanted.lower()
    for index, base in enumerate(bases):
        if named in {
            (base.alias or "").lower(),
            base.name.lower(),
            base.name.rstrip("/\\").replace("\\", "/").lower().split("/")[-1],
        }:
            return base, index
    return Base(name=wanted), None


def merge(loaded: LoadedManifest, base: Base, overrides: Overrides) -> Written:
    """Lay the base model's `config` and the command line over `training.config`, old names turned into new ones."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}

    def lay(layer: dict[str, Any], origin: str) -> None:
        for key, value in layer.items():
            name = TrainingConfig.old_names.get(key, key)
            values[name] = value
            origins[name] = origin

    if base.adapters:
        lay(_adapter_block(base.adapters[0]), "adapters[0]")
    lay(_said(loaded.manifest.training.config), "training.config")
    set_names = {setting.partition("=")[0].strip().rpartition(".")[2] for setting in overrides.settings}
    origins |= {name: "--set" for name in set_names if name in origins}
    if base.config is not None:
        lay(_said(base.config), f"base model {base.alias or base.name}")
    if overrides.epochs is not None:
        values.pop("max_steps", None)
        lay({"epochs": overrides.epochs}, "--epochs")
    for name, value in (("max_steps", overrides.max_steps), ("seed", overrides.seed)):
        if value is not None:
            lay({name: value}, f"--{name.replace('_', '-')}")
    return Written(TrainingConfig.model_validate(values), origins)


def _adapter_block(adapter: Adapter) -> dict[str, Any]:
    """Return an adapter entry under the names of `training.config`, which repeats it and decides."""
    named = {
        "adapter_type": adapter.type if adapter.type in get_args(AdapterType) else None,
        "rank": adapter.r or adapter.rank,
        "alpha": adapter.alpha,
        "dropout": adapter.dropout,
        "target_modules": adapter.target_modules,
    }
    return {name: value for name, value in named.items() if value is not None}


def contradictions(loaded: LoadedManifest, base: Base, index: int | None, config: TrainingConfig) -> list[Fault]:
    """Return a warning for every value of the base model's adapter entry that differs from the one that decides."""
    if not base.adapters or index is None:
        return []
    block: tuple[str | int, ...] = (
        ("adapters", 0) if base.adapters is loaded.manifest.adapters else ("base_models", index, "adapters", 0)
    )
    spelled = {"adapter_type": "type", "rank": "r"}
    return [
        loaded.text.fault((*block, spelled.get(name, name)), f"says {value}, training decides: {getattr(config, name)}")
        for name, value in _adapter_block(base.adapters[0]).items()
        if getattr(config, name) != value
    ]


def _said(config: TrainingConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.model_fields_set if getattr(config, name) is not None}


def resolve(loaded: LoadedManifest, machine: Machine, overrides: Overrides = Overrides()) -> RunConfig:
    """Decide everything. Raises ManifestError for settings that contradict each other, EnvironmentProblem for a device."""
    base, index = choose_base(loaded, overrides.base_model)
    written = merge(loaded, base, overrides)
    config = written.values
    root = project_root(loaded.path)
    watch = _watch(config, loaded.manifest.evaluation)
    _check(loaded, base, index, config, root, watch)
    device = _device(overrides.device, machine)
    seed = 42 if config.seed is None else config.seed
    train, validation, share, mapping, filters = resolve_sources(
        loaded, root, overrides.dataset, overrides.validation, evaluates=watch.eval_strategy != "no"
    )
    return RunConfig(
        expert=loaded.manifest.name,
        manifest=loaded.path.resolve(),
        root=root,
        store=_store(config, root, loaded.manifest.name),
        output=(overrides.output or loaded.path.parent / "weights" / normalise(base.name)).resolve(),
        seed=seed,
        model=ModelConfig(
            name=base.name,
            sha256=base.sha256 or "",
            quantization=base.quantization or "int4",
            template=base.prompt_template or "",
            rope_scaling=_rope(base),
        ),
        data=DataConfig(
            train=train,
            validation=validation,
            validation_share=share,
            mapping=mapping,
            filters=filters,
            completion_only=config.completion_only_loss is not False,
            max_seq_length=config.max_seq_length or 2048,
            seed=seed,
            offline=overrides.offline,
        ),
        adapter=_adapter(config),
        optim=_optim(config),
        loader=_loader(config, device),
        compute=_compute(config, machine, device),
        watch=watch,
        origins=tuple(sorted(written.origins.items())),
    )


def _store(config: TrainingConfig, root: Path, expert: str) -> Path:
    return (root / (config.pretokenized_cache or f"datasets_optimized/{normalise(expert)}/tokenized")).resolve()


def _device(asked: str, machine: Machine) -> DeviceName:
    if asked == "cuda" and not machine.cuda_usable:
        raise EnvironmentProblem(
            "--device cuda: no usable GPU", machine.first_words or "use --device cpu, or a machine with an NVIDIA GPU"
        )
    return "cuda" if asked == "cuda" or (asked == "auto" and machine.cuda_usable) else "cpu"


def _adapter(config: TrainingConfig) -> AdapterConfig:
    modules = config.target_modules or "all-linear"
    return AdapterConfig(
        type=config.adapter_type or "lora",
        rank=config.rank or 0,
        alpha=config.alpha or 2.0 * (config.rank or 0),
        dropout=config.dropout or 0.0,
        target_modules=(modules,) if isinstance(modules, str) else tuple(modules),
        feedforward_modules=tuple(config.feedforward_modules or ()),
    )


def _optim(config: TrainingConfig) -> OptimConfig:
    warmup = float(config.warmup_steps) if config.warmup_steps else config.warmup_ratio or 0.0
    scheduler = str(config.lr_scheduler or "cosine")
    return OptimConfig(
        epochs=config.epochs or 1.0,
        max_steps=config.max_steps or -1,
        batch_size=config.batch_size or 1,
        gradient_accumulation_steps=config.gradient_accumulation_steps or 1,
        learning_rate=config.learning_rate or 2e-4,
        # transformers' "constant" drops a warm-up without a word
        scheduler="constant_with_warmup" if scheduler == "constant" and warmup else scheduler,
        scheduler_kwargs=tuple(sorted((config.lr_scheduler_kwargs or {}).items())),
        warmup=warmup,
        weight_decay=config.weight_decay or 0.0,
        max_grad_norm=1.0 if config.max_grad_norm is None else config.max_grad_norm,
        optim=str(config.optim or "adamw_torch_fused"),
        neftune_noise_alpha=config.neftune_noise_alpha,
    )


def _loader(config: TrainingConfig, device: DeviceName) -> LoaderConfig:
    workers = config.dataloader_num_workers or 0
    return LoaderConfig(
        num_workers=workers,
        pin_memory=device == "cuda" and config.dataloader_pin_memory is not False,
        prefetch_factor=(config.dataloader_prefetch_factor or 2) if workers else None,
        persistent_workers=bool(workers and config.dataloader_persistent_workers),
        packing=_packing(config),
        overflow=config.overflow or "truncate",
        group_by_length=bool(config.group_by_length) and config.packing is False,
    )


def _packing(config: TrainingConfig) -> Packing:
    if config.packing == "concat":
        return "concat"
    return "off" if config.packing is False else "best_fit"


def _compute(config: TrainingConfig, machine: Machine, device: DeviceName) -> ComputeConfig:
    on_gpu = device == "cuda"
    return ComputeConfig(
        device=device,
        dtype=_dtype(config, machine, device),
        tf32=bool(on_gpu and machine.gpus[0].has_tf32 and config.use_tf32),
        attention=_attention(config),
        checkpointing=_checkpointing(config),
        reentrant=bool((config.gradient_checkpointing_kwargs or {}).get("use_reentrant", False)),
        torch_compile=bool(config.torch_compile),
        compile_backend=config.torch_compile_backend or "inductor",
        # reduce-overhead records CUDA graphs, which need batches of one fixed shape
        compile_mode="default" if config.torch_compile_mode in (None, "reduce-overhead") else config.torch_compile_mode,
        fused_kernels=config.fused_kernels or "auto",
        dequantized_copy=config.dequantized_copy or "auto",
        on_oom=config.on_oom or "fit",
    )


def _dtype(config: TrainingConfig, machine: Machine, device: DeviceName) -> Dtype:
    if config.fp16 is False and config.bf16 is False:
        return "fp32"
    if device == "cpu":
        wanted = config.bf16 is True or (machine.cpu_bf16 and config.bf16 is not False)
        return "bf16" if wanted else "fp32"
    if config.fp16 or not machine.gpus[0].has_bf16 or config.bf16 is False:
        return "fp16"
    return "bf16"


def _attention(config: TrainingConfig) -> Literal["fused", "flash", "eager"]:
    if config.flash_attention_2:
        return "flash"
    return "fused" if config.use_sdpa is not False or config.memory_efficient_attention else "eager"


def _checkpointing(config: TrainingConfig) -> Checkpointing:
    if config.gradient_checkpointing == "selective":
        return "selective"
    if config.gradient_checkpointing is False:
        return "off"
    if config.activation_checkpointing:
        return "attention_only"
    return "all" if config.gradient_checkpointing else "off"


def _watch(config: TrainingConfig, evaluation: Any) -> WatchConfig:
    judging = evaluation if isinstance(evaluation, EvaluationBlock) else EvaluationBlock()
    by_running = config.metric_for_best_model == EXECUTION_ACCURACY
    # answers that are run need no checkpoint at fixed steps: each better one is saved
    wants_best = bool(config.load_best_model_at_end) and not by_running
    asks_eval = bool(config.eval_steps or wants_best or (config.early_stopping_patience and not by_running))
    asks_save = bool(config.save_steps or wants_best)
    save_strategy: Strategy = config.save_strategy or ("steps" if asks_save else "no")
    by_time = config.save_every or (DEFAULT_SAVE_EVERY if not (config.save_strategy or asks_save) else "0s")
    eval_strategy: Strategy = config.eval_strategy or (
        (save_strategy if wants_best else "steps") if asks_eval else "no"
    )
    save_steps = config.save_steps or config.eval_steps or 500
    report_to = config.report_to or ()
    return WatchConfig(
        logging_steps=config.logging_steps or 10,
        save_strategy=save_strategy,
        save_steps=save_steps,
        save_every_s=float(by_time[:-1]) * {"s": 1, "m": 60, "h": 3600}[by_time[-1]],
        save_total_limit=config.save_total_limit,
        eval_strategy=eval_strategy,
        eval_steps=config.eval_steps or save_steps,
        load_best_model_at_end=bool(config.load_best_model_at_end),
        metric_for_best_model=str(config.metric_for_best_model or "eval_loss"),
        greater_is_better=by_running if config.greater_is_better is None else config.greater_is_better,
        early_stopping_patience=config.early_stopping_patience or 0,
        judge_every=judging.every_steps or 0,
        judge_sample=judging.sample or 24,
        report_to=() if report_to == "none" else (report_to,) if isinstance(report_to, str) else tuple(report_to),
    )


def _rope(base: Base) -> tuple[tuple[str, float | str], ...]:
    scaling = base.rope_scaling
    if not isinstance(scaling, dict):
        return ()
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind not in ROPE_TYPES:
        return ()
    rest = {key: value for key, value in scaling.items() if key not in ("type", "rope_type")}
    return (("rope_type", kind), *sorted(rest.items()))


def _check(
    loaded: LoadedManifest, base: Base, index: int | None, config: TrainingConfig, root: Path, watch: WatchConfig
) -> None:
    """Raise ManifestError for what does not go together, once the values of one base model are merged."""
    faults: list[Fault] = []
    block: tuple[str | int, ...] = ("training", "config")

    def fault(key: str, message: str, hint: str) -> None:
        own = ("base_models", index, "config", key) if index is not None else ()
        faults.append(loaded.text.fault(own if own in loaded.text.places else (*block, key), message, hint))

    quantization = base.quantization or "int4"
    if config.adapter_type in ("ia3", "lokr") and quantization in ("int4", "int8"):
        hint = f'{QUANTIZED_TABLE}; for {base.name} write "quantization": "bf16"'
        fault("adapter_type", f"{config.adapter_type} does not go with quantization {quantization}", hint)
    if config.pretokenized_cache and not is_inside(root / config.pretokenized_cache, root):
        fault(
            "pretokenized_cache",
            f"{config.pretokenized_cache} lies outside the project root {root}",
            "name a folder inside it",
        )
    strays = sorted(set(config.lr_scheduler_kwargs or {}) - SCHEDULERS[str(config.lr_scheduler or "cosine")])
    if strays:
        known = ", ".join(sorted(SCHEDULERS[str(config.lr_scheduler or "cosine")])) or "none"
        fault("lr_scheduler_kwargs", f"{config.lr_scheduler} has no setting {strays[0]}", f"its settings: {known}")
    if watch.load_best_model_at_end or watch.early_stopping_patience:
        _check_best(watch, fault)
    if config.rank is None and config.adapter_type != "ia3":
        fault("rank", f"is missing: a {config.adapter_type or 'lora'} adapter needs a rank", "8 to 32 is usual")
    if faults:
        raise ManifestError(loaded.path, faults)


def _check_best(watch: WatchConfig, fault: Any) -> None:
    if watch.metric_for_best_model == EXECUTION_ACCURACY:
        if not watch.judge_every:
            fault(
                "metric_for_best_model",
                "no answers are run",
                'write "evaluation": {"every_steps": 50} beside "training"',
            )
        if not watch.greater_is_better:
            fault("greater_is_better", f"false would choose the worst by {EXECUTION_ACCURACY}", "leave it out")
    elif watch.eval_strategy == "no":
        fault("eval_strategy", '"no" leaves nothing to choose the best model by', 'write "steps" or "epoch"')
    elif watch.load_best_model_at_end and watch.save_strategy != watch.eval_strategy:
        message = (
            f"load_best_model_at_end with save_strategy {watch.save_strategy}, eval_strategy {watch.eval_strategy}"
        )
        fault("save_strategy", message, "write the same for both")


def missing_data(config: RunConfig) -> list[str]:
    """Return one sentence for every data file that is not on this machine, with the places where it was looked for."""
    specs = (*config.data.train, *config.data.validation)
    return [
        f"{spec.path}: no such file or folder; looked for at: {', '.join(spec.tried)}" for spec in specs if spec.tried
    ]


def require_data(config: RunConfig) -> None:
    """Raise InputError if a data file is missing."""
    missing = missing_data(config)
    if missing:
        raise InputError(missing[0], "correct the path in the manifest, or give another: --dataset PATH")
