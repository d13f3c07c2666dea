"""What one key of a manifest comes to: its row in the table of effects, and the value that the run has."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.hardware.machine import Machine
from tests import manifests
from tests.machines import CPU, H200, MI300X, PLAIN_CPU, RTX_4090, T4


class Told(NamedTuple):
    """training: what is written beside `manifests.small`. key: below `training`. values: of the run, by their paths."""

    key: str
    status: str
    words: str
    training: dict[str, Any]
    values: dict[str, Any] = {}  # noqa: RUF012  never changed
    machine: Machine = CPU
    evaluation: dict[str, Any] = {}  # noqa: RUF012


def config(
    key: str, status: str, words: str, written: dict[str, Any], values: dict[str, Any] | None = None, **more: Any
) -> Told:
    """A key of training.config."""
    return Told(f"config.{key}", status, words, {"config": written}, values or {}, **more)


def dataset(key: str, status: str, words: str, written: dict[str, Any], values: dict[str, Any] | None = None) -> Told:
    """A key of training.dataset."""
    return Told(f"dataset.{key}", status, words, {"dataset": written}, values or {})


def decoding(key: str, status: str, words: str, **written: Any) -> Told:
    """A key of training.decoding."""
    return Told(f"decoding.{key}", status, words, {"decoding": written})


ATTENTION_ONLY = {"activation_checkpointing": "attention_only"}
BEST = {"load_best_model_at_end": True}
BEST_ANSWERS = {**BEST, "metric_for_best_model": "execution_accuracy"}
EVERY_4 = {"evaluation": {"every_steps": 4}}
GRAPHS: dict[str, Any] = {"use_cuda_graphs": True, "cuda_graph_warmup_steps": 100}
RECOMPUTED = {"gradient_checkpointing": True, "dropout": 0.1}
COMPILED = {"torch_compile": True}
SQL_TASK = {"tasks": {"sql": {"train": "rows.jsonl", "valid": "v.jsonl", "test": "t.jsonl", "format": "jsonl"}}}


def saved(strategy: str, steps: int, evaluation: str = "steps") -> dict[str, Any]:
    """When a run saves and evaluates."""
    return {"watch.save_strategy": strategy, "watch.save_steps": steps, "watch.eval_strategy": evaluation}


def repeated(written: object, decided: str, words: str) -> Told:
    """Rows that stand twice."""
    filters = {"filters": {"deduplicate": written}}
    return dataset("filters.deduplicate", "applied", words, filters, {"data.filters.deduplicate": decided})


# fmt: off
CASES = [
    config("bf16", "applied", "trains in bf16", {}, {"compute.dtype": "bf16"}, machine=RTX_4090),
    config("bf16", "applied", "trains in fp16", {}, {"compute.dtype": "fp16"}, machine=T4),
    config("bf16", "adjusted", "no bfloat16", {"bf16": True}, {"compute.dtype": "fp32"}, machine=PLAIN_CPU),
    config("fp16", "adjusted", "bf16", {"fp16": True}, {"compute.dtype": "bf16"}),
    config("fp16", "applied", "fp32", {"fp16": False, "bf16": False}, {"compute.dtype": "fp32"}, machine=RTX_4090),
    config("fp16", "adjusted", "this GPU has no bfloat16", {"fp16": False}, {"compute.dtype": "fp16"}, machine=T4),
    config("activation_checkpointing", "adjusted", "every layer", ATTENTION_ONLY, {"compute.checkpointing": "all"}),
    config("gradient_checkpointing", "adjusted", "all layers", {"gradient_checkpointing": "selective", **ATTENTION_ONLY},
           {"compute.checkpointing": "all"}),
    config("gradient_checkpointing", "adjusted", "recorded without recomputation if it fits", RECOMPUTED,
           {"compute.checkpointing": "all"}, machine=H200),
    config("use_cuda_graphs", "applied", "recorded in a CUDA graph", GRAPHS, {"compute.capture": True}, machine=H200),
    config("use_cuda_graphs", "not_used", "CUDA graphs need a GPU", GRAPHS),
    config("cuda_graph_warmup_steps", "adjusted", "checked on the first micro-batch", GRAPHS, machine=H200),
    config("warmup_steps", "adjusted", "warmup_ratio decides", {"warmup_steps": 0, "warmup_ratio": 0.1},
           {"optim.warmup": 0.1}),
    config("warmup_steps", "not_used", "lr_scheduler greedy has no warm-up",
           {"lr_scheduler": "greedy", "eval_steps": 9, "warmup_steps": 3}, {"optim.warmup": 0.0}),
    config("optim", "adjusted", "AdEMAMix", {"optim": "ademamix_8bit"}, {"optim.optim": "adamw_8bit"}),
    config("device", "adjusted", "AMD's GPUs", {"device": "rocm"}, {"compute.device": "cuda"}, machine=MI300X),
    config("device", "adjusted", "cuda: no usable GPU: torch ", {"device": "cuda"}, {"compute.device": "cpu"}),
    config("lr_scheduler", "adjusted", "constant_with_warmup", {"lr_scheduler": "constant", "warmup_steps": 3}),
    config("flash_attention_2", "applied", "fused kernels", {"flash_attention_2": True}, machine=H200),
    config("flash_attention_2", "adjusted", "needs an NVIDIA GPU", {"flash_attention_2": True}),
    config("torch_compile_mode", "adjusted", "default", {**COMPILED, "torch_compile_mode": "reduce-overhead"},
           {"compute.compile_mode": "default"}),
    config("dropout", "not_used", "null", {"dropout": None}),
    config("save_total_limit", "applied", "every checkpoint", {"save_steps": 5, "save_total_limit": None}),
    config("save_strategy", "applied", '"steps", and one after', BEST, saved("steps", 500)),
    config("save_strategy", "adjusted", "at each evaluation",
           {**BEST, "save_strategy": "epoch", "eval_strategy": "steps", "eval_steps": 30}, saved("steps", 30)),
    config("save_steps", "adjusted", "every 60 steps (load_best_model_at_end needs a multiple of 30",
           {**BEST, "save_steps": 50, "eval_steps": 30}, saved("steps", 60)),
    config("save_strategy", "applied", '"no", and one after', {**BEST, "save_strategy": "no", "eval_steps": 30},
           saved("no", 500)),
    config("eval_strategy", "adjusted", "evaluation.every_steps decides", {"eval_strategy": "epoch"},
           {"watch.eval_strategy": "steps", "watch.eval_steps": 4, "watch.validates": True}, **EVERY_4),
    config("metric_for_best_model", "applied", "by execution_accuracy", BEST_ANSWERS,
           {"watch.validates": False, "watch.answers": 24, **saved("steps", 4)}, **EVERY_4),
    dataset("tasks.sql.test", "not_used", "never used in training", SQL_TASK),
    repeated(True, "row", "repeated rows are left out"),
    repeated("answer", "answer", "a repeated answer are left out"),
    decoding("grammar_type", "not_used", "is not true", grammar_type="sql"),
    decoding("use_grammar", "not_used", "xml is not a grammar of this tool", use_grammar=True, grammar_type="xml"),
    decoding("json_schema", "applied", "answers follow it", use_grammar=True, grammar_type="json-schema",
             json_schema={"type": "object", "_id": {"a": 1}}),
    Told("grpo.samples", "not_used", "Rewards in TRL", {"grpo": {"samples": 4}}),
]
# fmt: on


@pytest.mark.parametrize("case", CASES, ids=[f"{n} {case.key}" for n, case in enumerate(CASES)])
def test_one_key(tmp_path: Path, case: Told) -> None:
    (tmp_path / "rows.jsonl").touch()
    manifest = {**manifests.small(), "evaluation": case.evaluation}
    for block, keys in case.training.items():
        manifest["training"][block] = {**manifest["training"].get(block, {}), **keys}
    plan = make_plan(manifests.write(tmp_path, manifest), case.machine, Overrides())
    row = {row.key: row for row in (*plan.defaults, *plan.effects)}[f"training.{case.key}"]
    assert row.status == case.status
    assert case.words in (f"{row.effect} ({row.reason})" if row.reason else row.effect)
    assert {path: attrgetter(path)(plan.run) for path in case.values} == case.values
