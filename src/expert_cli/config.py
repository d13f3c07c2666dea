"""Manifest + machine + command line -> `RunConfig`. Beside `defaults.py` nobody knows both what was written and what happens.

A value comes from, in this order: the command line (`--set` and its shorter forms), the chosen base model's `config`,
`training.config`, and last the default, which is decided here and in `defaults.py` and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from expert_cli import defaults
from expert_cli.errors import EnvironmentProblem, Fault, InputError, ManifestError
from expert_cli.machine import Machine
from expert_cli.manifest.reader import LoadedManifest
from expert_cli.manifest.schema import Adapter, Base
from expert_cli.manifest.training_config import SCHEDULERS, TrainingConfig
from expert_cli.paths import RunPaths, is_inside, normalise, project_root
from expert_cli.runconfig import (
    AUTO,
    EXECUTION_ACCURACY,
    AdapterType,
    DataConfig,
    DeviceName,
    LoaderConfig,
    RunConfig,
    WatchConfig,
)
from expert_cli.rundir import part, read_json
from expert_cli.sourcespec import resolve_sources

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
    resume: str = ""


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
    watch = defaults.watch(config, loaded.manifest.evaluation)
    _check(loaded, base, index, config, root, watch)
    device = _device(overrides.device, machine)
    output = (overrides.output or loaded.path.parent / "weights" / normalise(base.name)).resolve()
    return RunConfig(
        expert=loaded.manifest.name,
        manifest=loaded.path.resolve(),
        root=root,
        store=_store(config, root, loaded.manifest.name),
        output=output,
        seed=_seed(config),
        model=defaults.model(base, config),
        data=_data(loaded, root, config, overrides, evaluates=watch.eval_strategy != "no"),
        adapter=defaults.adapter(config),
        optim=defaults.optim(config),
        loader=_loader(config, device, output, overrides.resume),
        compute=defaults.compute(config, machine, device),
        watch=watch,
        origins=tuple(sorted(written.origins.items())),
    )


def _loader(config: TrainingConfig, device: DeviceName, output: Path, resume: str) -> LoaderConfig:
    """Return how batches are made; a run that was begun when `packing: true` meant best fit goes on with it."""
    loader = defaults.loader(config, device)
    if not resume or config.packing not in (None, True):
        return loader
    begun = read_json(RunPaths(output if resume == AUTO else Path(resume).resolve().parents[1]).run_json)
    best_fit = part(begun, "config", "loader").get("packing") == "best_fit"
    return replace(loader, packing="best_fit") if best_fit else loader


def _seed(config: TrainingConfig) -> int:
    return 42 if config.seed is None else config.seed


def _data(
    loaded: LoadedManifest, root: Path, config: TrainingConfig, overrides: Overrides, *, evaluates: bool
) -> DataConfig:
    train, validation, share, mapping, filters = resolve_sources(
        loaded, root, overrides.dataset, overrides.validation, evaluates=evaluates
    )
    return DataConfig(
        train=train,
        validation=validation,
        validation_share=share,
        mapping=mapping,
        filters=filters,
        completion_only=config.completion_only_loss is not False,
        max_seq_length=config.max_seq_length or 2048,
        seed=_seed(config),
        offline=overrides.offline,
    )


def _store(config: TrainingConfig, root: Path, expert: str) -> Path:
    return (root / (config.pretokenized_cache or f"datasets_optimized/{normalise(expert)}/tokenized")).resolve()


def _device(asked: str, machine: Machine) -> DeviceName:
    if asked == "cuda" and not machine.cuda_usable:
        raise EnvironmentProblem(
            "--device cuda: no usable GPU", machine.first_words or "use --device cpu, or a machine with an NVIDIA GPU"
        )
    return "cuda" if asked == "cuda" or (asked == "auto" and machine.cuda_usable) else "cpu"


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
