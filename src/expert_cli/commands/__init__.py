"""One file a command: words of the command line go in, one call of the library is made, its result comes out as text or
JSON.

A command imports what it works with when it runs: `--help` must not wait for the manifest's schema, let alone for torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def passed_on(asked: Mapping[str, Any], names: str) -> dict[str, Any]:
    """Return those of a command's options that a function of the API takes under the same names."""
    return {name: asked[name] for name in names.split()}
