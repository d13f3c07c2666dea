"""Memory of a training step by component, from shapes and settings.

A step is largest when the forward pass is done and the head's logits are there, or a moment later in the first layers of the
backward pass. What a decoder layer keeps until then, per token (w: bytes of a number in the compute dtype):

    norm              4 x width         its input in fp32 (Liger's kernels: w x width)
    LoRA              w x (inputs + rank)     a copy of the input, made where autocast narrows its fp32 form; fused: no copy
    DoRA              2 w x outputs more      and the weight once
    LoKr              w x inputs              and the weight once
    IA3               w x outputs, or 4 x inputs in the feed-forward block
    attention         w x (2 heads + 2 key heads) + 4 a head      q, k, v, the result, the sums of the softmax;
                      short documents on a CPU: w x (heads + 2 key heads), w x longest a head, the probabilities
    gated product     w x 3 inner       gate, its activation, up

A recomputed layer keeps its input, and one such layer at a time everything above.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

from expert_cli.config.run_config import Checkpointing, DeviceName
from expert_cli.estimate.model_shape import Layer, Norm, Part, Shape, linear_weights, stored_bytes
from expert_cli.manifest.types import AdapterType, Dtype, Quantization
from expert_cli.model.kernels.chunked_loss import CHUNK_BYTES
from expert_cli.model.kernels.cpu_attention import is_supported
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.training.checkpointing.adapter_state import optimizer_bytes
from expert_cli.training.heap import GROWN

BYTES: Mapping[Dtype, int] = {"bf16": 2, "fp16": 2, "fp32": 4}
CONTEXT_BYTES = 500 << 20
"""What CUDA itself takes of a card, where none is here to measure it on: an assumption, cards differ by 300 MB."""
TRAINER_BYTES = 190 << 20
"""What a training process holds beyond the plan's: Trainer, optimizer, data. Measured with a model of a few MB on a CPU."""
HOLES = 1.3
"""Of the outputs of all adapted layers: what the heap keeps of them beside what is alive."""
NEW_SHAPES: Mapping[Dtype, int] = {"bf16": 97 << 20, "fp16": 97 << 20, "fp32": 30 << 20}
"""What a CPU's memory grows by with the square root of the steps, because hardly two batches have documents of like lengths."""
MB = 2**20


@dataclass(frozen=True)
class StepSettings:
    """What memory depends on besides the shapes.

    tokens: places of the largest micro-batch, padding included; longest: of its longest row or document; trained: places
    that reach the head. attention: the back end's name. steps: of the whole run.
    """

    device: DeviceName
    dtype: Dtype
    quantization: Quantization
    dequantized: bool
    checkpointing: Checkpointing
    attention: str
    fused: bool
    fused_lora: bool
    full_logits: bool
    optim: str
    adapter: AdapterType
    rank: int
    dropout: bool
    tokens: int
    longest: int
    trained: int
    steps: int

    @property
    def element(self) -> int:
        """Bytes of a number in the compute dtype."""
        return BYTES[self.dtype]

    @property
    def stored_element(self) -> int:
        """Bytes of a number of the base model that is not quantized."""
        return 2 if self.quantization in ("bf16", "fp16") else self.element


def components(shape: Shape, setting: StepSettings, process: int) -> dict[str, int]:
    """Return the bytes of every component at the step's peak; `process`: of the CUDA context or of the Python process."""
    linear = linear_weights(shape)
    copy = linear * setting.element if setting.dequantized else 0
    stored = stored_bytes(shape, setting.quantization, setting.stored_element)
    if setting.dequantized:  # the copy takes the quantized weights' place
        stored = shape.other * setting.stored_element
    head = head_bytes(shape, setting)
    parts = {
        "base_weights": stored,
        "dequantised_copy": copy,
        "adapter": 4 * shape.adapter_parameters,
        "gradients": 4 * shape.adapter_parameters,
        "optimizer": sum(optimizer_bytes(tensor, setting.optim) for tensor in shape.adapter),
        "activations": activation_bytes(shape, setting),
        "head_chunk": head,
        "backward": max(0, _backward_bytes(shape, setting) - head),
    }
    heap = _heap_bytes(shape, setting, process + sum(parts.values()))
    return {**parts, "heap": heap, "process": process}


def activation_bytes(shape: Shape, setting: StepSettings) -> int:
    """Return what the forward pass of the largest micro-batch leaves for the backward pass, the head left out."""
    entry = setting.stored_element * shape.hidden * setting.tokens
    attention = [attention_bytes(layer, setting) for layer in shape.layers]
    rest = [part_bytes(layer.rest, setting) for layer in shape.layers]
    whole = [a + r for a, r in zip(attention, rest, strict=True)]
    common = _norm_bytes(Norm(shape.hidden), setting) * setting.tokens
    count = len(whole)
    if setting.checkpointing == "all":
        return common + count * entry + max(whole, default=0)
    if setting.checkpointing == "selective":
        return common + -(-count // 2) * entry + sum(whole[1::2]) + max(whole, default=0)
    if setting.checkpointing == "attention_only":
        return common + count * entry + sum(rest) + max(attention, default=0)
    return common + sum(whole)


def head_bytes(shape: Shape, setting: StepSettings) -> int:
    """Return the bytes of logits and what is made of them.

    In chunks: the logits, which become their slopes, and fp32 log-probabilities; and the hidden states of the trained
    places with their gradient. In full: the model's logits and, of the trained places, an fp32 copy, its logarithm, and
    the gradient of it.
    """
    hidden = 2 * setting.trained * shape.hidden * setting.element
    if setting.full_logits:
        selected = setting.trained * shape.vocabulary * (setting.element + 12)
        return hidden + 2 * setting.tokens * shape.vocabulary * setting.element + selected
    rows = min(setting.trained, max(16, CHUNK_BYTES[setting.device] // (4 * shape.vocabulary)))
    return hidden + rows * shape.vocabulary * (4 + setting.element)


def _heap_bytes(shape: Shape, setting: StepSettings, used: int) -> int:
    """Return what a CPU's heap keeps beside the `used` bytes that are alive.

    glibc's aligned allocations do not fit into the holes that equal ones left (with MALLOC_MMAP_THRESHOLD_=262144 there are
    none), and oneDNN keeps the code of its last 1,024 products, most of them of shapes that do not come again: from step 3
    to 8 a model of a few MB grew by 134 MB, and by 15 MB with ONEDNN_PRIMITIVE_CACHE_CAPACITY=32. It ends where
    `HeapKeeper` gives pages back.
    """
    if not _has_heap(setting):
        return 0
    outputs = sum(sum(layer.attention.outputs) + sum(layer.rest.outputs) for layer in shape.layers)
    first = int(HOLES * setting.tokens * setting.element * outputs)
    return first + growth_bytes(setting, used + first)


def growth_bytes(setting: StepSettings, first: int) -> int:
    """Return by how much a process that takes `first` bytes in its first step has grown after `setting.steps`."""
    if not _has_heap(setting):
        return 0
    return min(int(NEW_SHAPES[setting.dtype] * (setting.steps**0.5 - 1)), int((GROWN - 1) * first))


def _has_heap(setting: StepSettings) -> bool:
    """Whether memory is glibc's to keep."""
    return setting.device == "cpu" and platform.system() == "Linux"


def _is_mixed(setting: StepSettings) -> bool:
    """Whether autocast narrows the adapter's fp32 numbers."""
    return setting.dtype != "fp32"


def _is_batched(setting: StepSettings) -> bool:
    """Whether `cpu_attention` attends."""
    return setting.attention == "documents" and is_supported(setting.device, DTYPES[setting.dtype], setting.longest)


def attention_bytes(layer: Layer, setting: StepSettings) -> int:
    """Return what one attention block keeps."""
    keys = layer.heads if setting.attention in ("varlen", "eager") else layer.key_heads
    kept = setting.element * (2 * layer.heads + 2 * keys) + 4 * layer.head_count
    if _is_batched(setting):
        kept = setting.element * (layer.heads + 2 * keys + layer.head_count * setting.longest)
    if setting.attention == "eager":
        kept += layer.head_count * setting.longest * (4 + setting.element)
    return setting.tokens * kept + part_bytes(layer.attention, setting)


def part_bytes(part: Part, setting: StepSettings) -> int:
    """Return what norms, adapted layers and a gated product keep."""
    kept = sum(_norm_bytes(norm, setting) for norm in part.norms)
    kept += setting.element * part.inner * (2 if setting.fused else 3)
    kept += _adapter_bytes(part, setting)
    weights = part.trained * setting.element if _is_mixed(setting) else 0
    if setting.adapter in ("dora", "lokr"):
        weights += part.weights * setting.element
    return setting.tokens * kept + weights


def _adapter_bytes(part: Part, setting: StepSettings) -> int:
    """Return what the adapted layers of a part keep of a token."""
    element = setting.element
    if setting.adapter == "ia3":
        return element * sum(part.outputs) + 4 * sum(part.scaled_inputs)
    copies = _is_mixed(setting) and not setting.fused_lora
    kept = element * sum(part.inputs if copies or setting.dropout else part.shared)
    if setting.adapter == "lokr":
        return kept
    if setting.dropout:  # a byte of mask on a GPU, the factors themselves on a CPU
        kept += sum(part.inputs) * (1 if setting.device == "cuda" else 4)
    if setting.adapter == "dora":
        kept += 2 * element * sum(part.outputs)
    return kept + element * setting.rank * len(part.inputs)


def _norm_bytes(norm: Norm, setting: StepSettings) -> int:
    if not norm.chained:
        return 0
    return norm.width * (setting.stored_element if setting.fused else 4)


def _backward_bytes(shape: Shape, setting: StepSettings) -> int:
    """Return the largest temporaries of a layer's backward pass: gradients of its widest product, and a weight unpacked.

    Of the down projection's input alone there are the gradient, the adapter's share of it in the compute dtype and in
    fp32, and their sum; then those of gate and up.
    """
    widest = max((layer.rest.inner or shape.hidden for layer in shape.layers), default=shape.hidden)
    unpacked = 0
    if setting.quantization in ("int4", "int8") and not setting.dequantized:
        unpacked = max((rows * columns for rows, columns in shape.linear), default=0) * setting.element
    wide = 4 if _is_mixed(setting) and not setting.fused_lora else 0
    return setting.tokens * widest * (3 * setting.element + wide) + unpacked
