"""torch.compile, a decoder layer at a time: what is compiled, with what, and when compiled layers run as they were written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from expert_cli._compat import forget_graphs, is_compiled, quiet_compiler
from expert_cli.errors import InputError
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.model.activation_checkpointing import decoder_layers


def require_compiler(compute: ComputeConfig) -> None:
    """Raise InputError if a back end is asked for that torch.compile does not have here."""
    asked = compute.compile_backend
    if compute.torch_compile and asked not in torch.compiler.list_backends(exclude_tags=()):
        usual = ", ".join(torch.compiler.list_backends())
        raise InputError(f'torch_compile_backend: torch has no back end "{asked}"', f"take one of {usual}")


def compile_layers(model: Any, compute: ComputeConfig) -> None:
    """Let every decoder layer be compiled when it is first called, where that is asked for."""
    if not compute.torch_compile:
        return
    quiet_compiler()
    backend, mode = compute.compiler
    for layer in decoder_layers(model):
        layer.compile(backend=backend, mode=mode)


def compile_anew(model: torch.nn.Module) -> None:
    """Forget what was compiled for batches of another shape: beside it, the next would be compiled for any shape."""
    if _has_compiled(model):
        forget_graphs()


@contextmanager
def uncompiled(model: torch.nn.Module) -> Iterator[None]:
    """Let compiled layers run as they were written meanwhile: for generation.

    It calls them with a cache, for which each layer would be compiled by itself and for every length anew, until nothing
    may be compiled any more, training's batches neither.
    """
    with torch.compiler.set_stance("force_eager") if _has_compiled(model) else nullcontext():
        yield


def _has_compiled(model: torch.nn.Module) -> bool:
    return any(map(is_compiled, model.modules()))
