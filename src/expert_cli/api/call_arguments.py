"""Checks a function's arguments, and converts them into options of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from expert_cli.errors import InputError

T = TypeVar("T")


def named(kind: Callable[..., T], arguments: Mapping[str, Any]) -> T:
    """Return a dataclass of the arguments with the names of its fields: paths as Path, collections as tuples."""

    def fitting(field: Field[Any]) -> Any:
        value, of = arguments[field.name], str(field.type)
        if of in ("Path", "Path | None"):
            return None if value is None else Path(value)
        return tuple(value) if of.startswith("tuple[") else value

    options: Any = kind
    return kind(**{field.name: fitting(field) for field in fields(options) if field.name in arguments})


def with_defaults(function: Callable[..., Any], *given: Any, **named: Any) -> dict[str, Any]:
    """Return the arguments of a call by name, with defaults. Raises TypeError."""
    bound = signature(function).bind(*given, **named)
    bound.apply_defaults()
    return bound.arguments


def require_at_least(least: int, **values: int | None) -> None:
    """Raise InputError for a number that is too small."""
    for name, value in values.items():
        if value is not None and value < least:
            raise InputError(f"--{name.replace('_', '-')} {value}: must be at least {least}")
