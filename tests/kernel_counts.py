"""Which kernels a step launches, by name, and what comes from a GPU to the CPU, for which the host waits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TO_HOST = " to the host"


class KernelCounter(TorchDispatchMode):
    """Counts the operations that torch dispatches within it by their names; `TO_HOST` ends those that copy to the CPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name.split("::")[1]
        from_card = any(tensor.device.type == "cuda" for tensor in _tensors((args, kwargs)))
        to_host = from_card and any(tensor.device.type == "cpu" for tensor in _tensors(out))
        self.names[name + TO_HOST * to_host] += 1
        return out


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
