"""What becomes of `training.rft`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from expert_cli.config.settings import Settings
from expert_cli.manifest.keys.rft import Rft, RftConfig

METHOD = "rft"


def rft(keys: Settings[Rft], method: str, folders: Sequence[Path]) -> RftConfig | None:
    """Return how a run learns from answers that were run; None where its method is another one.

    folders: where the prompts are looked for; a file that is in none of them is named as in the first one.
    """
    if method != METHOD:
        keys.leave(f"method is {method}", *Rft.model_fields)
        return None
    places = [folder / keys.use("prompts") for folder in folders]
    prompts = next((place for place in places if place.is_file()), places[0]).absolute()
    return keys.block(RftConfig, prompts=prompts, start=keys.use("from"))
