"""The rows that a run leaves in run.json are told by what trained, not by the plan; and they are those that were planned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.effects import Effect
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.located import LocatedData
from expert_cli.data.store.build import TokenStore
from expert_cli.hardware import machine
from expert_cli.manifest.key import adjusted
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.model.kernels.select import kernel_plan
from expert_cli.pipeline.pretokenize import DataInputs
from expert_cli.pipeline.used_keys import effect_changes, used_keys
from expert_cli.runs.paths import RunPaths
from expert_cli.training.micro_batch import MERGED
from expert_cli.training.used import Used, UsedAdapter, UsedCompute, UsedLoader
from expert_cli.utils.files import sha256_of
from expert_cli.utils.reporter import NullReporter
from tests import manifests, tiny
from tests.machines import CPU
from tests.train import projects


class Warnings(NullReporter):
    """Keeps what was warned of."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def warning(self, text: str) -> None:
        self.words.append(text)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("model") / "tiny")


def sources(dataset: dict[str, Any]) -> Iterator[str]:
    """Yield every place that a manifest names rows at."""
    yield from (dataset[key] for key in ("path", "validation_path", "test_path") if key in dataset)
    for task in dataset.get("tasks", {}).values():
        yield from (task[key] for key in ("train", "valid", "test") if key in task)


def row(number: int, mapping: dict[str, str]) -> dict[str, str]:
    """Return a row with the columns that a manifest names."""
    question, answer = f"Add {number} and {number}.", str(2 * number)
    if "text" in mapping:
        turns = (("user", question), ("assistant", answer))
        return {mapping["text"]: "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)}
    columns = {role: mapping.get(role, role) for role in ("instruction", "input", "response")}
    return {columns["instruction"]: question, columns["input"]: "numbers", columns["response"]: answer}


def made_small(manifest: dict[str, Any], folder: Path, model: Path) -> dict[str, Any]:
    """Put tiny rows and a tiny model where a manifest names its own, and let things happen within two steps.

    Not changed: which keys are written, but for what takes this machine long: eight workers, and a compiler.
    """
    training, base = manifest["training"], (manifest.get("base_models") or [manifest.get("base_model")])[0]
    base["name"] = str(model)
    if len(base.get("sha256") or "") == 64:
        base["sha256"] = sha256_of(model / "model.safetensors")
    for source in sources(training["dataset"]):
        place = folder / source if source.endswith(".jsonl") else folder / source / "train.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        rows = (json.dumps(row(number, training["dataset"].get("field_mapping", {}))) for number in range(1, 33))
        place.write_text("".join(f"{line}\n" for line in rows), encoding="utf-8")
    smaller = {"epochs": 2, "max_steps": 2, "eval_steps": 1, "save_steps": 1, "logging_steps": 1, "batch_size": 2}
    smaller |= {
        "dataloader_num_workers": 1,
        "torch_compile": False,
        "gradient_accumulation_steps": 1,
        "warmup_steps": 1,
    }
    training["config"] |= {key: value for key, value in smaller.items() if training["config"].get(key)}
    return manifest


def trained(manifest: Path, report: NullReporter = NullReporter(), **overrides: Any) -> dict[str, dict[str, Any]]:
    """Train, hold the rows of the run against the plan's, and return them by key."""
    planned = make_plan(manifest, projects.here(), Overrides(**overrides)).effects
    output = projects.train(manifest, report=report, **overrides).output
    document = json.loads(RunPaths(output).run_json.read_text(encoding="utf-8"))
    assert document["effects_of"] == "run"
    rows = {row["key"]: row for row in document["effects"]}
    assert {key: row["status"] for key, row in rows.items()} == {effect.key: effect.status for effect in planned}
    return rows


TRAINABLE = [path for path in manifests.SHIPPED + manifests.SHARED if path.name != "manifest.spider.json"]
"""All but one, whose rows speak of databases that are no part of this project."""


@pytest.mark.parametrize("path", TRAINABLE, ids=manifests.name_of)
def test_what_trained_tells_of_every_key_what_was_planned(tmp_path: Path, model: Path, path: Path) -> None:
    written = json.loads(path.read_text(encoding="utf-8-sig"))
    manifest = manifests.write(tmp_path, made_small(written, tmp_path, model))
    report = Warnings()
    trained(manifest, report)
    assert not [words for words in report.words if "planned as" in words]


CONFIGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "dora, narrowed": (
        {"adapter_type": "dora", "gradient_checkpointing": True, "activation_checkpointing": "attention_only"},
        "activation_checkpointing",
        "attention blocks of 2 layers were recomputed",
    ),
    "every second layer": (
        {"gradient_checkpointing": "selective", "activation_checkpointing": "attention_only"},
        "gradient_checkpointing",
        "1 of 2 layers were recomputed",
    ),
    "settings of nothing": (
        {"gradient_checkpointing": False, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
        "gradient_checkpointing",
        "no layer was recomputed",
    ),
    "ia3": (
        {
            "adapter_type": "ia3",
            "feedforward_modules": ["up_proj"],
            "target_modules": ["up_proj", "k_proj"],
            "dropout": 0.1,
        },
        "target_modules",
        "adapters on k_proj, up_proj",
    ),
    "lokr": ({"adapter_type": "lokr", "dropout": 0.25}, "dropout", "dropout 0.25"),
    "one document a row": (
        {"packing": False, "group_by_length": True, "dataloader_prefetch_factor": 3, "max_seq_length": 20},
        "overflow",
        "64 documents were too long",
    ),
    "concatenated": ({"packing": "concat", "max_seq_length": 32}, "max_seq_length", "the longest row had 32 tokens"),
    "a mask": ({"use_sdpa": False, "memory_efficient_attention": False}, "use_sdpa", "eager"),
    "bf16": ({"bf16": True, "weight_decay": 0.5, "optim": "sgd"}, "optim", "optimizer SGD"),
    "epochs": ({"max_steps": None, "epochs": 2, "neftune_noise_alpha": 5, "warmup_ratio": 0.5}, "epochs", "2 passes"),
    "warm-up of a constant": ({"warmup_steps": 3, "warmup_ratio": 0.1}, "warmup_steps", "rose for 3 steps"),
}


@pytest.mark.parametrize(("config", "key", "words"), CONFIGS.values(), ids=CONFIGS.keys())
def test_what_trained_tells_of_other_settings_what_was_planned(
    tmp_path: Path, model: Path, config: dict[str, Any], key: str, words: str
) -> None:
    rows = trained(projects.project(tmp_path, model, **{"max_steps": 2, "overflow": "truncate", **config}))
    row = rows[f"training.config.{key}"]
    assert words in f"{row['effect']} {row['reason']}"


def test_a_run_that_stopped_early_says_when(tmp_path: Path, model: Path) -> None:
    """A learning rate that moves nothing: no evaluation is better than the first."""
    stop = {"early_stopping_patience": 1, "eval_steps": 1, "save_strategy": "no", "load_best_model_at_end": True}
    rows = trained(projects.project(tmp_path, model, **stop, learning_rate=1e-30, max_steps=9))
    assert {key: rows[f"training.config.{key}"]["effect"] for key in ("max_steps", *stop)} == {
        "max_steps": "2 optimizer steps",
        "early_stopping_patience": "training stopped after step 2: the best evaluation was that of step 1",
        "eval_steps": "an evaluation every 1 steps",
        "save_strategy": "1 checkpoints were written",
        "load_best_model_at_end": "the adapter is that of step 1",
    }


def test_rows_of_the_command_line_leave_the_manifests_unread(tmp_path: Path, model: Path) -> None:
    manifest = projects.project(tmp_path, model, max_steps=1)
    written = json.loads(manifest.read_text(encoding="utf-8"))
    (tmp_path / "train.jsonl").rename(tmp_path / "other.jsonl")
    written["training"]["dataset"] = {
        "tasks": {"sums": {"train": "train.jsonl", "valid": "valid.jsonl", "weight": 2.0}}
    }
    manifests.write(tmp_path, written)
    rows = trained(manifest, dataset=str(tmp_path / "other.jsonl"))
    for key in ("train", "valid", "weight"):
        row = rows[f"training.dataset.tasks.sums.{key}"]
        assert (row["status"], row["reason"].partition(":")[0]) == ("not_used", "--dataset replaces it")


def test_a_column_that_looks_like_a_secret_is_read(tmp_path: Path, model: Path) -> None:
    """What the store notes of it is ***, and so is what it is held against."""
    manifest = projects.project(tmp_path, model, max_steps=1)
    asked, answered = "hf_" + "a" * 34, "my_key=abc"
    lines = [json.dumps({asked: f"Say {number}.", answered: f"yes {number}"}) for number in range(40)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    written = json.loads(manifest.read_text(encoding="utf-8"))
    written["training"]["dataset"]["field_mapping"] = {"instruction": asked, "response": answered}
    manifests.write(tmp_path, written)
    rows = trained(manifest)
    told = {key: row["effect"] for key, row in rows.items() if "field_mapping." in key}
    assert told == {
        "training.dataset.field_mapping.instruction": "instruction was read from ***",
        "training.dataset.field_mapping.response": "response was read from my_key=***",
    }


def test_a_plan_that_comes_out_another_way_is_named(tmp_path: Path, model: Path) -> None:
    """Rows of a run of 2 documents a row, held against a plan that says otherwise."""
    manifest = projects.project(tmp_path, model, max_steps=2)
    plan = make_plan(manifest, machine.inspect(), Overrides())
    rows = plan.after({("config", "batch_size"): adjusted("4 x 2 rows", "the micro-batch did not fit")}).effects
    assert effect_changes(plan.effects, rows) == [
        "training.config.batch_size: planned as applied (8 x 1 rows an optimizer step), but adjusted "
        "(the micro-batch did not fit)"
    ]
    merged = plan.after({("config", "batch_size"): adjusted("8 x 1 rows", MERGED)}).effects
    assert effect_changes(plan.effects, merged) == [], "said when training began"


USED = Used(
    adapter=UsedAdapter("lora", 4, 8.0, 0.0, ("q_proj",), ()),
    compute=UsedCompute(
        "bf16", tf32=False, layers=2, recomputed=0, recomputed_attention=0, compiled=0, graphs=0, copies=0
    ),
    loader=UsedLoader(workers=2, pinned=False, prefetch=2, longest_row=30, too_long=0),
    optimizer="AdamW",
    learning_rate=1e-3,
    weight_decay=0.0,
    max_grad_norm=1.0,
    warmup=0,
    noise=False,
    seed=42,
    batch_size=1,
    accumulation=1,
    max_steps=-1,
    steps=5,
    epochs=1.0,
    evaluations=0,
    answered=0,
    checkpoints=0,
    best_step=0,
    stopped_early=False,
    reports=(),
)
"""A run of five steps without an evaluation."""


def rows_after(manifest: Path, used: Used) -> dict[str, Effect]:
    """Return the rows of a manifest, held against a run that used `used`."""
    plan = make_plan(manifest, CPU, Overrides())
    store = TokenStore(
        manifest.parent, "hit", "", None, {"train": {"tokens": 2, "trained_tokens": 1, "mapping": ""}}, 0, 0
    )
    inputs = DataInputs(LocatedData((), ()), None, None, None, None)
    told = used_keys(plan, used, kernel_plan(plan.run.compute, plan.run.model, CPU), inputs, store)
    assert {str(path[1]) for path in told if path[0] == "config"} <= set(TrainingConfig.model_fields)
    return {row.key: row for row in plan.after(told).effects}


LATER = {
    "merged micro-steps": (
        {"gradient_accumulation_steps": 4},
        {"batch_size": 4, "accumulation": 1},
        "gradient_accumulation_steps",
        "adjusted",
        "faster than they are launched",
    ),
    "a smaller batch": (
        {"batch_size": 4},
        {"batch_size": 2, "accumulation": 2},
        "batch_size",
        "adjusted",
        "did not fit",
    ),
    "recomputed to fit": (
        {"gradient_checkpointing": False},
        {"compute": replace(USED.compute, recomputed=2)},
        "gradient_checkpointing",
        "adjusted",
        "did not fit",
    ),
    "not recomputed": (
        {"gradient_checkpointing": True, "activation_checkpointing": "attention_only"},
        {},
        "activation_checkpointing",
        "not_used",
        "no layer was recomputed",
    ),
    "no noise": ({"neftune_noise_alpha": 5}, {}, "neftune_noise_alpha", "not_used", "no noise was added"),
    "ended before an evaluation": (
        {"early_stopping_patience": 2},
        {},
        "early_stopping_patience",
        "not_used",
        "ended before anything was evaluated",
    ),
    "fused by nothing": ({"fused_kernels": "auto"}, {}, "fused_kernels", "not_used", "is fused on a CPU"),
    "compiled by nothing": (
        {"torch_compile": True, "torch_compile_backend": "eager"},
        {},
        "torch_compile_backend",
        "not_used",
        "off",
    ),
    "compiled to nothing": (
        {"torch_compile": True, "torch_compile_backend": "eager"},
        {"compute": replace(USED.compute, compiled=2)},
        "torch_compile",
        "not_used",
        "nothing was compiled",
    ),
    "another precision": (
        {"bf16": True},
        {"compute": replace(USED.compute, precision="fp32")},
        "bf16",
        "adjusted",
        "fp32",
    ),
}


@pytest.mark.parametrize(("config", "used", "key", "status", "words"), LATER.values(), ids=LATER.keys())
def test_what_came_out_another_way_is_told_so(
    tmp_path: Path, config: dict[str, Any], used: dict[str, Any], key: str, status: str, words: str
) -> None:
    rows = rows_after(manifests.write(tmp_path, manifests.small(**config)), replace(USED, **used))
    row = rows[f"training.config.{key}"]
    assert row.status == status
    assert words in f"{row.effect} {row.reason}"


def test_rows_that_were_not_read_are_not_told_as_training_rows(tmp_path: Path) -> None:
    rows = rows_after(manifests.write(tmp_path, manifests.small()), USED)
    assert rows["training.dataset.path"].status == "not_used"
