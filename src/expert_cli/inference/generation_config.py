"""How answers are generated: how long, greedily or sampled, and where one ends."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from expert_cli.errors import InputError
from expert_cli.manifest.schema import Decoding, Manifest


@dataclass(frozen=True)
class GenerationConfig:
    """How answers are generated. temperature 0: greedily, whatever else is set; stops: texts that end one."""

    max_new_tokens: int
    batch_size: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 42
    stops: tuple[str, ...] = ()

    def until_stop(self, text: str) -> str:
        """Return `text` up to the first stop sequence."""
        return text[: min((found for stop in self.stops if (found := text.find(stop)) >= 0), default=len(text))]

    def as_json(self) -> dict[str, Any]:
        """Return what the evaluation's document says of them."""
        return asdict(self)


def generation_config(
    manifest: Manifest, max_new_tokens: int, batch_size: int, *, sample: bool = False
) -> GenerationConfig:
    """Return how an expert answers: up to a stop sequence of its manifest's `training.decoding`; greedily, or as that says.

    Raises InputError for `sample` where the manifest has nothing to sample by.
    """
    decoding = manifest.training.decoding or Decoding()
    stops = tuple(stop for stop in decoding.stop_sequences or () if stop)
    settings = GenerationConfig(max_new_tokens, batch_size, stops=stops)
    if not sample:
        return settings
    if not decoding.temperature:
        raise InputError(
            "--sample: training.decoding of the manifest has no temperature above 0", "leave --sample out: greedily"
        )
    chosen = {name: getattr(decoding, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    values = {name: value for name, value in chosen.items() if value is not None}
    return replace(settings, **values)
