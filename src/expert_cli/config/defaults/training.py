"""Base model, adapter, optimizer, batches: what of a manifest is used, where more than the key itself decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from expert_cli.config.chat_template import read_chat_template
from expert_cli.config.places import place_of
from expert_cli.config.run_config import ModelConfig
from expert_cli.config.settings import Settings
from expert_cli.manifest.key import informational
from expert_cli.manifest.keys.adapter import AdapterConfig
from expert_cli.manifest.keys.compute import DeviceName
from expert_cli.manifest.keys.loader import OVERFLOWS, LoaderConfig, Overflow, Packing
from expert_cli.manifest.keys.optim import OptimConfig
from expert_cli.manifest.schema import Base
from expert_cli.manifest.training_config import TrainingConfig

Config = Settings[TrainingConfig]


def model(base: Settings[Base], config: Config, folders: Sequence[Path] = (Path(),)) -> ModelConfig:
    """Return the base model to load. folders: where a relative `chat_template_path` is looked for, in this order."""
    written = config.use("chat_template_path")
    base.use("alias")
    template = base.use("prompt_template") or ""
    if written and not template:
        base.leave("chat_template_path writes rows and prompts", "prompt_template")
    return base.block(
        ModelConfig,
        sha256=_sha256(base),
        template=template,
        system_prompt=config.use("system_prompt"),
        rope_scaling=_rope(base),
        chat_template=read_chat_template(place_of(written, folders)) if written else "",
        chat_template_kwargs=tuple(sorted((config.use("chat_template_kwargs") or {}).items())),
    )


def _sha256(base: Settings[Base]) -> str:
    written = (base.written.sha256 or "").strip().lower().removeprefix("sha256:")
    if len(written) == 64 and not set(written) - set("0123456789abcdef"):
        return str(base.use("sha256"))
    base.leave("no SHA-256 hash: nothing to verify against", "sha256")
    return base.written.sha256 or ""


def _rope(base: Settings[Base]) -> tuple[tuple[str, float | str], ...]:
    scaling, kind = base.use("rope_scaling"), base.written.rope_type
    if not isinstance(scaling, dict) or not kind:
        base.outcomes[("rope_scaling",)] = informational("not a form that transformers knows; the model keeps its own")
        return ()
    rest = {key: value for key, value in scaling.items() if key not in ("type", "rope_type")}
    return (("rope_type", kind), *sorted(rest.items()))


def adapter(config: Config, folders: Sequence[Path] = (Path(),)) -> AdapterConfig:
    """Return the adapter that is trained. folders: where a relative `init_adapter` is looked for, in this order."""
    config.use("method")
    kind, modules = config.use("adapter_type"), config.use("target_modules")
    rank = config.use("rank")
    rows = config.use("trainable_token_indices")
    return config.block(
        AdapterConfig,
        type=kind,
        rank=rank,
        alpha=config.put("alpha", config.written.alpha or 2.0 * rank),
        target_modules=(modules,) if isinstance(modules, str) else tuple(modules),
        init_adapter=_init_adapter(config, folders),
        trainable_token_indices=rows if isinstance(rows, str) else tuple(rows),
    )


def _init_adapter(config: Config, folders: Sequence[Path]) -> Path | None:
    written = config["init_adapter"]
    if written is None:
        return cast(None, config.use("init_adapter"))
    return cast(Path, config.put("init_adapter", place_of(written, folders)))


def optim(config: Config) -> OptimConfig:
    """Return how the optimizer steps."""
    epochs, max_steps = _length(config)
    warmup = _warmup(config)
    return config.block(
        OptimConfig,
        epochs=epochs,
        max_steps=max_steps,
        scheduler=_scheduler(config, warmup),
        scheduler_kwargs=tuple(sorted((config.use("lr_scheduler_kwargs") or {}).items())),
        warmup=warmup,
    )


def _length(config: Config) -> tuple[float, int]:
    """Return (epochs, max_steps): one of them decides, -1 steps: the epochs do."""
    if config.written.max_steps is None:
        config.leave("not written", "max_steps")
        return config.use("epochs"), -1
    steps = config.use("max_steps")
    config.leave(f"max_steps {steps} decides", "epochs")
    return config["epochs"], steps


def _warmup(config: Config) -> float:
    """Return the warm-up, in steps where it is 1 or more, else as a share of all steps."""
    steps, share = config.use("warmup_steps"), config.use("warmup_ratio")
    if steps:
        config.leave(f"warmup_steps {steps} wins", "warmup_ratio")
    elif share:
        config.put("warmup_steps", 0, f"{share:g} of all steps", "0 means not set; warmup_ratio decides")
    return float(steps or share)


def _scheduler(config: Config, warmup: float) -> str:
    name = str(config.use("lr_scheduler"))
    if name != "constant" or not warmup:
        return name
    reason = "a warm-up is asked for, which transformers' constant drops"
    return str(config.put("lr_scheduler", "constant_with_warmup", "constant_with_warmup", reason))


def loader(config: Config, device: DeviceName) -> LoaderConfig:
    """Return how rows are laid out and batches prepared."""
    packing = _packing(config)
    workers, prefetch = config.use("dataloader_num_workers"), config.use("dataloader_prefetch_factor")
    if not workers:
        config.leave("there are 0 workers", "dataloader_prefetch_factor")
    pins, groups = config.use("dataloader_pin_memory"), config.use("group_by_length")
    is_gpu = device != "cpu"
    if not is_gpu:
        config.leave("no GPU: there is nothing to copy to", "dataloader_pin_memory")
    if packing != "off":
        config.leave("packed rows all have about the same length", "group_by_length")
    return config.block(
        LoaderConfig,
        num_workers=workers,
        pin_memory=pins and is_gpu,
        prefetch_factor=prefetch if workers else None,
        packing=packing,
        overflow=_overflow(config, packing),
        group_by_length=groups and packing == "off",
    )


def _packing(config: Config) -> Packing:
    written = config["packing"]
    return cast(Packing, config.put("packing", {True: "random", False: "off"}.get(written, written)))


def _overflow(config: Config, packing: Packing) -> Overflow:
    overflow: Overflow = config.use("overflow")
    if packing == "concat":
        config.use("max_seq_length")
        config.leave("concat cuts every document where a row ends", "overflow")
    else:
        length = config["max_seq_length"]
        config.put("max_seq_length", length, f"a row holds {length} tokens; {OVERFLOWS[overflow]}")
    return overflow
