"""How much memory tensors take at most."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Alive(TorchDispatchMode):
    """Watches how many bytes of what is made within it are alive at most."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._made: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        before = {StorageWeakRef(value.untyped_storage()) for value in _tensors((args, kwargs))}
        for value in _tensors(out):
            storage = value.untyped_storage()
            if StorageWeakRef(storage) not in before:
                self._made[StorageWeakRef(storage)] = storage.nbytes()
        self.peak = max(self.peak, self.alive)
        return out

    @property
    def alive(self) -> int:
        """The bytes that are alive now."""
        return sum(size for made, size in self._made.items() if not made.expired())


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
