"""Estimates the memory of a training step by component.

Weights, adapter, optimizer and the head's chunk are computed from shapes. The activations of the layers are the bytes that
autograd saves in a forward pass of the largest micro-batch over fake tensors. The peak is after that pass with the head's
logits, or a moment later in the backward pass of the last layers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from expert_cli._compat import fake_tensors
from expert_cli.config.run_config import QUANTIZED, Layout, RunConfig
from expert_cli.data.packing.batches import Schedule, orders_of, schedule_of
from expert_cli.data.packing.packed_dataset import PackedDataset
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.key import Quantization
from expert_cli.manifest.keys.peft import AdapterConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.flat_parameters import optimizer_bytes
from expert_cli.model.flops import frozen_linears
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import BACKENDS
from expert_cli.model.kernels.chunked_loss import CHUNK_BYTES, chunk_rows
from expert_cli.model.kernels.kernel_plan import KernelPlan, apply_adapter_kernels, kernel_plan, with_capture
from expert_cli.model.layers import decoder_layers
from expert_cli.model.loading.quantize import DTYPES, autocast_of, weights_dtype
from expert_cli.model.vocabulary_rows import base_layer

CONTEXT_BYTES = 500 << 20
"""Memory of the CUDA context on a card: assumed, not measured; cards differ by 300 MB."""
TRAINER_BYTES = 190 << 20
"""Memory of a training process beyond that of the plan: Trainer, optimizer, data. Measured for a model of a few MB on a CPU."""
SHARING = 2
"""The smallest number of processes that can share a base model (fsdp)."""
FUSED_SHARE = 0.75
"""Share of saved bytes that remains with Liger's norms and activations, which do not run here; for Qwen3-0.6B's shape."""
MB = 2**20
NF4_BLOCK, NESTED_BLOCK = 64, 256
NF4_TABLES = 4 * (16 + 256 + 1)
"""Bytes of a quantized weight's tables: 16 NF4 values, 256 values of its nested scales, one offset; all fp32."""


def meta_adapter(
    base: PreTrainedModel, adapter: AdapterConfig, token_rows: Mapping[str, Sequence[int]] | None = None
) -> PeftModel:
    """Return a model with its adapter on the meta device. Raises as `add_adapter`."""
    with torch.device("meta"):
        return add_adapter(base, replace(adapter, init_adapter=None), token_rows)


@dataclass(frozen=True)
class Workload:
    """The work of a run.

    tokens: without padding. trained_share: of tokens, those with a loss. evaluated_tokens: of all evaluations together.
    """

    schedule: Schedule
    packs: PackedDataset
    tokens: int
    trained_share: float
    evaluated_tokens: int

    def largest(self, batch: int, layout: Layout, fixed: int = 0) -> tuple[int, int]:
        """Return (places, longest row) of the largest micro-batch of `batch` packs; fixed > 0: all have that many places."""
        longest = self.packs.pack_lengths.largest(batch)
        if layout == "padded":
            return longest[0] * len(longest), longest[0]
        return max(fixed, sum(longest)), self.packs.document_lengths.longest


def work_of(run: RunConfig, data: PackedDataset, stats: Mapping[str, Mapping[str, int]]) -> Workload:
    """Return the work of a run over its packs. stats: of each split of the token store."""
    schedule = schedule_of(run, data, int(os.environ.get("WORLD_SIZE", "1")))
    # whole epochs at once, the last one pack by pack: only an epoch's last step may be short
    epochs, rest = divmod(schedule.steps, schedule.steps_per_epoch)
    tokens = epochs * data.document_lengths.tokens
    if rest:
        begun = orders_of(run, data)(epochs)[: rest * schedule.packs_per_step]
        tokens += int(data.plan(epochs).lengths[begun].sum())
    train = stats["train"]
    held_out = stats.get("validation", {}).get("tokens", 0) if run.watch.validates else 0
    every = schedule.steps_per_epoch if run.watch.eval_strategy == "epoch" else run.watch.eval_steps
    evaluated = held_out * -(-schedule.steps // every)  # the last step is evaluated, too
    return Workload(schedule, data, tokens, train["trained_tokens"] / max(1, train["tokens"]), evaluated)


@dataclass(frozen=True)
class Step:
    """The step that the memory is estimated for. tokens: places of the largest micro-batch, with padding; longest: those of its
    longest row or document; trained: places that reach the head.
    """

    model: PeftModel
    run: RunConfig
    kernels: KernelPlan
    tokens: int
    longest: int
    trained: int

    @property
    def element(self) -> int:
        """Bytes of a number in the compute dtype."""
        return DTYPES[self.run.compute.dtype].itemsize

    @property
    def stored_element(self) -> int:
        """Bytes of a number of the unquantized base model."""
        return weights_dtype(self.run.model.quantization, DTYPES[self.run.compute.dtype]).itemsize

    @property
    def head(self) -> Any:
        """The layer of the logits, weight [vocabulary, hidden]."""
        base: Any = self.model.get_base_model()
        return base_layer(base.get_output_embeddings())


def largest_step(run: RunConfig, machine: Machine, model: PeftModel, work: Workload, free: int) -> Step:
    """Return the largest step of a run on a machine. free: bytes on its device before the base model is loaded."""
    size = run.optim.batch_size
    unpacked = 2 * linear_weights(model) if run.model.quantization == "int4" else 0
    stored_element = weights_dtype(run.model.quantization, DTYPES[run.compute.dtype]).itemsize
    free -= stored_bytes(model, run.model.quantization, stored_element)
    plan = kernel_plan(run.compute, run.model, machine, model.get_base_model(), unpacked=unpacked, free=free)
    kernels = apply_adapter_kernels(plan, model, run.compute)
    tokens, longest = work.largest(size, kernels.layout, run.data.max_seq_length * size if kernels.fixed_shape else 0)
    return Step(model, run, with_capture(kernels, run), tokens, longest, round(tokens * work.trained_share))


def components(step: Step, process: int, activations: int | None = None) -> dict[str, int]:
    """Return the bytes of every component at the step's peak. process: of the CUDA context or of Python."""
    run, linear, copy = step.run, linear_weights(step.model), 0
    adapter = [parameter for parameter in step.model.parameters() if parameter.requires_grad]
    trained = 4 * sum(parameter.numel() for parameter in adapter)
    stored = stored_bytes(step.model, run.model.quantization, step.stored_element)
    if step.kernels.dequantized:  # the copy replaces the quantized weights
        stored, copy = (
            stored_bytes(step.model, "none", step.stored_element) - linear * step.stored_element,
            linear * step.element,
        )
    if run.compute.fsdp:  # a share, and the two decoder layers or the head that are gathered at a time
        layers = len(decoder_layers(step.model))
        stored = stored // SHARING + max(2 * stored // max(1, layers), step.head.weight.numel() * step.stored_element)
    head = head_bytes(step)
    return {
        "base_weights": stored,
        "dequantised_copy": copy,
        "adapter": trained,
        "gradients": trained,
        "optimizer": sum(optimizer_bytes(tensor, run.optim.optim) for tensor in adapter),
        "activations": activation_bytes(step) if activations is None else activations,
        "head_chunk": head,
        "backward": max(0, _backward_bytes(step) - head),
        "process": process,
    }


def stored_bytes(model: PeftModel, quantization: Quantization, element: int) -> int:
    """Return the bytes of the base model in memory. element: bytes of a number that is not quantized.

    NF4 with double quantization: half a byte per weight, a byte per block of 64 weights, 4 bytes per 256 blocks, and tables. 8
    bits: a byte per weight, and 4 bytes per row.
    """
    layers = frozen_linears(model.get_base_model())
    other = sum(p.numel() for p in model.parameters() if not p.requires_grad) - linear_weights(model)
    if quantization == "int4":
        return other * element + sum(_nf4(layer.weight.numel()) for layer in layers)
    if quantization == "int8":
        return other * element + sum(layer.weight.numel() + 4 * layer.out_features for layer in layers)
    return element * (other + linear_weights(model))


def linear_weights(model: PeftModel) -> int:
    """Return the number of weights in the layers that quantization applies to."""
    return sum(layer.in_features * layer.out_features for layer in frozen_linears(model.get_base_model()))


def _nf4(weights: int) -> int:
    blocks = -(-weights // NF4_BLOCK)
    return -(-weights // 2) + blocks + 4 * -(-blocks // NESTED_BLOCK) + NF4_TABLES


def activation_bytes(step: Step) -> int:
    """Return the bytes saved for the backward pass, without the head; with recomputation, every layer's input and one layer."""
    kept = _saved_bytes(step) * (FUSED_SHARE if step.kernels.fused else 1)
    if step.run.compute.checkpointing == "off":
        return round(kept)
    layers, hidden = len(decoder_layers(step.model)), int(step.head.weight.shape[1])
    return round(layers * step.stored_element * hidden * step.tokens + kept / max(1, layers))


def _saved_bytes(step: Step) -> int:
    """Return the bytes that autograd saves, without weights, in a forward pass over rows of one document each."""
    base: Any = step.model.get_base_model()
    if any(backend.function and backend.name == step.kernels.attention for backend in BACKENDS):
        attention.use(base, "documents")  # it saves what the other back ends save
    saved: dict[int, Any] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        saved[id(tensor.untyped_storage())] = tensor.untyped_storage()
        return tensor

    dtype = autocast_of(step.run.compute.dtype)
    with fake_tensors():
        step.model.to_empty(device="cpu").train()
        weights = [one.untyped_storage() for one in (*step.model.parameters(), *step.model.buffers())]
        rows = torch.zeros(-(-step.tokens // step.longest), step.longest, dtype=torch.int64)
        with (
            torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor),
            torch.autocast("cpu", dtype=dtype, enabled=dtype is not None),
        ):
            base.get_decoder()(input_ids=rows, use_cache=False)
    of_weights = {*map(id, weights)}
    return sum(storage.nbytes() for key, storage in saved.items() if key not in of_weights)


def head_bytes(step: Step) -> int:
    """Return the bytes of the logits and of the tensors computed from them.

    In chunks: for one chunk the logits, which become their gradients, fp32 log-probabilities, and torch's fp32 copy of 16-bit
    logits; and the hidden states of the trained places with their gradient. In full: the model's logits and, for the trained
    places, an fp32 copy, its logarithm, and its gradient.
    """
    vocabulary, hidden = step.head.weight.shape
    states = 2 * step.trained * hidden * step.element
    if step.kernels.full_logits:
        selected = step.trained * vocabulary * (step.element + 12)
        return int(states + 2 * step.tokens * vocabulary * step.element + selected)
    device, dtype = step.run.compute.device, step.run.compute.dtype
    logits = min(step.trained, chunk_rows(vocabulary, CHUNK_BYTES[device])) * vocabulary
    copies = step.element < 4 and (device, dtype) != ("cuda", "fp16")  # CUDA reads fp16 directly
    return int(states + logits * (step.element + (8 if copies else 4)))


def _backward_bytes(step: Step) -> int:
    """Return the bytes of a layer's temporaries in backward: four as wide as its widest input, and a dequantized weight."""
    linear = frozen_linears(step.model.get_base_model())
    unpacked = 0
    if step.run.model.quantization in QUANTIZED and not step.kernels.dequantized:
        unpacked = max((layer.weight.numel() for layer in linear), default=0) * step.element
    return 4 * step.element * step.tokens * max((layer.in_features for layer in linear), default=0) + unpacked
