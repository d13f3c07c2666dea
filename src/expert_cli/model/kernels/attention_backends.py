"""The attention back ends, one entry each, in order of preference: what each needs, and all in which they differ.

A new one is an entry in `BACKENDS` and, where transformers has no such attention, a function in `attention.py`. Loads no
torch, so that `doctor` can name them before it tries them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from expert_cli.config.run_config import Layout
from expert_cli.errors import InputError
from expert_cli.hardware.machine import Machine, has_package
from expert_cli.manifest.keys.compute import Attention, DeviceName
from expert_cli.manifest.types import Dtype


def _flash_lacks(device: DeviceName, dtype: Dtype, machine: Machine) -> str:  # noqa: ARG001
    if device == "cpu":
        return "flash-attn needs a GPU"
    if not has_package("flash_attn"):
        return "flash-attn is not installed"
    return "flash-attn has no fp32" if dtype == "fp32" else ""


def _varlen_lacks(device: DeviceName, dtype: Dtype, machine: Machine) -> str:
    if device == "cpu":
        return "varlen needs a GPU"
    if dtype == "fp32":
        return "varlen has no fp32"
    if not importlib.util.find_spec("torch.nn.attention.varlen"):
        return "this torch is older than 2.10"
    return "" if machine.gpus[0].has_bf16 else "this GPU is older than Ampere"


@dataclass(frozen=True)
class AttentionBackend:
    """One way to attend.

    name: as plans and messages say it. asked_by: the setting that it answers to. layout: "packed" takes documents end to
    end in one row, "padded" one row a pack and a mask. reason: in the kernel plan. lacks: why a machine cannot run it, or
    "". function: ours, by its name in `attention.py`; "": transformers has it under `name`. batches_on_cpu: short documents
    go through `cpu_attention` there.

    What it keeps of a token: q, k, v, the result and the sums of the softmax. repeats_keys: k and v once for every query
    head. keeps_scores: every score too.

    For `doctor`, which tries what is packed: title, remedy where it does not work, required: nothing takes its place.
    """

    name: str
    asked_by: Attention
    layout: Layout
    reason: str
    lacks: Callable[[DeviceName, Dtype, Machine], str] = lambda *_: ""
    function: str = ""
    batches_on_cpu: bool = False
    repeats_keys: bool = False
    keeps_scores: bool = False
    title: str = ""
    remedy: str = "training uses another back end here; reinstall torch to have this one too"
    required: bool = False

    @property
    def registered(self) -> str:
        """The name by which transformers knows it."""
        return f"expert_{self.name}" if self.function else self.name


BACKENDS = (
    AttentionBackend(
        name="flash_attention_2",
        asked_by="flash",
        layout="packed",
        reason="as asked; documents are told apart by their borders",
        lacks=_flash_lacks,
        title="flash-attn",
        remedy="pip uninstall flash-attn, or build it again for this torch",
    ),
    AttentionBackend(
        name="varlen",
        asked_by="fused",
        layout="packed",
        reason="FlashAttention inside PyTorch; memory grows with the tokens, not their square",
        lacks=_varlen_lacks,
        function="varlen_attention",
        repeats_keys=True,
    ),
    AttentionBackend(
        name="documents",
        asked_by="fused",
        layout="packed",
        reason="each document by itself, no mask of the row",
        function="per_document_sdpa",
        batches_on_cpu=True,
        remedy="reinstall torch",
        required=True,
    ),
    AttentionBackend(
        name="sdpa",
        asked_by="fused",
        layout="padded",
        reason="a mask keeps documents apart",
    ),
    AttentionBackend(
        name="eager",
        asked_by="eager",
        layout="padded",
        reason="as asked; a mask of tokens x tokens keeps documents apart, memory grows with the square",
        repeats_keys=True,
        keeps_scores=True,
    ),
)
"""The first one that answers to the setting and that the machine can run is used."""


def attention_backend(name: str) -> AttentionBackend:
    """Return a back end by its name. Raises InputError naming those there are."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    there = ", ".join(backend.name for backend in BACKENDS)
    raise InputError(f'there is no attention back end "{name}"', f"take one of {there}")


def loaded_with(asked: Attention) -> str:
    """Return transformers' own attention with which a base model is loaded, and generates; others are put on it later."""
    return "eager" if asked == "eager" else "sdpa"


def choose_attention(
    asked: Attention, device: DeviceName, dtype: Dtype, machine: Machine
) -> tuple[AttentionBackend, str]:
    """Return the back end for a setting on a machine, and the reason: why not a better one, and what this one is."""
    # where flash-attn cannot be had, what stands in for it is fused too
    asked_by = ("flash", "fused") if asked == "flash" else (asked,)
    able = [(backend, backend.lacks(device, dtype, machine)) for backend in BACKENDS if backend.asked_by in asked_by]
    place = next(place for place, (_, lack) in enumerate(able) if not lack)  # sdpa and eager lack nothing
    # nobody on a CPU waits for a GPU's kernels, unless they were asked for by name
    words = [lack for backend, lack in able[:place] if device == "cuda" or backend.asked_by != "fused"]
    chosen = able[place][0]
    more = ["short ones by batched matrix products"] if device == "cpu" and chosen.batches_on_cpu else []
    return chosen, "; ".join([*words, chosen.reason, *more])
