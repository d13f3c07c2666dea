"""Work-arounds for third parties: what is wrong, in which versions, and when the work-around can go."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from expert_cli.utils.reporter import Bar


def quiet_imports() -> None:
    """Keep third parties from fetching code and from talking past the console; call it before they are imported.

    bitsandbytes 0.50.2 (backends/cpu/ops.py, backends/mps/ops.py) downloads and runs a kernel from the hub while it is
    imported, wherever the package `kernels` is installed; without it, it logs that it could not. An entry of None makes
    that import fail. peft 0.21.2 asks transformers by an old name. Remove when bitsandbytes asks first.
    """
    sys.modules.setdefault("kernels", None)  # type: ignore[arg-type]
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".is_gradient_checkpointing. is deprecated", FutureWarning)


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """Let torch.compile hand functions back as they are, for an import.

    bitsandbytes 0.50.2 (backends/default/ops.py) compiles four functions while it is imported, none of them for a CPU or a
    CUDA GPU; torch loads its code generator for that, 2.3 of 5.3 s. Remove when bitsandbytes compiles at the first use.
    """
    import torch

    compiling = torch.compile

    def as_it_is(function: Any = None, **_: Any) -> Any:
        return (lambda later: later) if function is None else function

    torch.compile = as_it_is  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.compile = compiling


def hub_bar(bar: Bar) -> type[Any]:
    """Return a class for the hub client's `tqdm_class` that draws nothing and tells `bar` the megabytes.

    huggingface-hub 1.x (and before) draws its own bars past the console. Two of them count the same bytes, received and
    written; the fullest is told. Remove when the client takes a function to report progress to.
    """
    from huggingface_hub.utils.tqdm import tqdm

    most = 0.0

    class CountingBar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.counts_bytes = kwargs.get("unit") == "B"
            self.count = 0.0
            super().__init__(*args, **(kwargs | {"disable": True}))  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            nonlocal most
            self.count += n or 0
            if self.counts_bytes and self.count > most:
                most = self.count
                bar.update(round(most / 1e6, 1))

    return CountingBar


def keep_autograd_on_cpu(model: Any) -> None:
    """Stop bitsandbytes from repacking 4-bit weights on CPUs with AVX512-BF16.

    bitsandbytes 0.50.2 (nn/modules.py, Linear4bit.forward): the first forward in evaluation mode repacks the weights for
    inference, and every later forward, in training too, takes a path without autograd: adapters on such layers get
    gradients of exactly 0.0. Remove when Linear4bit undoes the packing in `train()`.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def keep_8bit_scales(model: Any) -> None:
    """Keep the scales of 8-bit weights where the forward pass reads them.

    peft 0.21.2 (utils/integrations.py, dequantize_module_weight): on a CPU, DoRA rebuilds the weight in every forward, and
    bitsandbytes' next `init_8bit_state` then takes the rebuilt weight's missing scales over. Remove when peft keeps them.
    """
    for module in model.modules():
        if hasattr(module, "init_8bit_state") and getattr(module.weight, "CB", None) is not None:
            module.init_8bit_state()
            module.init_8bit_state = partial(_forget_rebuilt_state, module)


def _forget_rebuilt_state(module: Any) -> None:
    module.weight.CB = module.weight.SCB = None
