"""How an expert is asked: how a prompt is written and what holds an answer, in adapter/expert.json; what ends and shapes an
answer, in transformers' own generation_config.json beside it.

Template, system prompt and end tokens are those of training. How answers are decoded may change afterwards: a manifest that is
named says it, else the adapter's files, else the manifest that the adapter was trained from.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AliasChoices, ConfigDict, Field, TypeAdapter, ValidationError

from expert_cli.config.plan import TrainedAdapter
from expert_cli.config.training_defaults import JSON_GRAMMARS, known_grammar
from expert_cli.errors import InputError
from expert_cli.manifest.key import GrammarType, NotNegative, NotNegativeNumber, Positive
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.manifest.schema import Decoding, Manifest
from expert_cli.utils.text import first_line

if TYPE_CHECKING:
    from transformers import GenerationConfig as ModelGenerationConfig


NEW_TOKENS = 256
"""Longest answer, in tokens, where nothing else is said."""
BATCH = {"cpu": 32, "cuda": 64}
GENERATION_CONFIG = "generation_config.json"
SAMPLING = ("temperature", "top_p", "top_k", "min_p")
SEPARATORS = (", ", ": ")
"""What JSON has between entries and behind a key, as `json.dumps` writes it."""
Stop = Literal["end", "sequence", "looping", "length"]
"""Why an answer ends: an end token, a stop sequence, a block of tokens over and over, or the longest length."""
TEMPERATURE, LEAST_TEMPERATURE = 0.8, 0.3
"""Samples are drawn at the first where the expert's decoding names less than the second: they would hardly differ."""


@dataclass(frozen=True)
class Grammar:
    """What answers are held to. json_schema: where a question brings none; separators: between entries and behind keys."""

    type: GrammarType
    json_schema: Mapping[str, Any] | None = None
    separators: tuple[str, str] = SEPARATORS


_STOPS = AliasChoices("stop_sequences", "stop_strings")


@dataclass(frozen=True)
class DecodingConfig:
    """How answers are decoded, as `training.decoding` of a manifest and generation_config.json say. None: not written there.

    grammar: what answers are held to; None: nothing. end_ids: tokens that end an answer; (): template and tokenizer tell.
    """

    temperature: NotNegativeNumber | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: NotNegative | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop_sequences: Annotated[tuple[str, ...], Field(validation_alias=_STOPS)] = ()
    grammar: Grammar | None = None
    num_beams: Positive | None = None
    max_new_tokens: Positive = NEW_TOKENS
    end_ids: Annotated[tuple[int, ...], Field(validation_alias="eos_token_id")] = ()

    def sampling(self) -> dict[str, float]:
        """Return what is written of SAMPLING."""
        written = {name: getattr(self, name) for name in SAMPLING}
        return {name: value for name, value in written.items() if value is not None}


@dataclass(frozen=True)
class GenerationConfig:
    """How answers are generated. temperature 0: greedily, or by beams. samples: answers to a case, all drawn; 0: one."""

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
    num_beams: int = 1

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
    decoding: DecodingConfig,
    max_new_tokens: int | None = None,
    batch_size: int | None = None,
    *,
    samples: int = 0,
    device: str = "cpu",
) -> GenerationConfig:
    """Return how an expert answers: greedily, or `samples` drawn, at TEMPERATURE if theirs is too low."""
    longest, at_once = max_new_tokens or decoding.max_new_tokens, batch_size or BATCH[device]
    settings = GenerationConfig(longest, at_once, stops=decoding.stop_sequences, grammar=decoding.grammar)
    if not samples:
        return replace(settings, num_beams=decoding.num_beams or 1)
    named = decoding.temperature or 0.0
    values: dict[str, Any] = {"temperature": named if named >= LEAST_TEMPERATURE else TEMPERATURE}
    return replace(settings, samples=samples, **{**decoding.sampling(), **values})


@dataclass(frozen=True)
class ExpertConfig:
    """How an expert is asked. Its expert.json has all but `end_tokens` and, of `decoding`, what is no grammar.

    template: its name; itself it is the chat template of the tokenizer beside it. chat_template, chat_template_kwargs: the
    manifest's own, before the run's template was made of them. input_separator: stands between a row's prompt and its input
    in the user's turn. example: a prompt and an input, the text that the answer to them follows, and its ids. end_tokens: token
    -> id, that of training first; {} where it was read. schema_prompt: what a question is shown of its database.
    """

    __pydantic_config__ = ConfigDict(allow_inf_nan=False)

    template: str
    template_fingerprint: str
    system_prompt: str | None
    input_separator: str
    example: Mapping[str, Any]
    decoding: DecodingConfig
    end_tokens: Mapping[str, int] = field(default_factory=dict)
    schema_prompt: SchemaPromptConfig | None = None
    chat_template: str = ""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    schema_version: Literal[1] = 1

    def as_json(self) -> dict[str, Any]:
        """Return the document expert.json."""
        document: dict[str, Any] = TypeAdapter(ExpertConfig).dump_python(self, mode="json", exclude={"end_tokens"})
        return document | {"decoding": {"grammar": document["decoding"]["grammar"]}}

    def generation(self) -> ModelGenerationConfig:
        """Return what ends and shapes an answer: drawn, where the manifest says how."""
        from transformers import GenerationConfig as ModelGenerationConfig

        decoding, sampling = self.decoding, self.decoding.sampling()
        how: dict[str, Any] = {"max_new_tokens": decoding.max_new_tokens, "num_beams": decoding.num_beams}
        how |= {"eos_token_id": [*self.end_tokens.values()], "stop_strings": [*decoding.stop_sequences] or None}
        return ModelGenerationConfig(**how, do_sample=bool(sampling), **sampling)


def decoding_of(manifest: Manifest, separators: tuple[str, str] = SEPARATORS) -> DecodingConfig:
    """Return how a manifest says that answers are decoded: an unknown grammar is none, at temperature 0 nothing is drawn."""
    written = manifest.training.decoding or Decoding()
    kind, schema = known_grammar(written), written.json_schema
    grammar = Grammar(kind, schema if kind in JSON_GRAMMARS else None, separators) if kind else None
    stops = tuple(stop for stop in written.stop_sequences or () if stop)
    drawn: Any = {} if written.temperature == 0 else {name: getattr(written, name) for name in SAMPLING}
    return DecodingConfig(**drawn, stop_sequences=stops, grammar=grammar, num_beams=written.num_beams)


def json_separators(answers: Iterable[str]) -> tuple[str, str]:
    """Return the separators of most JSON among some trained answers, SEPARATORS where there is none."""
    found = Counter({SEPARATORS: 0})
    for answer in answers:
        with suppress(ValueError, RecursionError):
            value = json.loads(answer)
            for one in (SEPARATORS, (",", ":"), (",", ": ")) if value and isinstance(value, dict | list) else ():
                found[one] += json.dumps(value, ensure_ascii=False, separators=one) == answer
    return found.most_common(1)[0][0]


def read_expert_config(file: Path) -> ExpertConfig:
    """Read an expert.json, with the generation_config.json beside it where there is one. Raises InputError."""
    found: ExpertConfig = _read(ExpertConfig, file)
    beside = file.with_name(GENERATION_CONFIG)
    if not beside.is_file():
        return found
    return replace(found, decoding=replace(_read(DecodingConfig, beside), grammar=found.decoding.grammar))


def _read(kind: Any, file: Path) -> Any:
    try:
        return TypeAdapter(kind).validate_json(file.read_bytes(), strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
        told = ": ".join(filter(None, (".".join(map(str, fault["loc"])), fault["msg"])))
    except OSError as error:
        told = first_line(error)
    hint = "take expert.json and generation_config.json away: the manifest says how the expert is asked, too"
    raise InputError(f"{file}: {told}", hint)


def decoding_for(trained: TrainedAdapter) -> DecodingConfig:
    """Return how an adapter's answers are decoded: by a manifest that was named, else by its files. Raises InputError."""
    file = trained.origin.expert_config
    kept = read_expert_config(file).decoding if file else None
    if kept and not trained.named:
        return kept
    separators = kept.grammar.separators if kept and kept.grammar else SEPARATORS
    written = decoding_of(trained.plan.loaded.manifest, separators)
    return replace(written, max_new_tokens=kept.max_new_tokens, end_ids=kept.end_ids) if kept else written
