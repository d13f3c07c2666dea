"""The state of optimizers, schedulers and random generators as tensors and JSON, and back, bit for bit.

    {"state": {0: {"step": 3, "exp_avg": T}}, "param_groups": [{"betas": (0.9, 0.95), "params": [0]}]}

becomes the tensor "state/0/exp_avg" and the tree

    {"map": {"state": {"items": [[0, {"map": {"step": 3, "exp_avg": {"tensor": "state/0/exp_avg"}}}]]}, "param_groups": ...}}

where "map" is a dict with text keys only, "items" one with others, "tuple" a tuple and "float" one that JSON has no number for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from expert_cli._compat import optimizer_buffer
from expert_cli.hardware.devices import CUDA

Tensors = dict[str, torch.Tensor]


def serialize(value: Any) -> tuple[Any, Tensors]:
    """Return (tree, tensors) of a nest of dicts, lists, tuples, numbers, texts, None and tensors.

    The tensors are contiguous, on the CPU, and share no memory; one that stands in two places is kept once. Raises TypeError.
    """
    packer = _Packer()
    tree = packer.tree(value, "")
    return tree, own_memory(packer.tensors)


def deserialize(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return what `serialize` was given. Raises KeyError for a tensor that is not there, ValueError for another tree."""
    if isinstance(tree, list):
        return [deserialize(entry, tensors) for entry in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "map":
        return {name: deserialize(entry, tensors) for name, entry in content.items()}
    if kind == "items":
        return {deserialize(name, tensors): deserialize(entry, tensors) for name, entry in content}
    if kind == "tuple":
        return tuple(deserialize(entry, tensors) for entry in content)
    if kind == "float":
        return float(content)
    if kind == "tensor":
        return tensors[content]
    raise ValueError(f"unknown kind {kind}")


def own_memory(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Return the tensors on the CPU, contiguous, none sharing memory with another: what safetensors writes."""
    seen: set[int] = set()
    owned: Tensors = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        start = plain.untyped_storage().data_ptr()
        owned[name] = plain.clone() if start in seen or plain.untyped_storage().nbytes() > plain.nbytes else plain
        seen.add(start)
    return owned


class _Packer:
    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def tree(self, value: Any, path: str) -> Any:
        # Exact types: a subclass (an enum) would come back as something else. numpy's float64 is a float in all but name.
        if value is None or type(value) in (bool, int, str):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, torch.Tensor):
            return {"tensor": self._name(value, path or "tensor")}
        if type(value) is list:
            return [self.tree(entry, _below(path, place)) for place, entry in enumerate(value)]
        if type(value) is tuple:
            return {"tuple": [self.tree(entry, _below(path, place)) for place, entry in enumerate(value)]}
        if isinstance(value, Mapping):
            entries = [(name, self.tree(entry, _below(path, name))) for name, entry in value.items()]
            if all(type(name) is str for name in value):
                return {"map": dict(entries)}
            return {"items": [[self.tree(name, path), entry] for name, entry in entries]}
        raise TypeError(f"{path}: a {type(value).__name__} cannot be written without pickle")

    def _name(self, tensor: torch.Tensor, path: str) -> str:
        same = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and same in self._names:
            return self._names[same]
        while path in self.tensors:  # the keys 0 and "0" side by side
            path += "~"
        self.tensors[path] = tensor
        self._names[same] = path
        return path


def _below(path: str, name: object) -> str:
    return f"{path}/{name}" if path else str(name)


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load a state dict bit for bit, also into the optimizer that accelerate has wrapped.

    `load_state_dict` of torch and bitsandbytes casts states to the parameter's dtype, and bitsandbytes' puts paged states
    into ordinary GPU memory; both are set right here.
    """
    optimizer = getattr(optimizer, "optimizer", optimizer)
    optimizer.load_state_dict(dict(state))
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        live = optimizer.state[parameter]
        for name, saved in _flat(state["state"].get(number, {})).items():
            if live[name].dtype != saved.dtype:
                live[name] = saved.to(live[name].device, copy=True)
            if (
                getattr(optimizer, "is_paged", False)
                and parameter.device.type != "cpu"
                and name in ("state1", "state2")
            ):
                # in memory as bitsandbytes gives it to a new state (AdEMAMix has two moments in one)
                live[name] = optimizer_buffer(optimizer, parameter, live[name]).copy_(live[name])


def _flat(state: Mapping[str, Any]) -> Tensors:
    """Return the tensors of one parameter's state by name; bitsandbytes wraps some in a dict of their own."""
    flat: Tensors = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            flat[name] = value
        elif isinstance(value, Mapping):
            flat |= _flat(value)
    return flat


def capture_rng() -> dict[str, Any]:
    """Return the state of every random generator: Python's, numpy's, torch's on the CPU and on each GPU."""
    version, words, gauss = random.getstate()
    name, key, *numbers = np.random.get_state()
    return {
        "python": (version, torch.tensor(words, dtype=torch.int64), gauss),
        "numpy": (str(name), torch.tensor(np.asarray(key).tolist(), dtype=torch.int64), *numbers),
        "torch": torch.get_rng_state(),
        "cuda": CUDA.rng_states() if CUDA.is_available() else [],
    }


def restore_rng(rng: Mapping[str, Any]) -> None:
    """Set every random generator as `capture_rng` found it; of GPUs, those that are there."""
    version, words, gauss = rng["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    name, key, *numbers = rng["numpy"]
    np.random.set_state((name, key.numpy(), *numbers))
    torch.set_rng_state(rng["torch"])
    if CUDA.is_available():
        CUDA.set_rng_states(rng["cuda"])
