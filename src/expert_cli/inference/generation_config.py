"""How answers are generated: how long, greedily or sampled, where one ends, and what it is held to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from expert_cli.inference.expert_config import DecodingConfig, Grammar
from expert_cli.utils.text import plural

Stop = Literal["end", "sequence", "looping", "length"]
"""Why an answer ends: an end token, a stop sequence, a block of tokens over and over, or the longest length."""
TEMPERATURE, LEAST_TEMPERATURE = 0.8, 0.3
"""Samples are drawn at the first where the expert's decoding names less than the second: they would hardly differ."""


@dataclass(frozen=True)
class GenerationConfig:
    """How answers are generated. temperature 0: greedily, whatever else is set; stops: texts that end one.

    grammar: what answers are held to where the question, or its case, tells enough; None: free text.
    """

    max_new_tokens: int
    batch_size: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 42
    stops: tuple[str, ...] = ()
    grammar: Grammar | None = None
    samples: int = 0
    """Answers to a case, all drawn; 0: one."""
    num_beams: int = 1
    """Beginnings of an answer that go on side by side, where it is not drawn; 1: greedy."""

    def until_stop(self, text: str) -> str:
        """Return `text` up to the first stop sequence."""
        return text[: min((found for stop in self.stops if (found := text.find(stop)) >= 0), default=len(text))]

    def sampling(self) -> dict[str, Any]:
        """Return how tokens are drawn, in transformers' words."""
        if not self.temperature:
            return {"do_sample": False}
        drawn = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
        return {"do_sample": True, **drawn, **({"min_p": self.min_p} if self.min_p else {})}

    def as_json(self) -> dict[str, Any]:
        """Return what the evaluation's document says of them, beside the grammar."""
        return {name: value for name, value in asdict(self).items() if name != "grammar"}


def generation_config(
    decoding: DecodingConfig, max_new_tokens: int, batch_size: int, *, samples: int = 0
) -> GenerationConfig:
    """Return how an expert answers: up to a stop sequence, held to its grammar; greedily, or drawn.

    samples: so many answers are drawn; at TEMPERATURE where the decoding names none, or one too low for them to differ.
    """
    settings = GenerationConfig(max_new_tokens, batch_size, stops=decoding.stop_sequences, grammar=decoding.grammar)
    if not samples:
        return replace(settings, num_beams=decoding.num_beams or 1)
    values: dict[str, Any] = {"temperature": 0.0, **decoding.sampling()}
    if values["temperature"] < LEAST_TEMPERATURE:
        values["temperature"] = TEMPERATURE
    return replace(settings, samples=samples, **values)


def drawn(settings: GenerationConfig, decoding: DecodingConfig) -> str:
    """Return in words how samples are drawn, and why not at the temperature that the decoding names."""
    named = decoding.temperature
    told = f"{plural(settings.samples, 'answer')} a case, drawn at temperature {settings.temperature:g}"
    if named == settings.temperature:
        return told
    return f"{told}: training.decoding names {'none' if named is None else f'{named:g}, where samples hardly differ'}"
