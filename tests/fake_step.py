"""The model of a run on fake CUDA tensors, with the kernels that its plan names."""

# ruff: noqa: E402  what is imported must be kept quiet first

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from expert_cli._compat import quiet_imports

quiet_imports()

from transformers import AutoConfig, AutoModelForCausalLM

from expert_cli.config.compute_defaults import compute
from expert_cli.config.run_config import ModelConfig
from expert_cli.config.settings import Settings
from expert_cli.config.training_defaults import adapter
from expert_cli.hardware.machine import Gpu, Machine
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels.kernel_plan import KernelPlan, apply_adapter_kernels, apply_kernels, kernel_plan
from expert_cli.model.loading.quantize import DTYPES
from tests.fake_cuda import FakeCuda, quantize_to_nf4

ADAPTER = {"rank": 16, "alpha": 32, "dropout": 0.0, "target_modules": "all-linear"}


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
