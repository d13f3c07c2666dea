"""Do the attention back ends that training uses keep the documents of a pack apart? Each attends over a pack, and each alone.

    pack    a a a b b b b b c c c c c c c c      one row of 16 tokens, three documents
    starts  0     3         8               16

Their functions are those that a run registers with transformers; tried is what this machine makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from expert_cli.doctor.check_result import CheckResult
from expert_cli.hardware.machine import has_package

if TYPE_CHECKING:
    import torch

PACKS = ((3, 5, 8), (3, 520, 8))
"""On a CPU, documents beyond 512 tokens take another way than shorter ones."""
TOLERANCE = {"bfloat16": 4e-2, "float16": 1e-2}
FIX = "training uses another back end here; reinstall torch to have this one too"
Attend = Callable[[Any, Any, Any, Any, int], Any]
"""(query, key, value, starts, longest), the first three (1, heads, tokens, head size) -> the same shape."""


def try_documents() -> CheckResult:
    """Attend as training does on a CPU, and on GPUs without varlen: each document by itself."""
    from expert_cli.model.kernels.attention import per_document_sdpa

    line = check_attention("documents", _as_registered(per_document_sdpa))
    return line if line.state == "ok" else CheckResult(line.name, "fail", line.found, "reinstall torch")


def try_varlen() -> CheckResult:
    """Attend as training does on GPUs from Ampere on: torch's own variable-length attention."""
    import torch

    if not torch.cuda.is_available():
        return CheckResult("attention, varlen", "ok", "not tried: only on NVIDIA GPUs")
    from expert_cli.model.kernels.attention import varlen_attention

    return check_attention("varlen", _as_registered(varlen_attention))


def try_flash() -> CheckResult:
    """Attend with the package flash-attn, where it is installed, as transformers calls it."""
    import torch

    if not has_package("flash_attn"):
        return CheckResult("attention, flash-attn", "ok", "not installed, and not needed")
    if not torch.cuda.is_available():
        return CheckResult("attention, flash-attn", "ok", "not tried: only on NVIDIA GPUs")
    import flash_attn

    def run(query: Any, key: Any, value: Any, starts: Any, longest: int) -> Any:
        q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
        out = flash_attn.flash_attn_varlen_func(q, k, v, starts, starts, longest, longest, causal=True)
        return out.transpose(0, 1)[None]

    return check_attention("flash-attn", run)


def check_attention(name: str, run: Attend) -> CheckResult:
    """Compare packs with each of their documents alone, and look at the gradient."""
    title = f"attention, {name}"
    device, dtype = device_and_dtype()
    differences, finite = zip(*(_compare(run, lengths, device, dtype) for lengths in PACKS), strict=True)
    words = f"runs on {device}; documents in a pack differ from each alone by at most {max(differences):.0e}"
    if not max(differences) < TOLERANCE[str(dtype).removeprefix("torch.")]:
        return CheckResult(title, "warn", words, FIX)
    return (
        CheckResult(title, "ok", words)
        if all(finite)
        else CheckResult(title, "warn", "its gradient is not finite", FIX)
    )


def device_and_dtype() -> tuple[str, torch.dtype]:
    """Return where and in which half precision this machine would train."""
    import torch

    if not torch.cuda.is_available():
        return "cpu", torch.bfloat16
    return "cuda", torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16


def _compare(run: Attend, lengths: tuple[int, ...], device: str, dtype: torch.dtype) -> tuple[float, bool]:
    """Return the largest difference between packed and alone, and whether the gradient is finite."""
    import torch

    torch.manual_seed(0)
    size = (1, 2, sum(lengths), 64)
    parts: list[Any] = [torch.randn(size, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    found = run(parts[0], parts[1], parts[2], _starts(lengths, device), max(lengths))
    documents = zip(*(part.float().split(lengths, dim=2) for part in parts), strict=True)
    alone = torch.cat(
        [torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True) for q, k, v in documents], dim=2
    )
    difference = (found.float() - alone).abs().max().item()
    found.sum().backward()
    return difference, all(part.grad is not None and bool(part.grad.isfinite().all()) for part in parts)


def _as_registered(function: Callable[..., Any]) -> Attend:
    """Call a back end by the signature that transformers gives to one; it returns (1, tokens, heads, head size)."""
    import torch

    from expert_cli.model.kernels.attention import varlen_kwargs

    def run(query: Any, key: Any, value: Any, starts: Any, longest: int) -> Any:
        out, _ = function(torch.nn.Module(), query, key, value, None, **varlen_kwargs(starts, longest))
        return out.transpose(1, 2)

    return run


def _starts(lengths: tuple[int, ...], device: str) -> Any:
    import torch

    return torch.tensor([0, *lengths], device=device).cumsum(0).int()
