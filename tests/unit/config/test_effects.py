"""Every key ends in exactly one row, and the row tells what happens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from expert_cli.config.effects import Effect, effects_table
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.key import Key, declared
from expert_cli.manifest.keys.dataset import Dataset, FieldMapping, Filters, Replay, Task
from expert_cli.manifest.keys.rft import Rft
from expert_cli.manifest.keys.schema_prompt import SchemaPromptKeys
from expert_cli.manifest.schema import Base, Decoding, EvaluationBlock, Manifest, Training
from expert_cli.manifest.training_config import TrainingConfig
from tests import manifests
from tests.machines import CPU
from tests.machines import H200 as GPU

EXPERTS = sorted((Path(__file__).parents[3] / "experts").glob("*/manifest.json"))


OF_SOME_MANIFESTS = ("tasks", "replay", "field_mapping", "filters", "schema_prompt", "validation", "validation_path")
"""Keys of a data set whose members are told of where they are written."""


def rows_of(path: Path, machine: Machine = CPU, overrides: Overrides = Overrides()) -> list[Effect]:
    return list(make_plan(path, machine, overrides).effects)


BLOCKS: list[tuple[type[BaseModel], str, set[str]]] = [
    (TrainingConfig, "config", set(TrainingConfig.old_names)),
    (Dataset, "dataset", set(OF_SOME_MANIFESTS)),
    (Base, "base", {"config", "adapters"}),
    (EvaluationBlock, "evaluation", set()),
    (Decoding, "decoding", {"validation"}),
    (Rft, "rft", set()),
]


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(("block", "name", "others"), BLOCKS, ids=[block.__name__ for block, *_ in BLOCKS])
def test_whatever_is_decided_tells_of_every_field_of_the_schema(
    tmp_path: Path, machine: Machine, block: type[BaseModel], name: str, others: set[str]
) -> None:
    """A field must be told of by what decides or by its declaration, whether it is written or not."""
    decided = make_plan(manifests.write(tmp_path, manifests.small()), machine, Overrides()).decided
    told = {str(path[1]) for path in decided.outcomes if path[0] == name}
    assert told - others == set(block.model_fields) - others


ALL_BLOCKS: list[type[BaseModel]] = [
    *(Manifest, Base, Training, TrainingConfig, Dataset, FieldMapping, Task, Replay, Filters, SchemaPromptKeys),
    *(EvaluationBlock, Decoding, Rft),
]
"""But adapter entries, of which one thing becomes as a whole."""
TELL_OF_THEIR_KEYS: dict[str, set[str]] = {
    "Manifest": {"base_model", "base_models", "adapters", "training"},
    "Training": {"dataset", "config", "rft"},
    "TrainingConfig": set(TrainingConfig.old_names),
    "Dataset": {"tasks", "replay", "field_mapping", "filters", "schema_prompt", "validation"},
    "Base": {"config", "adapters"},
}
"""Blocks in a block, and old names: what becomes of them is what becomes of their keys."""
REQUIRED = {"Manifest": {"name", "training"}, "Training": {"dataset"}, "Base": {"name"}, "Task": {"train"}}
REQUIRED |= {"Replay": {"path", "share"}}


@pytest.mark.parametrize("block", ALL_BLOCKS, ids=[block.__name__ for block in ALL_BLOCKS])
def test_every_key_is_declared_once_and_the_documents_have_it(block: type[BaseModel]) -> None:
    """A key has an effect, a default with its reason unless it is required or nothing stands for it, and its line in the
    documents.
    """
    undeclared = TELL_OF_THEIR_KEYS.get(block.__name__, set())
    lines = (Path(__file__).parents[3] / "docs" / "EXPERT_FORMAT.md").read_text(encoding="utf-8").splitlines()
    has_reasons = any(declared(block, name).why for name in block.model_fields)
    for name, field in block.model_fields.items():
        declaration = declared(block, name)
        assert (declaration == Key()) == (name in undeclared), name
        assert bool(declaration.effect or declaration.always) == (name not in undeclared), name
        assert field.is_required() == (name in REQUIRED.get(block.__name__, set())), name
        assert field.description, name
        assert declaration.why or declaration.default is None, name
        outcome = declaration.always
        if outcome is None or outcome.status != "not_used":
            default = "" if declaration.default is None else f"| `{json.dumps(declaration.default)}` "
            why = f" {declaration.why} |" if has_reasons else ""
            end = f"{default}| {' '.join(field.description.split())} |{why}"
            assert [line for line in lines if line.startswith(f"| `{name}` |") and line.endswith(end)], name


@pytest.mark.parametrize("block", ALL_BLOCKS, ids=[block.__name__ for block in ALL_BLOCKS])
def test_a_default_is_a_value_that_could_be_written(block: type[BaseModel]) -> None:
    for name, field in block.model_fields.items():
        default = declared(block, name).default
        assert default is None or TypeAdapter(field.annotation).validate_python(default, strict=True) == default


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    """Walk a manifest as the standard library reads it: an independent count of its keys."""
    if isinstance(value, dict) and value:
        for key, member in value.items():
            if not key.startswith("_"):
                yield from keys_of(member, f"{path}.{key}" if path else key)
    elif (
        path.endswith(("base_models", "adapters")) and isinstance(value, list) and value and isinstance(value[0], dict)
    ):
        for index, item in enumerate(value):
            yield from keys_of(item, f"{path}[{index}]")
    else:
        yield path


@pytest.mark.parametrize("path", manifests.SHIPPED + manifests.SHARED, ids=manifests.name_of)
def test_every_key_of_a_real_manifest_has_exactly_one_row(path: Path) -> None:
    rows = rows_of(path)
    written = json.loads(path.read_text(encoding="utf-8-sig"))
    assert Counter(row.key for row in rows) == Counter(keys_of(written))
    assert all(row.effect or row.reason for row in rows)


THREE_KEYS = {"name": "small", "base_models": [{"name": "org/a"}], "training": {"dataset": {"path": "rows.jsonl"}}}
NOT_IN_THIS_RUN = {
    *("dataloader_pin_memory", "use_tf32", "use_cuda_graphs", "on_oom"),  # of a GPU
    *("dataloader_prefetch_factor", "group_by_length", "torch_compile_backend", "torch_compile_mode"),
    *("save_steps", "metric_for_best_model", "flash_attention_2", "memory_efficient_attention"),
}
"""Keys with a default that changes nothing where no other key asks for what it is about, on a CPU."""


def test_every_default_that_does_something_is_told_with_its_reason(tmp_path: Path) -> None:
    plan = make_plan(manifests.write(tmp_path, THREE_KEYS), CPU, Overrides())
    told = {row.key: row for row in plan.defaults}
    with_default = {name for name in TrainingConfig.model_fields if declared(TrainingConfig, name).default is not None}
    of_config = {name.rpartition(".")[2] for name in told if name.startswith("training.config.")}
    assert with_default - of_config == NOT_IN_THIS_RUN
    assert of_config - with_default == {"alpha", "bf16", "save_strategy", "eval_strategy"}, "what other keys decide"
    assert set(told) - {f"training.config.{name}" for name in of_config} == {
        *("base_models[0].quantization", "base_models[0].prompt_template"),
        "evaluation.sample_answers",
    }
    assert [told[f"training.config.{name}"].value for name in ("rank", "alpha", "packing")] == [16, 32.0, "random"]
    assert all(row.status == "applied" and row.effect and row.reason for row in plan.defaults)
    assert (plan.run.adapter.rank, plan.run.adapter.alpha, plan.run.data.max_seq_length) == (16, 32.0, 2048)


def test_keys_are_told_together_only_where_all_is_the_same(tmp_path: Path) -> None:
    written = {"batch_size": 1, "gradient_accumulation_steps": 2, "dropout": 0.0, "logging_steps": 3}
    own = {"batch_size": 2, "gradient_accumulation_steps": 1, "dropout": 0.5, "logging_steps": 7}
    manifest = manifests.small(**written)
    manifest["base_models"] += [{"name": "org/b", "config": own}]
    path = manifests.write(tmp_path, manifest)
    plans = [make_plan(path, CPU, Overrides(base_model=name)) for name in (None, "org/b")]
    first, other = ([row for _, row in effects_table(plan.effects, ())[2]] for plan in plans)
    assert "base_models[1].config: 4 keys: the base model of this run is Qwen/Qwen3-0.6B" in first
    told = "training.config.{} = {}: {} (base model org/b overrides it)"
    assert {told.format(key, value, own[key]) for key, value in written.items()} < {*other}


def test_an_adapter_entry_fills_what_training_config_leaves_out_and_contradictions_are_shown(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["base_models"][0]["adapters"] = [{"type": "lora", "r": 32, "dropout": 0.1}]
    plan = make_plan(manifests.write(tmp_path, manifest), CPU, Overrides())
    rows = {row.key: row for row in plan.effects}
    assert rows["base_models[0].adapters[0].dropout"].status == "applied"
    assert rows["base_models[0].adapters[0].r"].status == "informational"
    assert [warning.key for warning in plan.warnings] == ["base_models[0].adapters[0].r"]
