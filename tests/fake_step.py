"""One micro-step of the tool's GPU path on fake CUDA tensors, counted: from what is asked to what the GPU is asked for.

Layers are alike, and the first differs from the others: two and three of them tell how many kernels any number launches.
"""

# ruff: noqa: E402  what is imported must be kept quiet first

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from expert_cli._compat import quiet_imports

quiet_imports()

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from expert_cli.config.defaults.compute import compute
from expert_cli.config.defaults.training import adapter
from expert_cli.config.run_config import ModelConfig
from expert_cli.config.settings import Settings
from expert_cli.data.packing.batches import Batch, Collator
from expert_cli.data.packing.dataset import IGNORE_INDEX
from expert_cli.hardware.machine import Gpu, Machine
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.flops import flops
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.select import KernelPlan, apply_adapter_kernels, apply_kernels, kernel_plan
from expert_cli.model.loading.quantize import DTYPES
from expert_cli.utils.length_histogram import LengthHistogram
from tests.fake_cuda import FakeCuda, fake_cuda, quantize_to_nf4
from tests.kernel_counts import KeptBytes, Kernel, KernelCounter

FEW = 2
ADAPTER = {"rank": 16, "alpha": 32, "dropout": 0.0, "target_modules": "all-linear"}
Pack = tuple[int, int, float]
"""Tokens of a micro-step, of each document, and the share of them that is trained."""


@dataclass(frozen=True)
class Asked:
    """A base model by its configuration, how it is held, keys of `training.config`, and the one GPU of the machine."""

    shape: Mapping[str, Any]
    quantization: Any
    config: Mapping[str, Any]
    gpu: Gpu

    @property
    def keys(self) -> Settings[TrainingConfig]:
        """The keys of `training.config`."""
        return Settings(TrainingConfig(**{**ADAPTER, **self.config}))

    @property
    def machine(self) -> Machine:
        """A machine with that GPU and torch for it."""
        return Machine("Linux", 16, 2**37, (self.gpu,), cpu_bf16=True, torch_cuda="13.0", versions=())

    @property
    def compute(self) -> ComputeConfig:
        """How a step is computed there."""
        return compute(self.keys, self.machine, "cuda", adapter(self.keys).type, self.quantization)

    @property
    def plan(self) -> KernelPlan:
        """The kernel plan before the model is there."""
        return kernel_plan(self.compute, ModelConfig("", "", self.quantization, "", None, ()), self.machine)


class Counts(NamedTuple):
    """What a micro-step asks of a GPU. kept: bytes for the backward pass. flops: what MFU counts."""

    tokens: int
    document_tokens: int
    kernels: Counter[Kernel]
    kept: int
    flops: float

    @property
    def launches(self) -> int:
        """How many kernels are launched."""
        return sum(self.kernels.values())

    @property
    def bytes(self) -> int:
        """How many bytes they move."""
        return sum(number * kernel.bytes for kernel, number in self.kernels.items())


class FakeSteps:
    """Counts micro-steps; equal kernel plans are counted once, for all GPUs that have them."""

    def __init__(self) -> None:
        self._known: dict[Any, list[Counts]] = {}

    def count(self, asked: Asked, packs: Sequence[Pack]) -> list[Counts]:
        """Return the counts of a micro-step for each kind of packs."""
        counter = KernelCounter()
        with fake_cuda() as cuda, plain_installation(), mock.patch.object(torch, "compile", counter.compiling):
            base, plan = planned_base(asked, cuda)
            layers = base.config.num_hidden_layers
            _cut(base, FEW + 1)
            model, plan = planned_model(asked, base, plan)
            # what tells steps apart: not how the weights came to be what they are
            used = {name: line.used for name, line in plan.lines.items() if name not in ("device", "weights", "copy")}
            key = (str(asked.shape), str(used), plan.dequantized or asked.quantization != "int4", tuple(packs))
            if key not in self._known:
                three = _steps(model, plan, cuda, counter, packs)
                base, plan = planned_base(asked, cuda)  # made anew: what is fused is prepared for all layers together
                _cut(base, FEW)
                two = _steps(*planned_model(asked, base, plan), cuda, counter, packs)
                self._known[key] = [_extended(*pair, layers) for pair in zip(two, three, strict=True)]
        return self._known[key]


def plain_installation() -> Any:
    """Answer as an installation without extras on Linux with an NVIDIA card: torch brings Triton there, and nobody Liger."""
    find, there = (
        importlib.util.find_spec,
        {"triton": ModuleSpec("triton", None), "liger_kernel": None, "flash_attn": None},
    )

    def found(name: str, package: str | None = None) -> ModuleSpec | None:
        return there[name] if name in there else find(name, package)

    return mock.patch.object(importlib.util, "find_spec", found)


def planned_base(asked: Asked, cuda: FakeCuda) -> tuple[Any, KernelPlan]:
    """Return a base model on the fake card, what the kernel plan says done to it, and the plan."""
    dtype = DTYPES[asked.compute.dtype]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**asked.shape), dtype=dtype)
    if asked.quantization == "int4":
        quantize_to_nf4(model, dtype)
    model.requires_grad_(False)
    cuda.free_bytes = asked.gpu.memory_bytes - sum(p.numel() * p.element_size() for p in model.parameters())
    return model, apply_kernels(asked.plan, model, asked.compute, asked.machine)


def planned_model(asked: Asked, base: Any, plan: KernelPlan) -> tuple[Any, KernelPlan]:
    """Return the model with its adapter, and what its kernel plan has become."""
    adapted = add_adapter(base, adapter(asked.keys))
    return adapted, apply_adapter_kernels(plan, adapted, asked.compute)


def batch_of(pack: Pack, plan: KernelPlan) -> Batch:
    """Return a real batch: documents of one length, the last tokens of each trained."""
    tokens, length, share = pack
    ids = torch.zeros(tokens, dtype=torch.int64)
    positions = torch.arange(tokens) % length
    labels = torch.where(positions >= max(1, length - round(share * length)), 0, IGNORE_INDEX)
    batch = Collator(0, plan.layout)([{"input_ids": ids, "labels": labels, "position_ids": positions}])
    del batch["real_tokens"]
    return batch


def micro_step(module: CausalLoss, batch: Batch, dtype: torch.dtype, counter: KernelCounter) -> int:
    """Run forward and backward; return the bytes that were kept between them."""
    kept = KeptBytes([*module.parameters(), *module.buffers()])
    with counter, kept, torch.autocast("cuda", dtype=dtype):
        loss = module(**batch) * (1 / len(batch["targets"]))
    with counter:
        loss.backward()
    return kept.total


def _steps(
    adapted: Any, plan: KernelPlan, cuda: FakeCuda, counter: KernelCounter, packs: Sequence[Pack]
) -> list[Counts]:
    module = CausalLoss(adapted, full_logits=plan.full_logits).train()
    found = []
    for pack in packs:
        with cuda.real():
            batch = batch_of(pack, plan)
        counter.kernels = Counter()
        kept = micro_step(module, cuda.place(batch), DTYPES[plan.lines["dtype"].used], counter)
        tokens, length, _ = pack
        cost = flops(module.base, LengthHistogram.of(np.full(tokens // length, length)), recomputed=False)
        found.append(Counts(tokens, length, counter.kernels, kept, cost.of(tokens, len(batch["targets"]))))
        module.zero_grad()
    return found


def _cut(base: Any, layers: int) -> None:
    """Leave a base model its first layers."""
    decoder = base.get_decoder()
    decoder.layers = decoder.layers[:layers]
    decoder.config.num_hidden_layers = layers


def _extended(two: Counts, three: Counts, layers: int) -> Counts:
    """Return the counts of a model of so many layers, of which all behind the second are like the third."""
    more = layers - FEW

    def whole(few: float, and_one: float) -> Any:
        return few + more * (and_one - few)

    kernels = Counter({k: whole(two.kernels[k], three.kernels[k]) for k in two.kernels | three.kernels})
    for name in {kernel.name for kernel, count in kernels.items() if count < 0}:  # one launch for all layers together
        of_all = [kernel for kernel in kernels if kernel.name == name]
        moved = sum(kernels.pop(kernel) * kernel.bytes for kernel in of_all)
        kernels[Kernel(name, moved)] = 1
    return Counts(two.tokens, two.document_tokens, kernels, whole(two.kept, three.kept), whole(two.flops, three.flops))
