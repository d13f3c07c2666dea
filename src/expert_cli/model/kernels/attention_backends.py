"""The attention back ends, one entry each, in order of preference: what each needs, and all in which they differ.

A new one is an entry in `BACKENDS` and, where transformers has no such attention, a function in `attention.py`. Loads no
torch, so that `doctor` can name them before it tries them; whether varlen will do asks torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from expert_cli._compat import takes_attention, takes_flash_attention
from expert_cli.config.run_config import Layout
from expert_cli.hardware.machine import Machine, flash_attention_lacks
from expert_cli.manifest.key import Dtype
from expert_cli.manifest.keys.compute import Attention, DeviceName

WIDEST = 256
"""Numbers of a head up to which FlashAttention has kernels."""
ROWS_VARY = "its rows are as long as the longest of their batch"
DROPOUTS = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
"""The names under which configurations of transformers say the dropout of attention."""


@cache
def _parameters(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def repeats_for_varlen() -> bool:
    """Whether keys and values must be repeated for `varlen_attn`: that of torch 2.11 is not told of groups."""
    from torch.nn.attention.varlen import varlen_attn

    return "enable_gqa" not in _parameters(varlen_attn)


def _flash_lacks(device: DeviceName, dtype: Dtype, machine: Machine) -> str:
    return flash_attention_lacks(device, machine) or ("flash-attn has no fp32" if dtype == "fp32" else "")


def _flash_refuses(model: Any) -> str:
    if not takes_flash_attention(model):
        return f"transformers has no FlashAttention 2 for {type(model).__name__}"
    # it has dropout, and pads heads; transformers pads values
    return _sinks(model) or _odd_heads(model, multiple=1, pads_values=True)


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
    dropout = "this model's attention has dropout" if drops else ""
    return _plain_refuses(model) or dropout or _odd_heads(model, multiple=8, pads_values=False)


def _plain_refuses(model: Any) -> str:
    """Return why a model needs more than our functions compute: softmax of scaled scores, and a window."""
    config = model.config.get_text_config()
    if not takes_attention(model):
        return f"{type(model).__name__} does not take its attention from outside"
    if getattr(config, "attn_logit_softcapping", None):
        return "this architecture caps attention scores"
    if getattr(config, "attention_chunk_size", None):
        return "this architecture attends within chunks"
    return _sinks(model)


def _sinks(model: Any) -> str:
    there = any("sinks" in name for name, _ in model.named_parameters())
    return "this architecture has attention sinks" if there else ""


def _odd_heads(model: Any, *, multiple: int, pads_values: bool) -> str:
    """Return what FlashAttention cannot do with the heads of the layers that attend, by transformers' names for their dims."""
    for own in map(vars, model.get_decoder().modules()):
        head = own.get("qk_head_dim") or own.get("head_dim") or own.get("head_size")
        if "is_causal" not in own or not head:
            continue
        of_values = own.get("v_head_dim") or head
        if head > WIDEST:
            return f"heads of {head} are wider than FlashAttention's {WIDEST}"
        if head % multiple:
            return f"heads of {head} are no multiple of {multiple}"
        if of_values > head or (of_values < head and not pads_values):
            return f"values have heads of {of_values}, queries and keys of {head}"
    return ""


@dataclass(frozen=True)
class AttentionBackend:
    """One way to attend.

    name: as plans and messages say it. asked_by: the setting that it answers to. layout: "packed" takes documents end to
    end in one row, "padded" one row a pack and a mask. reason: in the kernel plan. lacks: why a machine cannot run it, or
    "". refuses: why it cannot serve a model (transformers', on any device), or "". function: ours, by its name in
    `attention.py`; "": transformers has it under `name`.

    What it keeps of a token: q, k, v, the result and the sums of the softmax. repeats_keys: whether k and v once for every
    query head. keeps_scores: every score too. captures: why a CUDA graph cannot record it, or "".

    For `doctor`, which tries what is packed: title, remedy where it does not work, required: nothing takes its place.
    """

    name: str
    asked_by: Attention
    layout: Layout
    reason: str
    lacks: Callable[[DeviceName, Dtype, Machine], str] = lambda *_: ""
    refuses: Callable[[Any], str] = lambda _: ""
    function: str = ""
    repeats_keys: Callable[[], bool] = lambda: False
    keeps_scores: bool = False
    captures: str = ""
    title: str = ""
    remedy: str = "training uses another back end here; reinstall torch to have this one too"
    required: bool = False

    @property
    def registered(self) -> str:
        """The name by which transformers knows it."""
        return f"expert_{self.name}" if self.function else self.name


BACKENDS = (
    AttentionBackend(
        "flash_attention_2",
        "flash",
        "packed",
        "as asked; documents are told apart by their borders",
        lacks=_flash_lacks,
        refuses=_flash_refuses,
        title="flash-attn",
        remedy="pip uninstall flash-attn, or build it again for this torch",
    ),
    AttentionBackend(
        "varlen",
        "fused",
        "packed",
        "FlashAttention inside PyTorch; memory grows with the tokens, not their square",
        lacks=_varlen_lacks,
        refuses=_varlen_refuses,
        function="varlen_attention",
        repeats_keys=repeats_for_varlen,
    ),
    AttentionBackend(
        "documents",
        "fused",
        "packed",
        "each document by itself, no mask of the row",
        refuses=_plain_refuses,
        function="per_document_sdpa",
        captures="it asks for the documents' lengths",
        remedy="reinstall torch",
        required=True,
    ),
    AttentionBackend("sdpa", "fused", "padded", "a mask keeps documents apart", captures=ROWS_VARY),
    AttentionBackend(
        "eager",
        "eager",
        "padded",
        "as asked; a mask of tokens x tokens keeps documents apart, memory grows with the square",
        captures=ROWS_VARY,
        repeats_keys=lambda: True,
        keeps_scores=True,
    ),
)
"""The first one that answers to the setting, that the machine can run and that does not refuse the model is used."""


def attention_backend(name: str) -> AttentionBackend:
    """Return a back end by its name."""
    return {backend.name: backend for backend in BACKENDS}[name]


def loaded_with(asked: Attention) -> str | None:
    """Return the attention with which a base model is loaded, and generates. None: SDPA where the architecture has it."""
    return "eager" if asked == "eager" else None


def choose_attention(
    asked: Attention, device: DeviceName, dtype: Dtype, machine: Machine, model: Any = None
) -> tuple[AttentionBackend, str]:
    """Return the back end for a setting on a machine, and the reason. model: transformers'; None: one that nothing refuses."""
    # where flash-attn cannot be had, what stands in for it is fused too
    asked_by = ("flash", "fused") if asked == "flash" else (asked,)
    words = []
    for backend in [backend for backend in BACKENDS if backend.asked_by in asked_by]:
        lack = backend.lacks(device, dtype, machine)
        reason = lack or ("" if model is None else backend.refuses(model))
        if not reason:
            break  # at the latest at SDPA or eager, which lack and refuse nothing
        # nobody on a CPU waits for a GPU's kernels, unless they were asked for by name
        if not lack or device != "cpu" or backend.asked_by != "fused":
            words.append(reason)
    return backend, "; ".join([*dict.fromkeys(words), backend.reason])
