"""`training.dataset`: the rows for training and validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from expert_cli.manifest.key import (
    CARD,
    Key,
    Loose,
    NotNegative,
    Positive,
    Strict,
    Text,
    always,
    informational,
    key,
    not_used,
    unused,
)
from expert_cli.manifest.keys.schema_prompt import SchemaPromptKeys

FORMAT = informational("the format is read from the file itself")
UNTOUCHED = not_used("test rows are never used in training: its evaluations use the validation rows")
_DEDUPLICATE = {
    "off": "repeated rows are kept",
    "row": "repeated rows are left out and counted",
    "answer": "rows with a repeated answer are left out and counted",
}
_COLUMN = "names the column"
Role = Literal["system", "developer", "user", "assistant", "tool", "function_call"]
"""The role of a turn; a `function_call` is a turn of the assistant whose content is the call as JSON."""
_OUTSIDE = "rows outside it are left out and counted"


Sources = Annotated[list[Text], Field(min_length=1, max_length=1000)]


class FieldMapping(Strict):
    """`training.dataset.field_mapping`: the roles of columns."""

    instruction: Text | None = key(None, _COLUMN)
    """Column of the instruction."""
    input: Text | None = key(None, _COLUMN)
    """Column of the context, schema or input; may be empty in a row."""
    response: Text | None = key(None, _COLUMN)
    """Column of the answer."""
    text: Text | None = key(None, _COLUMN)
    """Column of whole documents."""
    messages: Text | None = key(None, _COLUMN)
    """Column of conversations."""
    system: Text | None = key(None, _COLUMN)
    """Column of the system message of a row."""
    tools: Text | None = key(None, _COLUMN)
    """Column of the tools that a row's assistant may call: a list, or the same as JSON text."""
    role: Text | None = key(None, "names the key of a turn's role")
    """Key of a turn's role, if it is neither `role` nor `from`."""
    content: Text | None = key(None, "names the key of a turn's content")
    """Key of a turn's content, if it is neither `content` nor `value`."""
    roles: Annotated[dict[Role, Annotated[list[Text], Field(min_length=1)]], Field(min_length=1)] | None = key(
        None, lambda value: ", ".join(f"{' and '.join(said)} is {role}" for role, said in value.items())
    )
    """Other names of roles, by role: `{"assistant": ["bot"], "system": ["developer"]}`; they precede the usual names."""


class Task(Strict):
    """`training.dataset.tasks.<name>`: one task of a multi_task data set."""

    train: Text = Field(json_schema_extra=Key(effect="training rows of this task"))
    """File of its training rows."""
    valid: Text | None = key(None, "rows that evaluation uses of this task")
    """File of its validation rows; if several tasks have some, each has its own validation loss."""
    test: Text | None = always(UNTOUCHED)
    """File of its test rows."""
    weight: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = key(
        1.0, "{:g} times its rows", why="each row once"
    )
    """0.4 takes 40 % of the rows, drawn by the seed; 2.0 takes every row twice."""
    format: Text | None = always(FORMAT)
    """Format of the files; read from their names."""


class Replay(Strict):
    """`training.dataset.replay`: rows of an earlier training that are trained again, so that less of it is forgotten."""

    path: Text = Field(json_schema_extra=Key(effect="rows that are trained again"))
    """File, folder, URL or hub id, as in `path`."""
    share: Annotated[float, Field(gt=0, lt=1)] = Field(
        json_schema_extra=Key(effect="{:g} of the training rows, drawn by the seed; all of them if there are fewer")
    )
    """Their share of all training rows; drawn by the seed, none twice."""


class Filters(Loose):
    """`training.dataset.filters` (`validation` is its old name): rows to leave out."""

    deduplicate: bool | Literal["row", "answer"] | None = key(None, _DEDUPLICATE)
    """Leave out repeated rows (true or "row"), or rows with a repeated answer ("answer"); the first one stays."""
    min_length: NotNegative | None = key(0, _OUTSIDE, why="a short answer may be the right one")
    """Shortest row, in characters of prompt and answer."""
    max_length: Positive | None = key(None, _OUTSIDE)
    """Longest row, in characters of prompt and answer."""


class Dataset(Loose):
    """`training.dataset`: which rows train the expert. Other keys are information for the model card."""

    old_names: ClassVar[Mapping[str, str]] = {"validation": "filters"}

    path: Text | Sources | None = key(None, "training rows")
    """File, folder or pattern (relative to the manifest, then to the project root; or a URL, `s3://bucket/rows-*.jsonl`), or
    hub id `id@revision::split::config`; or a list of these, read in order."""
    format: Text | None = always(FORMAT)
    """Format of the data; read from the file itself."""
    type: Literal["single", "multi_task"] | None = always(informational("`path` or `tasks` decides; this must agree"))
    """multi_task: the rows come from `tasks`."""
    tasks: Annotated[dict[str, Task], Field(min_length=1, max_length=1000)] | None = None
    """The tasks of a multi_task data set, by name."""
    replay: Replay | None = None
    """Rows of an earlier training that are trained again."""
    field_mapping: FieldMapping | None = None
    """The roles of columns; default: recognized by their usual names."""
    text_field: Text | None = key(None, "names the column of whole documents")
    """Column of whole documents; short for `field_mapping.text`."""
    validation_path: Text | Sources | None = key(None, "rows that evaluation uses")
    """Rows for validation."""
    test_path: Text | Sources | None = always(UNTOUCHED)
    """Rows that training never uses."""
    validation_split: Annotated[float, Field(gt=0, lt=1)] | None = key(
        0.05,
        "share of the training rows that is split off for evaluation, by the seed",
        why="enough rows for a stable loss, and few enough to spare",
    )
    """Share of the training rows split off for validation, by the seed, if it is written or rows are evaluated."""
    streaming: bool | None = unused("rows are always read as a stream")
    """Accepted; rows are always read as a stream."""
    filters: Filters | None = None
    """Rows to leave out."""
    schema_prompt: SchemaPromptKeys | None = None
    """How databases are shown in prompts; default: the input stays as it is."""
    validation: Filters | str | None = None
    """Old name of `filters`; a text is information for the model card."""
    source: Any = always(CARD)
    """Where the rows come from."""
    sources: Any = always(CARD)
    """Where the rows come from, one by one."""
    preprocessing: Any = always(CARD)
    """What was done to the rows."""
    splits: Any = always(CARD)
    """How many rows each split has."""
    task_distribution: Any = always(CARD)
    """Rows by task."""
    format_distribution: Any = always(CARD)
    """Rows by format."""
    generation: Any = always(CARD)
    """How rows were generated."""
    augmentation: Any = always(CARD)
    """How rows were varied."""
