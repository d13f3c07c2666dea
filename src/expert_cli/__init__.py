"""expert-cli: a manifest goes in, a trained expert comes out."""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "audit",
    "binary_reward",
    "dense_reward",
    "estimate_run",
    "evaluate",
    "explain_store",
    "load_expert",
    "pretokenize",
    "train",
    "validate",
]

if TYPE_CHECKING:
    from expert_cli.api import (
        audit,
        binary_reward,
        dense_reward,
        estimate_run,
        evaluate,
        explain_store,
        load_expert,
        pretokenize,
        train,
        validate,
    )
else:

    def __getattr__(name: str) -> Any:
        """Import the API when something of it is asked for: the command line's help must not wait for it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from expert_cli import api

        return getattr(api, name)
