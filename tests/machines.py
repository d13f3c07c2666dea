"""Machines that decisions are tried on: what `machine.inspect` would say of them."""

from __future__ import annotations

from dataclasses import replace

from expert_cli.hardware.machine import Gpu, Machine

CPU = Machine("Linux", 2, 2**34, (), cpu_bf16=True, torch_cuda="", versions=())
PLAIN_CPU = replace(CPU, cpu_bf16=False)
"""One without bf16."""
H200 = Machine("Linux", 16, 2**36, (Gpu("NVIDIA H200", 2**37, (9, 0)),), cpu_bf16=True, torch_cuda="13.0", versions=())
RTX_4090 = replace(CPU, gpus=(Gpu("NVIDIA GeForce RTX 4090", 24 * 2**30, (8, 9)),), torch_cuda="13.0")
T4 = replace(RTX_4090, gpus=(Gpu("Tesla T4", 2**34, (7, 5)),))
"""One older than Ampere."""

MI300X = replace(H200, gpus=(Gpu("AMD Instinct MI300X", 192 * 2**30, (9, 4)),), torch_cuda="", torch_hip="6.4.43484")
OF_DEVICES = {"cpu": CPU, "cuda": H200}
"""One machine for every device."""
