"""`training.dataset.schema_prompt`: what a question is shown of its database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from expert_cli.manifest.key import key
from expert_cli.manifest.types import NotNegative, Positive, Strict, Text

SchemaStyle = Literal["compact", "create_table"]
ONE_COLUMN = r"^[^{}]*\{[^{}]+\}[^{}]*(\{[^{}]+\}[^{}]*)*$"


class SchemaPromptKeys(Strict):
    """`training.dataset.schema_prompt`: which tables, columns and values of its database a question is shown, and how.

    Stands in the place of the input: in training rows, in test cases with a `database`, and in `chat --database`.
    """

    style: SchemaStyle | None = key("compact", "tables are written in the style {}")
    """compact: `head(head_id int key, age int = 56)`, a line a table; create_table: CREATE TABLE statements."""
    types: bool | None = key(True, "types of columns are shown", off="types are not shown")
    """Show the types of columns; compact leaves out that of text."""
    keys: bool | None = key(True, "primary and foreign keys are shown", off="keys are not shown")
    """Show primary and foreign keys."""
    tables: Positive | None = key(6, "{} tables at most")
    """Most tables shown, those that fit the question best, with those that join them."""
    columns: Positive | None = key(10, "{} columns of a table at most, and its keys")
    """Most columns of a table shown, those that fit the question best; keys of shown joins are shown beside them."""
    values: NotNegative | None = key(2, "{} values of a column that match the question", off="no values are matched")
    """Most values of a column shown that match the question's words. They are the database's: they go into prompts as they are."""
    examples: NotNegative | None = key(0, "{} example values of a column", off="no example values")
    """Most frequent values of a column that are shown where fewer match the question."""
    gold_in_training: bool | None = key(
        True, "training rows are shown what their answer names as well", off="training rows are shown what fits alone"
    )
    """Show training rows also the tables and columns that their answer names. Never done where an expert is asked."""
    databases: Annotated[Text, Field(pattern=ONE_COLUMN)] | None = key(None, "SQLite files of the rows")
    """The rows' SQLite files, `databases/{db_id}.sqlite`: columns of a row stand in braces; paths are those of `path`. Without
    it, and in rows without these columns, the CREATE TABLE texts of the input are read, which have no values."""


@dataclass(frozen=True)
class SchemaPromptConfig:
    """What a question is shown of its database. tables, columns: the most of them; None = all.

    values: of a column, that match the question; examples: of a column, whatever is asked. databases: the pattern of the rows'
    files, "" = none.
    """

    style: SchemaStyle = "compact"
    types: bool = True
    keys: bool = True
    tables: int | None = 6
    columns: int | None = 10
    values: int = 2
    examples: int = 0
    gold_in_training: bool = True
    databases: str = ""
