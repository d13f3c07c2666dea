"""What becomes of `training.rft`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from expert_cli.config.places import place_of
from expert_cli.config.settings import Settings
from expert_cli.manifest.keys.rft import Rft, RftConfig

METHOD = "rft"


def rft(keys: Settings[Rft], method: str, folders: Sequence[Path]) -> RftConfig | None:
    """Return how a run learns from answers that were run; None where its method is another one.

    folders: where prompts and cases are looked for, as `place_of` does.
    """
    if method != METHOD:
        keys.leave(f"method is {method}", *Rft.model_fields)
        return None
    held_back = keys.use("held_back")
    is_share = isinstance(held_back, float)
    return keys.block(
        RftConfig,
        prompts=place_of(keys.use("prompts"), folders),
        start=keys.use("from"),
        held_back=held_back if is_share else 0.0,
        held_back_cases=None if is_share else place_of(held_back, folders),
    )
