"""What must hold before a step is measured: packed documents are alone, and NF4 with a copy is NF4."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

LONGEST = 1024
"""Tokens of the longest document that the check reads: beyond 512 a CPU attends in another way."""
DEQUANTIZES = 1537
"""Tokens from which bitsandbytes 0.50.2 multiplies with the dequantized weight on a GPU (its
_gemm_4bit_use_custom_cuda); shorter inputs go through kernels of its own, which add up in another order."""


def check(folder: Path, *, on_gpu: bool) -> dict[str, str]:
    """Check that packed documents are alone and that NF4 with a copy is NF4, bit for bit; return a line each.

    Raises SystemExit if either fails: figures of a wrong step are worth nothing.
    """
    from expert_cli.hardware import machine
    from expert_cli.utils.process_setup import prepare_process

    prepare_process()
    import torch

    from expert_cli.model import isolation
    from expert_cli.model.kernels import attention
    from expert_cli.model.kernels.attention_backends import BACKENDS

    here = machine.inspect()
    found = {"machine": f"{here.cores} cores, load {os.getloadavg()[0]:.1f}"}
    for backend in BACKENDS:
        if backend.layout == "padded" or backend.lacks("cuda" if on_gpu else "cpu", "bf16", here):
            continue
        model = _load(folder, "bf16", on_gpu=on_gpu)
        attention.use(model, backend.name)
        isolation.prove(model, "packed", backend.name, LONGEST, autocast=torch.bfloat16)
        found[f"isolation, {backend.name}"] = f"proven on {isolation.packs(LONGEST, None)} tokens"
    plain, dequantized = (_loss_and_gradients(folder, on_gpu=on_gpu, copy=copy) for copy in (False, True))
    same = all(torch.equal(a, b) for a, b in zip(plain, dequantized, strict=True))
    found["NF4 with copy"] = f"{DEQUANTIZES} tokens: loss and {len(plain) - 1} gradients bitwise equal to NF4's: {same}"
    if not same:
        raise SystemExit("NF4 with a copy is not NF4")
    return found


def _load(folder: Path, quantization: Any, *, on_gpu: bool) -> Any:
    import torch

    from expert_cli.model.loading.quantize import load_base

    return load_base(
        folder,
        quantization=quantization,
        dtype=torch.bfloat16,
        device="cuda" if on_gpu else "cpu",
        attention="sdpa",
        rope_scaling={},
    )


def _loss_and_gradients(folder: Path, *, on_gpu: bool, copy: bool) -> list[Any]:
    """Return the loss of one made-up document and the adapter's gradients, B not zero, so that A has some too."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from expert_cli.config.defaults.training import adapter
    from expert_cli.config.settings import Settings
    from expert_cli.manifest.training_config import TrainingConfig
    from expert_cli.model.adapter import add_adapter
    from expert_cli.model.kernels.dequantize import dequantize_linears

    model = _load(folder, "int4", on_gpu=on_gpu)
    if copy:
        dequantize_linears(model, torch.bfloat16)
    torch.manual_seed(0)
    adapted = add_adapter(model, adapter(Settings(TrainingConfig(rank=16))))
    trained = [p for p in adapted.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.data.normal_(std=0.02)
    ids = 1 + torch.arange(DEQUANTIZES, device=model.device)[None] % (model.config.vocab_size - 1)
    # FlashAttention's backward pass adds up in no fixed order.
    with sdpa_kernel(SDPBackend.MATH), torch.autocast(model.device.type, dtype=torch.bfloat16):
        loss = adapted(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
    return [loss.detach(), *(p.grad for p in trained)]
