"""Holds values against JSON Schemas, a line of JSON with a line of JSON, in a process of its own: the search for the place that
does not fit can take exponential time and memory (alternatives that refer to themselves).

{"schema", "value", "where"} one way, the first two as JSON texts; {"fits"} the other, or, with "where", {"fault"}. Run by its
path, with the folder that jsonschema_rs lies in: it loads nothing else.
"""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from typing import Any, NoReturn


@lru_cache(maxsize=4096)
def validator(schema: str) -> Any:
    """Return the compiled validator of a schema; nothing is fetched for it, neither files nor addresses.

    Raises ValueError for what is no schema.
    """
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(json.loads(schema), validate_formats=True, retriever=_retrieve)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(error) from error


def _retrieve(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not fetched: put its schema under $defs")


def hold(request: dict[str, Any]) -> dict[str, Any]:
    """Return whether a value fits, and where it does not."""
    held, value = validator(request["schema"]), json.loads(request["value"])
    if not request["where"]:
        return {"fits": held.is_valid(value)}
    error = next(iter(held.iter_errors(value)))
    place = "/".join(str(part) for part in error.instance_path)
    return {"fault": f"{place}: {error.message}" if place else str(error.message)}


def main() -> None:
    """Answer until stdin ends."""
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(hold(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.path += sys.argv[1:]
    main()
