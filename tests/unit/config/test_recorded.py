"""What run.json says of a run: its keys belong to files that exist already, and not to the code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from expert_cli.config import recorded
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.hardware import machine
from expert_cli.manifest.keys.dataset import FieldMapping, Replay, Task
from expert_cli.manifest.keys.schema_prompt import SchemaPromptKeys
from expert_cli.manifest.training_config import TrainingConfig
from tests import manifests

_KEYS = """
expert manifest root output store seed
model.name model.sha256 model.quantization model.template model.system_prompt model.rope_scaling
data.train.kind data.train.path data.train.config data.train.split data.train.weight data.train.task data.train.tried
data.validation.kind data.validation.path data.validation.config data.validation.split data.validation.weight
data.validation.task data.validation.tried data.validation_share
data.mapping.instruction data.mapping.input data.mapping.response data.mapping.text data.mapping.messages
data.filters.deduplicate data.filters.min_chars data.filters.max_chars
data.completion_only data.max_seq_length data.seed data.offline
adapter.type adapter.rank adapter.alpha adapter.dropout adapter.target_modules adapter.feedforward_modules
optim.epochs optim.max_steps optim.batch_size optim.gradient_accumulation_steps optim.learning_rate optim.scheduler
optim.scheduler_kwargs optim.warmup optim.weight_decay optim.max_grad_norm optim.optim optim.neftune_noise_alpha
loader.num_workers loader.pin_memory loader.prefetch_factor loader.packing loader.overflow loader.group_by_length
compute.device compute.dtype compute.tf32 compute.attention compute.checkpointing compute.reentrant compute.torch_compile
compute.compile_backend compute.compile_mode compute.fused_kernels compute.dequantized_copy compute.on_oom
watch.logging_steps watch.save_strategy watch.save_steps watch.save_every_s watch.save_total_limit watch.eval_strategy
watch.eval_steps watch.load_best_model_at_end watch.metric_for_best_model watch.greater_is_better
watch.early_stopping_patience watch.judge_every watch.judge_sample watch.report_to
origins
"""
KEYS = _KEYS.split()
"""The keys of run.json's `config`, in their order. One that changes here breaks --resume and --locked of runs that are there.

A key that came later is not here if a run takes it as it stands in the manifest: it is recorded under its name there, which
never changes.
"""
LATER = {
    *TrainingConfig.model_fields,
    "neutral_texts",
    "rft",
    "schema_prompt",
    *SchemaPromptKeys.model_fields,
    "database",
    *Replay.model_fields,
    *FieldMapping.model_fields,
    *Task.model_fields,
    "revision",
    "chat_template",
    "store_url",
}
"""Names of keys that came later."""
SETTINGS = ("model", "adapter", "optim", "loader", "compute")


def planned(folder: Path) -> RunConfig:
    """One run that trains and validates on a file."""
    run = make_plan(manifests.write(folder, manifests.small()), machine.inspect(), Overrides()).run
    return replace(run, data=replace(run.data, validation=run.data.train))


def leaves(document: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key with its value; what an entry of a list of sources holds counts as one of the list's keys."""
    for name, value in document.items():
        for entry in value if name in ("train", "validation") else [value]:
            if isinstance(entry, dict):
                yield from leaves(entry, f"{before}{name}.")
            else:
                yield f"{before}{name}", entry


def test_the_recorded_keys_are_those_that_runs_have_always_had(tmp_path: Path) -> None:
    run = planned(tmp_path)
    named = list(dict.fromkeys(name for name, _ in leaves(recorded.block(run))))
    assert [name for name in named if name in KEYS] == KEYS
    assert {name.rpartition(".")[2] for name in named if name not in KEYS} <= LATER
    settings = [f"{block}.{name}" for block, values in recorded.settings(run).items() for name in values]
    assert settings == [key for key in named if key.split(".")[0] in SETTINGS]


def test_every_field_of_a_run_is_recorded_with_its_value(tmp_path: Path) -> None:
    run = planned(tmp_path)
    fields = [value for _, value in leaves(asdict(run))]
    assert [value for _, value in leaves(recorded.block(run))] == fields


def test_a_run_json_of_an_earlier_version_has_these_keys(tmp_path: Path) -> None:
    document = json.loads((Path(__file__).parents[2] / "golden" / "run" / "run.json").read_text(encoding="utf-8"))
    keys = [key for key in KEYS if not key.startswith("data.validation.")]  # it has no validation rows
    assert list(dict.fromkeys(name for name, _ in leaves(document["config"]))) == keys
