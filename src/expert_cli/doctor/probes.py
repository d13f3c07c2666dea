"""What really works: each probe loads the libraries and tries, in a process of its own (`check.run_probes`).

A probe returns what it found where all is well, and raises where it is not: the table says how bad that is.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expert_cli.doctor.check import Check, CheckResult, attempt
from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware import machine
from expert_cli.hardware.devices import CUDA, DEVICES, Device
from expert_cli.hardware.machine import has_package
from expert_cli.model.kernels.attention_backends import BACKENDS, AttentionBackend

if TYPE_CHECKING:
    from expert_cli.manifest.types import Dtype

ROUNDING = 0.2
"""NF4 changes a product by 10 % of its norm."""


def _device() -> tuple[Device, Dtype]:
    """Return where and in which half precision this machine would train."""
    here = machine.inspect()
    if here.device == "cpu" or not CUDA.is_available():
        return DEVICES["cpu"], "bf16"
    return CUDA, "bf16" if here.gpus[0].is_ampere else "fp16"


def try_torch() -> str:
    """Load torch and multiply on every GPU it sees."""
    started = time.monotonic()
    import torch

    loaded = f"loads in {time.monotonic() - started:.1f} s"
    seen = len(CUDA.cards()) if CUDA.is_available() else 0
    if not seen:
        here = machine.inspect()
        if here.torch_device != "cpu" and here.gpus:
            raise EnvironmentProblem(
                f"{loaded}, but sees no GPU", "see the lines on driver, torch build and GPU choice"
            )
        return f"{loaded}, computes on {torch.get_num_threads()} CPU threads"
    for index in range(seen):
        block = torch.ones(256, 256, device=f"cuda:{index}")
        if (block @ block)[0, 0].item() != 256.0:
            raise EnvironmentProblem(f"GPU {index} multiplies wrongly", "do not train on this GPU; test its memory")
    return f"{loaded}, multiplies on each of {seen} GPU(s)"


def try_bitsandbytes() -> str:
    """Quantize a layer to NF4 and train through it, after an evaluation pass: loss falls, gradients arrive."""
    import torch

    from expert_cli._compat import keep_autograd_on_cpu, nothing_compiled

    with nothing_compiled():
        from bitsandbytes.nn import Linear4bit

    from expert_cli.model.loading.quantize import DTYPES

    on, precision = _device()
    device, dtype = on.name, DTYPES[precision]
    torch.manual_seed(0)
    frozen = Linear4bit(64, 64, bias=False, compute_dtype=dtype, compress_statistics=True, quant_type="nf4")
    original = frozen.weight.data.clone().to(device)
    frozen = frozen.to(device)
    keep_autograd_on_cpu(frozen)
    trained: Any = torch.nn.Linear(64, 64, bias=False).to(device)
    rows = torch.randn(32, 64, device=device)
    with torch.no_grad():
        wanted = frozen.eval()((rows @ torch.randn(64, 64, device=device).mul(0.125)).to(dtype)).float()
        exact = rows @ original.T
        error = ((frozen(rows.to(dtype)).float() - exact).norm() / exact.norm()).item()
    frozen.train()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss: Any = torch.nn.functional.mse_loss(frozen(trained(rows).to(dtype)).float(), wanted)
        optimizer.zero_grad()
        loss.backward()
        if trained.weight.grad is None or not trained.weight.grad.norm() > 0:
            raise EnvironmentProblem("the gradient through a 4-bit layer is zero")
        optimizer.step()
        losses.append(loss.item())
    found = f"NF4 on {device}: rounding error {error:.1%}, loss {losses[0]:.3f} -> {losses[-1]:.3f} in 60 steps"
    if not (error < ROUNDING and losses[-1] < losses[0] / 2):
        raise EnvironmentProblem(found)
    return found


def try_attention(backend: AttentionBackend) -> str:
    """Let a tiny model attend as a run does: packed documents are what they are alone, and gradients are finite."""
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
    lengths = isolation.SHORT
    found = isolation.measure_leakage(model, backend.layout, lengths)
    words = f"runs on {device.name}; documents in a pack differ from each alone by {found.difference:.0e} of their norm"
    if not found.holds:
        raise EnvironmentProblem(words)
    ids = torch.zeros(1, sum(lengths), dtype=torch.int64, device=device.name)
    starts = torch.tensor([0, *lengths], device=device.name).cumsum(0).int()
    model(input_ids=ids, use_cache=False, **attention.varlen_kwargs(starts, max(lengths))).logits.sum().backward()
    if not all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters()):
        raise EnvironmentProblem("its gradient is not finite")
    return words


def try_compile() -> str:
    """Compile a small function with its backward pass and compare it with the same one as it is."""
    import torch

    device, _ = _device()
    torch.manual_seed(0)
    weight = torch.randn(32, 32, device=device.name)

    def block(rows: Any) -> Any:
        return torch.nn.functional.silu(torch.nn.functional.rms_norm(rows, (32,)) @ weight)

    plain: Any = torch.randn(8, 32, device=device.name, requires_grad=True)
    compiled: Any = plain.detach().clone().requires_grad_()
    started = time.monotonic()
    try:
        torch.compile(block)(compiled).sum().backward()
    except Exception:
        need_compiler(shutil.which, platform.system(), device.name)
        raise
    seconds = time.monotonic() - started
    block(plain).sum().backward()
    if not torch.allclose(plain.grad, compiled.grad, atol=1e-3):
        raise EnvironmentProblem("compiles, but computes another gradient", 'leave "torch_compile": false')
    return f"works on {device.name}, forward and backward; a first compilation takes {seconds:.0f} s"


def need_compiler(which: Callable[[str], str | None], system: str, device: str) -> None:
    """Raise EnvironmentProblem saying what torch.compile lacks, and how to get it."""
    if device == "cuda" and not has_package("triton"):
        package = "triton-windows" if system == "Windows" else "triton"
        raise EnvironmentProblem("triton is missing", f"pip install {package}")
    names, fix = _COMPILERS.get(system, _COMPILERS["Linux"])
    own = os.environ.get("CXX")
    names = (own,) if own else names
    if not any(which(name) for name in names):
        raise EnvironmentProblem(f"no C++ compiler (looked for {', '.join(names)})", fix)
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        package = "python{}.{}-dev".format(*sys.version_info)
        raise EnvironmentProblem("Python.h is missing, which compiled code needs", f"apt-get install {package}")


_COMPILERS = {
    "Linux": (("g++", "clang++"), "install a compiler: apt-get install g++ (Fedora: dnf install gcc-c++)"),
    "Darwin": (("clang++",), "xcode-select --install"),
    "Windows": (("cl",), "install Visual Studio Build Tools (C++), and start from its developer prompt"),
}
_BITSANDBYTES = 'pip install --force-reinstall --no-deps bitsandbytes; until it works: "quantization": "none"'

PROBES = (
    Check("torch", try_torch, "fail", "reinstall torch", 300.0),
    Check("bitsandbytes", try_bitsandbytes, "fail", _BITSANDBYTES, 180.0),
    *(
        Check(
            f"attention, {backend.title or backend.name}",
            partial(try_attention, backend),
            "fail" if backend.required else "warn",
            backend.remedy,
            120.0,
        )
        for backend in reversed(BACKENDS)
        if backend.layout == "packed"
    ),
    Check("torch.compile", try_compile, "warn", 'train without it: "torch_compile": false', 300.0),
)
QUICK = PROBES[:-1]
"""Those that are tried unless all are asked for: a first compilation takes a minute."""


def untried(device: str) -> CheckResult:
    """Say of a compilation what it would take. Raises EnvironmentProblem: what it is seen to lack without being tried.

    On a GPU another compiler than the CPU's may do.
    """
    need_compiler(shutil.which if device == "cpu" else str, platform.system(), device)
    return CheckResult("torch.compile", "ok", "not tried: takes a minute", "expert-cli doctor --deep tries it")


UNTRIED = Check("torch.compile", lambda: untried(machine.inspect().device))
"""Takes the place of what is not in QUICK."""


def main() -> None:
    """Answer each line {"probe": name} with one, that probe's CheckResult. What libraries print goes to stderr."""
    from expert_cli.utils.process_setup import prepare_process

    prepare_process()
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    by_name = {probe.name: probe for probe in PROBES}
    for line in sys.stdin:
        (answer,) = attempt(by_name[json.loads(line)["probe"]])
        print(json.dumps(asdict(answer)), file=lines, flush=True)
