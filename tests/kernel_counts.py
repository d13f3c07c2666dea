"""What a step asks of a GPU: the kernels it launches, the bytes they move, their products, and what it keeps for backward.

An operation that torch dispatches is one kernel, unless it only looks at memory in another way or takes some without filling
it. A kernel reads every tensor that it is given once, and writes every tensor that it makes or changes once; of a table that
it looks rows up in, it reads those rows. What torch.compile would make of a function is one kernel forward and one backward.
What comes from a GPU to the CPU, for which the host waits, is told by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from math import prod
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

LOOKS_UP = frozenset({"embedding", "index", "index_select", "gather"})
ONLY_WRITES = frozenset({"fill_", "zero_", "copy_", "scatter_", "index_put_"})
TO_HOST = " to the host"
TAKES_MEMORY = ("empty", "new_empty")


UNPACKED_ABOVE = 1536
"""Rows above which bitsandbytes 0.50.2 unpacks NF4 weights before their product, which is one kernel below."""


class Kernel(NamedTuple):
    """One launch: bytes read and written, floating-point operations of matrix products; attention: its kind of products."""

    name: str
    bytes: int
    flops: int = 0
    attention: bool = False


class KernelCounter(TorchDispatchMode):
    """Counts the kernels of what runs within it, equal ones together."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: Counter[Kernel] = Counter()
        self._depth = 0
        self._paused = False

    def __enter__(self) -> KernelCounter:
        super().__enter__()  # type: ignore[no-untyped-call]
        self._depth += 1
        return self

    def __exit__(self, *raised: Any) -> None:
        self._depth -= 1
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not self._paused and _launches(func, (args, kwargs), out):
            self.kernels.update(_kernels(func, args, kwargs, out))
        return out

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing meanwhile."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that counts as a compiled one: one kernel each way. Where nothing counts it is as it was."""

        @wraps(function)
        def region(*args: Any, **kwargs: Any) -> Any:
            if not self._depth:
                return function(*args, **kwargs)
            leaves, shape = tree_flatten((args, kwargs))
            made: list[Any] = []
            out = _Region.apply(self, function, shape, made, *leaves)  # type: ignore[no-untyped-call]
            return tree_unflatten(list(out), made[0])

        return region

    def compiling(self, function: Any = None, **_: Any) -> Any:
        """Stand in for `torch.compile`, as a function and as a decorator with settings."""
        return self.compiling if function is None else self.compiled(function)


class KeptBytes:
    """Counts the memory that autograd keeps for the backward pass, what `known` tensors hold left out."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        self.total = 0
        self._counted = {_memory(tensor): tensor for tensor in known}
        self._hooks = _saved_to(self._count)

    def __enter__(self) -> KeptBytes:
        self._hooks.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._hooks.__exit__(*raised)

    def _count(self, tensor: torch.Tensor) -> None:
        if _memory(tensor) not in self._counted:
            self._counted[_memory(tensor)] = tensor  # held, so that no other tensor gets its place
            self.total += tensor.untyped_storage().nbytes()


class _Region(torch.autograd.Function):
    """A compiled function: runs uncounted, then counts as one kernel, and its gradients as another."""

    @staticmethod
    def forward(ctx: Any, counter: KernelCounter, function: Any, shape: Any, made: list[Any], *leaves: Any) -> Any:
        ctx.counter, ctx.name = counter, function.__name__
        wanted = ctx.needs_input_grad[4:]
        inputs = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        for leaf, needs in zip(inputs, wanted, strict=True):
            if needs:
                leaf.requires_grad_()
        kept: list[torch.Tensor] = []
        with counter.paused(), torch.enable_grad(), _saved_to(kept.append):
            args, kwargs = tree_unflatten(inputs, shape)
            results, result_shape = tree_flatten(function(*args, **kwargs))
        made.append(result_shape)
        ctx.save_for_backward(*_needed(_tensors(leaves), kept))
        ctx.shapes = [leaf if needs else None for leaf, needs in zip(inputs, wanted, strict=True)]
        counter.kernels[Kernel(f"compiled {ctx.name}", _bytes(_tensors(leaves)) + _bytes(_tensors(results)))] += 1
        return tuple(result.detach() if isinstance(result, torch.Tensor) else result for result in results)

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> tuple[Any, ...]:
        with ctx.counter.paused():
            gradients = [leaf if leaf is None else torch.empty_like(leaf) for leaf in ctx.shapes]
        moved = _bytes(_tensors([outputs, ctx.saved_tensors])) + _bytes(_tensors(gradients))
        ctx.counter.kernels[Kernel(f"compiled {ctx.name}, backward", moved)] += 1
        return None, None, None, None, *gradients


def _saved_to(told: Callable[[torch.Tensor], None]) -> Any:
    """Return a context in which every tensor that autograd saves is told of."""

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        told(tensor)
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


def _needed(inputs: list[torch.Tensor], kept: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the inputs that a backward pass reads: all of them where it would also read what lies between."""
    saved = {_memory(tensor) for tensor in kept}
    known = {_memory(tensor) for tensor in inputs}
    return inputs if saved - known else [tensor for tensor in inputs if _memory(tensor) in saved]


def _launches(func: Any, given: Any, out: Any) -> bool:
    made = _tensors(out)
    if not made or func._schema.name.split("::")[1].startswith(TAKES_MEMORY):
        return False
    if func._schema.is_mutable:
        return True
    there = {_memory(tensor) for tensor in _tensors(given)}
    return any(_memory(tensor) not in there for tensor in made)


def _kernels(func: Any, args: Any, kwargs: Any, out: Any) -> list[Kernel]:
    name = func._schema.name.split("::")[1]
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    if name == "gemm_4bit" and given["A"].numel() > UNPACKED_ABOVE * given["A"].shape[-1]:
        return _unpack_and_multiply(given, out)
    changed = [
        given[a.name] for a in func._schema.arguments if a.alias_info and a.alias_info.is_write and a.name in given
    ]
    written = _tensors([changed, out])
    overwrites = name in ONLY_WRITES or func._overloadname.endswith("out") or given.get("beta") == 0
    not_read = changed if overwrites else []
    read = [tensor for tensor in _tensors([args, kwargs]) if not any(tensor is one for one in _tensors(not_read))]
    if name in LOOKS_UP:
        moved = _bytes(read[1:]) + 2 * _bytes(written)
    elif name in ("scatter_", "index_put_"):
        moved = 2 * _bytes(read)
    else:
        moved = _bytes(read) + _bytes(written)
    if _on_host(out) and not all(_on_host(tensor) for tensor in read):
        name += TO_HOST
    return [Kernel(name, moved, _flops(name, given), "query" in given)]


def _on_host(out: Any) -> bool:
    return any(tensor.device.type == "cpu" for tensor in _tensors(out))


def _unpack_and_multiply(given: dict[str, Any], out: torch.Tensor) -> list[Kernel]:
    """What bitsandbytes launches where it multiplies with the unpacked weight: three to unpack it."""
    weights = prod(given["shapeB"])
    scales = weights // given["blocksize"]
    return [
        Kernel("dequantize_blockwise", 5 * scales),
        Kernel("add", 8 * scales),
        Kernel("dequantize_4bit", weights // 2 + 4 * scales + 2 * weights),
        Kernel("mm", _bytes([given["A"], out]) + 2 * weights, 2 * given["A"].numel() * int(given["shapeB"][0])),
    ]


def _flops(name: str, given: dict[str, Any]) -> int:
    """Return the operations of the matrix products in a kernel; attention is causal, within documents of `max_q` tokens."""
    if "query" in given:
        longest = given.get("max_q") or given["key"].shape[-2]
        return (5 if "backward" in name else 2) * int(longest) * int(given["query"].numel())
    if name == "gemm_4bit":
        return 2 * int(given["A"].numel()) * int(given["shapeB"][0])
    left, right = given.get("mat1", given.get("self")), given.get("mat2")
    if name == "baddbmm":
        left, right = given["batch1"], given["batch2"]
    return 2 * int(left.numel()) * int(right.shape[-1]) if isinstance(left, torch.Tensor) and right is not None else 0


def _tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of a tree, each once."""
    found = {id(leaf): leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)}
    return list(found.values())


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes that tensors really take: an expanded one is as large as what it expands."""
    return sum(_extent(tensor) * tensor.element_size() for tensor in tensors)


def _extent(tensor: torch.Tensor) -> int:
    return prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)


def _memory(tensor: torch.Tensor) -> int:
    place: int = tensor.untyped_storage()._cdata
    return place
