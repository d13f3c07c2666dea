"""Makes a `RunConfig` from manifest, machine and command line. Only this module and `*_defaults.py` know both written and final
values.

The value of a key comes from the first of these that has one: the command line (`--set` and its short forms), `config` of the
chosen base model, `training.config`, the base model's first adapter entry, the default. Defaults are declared beside the key,
or computed in `*_defaults.py` from other keys and the machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from expert_cli.config.compute_defaults import compute
from expert_cli.config.conflicts import conflicts
from expert_cli.config.data_sources import missing, resolve_sources
from expert_cli.config.effects import Decided
from expert_cli.config.run_config import DataConfig, RunConfig
from expert_cli.config.settings import Merged, Settings, adapter_block
from expert_cli.config.training_defaults import (
    adapter,
    decoding,
    loader,
    log_save_eval,
    model,
    optim,
    rft,
    sample_answers,
)
from expert_cli.errors import InputError, ManifestError
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.keys.compute import DeviceName
from expert_cli.manifest.keys.rft import Rft
from expert_cli.manifest.messages import unfit
from expert_cli.manifest.reader import LoadedManifest
from expert_cli.manifest.schema import LONGEST_MODEL_NAME, Base, Decoding, EvaluationBlock
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.utils.object_storage import is_url
from expert_cli.utils.paths import folder_of_url, project_root, slug, store_folder


@dataclass(frozen=True)
class Overrides:
    """Values of the command line; None = not given. device "auto": as in the manifest. output: a str is a URL."""

    dataset: str | None = None
    validation: str | None = None
    base_model: str | None = None
    output: Path | str | None = None
    device: str = "auto"
    epochs: float | None = None
    max_steps: int | None = None
    seed: int | None = None
    settings: tuple[str, ...] = ()
    offline: bool = False
    init_adapter: Path | None = None


def choose_base(loaded: LoadedManifest, wanted: str | None) -> tuple[Base, int | None]:
    """Return the base model for an alias, a name or its last part, with its index (None: not listed)."""
    if wanted is None:
        return _base(loaded, 0), 0
    bases, named = loaded.manifest.bases, wanted.lower()
    if not named.isprintable() or not 0 < len(wanted) <= LONGEST_MODEL_NAME:
        raise InputError(
            f'--base-model "{wanted[:60]}" is not the name of a model', "give an alias, a hub id or a folder"
        )
    exact = [index for index, base in enumerate(bases) if named in ((base.alias or "").lower(), base.name.lower())]
    last = [re.split(r"[/\\]", base.name.rstrip("/\\"))[-1].lower() for base in bases]
    fitting = exact[:1] or [index for index, name in enumerate(last) if named == name]
    if len(fitting) > 1:
        names = ", ".join(bases[index].alias or bases[index].name for index in fitting)
        raise InputError(
            f"--base-model {wanted} matches {len(fitting)} base models: {names}", "give one of these in full"
        )
    return (_base(loaded, fitting[0]), fitting[0]) if fitting else (Base(name=wanted), None)


def _base(loaded: LoadedManifest, index: int) -> Base:
    base = loaded.manifest.bases[index]
    is_v1 = loaded.manifest.base_model is not None and loaded.manifest.adapters
    return base.model_copy(update={"adapters": loaded.manifest.adapters}) if is_v1 else base


def merge(loaded: LoadedManifest, base: Base, index: int | None, overrides: Overrides) -> Merged:
    """Merge, later over earlier: adapter entry, `training.config`, base model's `config`, command line; convert old names."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}

    def lay(layer: dict[str, Any], origin: str) -> None:
        for key, value in layer.items():
            name = TrainingConfig.old_names.get(key, key)
            if value is not None:
                values[name], origins[name] = value, origin
            elif name == "save_total_limit" and values.pop(name, None):  # null: keep all; for other keys: not written
                origins[name] = origin

    if base.adapters:
        lay(adapter_block(base.adapters[0]), "adapters[0]")
    lay(loaded.manifest.training.config.model_dump(exclude_unset=True), "training.config")
    set_names = {setting.partition("=")[0].strip().rpartition(".")[2] for setting in overrides.settings}
    set_names = {TrainingConfig.old_names.get(name, name) for name in set_names}
    origins |= {name: "--set" for name in set_names if name in origins}
    if base.config is not None:
        lay(base.config.model_dump(exclude_unset=True), f"base model {base.alias or base.name}")
    dropped = {}
    if overrides.epochs is not None and values.pop("max_steps", None) is not None:
        dropped = {"max_steps": "--epochs"}
        origins.pop("max_steps")
    asked = {name: getattr(overrides, name) for name in ("device", "epochs", "max_steps", "seed")}
    asked["init_adapter"] = overrides.init_adapter and str(overrides.init_adapter.absolute())
    for name, value in asked.items():
        option = "--from" if name == "init_adapter" else f"--{name.replace('_', '-')}"
        if value is None or (name == "device" and value == "auto"):
            continue
        if reason := unfit(TrainingConfig, ("training", "config", name), value):
            raise InputError(f"{option}: {reason}")
        lay({name: value}, option)
        dropped.pop(name, None)
    return Merged(loaded, base, index, TrainingConfig.model_validate(values), origins, dropped)


def decide(
    loaded: LoadedManifest, machine: Machine, overrides: Overrides = Overrides(), *, index: int | None = None
) -> tuple[RunConfig, Decided]:
    """Return a run, and the effect of every key of the manifest in it.

    index: decide for this base model of the manifest, not for that of `overrides`. Raises ManifestError for settings that
    exclude each other, InputError for an option.
    """
    base, chosen = choose_base(loaded, overrides.base_model) if index is None else (_base(loaded, index), index)
    merged = merge(loaded, base, chosen, overrides)
    root, folder = project_root(loaded.path), loaded.path.parent
    folders = (folder.resolve(), root)
    config, of_base, data = Settings(merged.values), Settings(base), Settings(loaded.manifest.training.dataset)
    judging = loaded.manifest.evaluation
    evaluation = Settings(judging if isinstance(judging, EvaluationBlock) else EvaluationBlock())
    if faults := conflicts(merged, of_base, config, evaluation.written):
        raise ManifestError(loaded.path, faults)
    watching = log_save_eval(config, evaluation)
    device = _device(config, machine)
    place = overrides.output or folder / "weights" / slug(base.name)
    output = folder_of_url("runs", place) if isinstance(place, str) else place.resolve()
    to_train, to_load, stepping = adapter(config, folders), model(of_base, config, folders), optim(config)
    named = overrides.dataset, overrides.validation
    rows = resolve_sources(loaded, data, root, *named, evaluates=watching.validates)
    learning = Settings(loaded.manifest.training.rft or Rft())
    stores = config["pretokenized_cache"] or ""
    store_url = stores if is_url(stores) else ""
    store = store_folder(root, loaded.manifest.name, stores)
    config.put("pretokenized_cache", store_url or store)
    run = RunConfig(
        expert=loaded.manifest.name,
        manifest=loaded.path.resolve(),
        root=root,
        store=store,
        store_url=store_url,
        output=output,
        seed=config.use("seed"),
        model=to_load,
        data=config.block(
            DataConfig,
            **vars(rows),
            completion_only=config.use("completion_only_loss"),
            offline=overrides.offline,
        ),
        adapter=to_train,
        optim=stepping,
        loader=loader(config, device),
        compute=compute(config, machine, device, to_load.quantization),
        watch=watching,
        sample_answers=sample_answers(config, evaluation),
        origins=tuple(sorted(merged.origins.items())),
        rft=rft(learning, config["method"], folders),
    )
    answering = decoding(loaded.manifest.training.decoding or Decoding())
    blocks: dict[str, Settings[Any]] = {"base": of_base, "dataset": data, "config": config, "decoding": answering}
    blocks |= {"rft": learning, "evaluation": evaluation}
    outcomes = {(block, *path): told for block, keys in blocks.items() for path, told in keys.outcomes.items()}
    unwritten = {(block, *path): told for block, keys in blocks.items() for path, told in keys.unwritten().items()}
    return run, Decided(**vars(merged), outcomes=outcomes, unwritten=unwritten)


def _device(config: Settings[TrainingConfig], machine: Machine) -> DeviceName:
    """Return the device of a run: the CPU for a GPU that is not usable here, with which only training is refused."""
    written, lack = config["device"], missing_gpu(config.written, machine)
    device = machine.device if written == "auto" or lack else "cuda" if written == "rocm" else written
    reason = lack or ("PyTorch calls AMD's GPUs cuda, too" if written == "rocm" else "")
    told = "this machine's CPU, except for training" if lack else ""
    return cast(DeviceName, config.put("device", device, told, reason))


def missing_gpu(config: TrainingConfig, machine: Machine) -> str:
    """Return which requested GPU is not usable on this machine, and why; "" if it is, or if none is requested."""
    if config.device not in ("cuda", "rocm") or machine.device == "cuda":
        return ""
    why = "" if machine.torch_device == "cpu" else ", and finds no GPU or no driver"
    torch = f"torch {dict(machine.versions).get('torch', '')} is built for {machine.torch_build}{why}"
    return f"{config.device}: no usable GPU: {torch}"


def missing_data(config: RunConfig) -> list[str]:
    """Return one sentence for every data file that is not on this machine, with the places tried."""
    specs = (*config.data.train, *config.data.validation)
    named = {"prompts": config.rft.prompts, "held_back": config.rft.held_back_cases} if config.rft else {}
    lost = {key: file for key, file in named.items() if file and not file.is_file()}
    told = [f"{file}: no such file; training.rft.{key} names it" for key, file in lost.items()]
    return [*(missing(spec) for spec in specs if spec.tried), *told]


def require_data(config: RunConfig) -> None:
    """Raise InputError if a data file is missing."""
    if lost := missing_data(config):
        option = "--validation" if lost[0] in map(missing, config.data.validation) else "--dataset"
        raise InputError(lost[0], f"correct the path in the manifest, or give another: {option} PATH")
