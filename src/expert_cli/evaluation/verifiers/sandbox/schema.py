"""Holds values against JSON Schemas, in the process of `worker.py`: the search for the place that does not fit can take
exponential time and memory (alternatives that refer to themselves).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

import jsonschema_rs


@lru_cache(maxsize=4096)
def validator(schema: str) -> Any:
    """Return the compiled validator of a schema; nothing is fetched for it, neither files nor addresses.

    Raises ValueError for what is no schema.
    """
    try:
        return jsonschema_rs.validator_for(json.loads(schema), validate_formats=True, retriever=_retrieve)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(error) from error


def _retrieve(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not fetched: put its schema under $defs")


def judge() -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return what answers whether a value fits, or with "where" the place that does not."""
    return _held


def _held(question: Mapping[str, Any]) -> Mapping[str, Any]:
    held, value = validator(question["schema"]), json.loads(question["value"])
    if not question["where"]:
        return {"fits": held.is_valid(value)}
    error = next(iter(held.iter_errors(value)))
    place = "/".join(str(part) for part in error.instance_path)
    return {"place": f"{place}: {error.message}" if place else str(error.message)}
