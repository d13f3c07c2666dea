"""The state of an optimizer as named tensors and numbers, and back, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from expert_cli._compat import optimizer_buffer

Tensors = dict[str, torch.Tensor]


def optimizer_parts(optimizer: Any) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors and the numbers of an optimizer's state, by "number of the parameter.name"."""
    tensors: Tensors = {}
    numbers: dict[str, Any] = {}
    for number, (parameter, _) in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            (tensors if isinstance(value, torch.Tensor) else numbers)[f"{number}.{name}"] = value
    return tensors, numbers


def load_optimizer(optimizer: Any, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, Any]) -> None:
    """Put back what `optimizer_parts` gave; tensors that are there already are written to, since a graph may hold them.

    `load_state_dict` would cast states to the parameter's dtype, and bitsandbytes' puts paged states into ordinary memory.
    """
    parameters = list(_parameters(optimizer))
    for key, value in {**tensors, **numbers}.items():
        number, _, name = key.partition(".")
        parameter, group = parameters[int(number)]
        state = optimizer.state[parameter]
        if not isinstance(value, torch.Tensor):
            state[name] = value
        elif name in state:
            state[name].copy_(value)
        else:
            state[name] = _placed(optimizer, group, parameter, name, value)


def _placed(
    optimizer: Any, group: Mapping[str, Any], parameter: torch.Tensor, name: str, value: torch.Tensor
) -> torch.Tensor:
    """Return a state's value where the optimizer would have made it."""
    on_card = parameter.device.type != "cpu"
    if on_card and getattr(optimizer, "is_paged", False) and name in ("state1", "state2"):
        # in memory as bitsandbytes gives it to a new state (AdEMAMix has two moments in one)
        return optimizer_buffer(optimizer, parameter, value).copy_(value)
    counts_on_cpu = name == "step" and not (group.get("capturable") or group.get("fused"))
    return value.clone() if counts_on_cpu else value.to(parameter.device, copy=True)


def _parameters(optimizer: Any) -> Iterator[tuple[torch.Tensor, Mapping[str, Any]]]:
    return ((parameter, group) for group in optimizer.param_groups for parameter in group["params"])
