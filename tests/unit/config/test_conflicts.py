"""What of a manifest does not go together, and what is more likely a slip: each at the key where it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.errors import ManifestError
from expert_cli.manifest.reader import load_manifest
from tests import manifests
from tests.machines import CPU

BEST = {"load_best_model_at_end": True}
BEST_ANSWERS = {**BEST, "metric_for_best_model": "execution_accuracy"}
RFT = {"config": {"method": "rft"}}
PROMPTS = {"prompts": "p.jsonl"}

# fmt: off
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("config.pretokenized_cache", "outside the project root", {"config": {"pretokenized_cache": "../elsewhere"}}),
    ("config.fp16", "fp16 and bf16 are both true", {"config": {"fp16": True, "bf16": True}}),
    ("config.lr_scheduler_kwargs", "num_cycles",
     {"config": {"lr_scheduler": "linear", "lr_scheduler_kwargs": {"num_cycles": 3}}}),
    ("config.lr_scheduler", "greedy needs evaluations", {"config": {"lr_scheduler": "greedy"}}),
    ("config.eval_strategy", 'with "no", load_best_model_at_end', {"config": {**BEST, "eval_strategy": "no"}}),
    ("config.greater_is_better", "would choose the worst by metric_for_best_model eval_loss",
     {"config": {**BEST, "greater_is_better": True}}),
    ("config.greater_is_better", "would choose the worst by metric_for_best_model execution_accuracy",
     {"config": {**BEST_ANSWERS, "greater_is_better": False}, "evaluation": {"every_steps": 5}}),
    ("config.metric_for_best_model", "execution_accuracy without evaluation.every_steps", {"config": BEST_ANSWERS}),
    ("config.chat_template_path", "missing.jinja cannot be read", {"config": {"chat_template_path": "missing.jinja"}}),
    ("config.chat_template_path", "does not go with prompt_template alpaca",
     {"config": {"chat_template_path": "manifest.json"}, "base": {"prompt_template": "alpaca"}}),  # any file
    ("config.fsdp", "quantization int8", {"config": {"fsdp": True}, "base": {"quantization": "int8"}}),
    ("config.fsdp", "with evaluation.every_steps", {"config": {"fsdp": True}, "evaluation": {"every_steps": 5}}),
    ("config.fsdp", "does not work with method rft", {"config": {"fsdp": True, "method": "rft"}, "rft": PROMPTS}),
    ("dataset.type", "tasks", {"dataset": {"type": "single", "tasks": {"a": {"train": "a.jsonl"}}}}),
    ("dataset.text_field", "field_mapping.text", {"dataset": {"text_field": "a", "field_mapping": {"text": "b"}}}),
    ("dataset.field_mapping.messages", "response", {"dataset": {"field_mapping": {"messages": "a", "response": "b"}}}),
    ("dataset.filters.min_length", "max_length 3", {"dataset": {"filters": {"min_length": 9, "max_length": 3}}}),
    ("dataset.path", "is not a split with a slice", {"dataset": {"path": "rows.jsonl::train[abc]"}}),
    ("rft.prompts", "is missing: method rft draws answers to them", {**RFT, "rft": {}}),
    ("rft.keep", "0, and gold is never", {**RFT, "rft": {**PROMPTS, "keep": 0, "gold": "never"}}),
]
# fmt: on


def manifest_with(base: dict[str, Any], evaluation: dict[str, Any], **training: dict[str, Any]) -> dict[str, Any]:
    """A small manifest with more keys in its blocks."""
    manifest = {**manifests.small(), "evaluation": evaluation}
    manifest["base_models"][0] |= base
    for block, keys in training.items():
        manifest["training"][block] = {**manifest["training"].get(block, {}), **keys}
    return manifest


@pytest.mark.parametrize(("key", "words", "blocks"), REFUSED, ids=[f"{n} {key}" for n, (key, *_) in enumerate(REFUSED)])
def test_what_does_not_go_together(tmp_path: Path, key: str, words: str, blocks: dict[str, Any]) -> None:
    loaded = load_manifest(manifests.write(tmp_path, manifest_with(**{"base": {}, "evaluation": {}, **blocks})))
    with pytest.raises(ManifestError) as caught:
        manifests.resolve(loaded, CPU)
    (fault,) = caught.value.faults
    assert fault.key == f"training.{key}"
    assert words in f"{fault.message}; {fault.suggestion}"
    assert fault.line > 1


def test_a_pair_that_two_layers_make_is_refused_where_the_one_that_won_stands(tmp_path: Path) -> None:
    manifest = manifests.small(bf16=True)
    manifest["base_models"][0]["config"] = {"fp16": True}
    path = manifests.write(tmp_path, manifest)
    with pytest.raises(ManifestError, match="fp16 and bf16 are both true") as caught:
        manifests.resolve(load_manifest(path), CPU)
    (fault,) = caught.value.faults
    assert fault.key == "base_models[0].config.fp16"
    assert '"fp16"' in path.read_text(encoding="utf-8").splitlines()[fault.line - 1]


def test_a_cache_behind_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "experts" / "e").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path, target_is_directory=True)
    loaded = load_manifest(manifests.write(root / "experts" / "e", manifests.small(pretokenized_cache="link/store")))
    with pytest.raises(ManifestError, match="outside the project root"):
        manifests.resolve(loaded, CPU)


SCHEMAS = {
    "a wrong type": ({"type": "objekt"}, '"objekt" is not valid'),
    "an address": (
        {"$ref": "https://example.org/x"},
        "https://example.org/x is not fetched: put its schema under $defs",
    ),
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
        manifests.resolve(loaded, CPU)
        return
    with pytest.raises(ManifestError, match="is no JSON Schema: ") as caught:
        manifests.resolve(loaded, CPU)
    assert words in caught.value.faults[0].message
    assert caught.value.faults[0].key == "training.decoding.json_schema"


NO_GRAMMAR = "answers are free text; one of json, json-schema, sql, sql-postgres, cypher, or use_grammar: false"
DOUBTED: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"use_grammar": True, "grammar_type": "sql-postgres"}, {}),
    ({"use_grammar": False, "grammar_type": "lark"}, {}),
    ({"use_grammar": True, "grammar_type": "lark"}, {"grammar_type": "lark is not a grammar of this tool"}),
    ({"use_grammar": True}, {"use_grammar": "grammar_type is not written"}),
]


@pytest.mark.parametrize(("decoding", "warnings"), DOUBTED)
def test_what_is_more_likely_a_slip(tmp_path: Path, decoding: dict[str, Any], warnings: dict[str, str]) -> None:
    (tmp_path / "datasets").mkdir()
    plan = make_plan(manifests.write(tmp_path, manifest_with({}, {}, decoding=decoding)), CPU, Overrides())
    wanted = [(f"training.decoding.{key}", f"{message}: {NO_GRAMMAR}") for key, message in warnings.items()]
    assert [(one.key, f"{one.message}; {one.suggestion}") for one in plan.warnings] == wanted
