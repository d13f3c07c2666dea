"""A tiny model with an adapter that changes something, and a step of it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from expert_cli.estimate.memory_estimate import meta_adapter
from expert_cli.manifest.key import AdapterType, Quantization
from expert_cli.manifest.keys.peft import AdapterConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels.lora import fuse, patch_dora
from expert_cli.model.loading.quantize import load_base, meta_base
from tests import run_blocks, tiny

IDS = torch.arange(5, 45)[None]
WAYS: dict[AdapterType, Any] = {"lora": fuse, "rslora": fuse, "dora": patch_dora}
"""What lets the layers of an adapter compute as ours do."""
Found = dict[str, torch.Tensor]


def adapted(
    kind: AdapterType = "lora",
    base: Any = None,
    *,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float32,
    token_rows: Any = None,
) -> PeftModel:
    """Return a model in training, adapted on every linear layer, its factors and magnitudes far from where they begin."""
    torch.manual_seed(0)
    base = tiny.tiny_model(attention_bias=True).to(dtype) if base is None else base
    config = replace(run_blocks.ADAPTER, type=kind, dropout=dropout, target_modules=("all-linear",))
    made = add_adapter(base, config, token_rows)
    for name, parameter in made.named_parameters():
        if "lora_B" in name or name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
        if "magnitude" in name:
            parameter.data *= 1 + 0.3 * torch.rand_like(parameter)
    return made.train()


def ours(made: PeftModel, kind: AdapterType = "lora") -> PeftModel:
    """Return the same model, its layers' forward passes made ours."""
    assert WAYS[kind](made) == sum(hasattr(module, "lora_A") for module in made.modules()) > 0
    return made


def loaded(folder: Path, quantization: Quantization, dtype: torch.dtype) -> Any:
    """Return a base model as training loads it on a CPU."""
    return load_base(folder, quantization=quantization, dtype=dtype, device="cpu", attention="sdpa", rope_scaling={})


def step(made: PeftModel, dtype: torch.dtype = torch.float32) -> Found:
    """Return the loss and the gradients of a step; of one in fp32 without autocast, as training does it."""
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=dtype) if dtype != torch.float32 else nullcontext():
        loss = made(input_ids=IDS, labels=IDS, use_cache=False).loss
    loss.backward()
    found = {name: p.grad for name, p in made.named_parameters() if p.grad is not None}
    made.zero_grad()
    return {"loss": loss.detach()} | found


def distance(found: Found, expected: Found) -> float:
    """Return how far the loss or the gradient is from the one expected, relative to that."""
    assert found.keys() == expected.keys()
    (loss, *gradients), (true_loss, *true) = ([one.flatten() for one in of.values()] for of in (found, expected))
    pairs = (loss, true_loss), (torch.cat(gradients), torch.cat(true))
    return max(float((one - other).norm() / other.norm()) for one, other in pairs)


def meta_model(folder: Path, adapter: AdapterConfig, *, dtype: torch.dtype, attention: str | None) -> PeftModel:
    """Return the model of a folder with an adapter, all on the meta device, as the estimate makes it."""
    return meta_adapter(meta_base(folder, dtype=dtype, attention=attention), adapter)
