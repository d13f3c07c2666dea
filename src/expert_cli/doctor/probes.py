"""What really works: each probe loads the libraries and tries. They run in a process of their own (probe_process.py)."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from expert_cli.doctor import attention_probes
from expert_cli.doctor.check_result import CheckResult, State
from expert_cli.hardware.machine import has_package


@dataclass(frozen=True)
class Probe:
    """A trial: what is tried, how bad it is when it fails and what to do then, and after how long it counts as hung.

    takes: words for how long, of one that is too slow to be tried unless asked for.
    """

    name: str
    run: Callable[[], CheckResult]
    severity: State
    fix: str
    limit_s: float = 120.0
    takes: str = ""


def try_torch() -> CheckResult:
    """Load torch and multiply on every GPU it sees."""
    started = time.monotonic()
    import torch

    loaded = f"loads in {time.monotonic() - started:.1f} s"
    if not torch.cuda.is_available():
        if torch.version.cuda:
            from expert_cli.hardware import machine

            if machine.inspect().gpus:
                return CheckResult(
                    "torch", "fail", f"{loaded}, but sees no GPU", "see the lines on driver, torch build and GPU choice"
                )
        return CheckResult("torch", "ok", f"{loaded}, computes on {torch.get_num_threads()} CPU threads")
    for index in range(torch.cuda.device_count()):
        block = torch.ones(256, 256, device=f"cuda:{index}")
        if (block @ block)[0, 0].item() != 256.0:
            return CheckResult(
                "torch", "fail", f"GPU {index} multiplies wrongly", "do not train on this GPU; test its memory"
            )
    return CheckResult("torch", "ok", f"{loaded}, multiplies on each of {torch.cuda.device_count()} GPU(s)")


def try_bitsandbytes() -> CheckResult:
    """Quantize a layer to NF4 and train through it, after an evaluation pass: loss falls, gradients arrive."""
    import torch

    from expert_cli._compat import keep_autograd_on_cpu, nothing_compiled

    with nothing_compiled():
        from bitsandbytes.nn import Linear4bit

    device, dtype = attention_probes.device_and_dtype()
    torch.manual_seed(0)
    frozen = Linear4bit(64, 64, bias=False, compute_dtype=dtype, compress_statistics=True, quant_type="nf4")
    original = frozen.weight.data.clone()
    frozen = frozen.to(device)
    keep_autograd_on_cpu(frozen)
    trained: Any = torch.nn.Linear(64, 64, bias=False).to(device)
    rows = torch.randn(32, 64, device=device)
    frozen.eval()
    with torch.no_grad():
        wanted = frozen(torch.randn(64, 64, device=device).mul(0.125).matmul(rows.T).T.to(dtype)).float()
        exact = rows @ original.to(device).T
        error = (frozen(rows.to(dtype)).float() - exact).norm().item() / exact.norm().item()
    frozen.train()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss: Any = torch.nn.functional.mse_loss(frozen(trained(rows).to(dtype)).float(), wanted)
        optimizer.zero_grad()
        loss.backward()
        if trained.weight.grad is None or not trained.weight.grad.norm() > 0:
            return CheckResult("bitsandbytes", "fail", "the gradient through a 4-bit layer is zero", _BITSANDBYTES)
        optimizer.step()
        losses.append(loss.item())
    found = f"NF4 on {device}: rounding error {error:.1%}, loss {losses[0]:.3f} -> {losses[-1]:.3f} in 60 steps"
    fine = error < 0.2 and losses[-1] < losses[0] / 2
    return CheckResult("bitsandbytes", "ok" if fine else "fail", found, "" if fine else _BITSANDBYTES)


def try_compile() -> CheckResult:
    """Compile a small function with its backward pass and compare it with the same one as it is."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    weight = torch.randn(32, 32, device=device)

    def block(rows: Any) -> Any:
        return torch.nn.functional.silu(torch.nn.functional.rms_norm(rows, (32,)) @ weight)

    plain: Any
    compiled: Any
    plain, compiled = (torch.randn(8, 32, device=device, requires_grad=True) for _ in range(2))
    compiled.data.copy_(plain.data)
    started = time.monotonic()
    try:
        torch.compile(block)(compiled).sum().backward()
    except Exception as error:  # noqa: BLE001  whatever a compiler chain raises is the answer
        lacking, fix = missing_for_compile(shutil.which, platform.system(), device)
        found = lacking or _first_line(error)
        return CheckResult("torch.compile", "warn", found, fix or 'train without it: "torch_compile": false')
    seconds = time.monotonic() - started
    block(plain).sum().backward()
    if not torch.allclose(plain.grad, compiled.grad, atol=1e-3):
        return CheckResult(
            "torch.compile", "warn", "compiles, but computes another gradient", 'leave "torch_compile": false'
        )
    return CheckResult(
        "torch.compile", "ok", f"works on {device}, forward and backward; a first compilation takes {seconds:.0f} s"
    )


def missing_for_compile(which: Callable[[str], str | None], system: str, device: str) -> tuple[str, str]:
    """Return what torch.compile lacks, and how to get it; ("", "") if it is something else."""
    if device == "cuda" and not has_package("triton"):
        return "triton is missing", "pip install " + ("triton-windows" if system == "Windows" else "triton")
    own = os.environ.get("CXX")
    names = [own] if own else {"Windows": ["cl"], "Darwin": ["clang++"]}.get(system, ["g++", "clang++"])
    if not any(which(name) for name in names):
        fix = {
            "Windows": "install Visual Studio Build Tools (C++), and start from its developer prompt",
            "Darwin": "xcode-select --install",
        }.get(system, "install a compiler: apt-get install g++ (Fedora: dnf install gcc-c++)")
        return f"no C++ compiler (looked for {', '.join(names)})", fix
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return "Python.h is missing, which compiled code needs", f"apt-get install python{version}-dev"
    return "", ""


_BITSANDBYTES = 'pip install --force-reinstall --no-deps bitsandbytes; until it works: "quantization": "none"'

PROBES = (
    Probe("torch", try_torch, "fail", "reinstall torch", 300.0),
    Probe("bitsandbytes", try_bitsandbytes, "fail", _BITSANDBYTES, 180.0),
    Probe("attention, documents", attention_probes.try_documents, "fail", "reinstall torch"),
    Probe("attention, varlen", attention_probes.try_varlen, "warn", attention_probes.FIX),
    Probe(
        "attention, flash-attn",
        attention_probes.try_flash,
        "warn",
        "pip uninstall flash-attn, or build it again for this torch",
    ),
    Probe("torch.compile", try_compile, "warn", 'train without it: "torch_compile": false', 300.0, "a minute"),
)
QUICK = tuple(probe for probe in PROBES if not probe.takes)


def untried(device: str) -> list[CheckResult]:
    """Return a line for each probe that is not in QUICK: what it would take, or what is seen to lack without trying.

    On a GPU ("cuda") another compiler than the CPU's may do.
    """
    which = shutil.which if device == "cpu" else lambda name: name
    lacking, fix = missing_for_compile(which, platform.system(), device)
    return [
        CheckResult(probe.name, "warn", lacking, fix)
        if lacking and probe.run is try_compile
        else CheckResult(probe.name, "ok", f"not tried: takes {probe.takes}", "expert-cli doctor --deep tries it")
        for probe in PROBES
        if probe.takes
    ]


def main() -> None:
    """Run the probes that lines of JSON name; answer each with one. What libraries print goes to stderr."""
    from expert_cli._compat import quiet_imports

    quiet_imports()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    by_name = {probe.name: probe for probe in PROBES}
    for line in sys.stdin:
        print(json.dumps(asdict(attempt(by_name[json.loads(line)["probe"]]))), file=answers, flush=True)


def attempt(probe: Probe) -> CheckResult:
    """Run one probe; what it raises is its answer."""
    try:
        return probe.run()
    except Exception as error:  # noqa: BLE001  a probe finds out what breaks
        return CheckResult(probe.name, probe.severity, _first_line(error), probe.fix)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
