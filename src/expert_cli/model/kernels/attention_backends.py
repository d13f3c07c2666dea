"""The attention back ends in order of preference, with their requirements and all their differences.

A new one is an entry in `BACKENDS` and, if transformers lacks it, a function in `attention.py`. This module does not import
torch, so that `doctor` can list the back ends before torch is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from expert_cli._compat import takes_attention
from expert_cli.config.run_config import Layout
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.key import Dtype
from expert_cli.manifest.keys.compute import Attention, DeviceName

MULTIPLE, WIDEST = 8, 256
"""FlashAttention's kernels need head dimensions that are multiples of MULTIPLE and at most WIDEST."""
ROWS_VARY = "its rows are as long as the longest of their batch"
DROPOUTS = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
"""Names of the attention dropout in transformers' configurations."""


def _varlen_lacks(device: DeviceName, dtype: Dtype, machine: Machine) -> str:
    if device == "cpu":
        return "varlen needs a GPU"
    if machine.torch_hip:
        return "varlen is for NVIDIA GPUs"
    if dtype == "fp32":
        return "varlen has no fp32"
    return "" if machine.gpus[0].is_ampere else "this GPU is older than Ampere"


def _varlen_refuses(model: Any) -> str:
    config = model.config.get_text_config()
    drops = any(getattr(config, name, None) for name in DROPOUTS)
    return _plain_refuses(model) or ("this model's attention has dropout" if drops else _odd_heads(model))


def _plain_refuses(model: Any) -> str:
    """Return why our functions cannot replace a model's attention, or "". They do softmax of scaled scores, and a window."""
    config = model.config.get_text_config()
    if not takes_attention(model):
        return f"{type(model).__name__} does not take its attention from outside"
    if getattr(config, "attn_logit_softcapping", None):
        return "this architecture caps attention scores"
    if getattr(config, "attention_chunk_size", None):
        return "this architecture attends within chunks"
    there = any("sinks" in name for name, _ in model.named_parameters())
    return "this architecture has attention sinks" if there else ""


def _odd_heads(model: Any) -> str:
    """Return why FlashAttention does not support a model's head dimensions, or "". They are found by transformers' names."""
    for own in map(vars, model.get_decoder().modules()):
        head = own.get("qk_head_dim") or own.get("head_dim") or own.get("head_size")
        if "is_causal" not in own or not head:
            continue
        if head > WIDEST or head % MULTIPLE or own.get("v_head_dim", head) != head:
            return (
                f"FlashAttention takes heads of {MULTIPLE} to {WIDEST}, multiples of {MULTIPLE}, values as wide as keys"
            )
    return ""


@dataclass(frozen=True)
class AttentionBackend:
    """One implementation of attention.

    name: in plans and messages. asked_by: the setting that selects it. layout: "packed": concatenated documents in one row;
    "padded": one row per pack, and a mask; "rows": one row per document. reason: for the kernel plan. lacks: why a machine
    cannot run it, or "". refuses: why it does not support a transformers model, on any device, or "". function: in
    `attention.py`; "": transformers has it under `name`. captures: why a CUDA graph cannot record it, or "".
    """

    name: str
    asked_by: Attention
    layout: Layout
    reason: str
    lacks: Callable[[DeviceName, Dtype, Machine], str] = lambda *_: ""
    refuses: Callable[[Any], str] = lambda _: ""
    function: str = ""
    captures: str = ""

    @property
    def registered(self) -> str:
        """The name by which transformers knows it."""
        return f"expert_{self.name}" if self.function else self.name


BACKENDS = (
    AttentionBackend(
        "varlen",
        "fused",
        "packed",
        "FlashAttention inside PyTorch; memory grows with the tokens, not their square",
        lacks=_varlen_lacks,
        refuses=_varlen_refuses,
        function="varlen_attention",
    ),
    AttentionBackend(
        "documents",
        "fused",
        "packed",
        "each document by itself, without a mask",
        refuses=_plain_refuses,
        function="per_document_sdpa",
        captures="it reads the documents' lengths",
    ),
    AttentionBackend("sdpa", "fused", "padded", "a mask separates documents", captures=ROWS_VARY),
    AttentionBackend(
        "eager",
        "eager",
        "padded",
        "as requested; a mask separates documents, memory grows with the square of the tokens",
        captures=ROWS_VARY,
    ),
    AttentionBackend("sdpa", "rows", "rows", "as requested; one document in each row, padded", captures=ROWS_VARY),
)
"""Of the entries for a setting, the first one that the machine can run and that supports the model is used."""


def attention_backend(name: str) -> AttentionBackend:
    """Return a back end by its name."""
    return {backend.name: backend for backend in BACKENDS}[name]


def loaded_with(asked: Attention) -> str | None:
    """Return the attention for loading a base model and for generation. None: SDPA if the architecture has it."""
    return "eager" if asked == "eager" else None


def choose_attention(
    asked: Attention, device: DeviceName, dtype: Dtype, machine: Machine, model: Any
) -> tuple[AttentionBackend, str]:
    """Return the back end for a setting on a machine, and the reason. model: transformers'."""
    words = []
    for backend in [backend for backend in BACKENDS if backend.asked_by == asked]:
        lack = backend.lacks(device, dtype, machine)
        reason = lack or backend.refuses(model)
        if not reason:
            break  # always for SDPA and eager, which have no requirements
        if not lack or device != "cpu":  # on a CPU the lack of GPU kernels is not reported
            words.append(reason)
    return backend, "; ".join([*dict.fromkeys(words), backend.reason])
