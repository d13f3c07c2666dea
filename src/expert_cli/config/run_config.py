"""The complete, frozen settings of a run: no default is left open, and every path is absolute.

`config.resolve` makes them from a manifest; all other code only reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from expert_cli.manifest.key import Quantization
from expert_cli.manifest.keys.compute import ComputeConfig
from expert_cli.manifest.keys.loader import LoaderConfig
from expert_cli.manifest.keys.log_save_eval import LogSaveEvalConfig
from expert_cli.manifest.keys.optim import OptimConfig
from expert_cli.manifest.keys.peft import AdapterConfig
from expert_cli.manifest.keys.rft import RftConfig
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig

SourceKind = Literal["file", "folder", "files", "hub", "url"]
Deduplicate = Literal["off", "row", "answer"]
Layout = Literal["packed", "padded", "rows"]
OF_TURNS = ("role", "content", "roles")
"""Fields of `ColumnMapping` that are about the turns of conversations, not about columns."""

AUTO = "auto"
"""`--resume auto`: continue from the newest intact checkpoint in the output folder."""

QUANTIZED: tuple[Quantization, ...] = ("int4", "int8")
"""Quantizations for which other programs need special support."""


@dataclass(frozen=True)
class SourceSpec:
    """One source of rows.

    kind "file", "folder": `path` is an absolute path. "files": an absolute glob pattern. "url": `path` is a file, folder or
    pattern in object storage, which is accessed when rows are read. "hub": `path` is a data set id, `config` its configuration
    ("" = default), `revision` a branch, tag or commit ("" = main branch). `split` may have a slice, "train[:1000]",
    "train[10%:20%]"; a file is one split, "train" or that in its name. `weight` 0.4 takes 40 % of the rows, 2.0 takes every
    row twice. `tried`: where a local path was searched without success. `share` above 0 replaces `weight`: rows are drawn
    until they are this share of all training rows. `as_asked`: rows contain complete questions with databases shown, so
    `field_mapping` and `schema_prompt` do not apply.
    """

    kind: SourceKind
    path: str
    config: str = ""
    split: str = "train"
    weight: float = 1.0
    tried: tuple[str, ...] = ()
    share: float = 0.0
    revision: str = ""
    as_asked: bool = False

    @property
    def is_local(self) -> bool:
        """Whether its files are local (or missing)."""
        return self.kind not in ("hub", "url")

    def __str__(self) -> str:
        """Return the source's name in messages, without its split."""
        return self.path + (f"@{self.revision}" if self.revision else "") + (f"::{self.config}" if self.config else "")


@dataclass(frozen=True)
class ColumnMapping:
    """Which columns have which role; "" = not named. If none is named, columns are recognized by their usual names.

    database: the column that names a row's database, in addition to the others. role, content: keys of a turn, not columns.
    roles: pairs (value of the role's key, the role that it means).
    """

    instruction: str = ""
    input: str = ""
    response: str = ""
    text: str = ""
    messages: str = ""
    database: str = ""
    system: str = ""
    tools: str = ""
    role: str = ""
    content: str = ""
    roles: tuple[tuple[str, str], ...] = ()

    def columns(self) -> dict[str, str]:
        """Return the named columns by role."""
        named = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: column for name, column in named.items() if column and name not in OF_TURNS}


@dataclass(frozen=True)
class RowFilters:
    """Rows to leave out: repeats, and those outside a length in characters (prompt and answer together).

    deduplicate: repeats have the same text ("row"), or the same answer ("answer"); the first one stays.
    """

    deduplicate: Deduplicate = "off"
    min_chars: int = 0
    max_chars: int | None = None

    def reason(self, length: int) -> str:
        """Return why a row of this length in characters is left out; "" if it is kept."""
        if length < self.min_chars:
            return f"shorter than {self.min_chars} characters"
        if self.max_chars is not None and length > self.max_chars:
            return f"longer than {self.max_chars} characters"
        return ""

    @property
    def repeated(self) -> str:
        """Why a repeated row is left out; "" if it is kept."""
        return {"row": "repeated", "answer": "repeated answer", "off": ""}[self.deduplicate]


@dataclass(frozen=True)
class DataConfig:
    """The rows for training and validation. `validation_share` > 0 splits rows off `train` by `seed`.

    schema_prompt: how databases are shown; None: the input stays as it is.
    """

    train: tuple[SourceSpec, ...]
    validation: tuple[SourceSpec, ...]
    validation_share: float
    mapping: ColumnMapping
    filters: RowFilters
    completion_only: bool
    max_seq_length: int
    seed: int
    offline: bool
    schema_prompt: SchemaPromptConfig | None = None

    @property
    def as_asked(self) -> DataConfig:
        """The same rows, with databases shown as in a question, without help from the answer."""
        shown = replace(self.schema_prompt, gold_in_training=False) if self.schema_prompt else None
        return replace(self, schema_prompt=shown)


@dataclass(frozen=True)
class ModelConfig:
    """The base model's name, its quantization, and the prompt template ("" = the tokenizer's own, else alpaca).

    `chat_template`: Jinja text instead of either, "" = none; `chat_template_kwargs`: (name, value) pairs for it.
    `system_prompt`: of every prompt; None = the template's default. `rope_scaling`: (name, value) pairs in transformers' form;
    empty = the model's own.
    """

    name: str
    sha256: str
    quantization: Quantization
    template: str
    system_prompt: str | None
    rope_scaling: tuple[tuple[str, float | str], ...]
    chat_template: str = ""
    chat_template_kwargs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class RunConfig:
    """All settings of one run.

    `store`: the folder with token stores, each in a folder named by its key. For stores in object storage, `store_url` is their
    URL, and `store` the local copy. `origins`: where the value of every key of `training.config` came from. `sample_answers`:
    number of prompts answered before and after training. `rft`: None for a single training.
    """

    expert: str
    manifest: Path
    root: Path
    output: Path
    store: Path
    seed: int
    model: ModelConfig
    data: DataConfig
    adapter: AdapterConfig
    optim: OptimConfig
    loader: LoaderConfig
    compute: ComputeConfig
    watch: LogSaveEvalConfig
    sample_answers: int
    origins: tuple[tuple[str, str], ...]
    rft: RftConfig | None = None
    store_url: str = ""

    @property
    def own_cases(self) -> Path:
        """The file of the expert's own cases, which may not exist."""
        return self.manifest.parent / "tests" / "cases.jsonl"
