"""The settings with which an expert answers. expert.json contains the form of prompts and the grammar of answers;
transformers' generation_config.json beside it contains end tokens, stop sequences and sampling settings.

Template, system prompt and end tokens are those of training. The decoding can change later: it comes from a manifest that the
user names, else from the adapter's files, else from the manifest of training.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, TypeAdapter

from expert_cli.config.plan import TrainedAdapter
from expert_cli.config.training_defaults import JSON_GRAMMARS, known_grammar
from expert_cli.errors import InputError
from expert_cli.manifest.key import GrammarType, NotNegative, NotNegativeNumber, Positive
from expert_cli.manifest.schema import Decoding, Manifest
from expert_cli.utils.text import shortened

NEW_TOKENS = 256
"""Default of max_new_tokens."""
BATCH = {"cpu": 32, "cuda": 64}
GENERATION_CONFIG = "generation_config.json"
SAMPLING = ("temperature", "top_p", "top_k", "min_p")
SEPARATORS = (", ", ": ")
"""The separators of JSON between items and after keys, as in `json.dumps`."""
Stop = Literal["end", "sequence", "looping", "length"]
"""Why an answer ends: an end token, a stop sequence, a repeating block of tokens, or the maximum length."""
TEMPERATURE, LEAST_TEMPERATURE = 0.8, 0.3
"""Samples use TEMPERATURE if the expert's own is below LEAST_TEMPERATURE, because they would hardly differ."""


@dataclass(frozen=True)
class Grammar:
    """The grammar of answers. json_schema: used if the question has none; separators: between items and after keys."""

    type: GrammarType
    json_schema: Mapping[str, Any] | None = None
    separators: tuple[str, str] = SEPARATORS


_STOPS = AliasChoices("stop_sequences", "stop_strings")


@dataclass(frozen=True)
class GenerationConfig:
    """How answers are generated. temperature 0: greedy or beam search; top_k 0, top_p 1, min_p 0: no token is excluded.

    grammar: None for free text. samples: answers drawn for each case; 0: one answer, not drawn. end_ids: token ids that end an
    answer; (): derived from template and tokenizer.
    """

    max_new_tokens: Positive = NEW_TOKENS
    batch_size: int = 1
    temperature: NotNegativeNumber = 0.0
    top_k: NotNegative = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: int = 42
    stops: Annotated[tuple[str, ...], Field(validation_alias=_STOPS)] = ()
    grammar: Grammar | None = None
    samples: int = 0
    num_beams: Positive = 1
    end_ids: Annotated[tuple[int, ...], Field(validation_alias="eos_token_id")] = ()

    def until_stop(self, text: str) -> str:
        """Return `text` up to the first stop sequence."""
        return text[: min((found for stop in self.stops if (found := text.find(stop)) >= 0), default=len(text))]

    def sampling(self) -> dict[str, float]:
        """Return the sampling settings under transformers' names, without those that have their default."""
        drawn = {name: getattr(self, name) for name in SAMPLING}
        return {name: value for name, value in drawn.items() if value != getattr(GenerationConfig, name)}

    def as_json(self) -> dict[str, Any]:
        """Return the settings for the evaluation's document, without the grammar."""
        return {name: value for name, value in asdict(self).items() if name not in ("grammar", "end_ids")}


def generation_config(
    kept: GenerationConfig, most: int | None = None, batch: int | None = None, *, samples: int = 0, device: str = "cpu"
) -> GenerationConfig:
    """Return the settings of an evaluation. most: max_new_tokens. Samples use TEMPERATURE if that of `kept` is too low."""
    longest, at_once = most or kept.max_new_tokens, batch or BATCH[device]
    settings = replace(kept, max_new_tokens=longest, batch_size=at_once, samples=samples)
    if not samples:
        return replace(settings, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
    is_warm = kept.temperature >= LEAST_TEMPERATURE
    return replace(settings, num_beams=1, temperature=kept.temperature if is_warm else TEMPERATURE)


def decoding_of(manifest: Manifest, separators: tuple[str, str] = SEPARATORS) -> GenerationConfig:
    """Return the manifest's decoding; an unknown grammar counts as none, temperature 0 as greedy."""
    written = manifest.training.decoding or Decoding()
    kind, schema = known_grammar(written), written.json_schema
    grammar = Grammar(kind, schema if kind in JSON_GRAMMARS else None, separators) if kind else None
    names = ("num_beams", *(SAMPLING if written.temperature != 0 else ()))
    told: Any = {name: value for name in names if (value := getattr(written, name)) is not None}
    return GenerationConfig(**told, stops=tuple(filter(None, written.stop_sequences or ())), grammar=grammar)


def json_separators(answers: Iterable[str]) -> tuple[str, str]:
    """Return the most frequent separators of JSON in trained answers; SEPARATORS if there is no JSON."""
    found = Counter({SEPARATORS: 0})
    for answer in answers:
        with suppress(ValueError, RecursionError):
            value = json.loads(answer)
            for one in (SEPARATORS, (",", ":"), (",", ": ")) if value and isinstance(value, dict | list) else ():
                found[one] += json.dumps(value, ensure_ascii=False, separators=one) == answer
    return found.most_common(1)[0][0]


def read_decoding(file: Path) -> GenerationConfig:
    """Return the decoding of an expert.json with the generation_config.json beside it. Raises InputError."""
    beside = file.with_name(GENERATION_CONFIG)
    try:
        told = json.loads(file.read_bytes())["decoding"]
        told = {**json.loads(beside.read_bytes()), "grammar": told.get("grammar")} if beside.is_file() else told
        told = {name: value for name, value in told.items() if value is not None}
        return TypeAdapter(GenerationConfig).validate_json(json.dumps(told), strict=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # pydantic's is a ValueError
        told = f"{file}, {beside.name}: {shortened(' '.join(str(error).split()), 200)}"
        raise InputError(told, "delete both files: the manifest also says how the expert is asked") from error


def decoding_for(trained: TrainedAdapter) -> GenerationConfig:
    """Return an adapter's decoding, from a manifest that was named, else from its files. Raises InputError."""
    file = trained.origin.expert_config
    kept = read_decoding(file) if file else None
    if kept and not trained.named:
        return kept
    separators = kept.grammar.separators if kept and kept.grammar else SEPARATORS
    written = decoding_of(trained.plan.loaded.manifest, separators)
    return replace(written, max_new_tokens=kept.max_new_tokens) if kept else written
