"""Norms, rotary embeddings and gated activations by torch.compile: each becomes one kernel, and one backward.

For those who install nothing extra: PyTorch for a GPU brings Triton on Linux. Products, attention and loss stay as they
are. A part is known by what it does, in any architecture of transformers; what is not known is left alone.

    norm          a module of a class named ..RMSNorm that takes one tensor
    rotary        `apply_rotary_pos_emb` of the file in which the model's classes stand
    activation    a module that computes down_proj(act_fn(gate_proj(x)) * up_proj(x)) and nothing else

Compiled code runs only where a gradient will flow. Generation and evaluation, whose shapes are others, compile nothing.

All is compiled by `compiled`. Whoever counts kernels, on fake tensors say, puts in its place a function that takes a
function and `dynamic` and returns one that runs as a single operation, forward and backward, before `compile_parts`:
`norm(module, x)`, `apply_rotary_pos_emb(q, k, cos, sin)`, `activation(act_fn, gate, up)`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

ROTARY = "apply_rotary_pos_emb"
_PLAIN_ROTARY: dict[ModuleType, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Parts:
    """The parts of a model that are known. rotary: the files of transformers with a function for rotary embeddings."""

    norms: tuple[torch.nn.Module, ...]
    rotary: tuple[ModuleType, ...]
    activations: tuple[torch.nn.Module, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Which of the kinds there are, in words."""
        kinds = {"norms": self.norms, "rotary embeddings": self.rotary, "activations": self.activations}
        return tuple(name for name, parts in kinds.items() if parts)

    @property
    def keeps_little(self) -> bool:
        """Whether both kinds are there that keep most for the backward pass."""
        return bool(self.norms and self.activations)


def find_parts(model: torch.nn.Module) -> Parts:
    """Return the parts of a model, on any device, that can be compiled."""
    modules = list(model.modules())
    files = {sys.modules[type(module).__module__] for module in modules}
    return Parts(
        norms=tuple(filter(_is_norm, modules)),
        rotary=tuple(
            file for file in files if file.__name__.startswith("transformers.models.") and hasattr(file, ROTARY)
        ),
        activations=tuple(filter(_is_gated, modules)),
    )


def compile_parts(parts: Parts) -> None:
    """Let the parts run compiled; compilation itself waits for the first batch."""
    torch.compiler.reset()  # what an earlier model compiled counts against the limit of every function
    norms = {kind: _region(kind.forward, dynamic=True) for kind in {type(norm) for norm in parts.norms}}
    activation = _region(_activation, dynamic=True)
    for norm in parts.norms:
        norm.forward = partial(norms[type(norm)], norm)
    for block in parts.activations:
        block.forward = partial(_gated, block, activation)
    for file in parts.rotary:
        function = _PLAIN_ROTARY.setdefault(file, getattr(file, ROTARY))
        # its widths stay constants of the code: the number of tokens alone is seen to change
        setattr(file, ROTARY, _region(function, dynamic=None))


def plain_rotary() -> None:
    """Give transformers' files their own functions back, which all models of a process share."""
    for file, function in _PLAIN_ROTARY.items():
        setattr(file, ROTARY, function)
    _PLAIN_ROTARY.clear()


def compiled(function: Callable[..., Any], *, dynamic: bool | None) -> Callable[..., Any]:
    """Return the function compiled. dynamic: for any sizes at once; None: for those that are seen to change."""
    return torch.compile(function, dynamic=dynamic)


def cannot_compile(device: str) -> str:
    """Return why nothing can be compiled for a device, or "": by compiling a small function and its backward pass."""
    try:
        compiled(_activation, dynamic=True)(
            torch.nn.functional.silu, *(torch.ones(2, 8, device=device, requires_grad=True) for _ in range(2))
        ).sum().backward()
    except (RuntimeError, AssertionError, OSError, ImportError) as error:  # its first line only names the back end
        return " ".join(str(error).split()[:20]) or type(error).__name__
    return ""


def _region(function: Callable[..., Any], *, dynamic: bool | None) -> Callable[..., Any]:
    fast = compiled(function, dynamic=dynamic)

    @wraps(function)
    def region(*args: Any, **settings: Any) -> Any:
        flows = torch.is_grad_enabled() and any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
        return (fast if flows else function)(*args, **settings)

    return region


def _activation(act_fn: Callable[[torch.Tensor], torch.Tensor], gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return act_fn(gate) * up


def _gated(block: Any, activation: Callable[..., torch.Tensor], x: torch.Tensor) -> Any:
    return block.down_proj(activation(block.act_fn, block.gate_proj(x), block.up_proj(x)))


def _is_norm(module: Any) -> bool:
    kind = type(module)
    takes = list(inspect.signature(kind.forward).parameters)
    return kind.__name__.endswith("RMSNorm") and len(takes) == 2 and "forward" not in vars(module)


def _is_gated(module: Any) -> bool:
    """Ask the class with stand-ins for the four parts; it finds nothing else of the module."""
    parts = {
        "gate_proj": lambda x: x + 2,
        "act_fn": lambda x: x**2,
        "up_proj": lambda x: 3 * x,
        "down_proj": lambda x: x - 5,
    }
    if not all(hasattr(module, name) for name in parts) or "forward" in vars(module):
        return False
    x = 3.0
    try:
        found = type(module).forward(SimpleNamespace(**parts), x)
    except (AttributeError, TypeError, ValueError, RuntimeError, IndexError):
        return False
    return bool(found == (x + 2) ** 2 * (3 * x) - 5)
