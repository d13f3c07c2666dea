"""Which kernels a step launches, by name."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class KernelCounter(TorchDispatchMode):
    """Counts the operations that torch dispatches within it by their names."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func._schema.name.split("::")[1]] += 1
        return func(*args, **(kwargs or {}))
