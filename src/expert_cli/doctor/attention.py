"""Do the attention back ends keep the documents of a pack apart? Each attends over a pack, and each document alone.

pack    a a a b b b b b c c c c c c c c      one row of 16 tokens, three documents
ends    0     3         8               16   as the variable-length kernels want them
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from expert_cli.doctor.lines import Line
from expert_cli.machine import has_package

if TYPE_CHECKING:
    import torch

LENGTHS = (3, 5, 8)
TOLERANCE = {"bfloat16": 4e-2, "float16": 1e-2}
FIX = "training uses sdpa here; reinstall torch to have this one too"
Attend = Callable[[Any, Any, Any], Any]
"""(query, key, value), each (1, heads, tokens, head size) -> the same shape."""


def try_sdpa() -> Line:
    """Attend with PyTorch's fused attention and a block mask, which training always has to fall back on."""
    import torch

    def run(query: Any, key: Any, value: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=_mask(query.device))

    line = judge("sdpa", run)
    return line if line.state == "ok" else Line(line.name, "fail", line.found, "reinstall torch")


def try_flex() -> Line:
    """Attend with flex attention: compiled on a GPU, as training would; on a CPU as it is, where it has no backward pass."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    on_gpu = device_and_dtype()[0] == "cuda"
    attend: Any = torch.compile(flex_attention) if on_gpu else flex_attention

    def run(query: Any, key: Any, value: Any) -> Any:
        mask = _mask(query.device)
        size = len(mask)
        blocks = create_block_mask(lambda b, h, q, k: mask[q, k], None, None, size, size, device=str(query.device))  # noqa: ARG005
        return attend(query, key, value, block_mask=blocks)

    return judge("flex", run, trains=on_gpu)


def try_varlen() -> Line:
    """Attend with torch's own variable-length attention."""
    import torch

    if not torch.cuda.is_available():
        return Line("attention, varlen", "ok", "not tried: only on NVIDIA GPUs")
    from torch.nn.attention import varlen

    longest, ends = max(LENGTHS), _ends()

    def run(query: Any, key: Any, value: Any) -> Any:
        attend: Any = varlen.varlen_attn
        # The window is all of the past and nothing of the future.
        return _packed(attend(*map(_flat, (query, key, value)), ends, ends, longest, longest, window_size=(-1, 0)))

    return judge("varlen", run)


def try_flash() -> Line:
    """Attend with the package flash-attn, where it is installed."""
    import torch

    if not has_package("flash_attn"):
        return Line("attention, flash-attn", "ok", "not installed, and not needed")
    if not torch.cuda.is_available():
        return Line("attention, flash-attn", "ok", "not tried: only on NVIDIA GPUs")
    import flash_attn

    longest, ends = max(LENGTHS), _ends()

    def run(query: Any, key: Any, value: Any) -> Any:
        attend = flash_attn.flash_attn_varlen_func
        return _packed(attend(*map(_flat, (query, key, value)), ends, ends, longest, longest, causal=True))

    return judge("flash-attn", run)


def judge(name: str, run: Attend, *, trains: bool = True) -> Line:
    """Compare a pack with each of its documents alone, and with `trains` look at the gradient too."""
    import torch

    title = f"attention, {name}"
    device, dtype = device_and_dtype()
    torch.manual_seed(0)
    size = (1, 2, sum(LENGTHS), 64)
    parts: list[Any] = [torch.randn(size, device=device, dtype=dtype, requires_grad=trains) for _ in range(3)]
    found = run(*parts)
    documents = zip(*(part.float().split(LENGTHS, dim=2) for part in parts), strict=True)
    alone = torch.cat(
        [torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True) for q, k, v in documents], dim=2
    )
    difference = (found.float() - alone).abs().max().item()
    words = f"runs on {device}; documents in a pack differ from each alone by at most {difference:.0e}"
    if not difference < TOLERANCE[str(dtype).removeprefix("torch.")]:
        return Line(title, "warn", words, FIX)
    if trains:
        found.sum().backward()
        if not parts[0].grad.isfinite().all():
            return Line(title, "warn", "its gradient is not finite", FIX)
    return Line(title, "ok", words)


def device_and_dtype() -> tuple[str, torch.dtype]:
    """Return where and in which half precision this machine would train."""
    import torch

    if not torch.cuda.is_available():
        return "cpu", torch.bfloat16
    return "cuda", torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16


def _mask(device: Any) -> Any:
    """Return the mask of the pack, (tokens, tokens): True within a document, and not into the future."""
    import torch

    number = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    return (number[:, None] == number[None, :]).tril().to(device)


def _ends() -> Any:
    import torch

    return torch.tensor([0, *LENGTHS], device="cuda").cumsum(0).int()


def _flat(part: Any) -> Any:
    """(1, heads, tokens, head size) -> (tokens, heads, head size)."""
    return part[0].transpose(0, 1)


def _packed(part: Any) -> Any:
    return part.transpose(0, 1)[None]
