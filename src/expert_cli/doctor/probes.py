"""Probes of `doctor`: each loads libraries and uses them, in a separate process (`checks.run_probes`).

A probe returns what it found, or raises an error; `PROBES` says how severe the error is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from expert_cli.doctor.checks import Probe, attempt
from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware import machine
from expert_cli.hardware.devices import CUDA, DEVICES, Device
from expert_cli.model.kernels.attention_backends import BACKENDS, AttentionBackend

if TYPE_CHECKING:
    from expert_cli.manifest.key import Dtype

ROUNDING = 0.2
"""Largest accepted error of NF4, as a share of the norm; it is usually 10 %."""


def _device() -> tuple[Device, Dtype]:
    """Return the device and the 16-bit format that training would use here."""
    seen = machine.seen_by_torch()
    return (CUDA, "bf16" if seen[0].is_ampere else "fp16") if seen else (DEVICES["cpu"], "bf16")


def try_torch() -> str:
    """Load torch and multiply on every GPU."""
    started = time.monotonic()
    import torch

    loaded, seen = f"loads in {time.monotonic() - started:.1f} s", len(machine.seen_by_torch())
    if not seen and machine.inspect().device != "cpu":
        raise EnvironmentProblem(f"{loaded}, but sees no GPU", "see the lines on driver, torch build and GPU")
    for index in range(seen):
        block = torch.ones(256, 256, device=f"cuda:{index}")
        if (block @ block)[0, 0].item() != 256.0:
            raise EnvironmentProblem(f"GPU {index} computes wrong products", "do not train on it; test its memory")
    place = f"computes on each of {seen} GPU(s)" if seen else f"computes on {torch.get_num_threads()} CPU threads"
    return f"{loaded}, {place}"


def try_bitsandbytes() -> str:
    """Run an NF4 layer in eval, then in train mode; there its product and gradient must be close to those of exact weights."""
    import torch
    from bitsandbytes.nn import Linear4bit

    from expert_cli._compat import keep_autograd_on_cpu
    from expert_cli.model.loading.quantize import DTYPES

    on, precision = _device()
    device, dtype = on.name, DTYPES[precision]
    torch.manual_seed(0)
    layer = Linear4bit(64, 64, bias=False, compute_dtype=dtype, compress_statistics=True, quant_type="nf4")
    exact = layer.weight.data.clone().to(device)
    layer = layer.to(device)
    keep_autograd_on_cpu(layer)
    rows: Any = torch.randn(32, 64, device=device, requires_grad=True)
    with torch.no_grad():
        layer.eval()(rows.to(dtype))
    product = layer.train()(rows.to(dtype)).float()
    slopes = torch.randn_like(product)
    product.backward(slopes)
    if not rows.grad.any():
        raise EnvironmentProblem("the gradient through a 4-bit layer is zero")
    pairs = ((product, rows @ exact.T), (rows.grad, slopes @ exact))
    errors = [((found - wanted).norm() / wanted.norm()).item() for found, wanted in pairs]
    words = f"NF4 on {device}: rounding error {errors[0]:.1%}, of the gradient {errors[1]:.1%}"
    if not max(errors) < ROUNDING:
        raise EnvironmentProblem(words)
    return words


def try_attention(backend: AttentionBackend) -> str:
    """Run a tiny model with an attention back end: packed documents must give the same results as alone."""
    device, precision = _device()
    lack = backend.lacks(device.name, precision, machine.inspect())
    if lack:
        return f"not tried: {lack}"
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from expert_cli.model import isolation
    from expert_cli.model.kernels import attention
    from expert_cli.model.loading.quantize import DTYPES

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 64, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 1}
    model: Any = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=1))
    model = model.to(device.name, DTYPES[precision])
    attention.use(model, backend.name)
    found = isolation.measure_leakage(model, backend.layout, isolation.SHORT)
    words = f"runs on {device.name}; documents in a pack differ from each alone by {found.difference:.0e} of their norm"
    if not found.holds:
        raise EnvironmentProblem(words)
    return words


def try_compile() -> str:
    """Compile a small function with its backward pass and compare it with the uncompiled one."""
    import torch

    device, _ = _device()
    torch.manual_seed(0)
    weight = torch.randn(32, 32, device=device.name)

    def block(rows: Any) -> Any:
        return torch.nn.functional.silu(torch.nn.functional.rms_norm(rows, (32,)) @ weight)

    plain: Any = torch.randn(8, 32, device=device.name, requires_grad=True)
    compiled: Any = plain.detach().clone().requires_grad_()
    started = time.monotonic()
    torch.compile(block)(compiled).sum().backward()
    seconds = time.monotonic() - started
    block(plain).sum().backward()
    if not torch.allclose(plain.grad, compiled.grad, atol=1e-3):
        raise EnvironmentProblem("compiles, but the gradient differs", 'leave "torch_compile": false')
    return f"works on {device.name}, forward and backward; a first compilation takes {seconds:.0f} s"


_BITSANDBYTES = 'pip install --force-reinstall --no-deps bitsandbytes; until it works: "quantization": "none"'

_COMPILE = 'it needs a C++ compiler (on Windows cl), Python.h and on a GPU triton; without: "torch_compile": false'
PROBES = (
    Probe("torch", try_torch, "fail", "reinstall torch"),
    Probe("bitsandbytes", try_bitsandbytes, "fail", _BITSANDBYTES),
    *(
        Probe(
            f"attention, {backend.name}",
            partial(try_attention, backend),
            "fail" if backend.name == "documents" else "warn",  # used if no other one works
            "reinstall torch",
        )
        for backend in reversed(BACKENDS)
        if backend.layout == "packed"
    ),
)
COMPILE = Probe("torch.compile", try_compile, "warn", _COMPILE)
"""Only with `doctor --deep`: a first compilation takes a minute."""


def main() -> None:
    """Answer each line {"probe": name} with that probe's CheckResult. Output of libraries goes to stderr."""
    from expert_cli.utils.process_setup import prepare_process

    prepare_process()
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    by_name = {probe.name: probe for probe in (*PROBES, COMPILE)}
    for line in sys.stdin:
        print(json.dumps(asdict(attempt(by_name[json.loads(line)["probe"]]))), file=lines, flush=True)
