"""What autograd asks of CUDA, answered without it: fake tensors on "cuda" then have a backward pass on any build of torch.

torch 2.6 to 2.13: autograd asks a device's guard for streams and CUDA's hooks whether it is there. FakeTensorMode puts a guard
that does nothing where a guard counts no devices, but none where there is no guard at all, and leaves the hooks. Both are
objects of C++ with tables of functions, reached here through ctypes: Linux and macOS alone. Remove when FakeTensorMode does
the whole of it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

CUDA = 1
"""c10::DeviceType::CUDA."""
FUNCTIONS = 128
"""More than any of the tables has."""
_HOME = Path(torch.__file__).parent
_ANSWERS = {name: ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1) for name in ("hasCUDA", "isAvailable", "isBuilt")} | {
    name: ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0) for name in ("hasPrimaryContext", "getCurrentDevice")
}
_KEPT: list[Any] = []
"""What C++ refers to."""


@contextmanager
def pretended_cuda() -> Iterator[None]:
    """Let CUDA seem to be there; changes nothing where it is."""
    if torch.cuda.is_available():
        yield
        return
    _set_guard()
    hooks = _library("torch_cpu")._ZN2at6detail12getCUDAHooksEv
    hooks.restype = ctypes.c_void_p
    table = ctypes.cast(hooks(), ctypes.POINTER(ctypes.c_void_p))
    before = table[0] or 0
    own = (ctypes.c_void_p * FUNCTIONS).from_buffer_copy(ctypes.string_at(before, 8 * FUNCTIONS))
    for name, answer in _ANSWERS.items():
        own[_hooks().index(name)] = ctypes.cast(answer, ctypes.c_void_p)
    table[0] = ctypes.addressof(own)
    try:
        yield
    finally:
        table[0] = before


def _set_guard() -> None:
    """Give a build without CUDA a guard that counts no devices, for which torch puts its own that does nothing."""
    guards = (ctypes.c_void_p * (CUDA + 1)).in_dll(_library("c10"), "_ZN3c104impl26device_guard_impl_registryE")
    if not guards[CUDA]:
        nothing = ctypes.cast(_ANSWERS["hasPrimaryContext"], ctypes.c_void_p)
        functions = (ctypes.c_void_p * FUNCTIONS)(*[nothing] * FUNCTIONS)
        guard = ctypes.c_void_p(ctypes.addressof(functions))
        _KEPT.extend((functions, guard))
        guards[CUDA] = ctypes.addressof(guard)
    torch._C._ensureCUDADeviceGuardSet()


def _library(name: str) -> Any:
    return ctypes.CDLL(str(next((_HOME / "lib").glob(f"lib{name}.*"))))


def _hooks() -> list[str]:
    """Return the names of the functions of CUDA's hooks, in the order in which their table has them."""
    headers = [_HOME / f"include/ATen/detail/{name}HooksInterface.h" for name in ("Accelerator", "CUDA")]
    codes = [re.sub("//.*", "", header.read_text(encoding="utf-8")) for header in headers]
    names = [re.findall(r"virtual\b[^;{(]*?(\w+)\(", code) for code in codes]
    return [names[0][0], *names[0], *names[1]]  # a destructor stands first, and twice
