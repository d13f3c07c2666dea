"""The adapter that a run trains on from (`init_adapter`, `--from`): where it is, what it is, and whether it fits the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from expert_cli.config.adapter_origin import CONFIG, WEIGHTS, AdapterOrigin, find_adapter
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError
from expert_cli.manifest.keys.adapter import AdapterConfig
from expert_cli.runs.metrics import items, part, read_json
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import sha256_of
from expert_cli.utils.paths import is_inside

_SHIFTING = ("pissa", "olora", "corda", "loftq")
"""Ways to start an adapter (`init_lora_weights`) that change the base model's weights, too."""


def init_origin(run: RunConfig) -> AdapterOrigin | None:
    """Return the adapter that a run trains on from; None for a fresh one. Raises InputError where there is none."""
    return find_adapter(run.adapter.init_adapter) if run.adapter.init_adapter is not None else None


def init_sha256(run: RunConfig) -> str:
    """Return the hash of the weights that a run trains on from, "none" for fresh ones. Raises what `init_origin` raises."""
    origin = init_origin(run)
    return sha256_of(origin.adapter / WEIGHTS) if origin else "none"


def missing_adapter(run: RunConfig) -> list[str]:
    """Return one sentence where the adapter to train on from is not on this machine."""
    folder = run.adapter.init_adapter
    if folder is None or folder.exists():
        return []
    return [f"init_adapter {folder}: no such folder; looked for in {run.manifest.parent}, then in {run.root}"]


def require_alike(run: RunConfig) -> None:
    """Raise InputError where the adapter to train on from is not to be had, or is of another form than the run's.

    What its own files tell is compared; whether the tensors fit is seen when they meet the model.
    """
    if missing := missing_adapter(run):
        raise InputError(missing[0], "correct the path in the manifest, or give another: --from ADAPTER")
    origin = init_origin(run)
    if origin is None:
        return
    if is_inside(origin.adapter, run.output):
        raise InputError(
            f"{origin.adapter} lies in {run.output}, which this run writes", "give another folder with --output"
        )
    told = read_json(origin.adapter / CONFIG)
    if differences := list(_differences(told, run.adapter)):
        key, was, now = differences[0]
        raise InputError(
            f"{origin.adapter} cannot be trained on: its {key} is {was}, the manifest's {now}"
            + "".join(f"; {key} {was}, the manifest's {now}" for key, was, now in differences[1:]),
            "set these keys of training.config as they were, or train a fresh adapter",
        )
    start = str(told.get("init_lora_weights", ""))
    if odd := [key for key in ("rank_pattern", "alpha_pattern", "modules_to_save") if told.get(key)]:
        raise InputError(f"{origin.adapter} cannot be trained on: it has a {odd[0]}", "train a fresh adapter")
    if start.startswith(_SHIFTING):
        raise InputError(
            f"{origin.adapter} cannot be trained on: init_lora_weights {start} changes the base model's weights",
            "convert it with peft's save_pretrained(path_initial_model_for_weight_conversion=...)",
        )


def require_same_base(origin: AdapterOrigin, name: str, sha256: str, template: str) -> None:
    """Raise InputError where an adapter was trained on another base model or with another prompt template than these.

    name, sha256: of the base model. template: the fingerprint. What nothing tells (an adapter of another program) is not
    compared.
    """
    origin.require_base(name, sha256)
    if not origin.fits_template(template):
        raise InputError(
            f"{origin.adapter} was trained with the prompt template {origin.template}, this run has {template}",
            'set "prompt_template", "system_prompt" and the name of the input column as they were',
        )


def provenance(run: RunConfig) -> dict[str, Any] | None:
    """Return what run.json says of the adapter that a run trains on from; None for a fresh one.

    manifest: the file that it was trained from, "" where nothing tells. chain: the adapters that it was itself trained on
    from, the first one first, each with the same keys, as its run recorded them.
    """
    origin = init_origin(run)
    if origin is None:
        return None
    before = part(read_json(RunPaths(origin.run).run_json) if origin.run else {}, "init_adapter")
    earlier = {name: value for name, value in before.items() if name != "chain"}
    return {
        "path": str(origin.adapter),
        "sha256": init_sha256(run),
        "manifest": str(origin.manifest or ""),
        "chain": [*items(before, "chain"), *([earlier] if earlier else [])],
    }


def _differences(told: dict[str, Any], adapter: AdapterConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the keys in which an adapter's config differs from the run's, with both values."""
    kind = _kind(told)
    if kind != adapter.type:
        yield "adapter_type", kind, adapter.type
        return
    for key, name, now in (("rank", "r", adapter.rank), ("alpha", "lora_alpha", adapter.alpha)):
        if (was := told.get(name)) != now:
            yield key, _number(was), _number(now)
    was, modules = told.get("target_modules"), adapter.target_modules
    # "all-linear" and a pattern mean other layers in other models: the tensors tell
    if isinstance(was, list) and modules != ("all-linear",) and set(was) != set(modules):
        yield "target_modules", ", ".join(sorted(map(str, was))), ", ".join(sorted(modules))


def _kind(told: dict[str, Any]) -> str:
    """Return the `adapter_type` that an adapter's config describes."""
    kind = str(told.get("peft_type", "unknown")).lower()
    if kind == "lora" and told.get("use_dora"):
        return "dora and rslora" if told.get("use_rslora") else "dora"
    return "rslora" if kind == "lora" and told.get("use_rslora") else kind


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)
