"""What of a manifest does not go together, and what is more likely a slip: each at the key where it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.resolve import resolve
from expert_cli.errors import ManifestError
from expert_cli.manifest.reader import load_manifest
from tests import manifests
from tests.machines import CPU

BEST = {"load_best_model_at_end": True}
RFT = {"config": {"method": "rft"}}
PROMPTS = {"prompts": "p.jsonl"}

REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("config.pretokenized_cache", "outside the project root", {"config": {"pretokenized_cache": "../elsewhere"}}),
    ("config.fp16", "fp16 and bf16 are both true", {"config": {"fp16": True, "bf16": True}}),
    (
        "config.lr_scheduler_kwargs",
        "num_cycles",
        {"config": {"lr_scheduler": "linear", "lr_scheduler_kwargs": {"num_cycles": 3}}},
    ),
    (
        "config.lr_scheduler",
        "needs one of lr_scheduler_kwargs.min_lr and",
        {"config": {"lr_scheduler": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-6, "min_lr_rate": 0.1}}},
    ),
    ("config.lr_scheduler", "kwargs.num_decay_steps", {"config": {"lr_scheduler": "warmup_stable_decay"}}),
    ("config.lr_scheduler", "greedy goes by evaluations", {"config": {"lr_scheduler": "greedy"}}),
    (
        "config.eval_strategy",
        '"no" leaves early_stopping_patience nothing',
        {"config": {"early_stopping_patience": 2, "eval_strategy": "no"}},
    ),
    ("config.eval_strategy", '"no" leaves load_best_model_at_end', {"config": {**BEST, "eval_strategy": "no"}}),
    (
        "config.metric_for_best_model",
        "execution_accuracy without evaluation.every_steps",
        {"config": {**BEST, "metric_for_best_model": "execution_accuracy", "save_strategy": "steps"}},
    ),
    (
        "config.metric_for_best_model",
        "there is no eval_summs_loss: eval_sums_loss, eval_sevens_loss",
        {
            "config": {**BEST, "metric_for_best_model": "eval_summs_loss"},
            "dataset": {"validation_path": {"sums": "a.jsonl", "sevens": "b.jsonl"}},
        },
    ),
    ("config.chat_template_path", "missing.jinja cannot be read", {"config": {"chat_template_path": "missing.jinja"}}),
    (
        "config.chat_template_path",
        "does not go with prompt_template alpaca",
        {"config": {"chat_template_path": "manifest.json"}, "base": {"prompt_template": "alpaca"}},  # any file
    ),
    ("config.fsdp", "quantization int8", {"config": {"fsdp": True}, "base": {"quantization": "int8"}}),
    ("config.fsdp", "has no whole model", {"config": {"fsdp": "full_shard"}, "evaluation": {"every_steps": 5}}),
    ("config.fsdp", "does not go with method rft", {"config": {"fsdp": True, "method": "rft"}, "rft": PROMPTS}),
    ("dataset.type", "tasks", {"dataset": {"type": "single", "tasks": {"a": {"train": "a.jsonl"}}}}),
    (
        "dataset.text_field",
        "field_mapping.text",
        {"dataset": {"text_field": "a", "field_mapping": {"text": "b"}}},
    ),
    ("dataset.text_field", "response", {"dataset": {"text_field": "a", "field_mapping": {"response": "b"}}}),
    (
        "dataset.field_mapping.messages",
        "response",
        {"dataset": {"field_mapping": {"messages": "a", "response": "b"}}},
    ),
    *(
        ("dataset.path", "is not a split with a slice", {"dataset": {"path": f"rows.jsonl::train{one}"}})
        for one in ("[abc]", "[:5")
    ),
    ("rft.prompts", "is missing: method rft draws answers to them", {**RFT, "rft": {}}),
    ("rft.keep", "0, and gold is never", {**RFT, "rft": {**PROMPTS, "keep": 0, "gold": "never"}}),
    *(
        ("rft.prompts", "rounds train rows of prompt and answer", {**RFT, "rft": PROMPTS, "dataset": whole_rows})
        for whole_rows in ({"text_field": "text"}, {"field_mapping": {"text": "t"}})
    ),
]


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
        resolve(loaded, CPU)
    (fault,) = caught.value.faults
    assert fault.key == f"training.{key}"
    assert words in f"{fault.message}; {fault.suggestion}"
    assert fault.line > 1


def test_a_pair_that_two_layers_make_is_refused_where_the_one_that_won_stands(tmp_path: Path) -> None:
    manifest = manifests.small(bf16=True)
    manifest["base_models"][0]["config"] = {"fp16": True}
    path = manifests.write(tmp_path, manifest)
    with pytest.raises(ManifestError, match="fp16 and bf16 are both true") as caught:
        resolve(load_manifest(path), CPU)
    (fault,) = caught.value.faults
    assert fault.key == "base_models[0].config.fp16"
    assert '"fp16"' in path.read_text(encoding="utf-8").splitlines()[fault.line - 1]


def test_a_cache_behind_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "experts" / "e").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path, target_is_directory=True)
    loaded = load_manifest(manifests.write(root / "experts" / "e", manifests.small(pretokenized_cache="link/store")))
    with pytest.raises(ManifestError, match="outside the project root"):
        resolve(loaded, CPU)
