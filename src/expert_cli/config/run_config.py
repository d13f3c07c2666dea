"""What will happen in a run, decided in full: frozen, no defaults left open, every path absolute.

`config.resolve` makes it from a manifest; everything downstream reads it and decides nothing again.
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
"""What a mapping says of the turns of conversations, and not of columns."""

AUTO = "auto"
"""`--resume auto`: go on with the newest good checkpoint of the output folder."""

QUANTIZED: tuple[Quantization, ...] = ("int4", "int8")
"""Base weights other than those that most programs load."""


@dataclass(frozen=True)
class SourceSpec:
    """One place that rows come from.

    kind "file" and "folder": `path` is an absolute path. kind "files": an absolute pattern of paths, as `glob` has them. kind
    "url": `path` names any of these in object storage, which is not asked before rows are read. kind
    "hub": `path` is a data set id, `config` its configuration ("" = the default one), `revision` a branch, tag or commit
    ("" = the main branch). `split` is a split name with an optional slice, "train[:1000]", "train[10%:20%]"; a file is one
    split, "train" or that of its name. `weight` 0.4 takes 40 % of the rows, 2.0 takes every row twice. `tried` names the
    places where a local path was looked for and not found; empty when it is there. `share` above 0 decides in place of
    `weight`: so many rows are drawn that they are this share of all training rows. `as_asked`: its rows hold what an
    expert was asked, databases shown: neither `field_mapping` nor `schema_prompt` is for them.
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
        """Whether its files are on this machine, or nowhere."""
        return self.kind not in ("hub", "url")

    def __str__(self) -> str:
        """Return the source as messages name it, without its split."""
        return self.path + (f"@{self.revision}" if self.revision else "") + (f"::{self.config}" if self.config else "")


@dataclass(frozen=True)
class ColumnMapping:
    """Which columns hold what; "" = not named. Where nothing is named, columns are recognized by their usual names.

    database: the one that names a row's database, beside what becomes of the others. role, content: no columns, but the fields
    of a turn; roles: (what stands there, the role that it is).
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
        """Return the columns that are named, by what they hold."""
        named = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: column for name, column in named.items() if column and name not in OF_TURNS}


@dataclass(frozen=True)
class RowFilters:
    """Rows to leave out: repeated ones, and those outside a length in characters (prompt and answer together).

    deduplicate: rows repeat when all their text is equal ("row"), or the answer alone ("answer"); the first one stays.
    """

    deduplicate: Deduplicate = "off"
    min_chars: int = 0
    max_chars: int | None = None

    def reason(self, length: int) -> str:
        """Return why a row of so many characters is left out; "" = it is not."""
        if length < self.min_chars:
            return f"shorter than {self.min_chars} characters"
        if self.max_chars is not None and length > self.max_chars:
            return f"longer than {self.max_chars} characters"
        return ""

    @property
    def repeated(self) -> str:
        """Why a row is left out that repeats an earlier one; "" = it is not."""
        return {"row": "repeated", "answer": "repeated answer", "off": ""}[self.deduplicate]


@dataclass(frozen=True)
class DataConfig:
    """Which rows train and which evaluate. `validation_share` > 0 splits rows off `train` by `seed`.

    schema_prompt: what questions are shown of their databases; None: their input as it is.
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
        """The same rows, shown what an expert is shown that is asked: nothing of their answers."""
        shown = replace(self.schema_prompt, gold_in_training=False) if self.schema_prompt else None
        return replace(self, schema_prompt=shown)


@dataclass(frozen=True)
class ModelConfig:
    """The base model as named, how it is stored, and the prompt template ("" = the tokenizer's own, else alpaca).

    `chat_template`: jinja text in place of both, "" = none; `chat_template_kwargs`: (name, value) pairs that it is given.
    `system_prompt`: the system message of every prompt; None = what the template puts by itself, if anything.
    `rope_scaling`: (name, value) pairs in a form that transformers knows; empty = the model's own.
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
    """One run, decided.

    `store` is the folder that holds token stores, one folder a key; where they lie in object storage that is `store_url`, and
    `store` this machine's folder for them. `origins` says for every key of `training.config` where
    its value came from. `sample_answers`: so many prompts are answered before and after training.
    `rft`: None where one training is the whole run.
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
        """The file of the expert's own cases; it need not exist."""
        return self.manifest.parent / "tests" / "cases.jsonl"
