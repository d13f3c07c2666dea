"""Memory of a training step by component, from shapes and settings.

A step is largest when the forward pass is done and the head's logits are there, or a moment later in the first layers of the
backward pass. What a decoder layer keeps until then, per token (w: bytes of a number in the compute dtype):

    norm              4 x width         its input in fp32 (Liger's kernels: w x width)
    LoRA              w x (inputs + rank)     a copy of the input, made where autocast narrows its fp32 form; fused: no copy
    DoRA              2 w x outputs more      and the weight once
    attention         w x (2 heads + 2 key heads) + 4 a head      q, k, v, the result, the sums of the softmax
    gated product     w x 3 inner       gate, its activation, up

A recomputed layer keeps its input, and one such layer at a time everything above.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import PreTrainedModel

from expert_cli.config.run_config import QUANTIZED, Layout, RunConfig
from expert_cli.data.packing.batches import Schedule, orders_of, schedule_of
from expert_cli.data.packing.packed_dataset import PackedDataset
from expert_cli.data.store.build import TokenStore
from expert_cli.hardware.machine import Machine
from expert_cli.manifest.key import Quantization
from expert_cli.manifest.keys.peft import AdapterConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.flat_parameters import optimizer_bytes
from expert_cli.model.flops import frozen_linears, head_widths
from expert_cli.model.kernels.attention_backends import attention_backend
from expert_cli.model.kernels.chunked_loss import CHUNK_BYTES, chunk_rows
from expert_cli.model.kernels.kernel_plan import LORA, KernelPlan, kernel_plan, predict_kernels, with_capture
from expert_cli.model.layers import decoder_layers
from expert_cli.model.loading.quantize import DTYPES, weights_dtype
from expert_cli.pipeline.training_data import packed

CONTEXT_BYTES = 500 << 20
"""What CUDA itself takes of a card, where none is here to measure it on: an assumption, cards differ by 300 MB."""
TRAINER_BYTES = 190 << 20
"""What a training process holds beyond the plan's: Trainer, optimizer, data. Measured with a model of a few MB on a CPU."""
SHARING = 2
"""The fewest processes that can share a base model out (fsdp)."""
MB = 2**20
NF4_BLOCK = 64
NESTED_BLOCK = 256
NF4_TABLES = 4 * (16 + 256 + 1)
"""Bytes of a quantized weight's tables: 16 NF4 values, 256 values of its nested scales, one offset; all fp32."""


class BlockShape(NamedTuple):
    """An attention block or the rest of a decoder layer: its layers with an adapter, and what else keeps tokens.

    norms: widths of those that a gradient passes through. inner: width of a gated product (0: none).
    """

    adapted: tuple[Any, ...]
    norms: int
    inner: int


@dataclass(frozen=True)
class Shape:
    """A model in numbers of weights. linear: (outputs, inputs) of the layers that quantization takes; other: the rest.

    adapter: the adapter's tensors on the meta device, fp32. layers: attention and rest of every decoder layer. heads,
    key_heads: widths of all query heads and of all key heads together.
    """

    linear: tuple[tuple[int, int], ...]
    other: int
    adapter: tuple[torch.Tensor, ...]
    layers: tuple[tuple[BlockShape, BlockShape], ...]
    hidden: int
    vocabulary: int
    heads: int
    key_heads: int
    head_count: int

    @property
    def adapter_parameters(self) -> int:
        """Numbers that are trained."""
        return sum(tensor.numel() for tensor in self.adapter)


def meta_adapter(
    base: PreTrainedModel, adapter: AdapterConfig, token_rows: Mapping[str, Sequence[int]] | None = None
) -> PeftModel:
    """Return a model on the meta device with its adapter there, too. Raises what `add_adapter` raises."""
    with torch.device("meta"):
        return add_adapter(base, replace(adapter, init_adapter=None), token_rows)


def shape_of(model: PeftModel) -> Shape:
    """Return the shapes of a model with adapter."""
    base: Any = model.get_base_model()
    config, linear = base.config.get_text_config(), frozen_linears(base)
    hidden, (heads, key_heads) = config.hidden_size, head_widths(config)
    quantized = {id(layer.weight) for layer in linear}
    layers: list[tuple[BlockShape, BlockShape]] = []
    for layer in decoder_layers(base):
        block = getattr(layer, "self_attn", None)  # in hybrid models most layers have another block in its place
        attention = {module: name for name, module in block.named_modules()} if block else {}
        rest = [module for module in layer.modules() if module not in attention]
        # in attention the norms are those of all query heads or of all key heads
        of_heads = sum(key_heads if attention[norm].startswith("k") else heads for norm in filter(_is_norm, attention))
        others = hidden * (sum(map(_is_norm, rest)) - (not layers))  # nothing trained comes before the first one
        # the projection that leads out of a feed-forward block ends in the hidden width
        inner = [m.in_features for m in linear if m in rest and m.out_features == hidden != m.in_features]
        feed_forward = BlockShape(_adapted(rest), others, max(inner, default=0))
        layers.append((BlockShape(_adapted(attention), of_heads, 0), feed_forward))
    return Shape(
        linear=tuple((layer.out_features, layer.in_features) for layer in linear),
        other=sum(p.numel() for p in base.parameters() if not p.requires_grad and id(p) not in quantized),
        adapter=tuple(p for p in base.parameters() if p.requires_grad),
        layers=tuple(layers),
        hidden=hidden,
        vocabulary=config.vocab_size,
        heads=heads,
        key_heads=key_heads,
        head_count=getattr(config, "num_attention_heads", 0),
    )


def _adapted(modules: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(module for module in modules if isinstance(module, BaseTunerLayer))


def _is_norm(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == 1 and not weight.requires_grad


@dataclass(frozen=True)
class Workload:
    """What a run does. tokens: real ones, without padding; trained_share: of them, those that carry a loss.

    evaluated_tokens: of all evaluations together.
    """

    schedule: Schedule
    packs: PackedDataset
    tokens: int
    trained_share: float
    evaluated_tokens: int

    def largest(self, batch: int, layout: Layout, fixed: int = 0) -> tuple[int, int]:
        """Return (places, longest row) of the largest micro-batch of `batch` packs; fixed > 0: all have as many places."""
        longest = self.packs.pack_lengths.largest(batch)
        if layout == "padded":
            return longest[0] * len(longest), longest[0]
        return max(fixed, sum(longest)), self.packs.document_lengths.longest


def work_of(run: RunConfig, store: TokenStore) -> Workload:
    """Return the work of a run over the packs of its training rows."""
    data = packed(store.training(), run)
    schedule = schedule_of(run, data, int(os.environ.get("WORLD_SIZE", "1")))
    # whole epochs at once, the last one pack by pack: of all steps only an epoch's last one may be short
    epochs, rest = divmod(schedule.steps, schedule.steps_per_epoch)
    tokens = epochs * data.document_lengths.tokens
    if rest:
        begun = orders_of(run, data)(epochs)[: rest * schedule.packs_per_step]
        tokens += int(data.plan(epochs).lengths[begun].sum())
    stats = store.stats["train"]
    held_out = store.stats.get("validation", {}).get("tokens", 0) if run.watch.eval_strategy != "no" else 0
    evaluations = epochs if run.watch.eval_strategy == "epoch" else schedule.steps // run.watch.eval_steps
    return Workload(schedule, data, tokens, stats["trained_tokens"] / max(1, stats["tokens"]), held_out * evaluations)


@dataclass(frozen=True)
class StepSettings:
    """What memory depends on besides the shapes.

    tokens: places of the largest micro-batch, padding included; longest: of its longest row or document; trained: places
    that reach the head.
    """

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
        """Bytes of a number of the base model that is not quantized."""
        return weights_dtype(self.run.model.quantization, DTYPES[self.run.compute.dtype]).itemsize

    @property
    def copies_inputs(self) -> bool:
        """Whether an adapted layer narrows its input to a copy of its own."""
        is_ours = LORA in self.kernels.lines["fused"].used or self.run.adapter.type == "dora"
        return self.element < 4 and not is_ours


def step_settings(
    run: RunConfig, machine: Machine, model: PeftModel, shape: Shape, work: Workload, free: int
) -> StepSettings:
    """Return the settings of a run's steps on a machine; free: bytes of its device before the base model is there."""
    size, quantization = run.optim.batch_size, run.model.quantization
    plan = kernel_plan(run.compute, run.model, machine)
    unpacked = 2 * linear_weights(shape) if quantization == "int4" else 0
    free -= stored_bytes(shape, quantization, StepSettings(run, plan, 0, 0, 0).stored_element)
    kernels = predict_kernels(plan, model, run.compute, machine, dequantized_bytes=unpacked, free=free)
    tokens, longest = work.largest(size, kernels.layout, run.data.max_seq_length * size if kernels.fixed_shape else 0)
    return StepSettings(run, with_capture(kernels, run), tokens, longest, round(tokens * work.trained_share))


def components(shape: Shape, setting: StepSettings, process: int) -> dict[str, int]:
    """Return the bytes of every component at the step's peak; `process`: of the CUDA context or of the Python process."""
    run, copy = setting.run, 0
    stored = stored_bytes(shape, run.model.quantization, setting.stored_element)
    if setting.kernels.dequantized:  # the copy takes the quantized weights' place
        stored, copy = shape.other * setting.stored_element, linear_weights(shape) * setting.element
    if run.compute.fsdp:  # a share, and the two decoder layers or the head that are gathered at a time
        head = shape.vocabulary * shape.hidden * setting.stored_element
        stored = stored // SHARING + max(2 * stored // max(1, len(shape.layers)), head)
    head = head_bytes(shape, setting)
    return {
        "base_weights": stored,
        "dequantised_copy": copy,
        "adapter": 4 * shape.adapter_parameters,
        "gradients": 4 * shape.adapter_parameters,
        "optimizer": sum(optimizer_bytes(tensor, run.optim.optim) for tensor in shape.adapter),
        "activations": activation_bytes(shape, setting),
        "head_chunk": head,
        "backward": max(0, _backward_bytes(shape, setting) - head),
        "process": process,
    }


def stored_bytes(shape: Shape, quantization: Quantization, element: int) -> int:
    """Return the bytes of the base model in memory; `element`: bytes of a number that is not quantized.

    NF4 with double quantization: half a byte a weight, a byte a block of 64, 4 bytes a block of 256 of those, and tables.
    8 bits: a byte a weight and 4 a row.
    """
    if quantization == "int4":
        return shape.other * element + sum(_nf4(rows * columns) for rows, columns in shape.linear)
    if quantization == "int8":
        return shape.other * element + sum(rows * columns + 4 * rows for rows, columns in shape.linear)
    return element * (shape.other + linear_weights(shape))


def linear_weights(shape: Shape) -> int:
    """Return the weights of all layers that quantization takes."""
    return sum(rows * columns for rows, columns in shape.linear)


def _nf4(weights: int) -> int:
    blocks = -(-weights // NF4_BLOCK)
    return -(-weights // 2) + blocks + 4 * -(-blocks // NESTED_BLOCK) + NF4_TABLES


def activation_bytes(shape: Shape, setting: StepSettings) -> int:
    """Return what the forward pass of the largest micro-batch leaves for the backward pass, the head left out."""
    scores = _attention_bytes(shape, setting)
    layers = [scores + sum(_block_bytes(block, shape, setting) for block in layer) for layer in shape.layers]
    last_norm = _block_bytes(BlockShape((), shape.hidden, 0), shape, setting)
    if setting.run.compute.checkpointing == "off":
        return last_norm + sum(layers)
    entry = setting.stored_element * shape.hidden * setting.tokens
    return last_norm + len(layers) * entry + max(layers, default=0)


def head_bytes(shape: Shape, setting: StepSettings) -> int:
    """Return the bytes of logits and what is made of them.

    In chunks: of one, the logits, which become their slopes, fp32 log-probabilities, and the fp32 copy of narrow logits that
    torch makes them of; and the hidden states of the trained places with their gradient. In full: the model's logits and, of
    the trained places, an fp32 copy, its logarithm, and the gradient of it.
    """
    hidden = 2 * setting.trained * shape.hidden * setting.element
    if setting.kernels.full_logits:
        selected = setting.trained * shape.vocabulary * (setting.element + 12)
        return hidden + 2 * setting.tokens * shape.vocabulary * setting.element + selected
    device, dtype = setting.run.compute.device, setting.run.compute.dtype
    logits = min(setting.trained, chunk_rows(shape.vocabulary, CHUNK_BYTES[device])) * shape.vocabulary
    copies = setting.element < 4 and (device, dtype) != ("cuda", "fp16")  # CUDA reads fp16 as it is
    return hidden + logits * (setting.element + (8 if copies else 4))


def _attention_bytes(shape: Shape, setting: StepSettings) -> int:
    """Return what one attention keeps beside its block's layers."""
    backend = attention_backend(setting.kernels.attention)
    keys = shape.heads if backend.repeats_keys() else shape.key_heads
    kept = setting.element * 2 * (shape.heads + keys) + 4 * shape.head_count
    if backend.keeps_scores:
        kept += shape.head_count * setting.longest * (4 + setting.element)
    return setting.tokens * kept


def _block_bytes(block: BlockShape, shape: Shape, setting: StepSettings) -> int:
    """Return what norms, adapted layers and a gated product keep."""
    element, adapter, fused = setting.element, setting.run.adapter, setting.kernels.fused
    kept: int = block.norms * (setting.stored_element if fused else 4) + element * block.inner * (2 if fused else 3)
    linear = [_linear(layer) for layer in block.adapted]
    inputs = sum(layer.in_features for layer in linear)
    if setting.copies_inputs or adapter.dropout:
        kept += element * inputs
    else:  # q, k and v share an input, gate and up another; the projection back into the residual stream has its own
        back = [layer for layer in linear[-1:] if layer.out_features == shape.hidden]
        shared = {layer.in_features for layer in linear if layer not in back}
        kept += element * (sum(shared) + sum(layer.in_features for layer in back))
    if adapter.type == "dora":
        kept += element * sum(layer.out_features for layer in linear)
    kept += element * adapter.rank * len(linear)
    if adapter.dropout:  # a byte of mask on a GPU, the factors themselves on a CPU
        kept += inputs * (4 if setting.run.compute.device == "cpu" else 1)
    trained = sum(p.numel() for layer in block.adapted for p in layer.parameters() if p.requires_grad)
    return setting.tokens * kept + (element * trained if element < 4 else 0)


def _linear(layer: Any) -> Any:
    """Return what knows the widths of an adapted layer: of experts, whose weights are one parameter, PEFT's wrapper alone."""
    base = layer.get_base_layer()
    return base if hasattr(base, "in_features") else layer


def _backward_bytes(shape: Shape, setting: StepSettings) -> int:
    """Return the largest temporaries of a layer's backward pass: gradients of its widest product, and a weight unpacked.

    Of the down projection's input alone there are the gradient, the adapter's share of it in the compute dtype and in
    fp32, and their sum; then those of gate and up.
    """
    widest = max((rest.inner or shape.hidden for _, rest in shape.layers), default=shape.hidden)
    unpacked = 0
    if setting.run.model.quantization in QUANTIZED and not setting.kernels.dequantized:
        unpacked = max((rows * columns for rows, columns in shape.linear), default=0) * setting.element
    return setting.tokens * widest * (3 * setting.element + (4 if setting.copies_inputs else 0)) + unpacked
