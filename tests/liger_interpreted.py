"""`python -m tests.liger_interpreted`: training steps with Liger's kernels in Triton's interpreter, a line of JSON each.

A process of its own: TRITON_INTERPRET is read when Triton is imported, and Liger puts its functions into transformers' modules
for good.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

from typing import Any

import numpy as np
import torch
import triton.language as tl
from liger_kernel.ops import rms_norm
from triton.runtime import interpreter

from expert_cli._compat import apply_liger
from expert_cli.data.packing.batches import Collator
from expert_cli.model import isolation
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.layers import enable_activation_checkpointing
from tests import run_blocks, tiny
from tests.packs import model_inputs, pack


def complete_interpreter() -> None:
    """Give Triton 3.7's interpreter what it lacks: fp32 scalars as tensors, and a body for libdevice's rsqrt."""
    own = interpreter._implicit_cvt

    def converted(value: Any) -> Any:
        if isinstance(value, float):
            return tl.tensor(interpreter.TensorHandle(np.array([value], np.float32), tl.float32), tl.float32)
        return own(value)

    interpreter._implicit_cvt = converted
    rms_norm.rsqrt = lambda x: tl.rsqrt(x)  # noqa: PLW0108  the interpreter replaces tl.rsqrt later


def gradients(architecture: tiny.Architecture, recomputed: Any, *, liger: bool) -> tuple[int, float, torch.Tensor]:
    """Return how many modules are Liger's, the loss of two packs and the adapter's gradients in one row."""
    model: Any = tiny.tiny_model(architecture)
    model.requires_grad_(False)
    if liger:
        apply_liger(model)
    forwards = [vars(module).get("forward") for module in model.modules()]
    fused = sum(str(getattr(forward, "__module__", "")).startswith("liger_kernel") for forward in forwards)
    attention.use(model, "documents")
    isolation.prove(model, "packed", "documents", 64)
    adapted = add_adapter(model, run_blocks.ADAPTER)
    torch.manual_seed(0)
    trained = [p for p in adapted.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.data.normal_(std=0.05)
    enable_activation_checkpointing(model, recomputed, reentrant=False)
    batch = model_inputs(Collator(0), pack(5, 9, 2), pack(7, 8))
    loss = CausalLoss(adapted).train()(**batch)
    loss.backward()
    return fused, loss.item(), torch.cat([p.grad.flatten() for p in trained if p.grad is not None])


def main() -> None:
    """Compare a step with Liger's kernels with one by transformers' own modules, which come first: Liger stays."""
    complete_interpreter()
    names: dict[str, tiny.Architecture] = {"llama": "llama", "qwen3": "qwen3"}
    for architecture in names.values():
        forms = ("off", "all")
        plain = {form: gradients(architecture, form, liger=False) for form in forms}
        for form in forms:
            fused, loss, found = gradients(architecture, form, liger=True)
            _, own_loss, own = plain[form]
            difference = float((found - own).norm() / own.norm())
            sys.stdout.write(
                json.dumps({"fused": fused, "loss": loss, "own_loss": own_loss, "difference": difference}) + "\n"
            )


if __name__ == "__main__":
    main()
