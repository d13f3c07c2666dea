"""Let a model answer cases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from expert_cli.console import Reporter
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import Answered, Asked
from expert_cli.manifest.schema import Decoding, Manifest

if TYPE_CHECKING:
    from expert_cli.expert import Speaker


@dataclass(frozen=True)
class Settings:
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


@dataclass(frozen=True)
class Written:
    """Answers and what they cost; `cut_off`: how many reached `max_new_tokens`."""

    answers: tuple[Answered, ...]
    tokens: int
    seconds: float
    cut_off: int

    def as_json(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "tokens": self.tokens,
            "seconds": self.seconds,
            "tokens_per_s": self.tokens / max(1e-9, self.seconds),
            "cut_off": self.cut_off,
        }


def settings_for(manifest: Manifest, max_new_tokens: int, batch_size: int, *, sample: bool = False) -> Settings:
    """Return how an expert answers: up to a stop sequence of its manifest's `training.decoding`; greedily, or as that says.

    Raises InputError for `sample` where the manifest has nothing to sample by.
    """
    decoding = manifest.training.decoding or Decoding()
    stops = tuple(stop for stop in decoding.stop_sequences or () if stop)
    settings = Settings(max_new_tokens, batch_size, stops=stops)
    if not sample:
        return settings
    if not decoding.temperature:
        raise InputError(
            "--sample: training.decoding of the manifest has no temperature above 0", "leave --sample out: greedily"
        )
    chosen = {name: getattr(decoding, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    values = {name: value for name, value in chosen.items() if value is not None}
    return replace(settings, **values)


def write_answers(
    model: Any, speaker: Speaker, cases: Sequence[Asked], settings: Settings, report: Reporter, title: str
) -> Written:
    """Let the model answer every case, in the words and with the control tokens of its training."""
    from expert_cli.model.generate import Sampling, answers

    prompts = [speaker.prompt(case.prompt, case.input) for case in cases]
    sampling = Sampling(settings.temperature, settings.top_k, settings.top_p, settings.min_p, settings.seed)
    started = time.monotonic()
    with report.progress(title, len(cases), "answers") as bar:

        def on_step(done: int, tokens: int) -> None:
            bar.update(done, f"{tokens / max(1e-9, time.monotonic() - started):,.0f} tokens/s")

        ids = answers(
            model,
            prompts,
            end_ids=speaker.end_ids,
            max_new_tokens=settings.max_new_tokens,
            batch_size=settings.batch_size,
            sampling=sampling,
            on_step=on_step,
        )
    texts = [settings.until_stop(speaker.text(one)) for one in ids]
    return Written(
        tuple(case.answered(text) for case, text in zip(cases, texts, strict=True)),
        sum(map(len, ids)),
        time.monotonic() - started,
        sum(len(one) == settings.max_new_tokens for one in ids),
    )
