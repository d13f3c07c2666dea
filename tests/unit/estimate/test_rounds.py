"""The memory that drawing answers takes is that of the tensors it holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM

from expert_cli.config.resolve import resolve
from expert_cli.estimate.model_shape import meta_model, shape_of
from expert_cli.estimate.rounds import sampling_bytes
from expert_cli.evaluation.evaluate import BATCH, DEFAULT_NEW_TOKENS
from expert_cli.inference.cache import PreallocatedCache
from expert_cli.manifest.reader import load_manifest
from expert_cli.model.adapter import add_adapter
from tests import manifests, tiny
from tests.machines import CPU


def test_weights_packed_weights_cache_and_scores_are_counted(tmp_path: Path) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "tiny")
    manifest = manifests.write(tmp_path, manifests.small(bf16=True, max_seq_length=64))
    run = resolve(load_manifest(manifest), CPU)
    shape = shape_of(meta_model(folder, run.adapter, dtype=torch.bfloat16, attention="sdpa"))
    base: Any = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    linear = sum(layer.weight.nbytes for layer in base.model.modules() if isinstance(layer, torch.nn.Linear))
    cache = PreallocatedCache(base.config)
    ids = torch.ones((BATCH["cpu"], 64 + DEFAULT_NEW_TOKENS), dtype=torch.long)
    scores = base(ids, past_key_values=cache, logits_to_keep=1).logits[:, -1].float()
    kept = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    weights = sum(one.nbytes for one in base.parameters())
    adapter = sum(one.numel() * 2 for one in add_adapter(base, run.adapter).parameters() if one.requires_grad)
    assert sampling_bytes(shape, run, 0) == weights + linear + adapter + kept + scores.nbytes
    on_gpu = replace(run, compute=replace(run.compute, device="cuda"))
    without = sampling_bytes(shape, on_gpu, 7) - 7 - (kept + scores.nbytes) * BATCH["gpu"] // BATCH["cpu"]
    assert without == weights + adapter
