"""An option of a command is a parameter of the function that it calls: the same name, the same default."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from expert_cli import api

CALLS: dict[str, tuple[Callable[..., Any], ...]] = {
    "train": (api.train, api.estimate_run),
    "pretokenize": (api.pretokenize, api.explain_store),
    "evaluate": (api.evaluate,),
    "audit": (api.audit,),
    "chat": (api.load_expert,),
    "validate": (api.validate,),
}
OF_THE_COMMAND = {
    "train": {"plan_only"},
    "pretokenize": {"every", "experts", "explain"},
    "evaluate": {"sample"},
    "audit": set(),
    "chat": {"adapter", "prompt", "input_", "compare", "samples"},
    "validate": {"manifests", "verbose"},
}
"""Options that say what is done, or with which of several; the rest is handed on as it is."""
OF_PYTHON = {"reporter", "callbacks", "own_folder", "run", "manifest"}


@pytest.mark.parametrize("command", CALLS)
def test_options_are_parameters_of_the_same_name_and_default(command: str) -> None:
    options = inspect.signature(getattr(import_module(f"expert_cli.commands.{command}"), command)).parameters
    parameters = {name: one for call in CALLS[command] for name, one in inspect.signature(call).parameters.items()}
    assert set(options) - OF_THE_COMMAND[command] - {"console"} <= set(parameters)
    assert set(parameters) - OF_PYTHON <= set(options)
    for name in set(options) & set(parameters) - {"manifest"}:
        default = parameters[name].default
        if default is not inspect.Parameter.empty:
            assert options[name].default == (None if default == () else default), name
