"""expert-cli: train small expert models from a manifest.json, and evaluate, export and ask them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from expert_cli.api import *  # noqa: F403  the names in its __all__
else:

    def __getattr__(name: str) -> Any:
        """Import the API when one of its names is used, so that the command line's help does not wait for it."""
        if name.startswith("__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("expert_cli.api"), name)
