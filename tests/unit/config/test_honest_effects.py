"""The effects table says what a run does: another value of an applied key gives another run, of an unused one the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from expert_cli.config.effects import Effect, effects, leaves
from expert_cli.config.resolve import decide
from expert_cli.errors import EnvironmentProblem, ManifestError
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.json_text import Path_, dotted
from expert_cli.manifest.reader import LoadedManifest, load_manifest
from expert_cli.manifest.schema import Manifest
from expert_cli.manifest.training_config import TrainingConfig
from tests import manifests
from tests.machines import CPU
from tests.machines import H200 as GPU

Change = Callable[[dict[str, Any]], object]


def data(**keys: Any) -> Change:
    return lambda manifest: manifest["training"]["dataset"].update(keys)


def tasks(**keys: Any) -> Change:
    return data(
        tasks={"sql": {"train": "rows.jsonl", "valid": "v.jsonl", "test": "t.jsonl", "format": "jsonl"}}, **keys
    )


def config(evaluation: dict[str, Any] | None = None, **keys: Any) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        manifest["training"]["config"] |= keys
        manifest |= {"evaluation": evaluation} if evaluation else {}

    return change


def rft(method: str, keys: dict[str, Any]) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        manifest["training"]["config"]["method"] = method
        manifest["training"]["rft"] = keys

    return change


ALTERNATIVES: tuple[Any, ...] = (
    *(True, False, 3, 512, 0.25, 0.75, "x", "7s", ["q_proj"], ["tool"], {"num_cycles": 2.0}, {"use_reentrant": True}),
    *dict.fromkeys(
        option
        for field in TrainingConfig.model_fields.values()
        for part in (field.annotation, *get_args(field.annotation))
        for option in get_args(part)
        if isinstance(option, str)
    ),
)
KEPT = {
    "training.config.epochs": ("optim", "epochs"),
    "training.config.overflow": ("loader", "overflow"),
    "training.config.alpha": ("adapter", "alpha"),
    "training.config.rank": ("adapter", "rank"),
    "training.config.dropout": ("adapter", "dropout"),
    "training.config.gradient_checkpointing_kwargs.use_reentrant": ("compute", "reentrant"),
    "training.config.torch_compile_backend": ("compute", "compile_backend"),
    "training.config.torch_compile_mode": ("compute", "compile_mode"),
    "training.config.fused_kernels": ("compute", "fused_kernels"),
    "training.config.dequantized_copy": ("compute", "dequantized_copy"),
    "training.config.on_oom": ("compute", "on_oom"),
    "training.config.use_cuda_graphs": ("compute", "capture"),
    "base_models[0].sha256": ("model", "sha256"),
    "base_model.sha256": ("model", "sha256"),
}
"""Where a value that nothing looks at stays in the run's identity, so that runs made before go on."""
ALIKE = (".flash_attention_2", ".use_sdpa", ".memory_efficient_attention", ".alias")
ONE_VALUE = (".metric_for_best_model", ".greater_is_better")
"""Keys that ask for the same thing, one that only `--base-model` looks at; keys that have one right value."""


def decided(loaded: LoadedManifest, machine: Machine) -> dict[str, Any] | None:
    """Return the run without the names of its origins; None where the manifest is refused, or a device is not there."""
    try:
        found = asdict(decide(loaded, machine)[0])
    except (ManifestError, EnvironmentProblem):
        return None
    return {**found, "origins": None}


def others(loaded: LoadedManifest, path: Path_, value: Any) -> Iterator[LoadedManifest]:
    """Yield the manifest without a key, and with other values of it that the schema takes."""
    for other in (None, *ALTERNATIVES):
        written = copy.deepcopy(loaded.text.value)
        block = written
        for part in path[:-1]:
            block = block[part]
        if other is None:
            del block[path[-1]]
        elif other == value and type(other) is type(value):
            continue
        else:
            block[path[-1]] = other
        try:
            yield replace(loaded, manifest=Manifest.model_validate(written))
        except ValidationError:
            continue


def decides(path: Path_) -> bool:
    """Whether a key is of a block whose keys decide something in a run."""
    if path[0] == "training":
        return path[1] in ("config", "dataset", "rft")
    return path[0] in ("base_models", "base_model", "evaluation") and "adapters" not in path


ANSWERS = {"sample_answers": 1, "every_steps": 4, "sample": 3}
BEST: dict[str, Any] = {"load_best_model_at_end": True, "early_stopping_patience": 2, "save_total_limit": 2}
NOT_ASKED: dict[str, Any] = {
    "metric_for_best_model": "eval_loss",
    "greater_is_better": True,
    "save_strategy": "no",
    "save_steps": 7,
    "eval_strategy": "no",
    "eval_steps": 9,
    "dequantized_copy": "always",
    "fp16": False,
    "on_oom": "error",
    "gradient_checkpointing": False,
    "activation_checkpointing": "attention_only",
}
OLD_ATTENTION: dict[str, Any] = {"use_sdpa": False, "memory_efficient_attention": True, "lr_scheduler_kwargs": {}}
ROUNDS: dict[str, Any] = {
    "prompts": "p.jsonl",
    "rounds": 5,
    "samples": 5,
    "temperature": 0.5,
    "keep": 5,
    "gold": "always",
    "replay": 0.5,
    "from": "last",
    "stop_without_gain": False,
    "held_back": 0.5,
    "limit": 5,
}
CONTEXTS: dict[str, Change] = {
    "nothing more": config(),
    "steps decide": config(epochs=2, max_steps=9, warmup_steps=3, warmup_ratio=0.1, save_strategy="no"),
    "answers decide": config(ANSWERS, **BEST, metric_for_best_model="execution_accuracy", greater_is_better=True),
    "losses decide": config(ANSWERS, **BEST, eval_strategy="epoch", eval_steps=3, save_strategy="steps"),
    "nothing asks for them": config({"sample": 5}, **NOT_ASKED),
    "unpacked": config(packing=False, group_by_length=True, overflow="drop", dataloader_num_workers=2),
    "concatenated": config(packing="concat", overflow="split", dataloader_prefetch_factor=3, torch_compile=True),
    "attention": config(flash_attention_2=True, use_sdpa=False, memory_efficient_attention=True, use_tf32=True),
    "attention of older torches": config(
        **OLD_ATTENTION, neftune_noise_alpha=5, memory_clear_every=3, use_unsloth=True
    ),
    "recomputed": config(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True}),
    "drawn tasks": data(tasks={"a": {"train": "rows.jsonl", "weight": 0.5}}),
    "tasks": tasks(type="multi_task", validation_split=0.1, streaming=True, test_path="t.jsonl"),
    "filters": data(filters={"min_length": 1}, validation={"max_length": 9}, validation_path="v.jsonl", text_field="a"),
    "answers that were run": rft("rft", ROUNDS),
    "rounds judged by a file": rft("rft", {"prompts": "p.jsonl", "held_back": "judge.jsonl"}),
    "rounds that are not made": rft("sft", {"prompts": "p.jsonl", "rounds": 5, "gold": "never", "from": "last"}),
    "captured": config(use_cuda_graphs=True, cuda_graph_warmup_steps=3, gradient_checkpointing=True, dropout=0.1),
    "not captured": config(use_cuda_graphs=False, cuda_graph_warmup_steps=3),
    "of shared weights": config({"sample_answers": 5}, fsdp=True, use_cuda_graphs=True),
}


def but_for_kept(run: dict[str, Any], before: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a run with the value of a key that is kept though nothing looks at it as it was before."""
    if key not in KEPT:
        return run
    block, field = KEPT[key]
    return {**run, block: {**run[block], field: before[block][field]}}


def require_honest(loaded: LoadedManifest, machine: Machine) -> None:
    before = decided(loaded, machine)
    assert before is not None
    rows: dict[str, Effect] = {row.key: row for row in effects(loaded.text, decide(loaded, machine)[1])}
    lies = []
    for path, value in leaves(loaded.text.value):
        row = rows[dotted(path)]
        if not decides(path) or row.status == "adjusted" or row.key.endswith(ALIKE + ONE_VALUE) or value in (None, {}):
            continue
        runs = [decided(other, machine) for other in islice(others(loaded, path, value), 4)]
        if row.status == "applied" and runs and all(run == before for run in runs):
            lies.append(f"{row.key} = {value}: applied ({row.effect}), but nothing differs without it")
        if row.status in ("not_used", "informational"):
            changed = [run for run in runs if run is not None and but_for_kept(run, before, row.key) != before]
            if changed:
                lies.append(f"{row.key} = {value}: {row.status} ({row.reason}), but another value gives another run")
    assert lies == []


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("change", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_a_key_is_applied_if_another_value_gives_another_run(tmp_path: Path, machine: Machine, change: Change) -> None:
    manifest = manifests.small()
    change(manifest)
    require_honest(load_manifest(manifests.write(tmp_path, manifest)), machine)


@pytest.mark.parametrize("path", manifests.SHIPPED + manifests.SHARED, ids=manifests.name_of)
def test_of_every_manifest_too(path: Path) -> None:
    require_honest(load_manifest(path), CPU)
