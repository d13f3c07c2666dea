"""`training.dataset.schema_prompt`: what a question is shown of its database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import Field

from expert_cli.errors import InputError
from expert_cli.manifest.key import NotNegative, Positive, Strict, Text, key

SchemaStyle = Literal["compact", "joins"]
Most = Annotated[Positive | Literal["all"], Field(union_mode="left_to_right")]
WITH_COLUMN = r"^[^{}]*(\{[^{}]+\}[^{}]*)+$"


def _at_most(what: str) -> Any:
    return lambda most: f"all {what}" if most == "all" else f"{most} {what} at most"


class SchemaPromptKeys(Strict):
    """`training.dataset.schema_prompt`: which tables, columns and values of its database a question is shown, and how.

    Stands in the place of the input: in training rows, in test cases with a `database`, and in `chat --database`.
    """

    style: SchemaStyle | None = key("compact", "tables are written in the style {}", why="the fewest tokens")
    """compact: `head(head_id int key, age int = 56)`, a line a table; joins: names in small letters, and joins and values as
    conditions on lines of their own, for small models to copy."""
    types: bool | None = key(True, "types of columns are shown", off="no types", why="texts compare unlike numbers")
    """Show the types of columns; compact leaves out that of text."""
    keys: bool | None = key(True, "primary and foreign keys are shown", off="no keys", why="joins go by them")
    """Show primary and foreign keys."""
    tables: Most | None = key(4, _at_most("tables"), why="few questions need more, and others distract a small model")
    """Most tables shown, those that fit the question best and those that join them; `"all"` shows all."""
    columns: Most | None = key(8, _at_most("columns of a table"), why="as of tables")
    """Most columns of a table shown, those that fit the question best; always its primary key and those of shown joins."""
    values: NotNegative | None = key(2, "{} matching values a column", off="no values", why="answers must spell them")
    """Most values of a column shown that match the question's words; prompts then hold data of the database."""
    examples: NotNegative | None = key(0, "{} example values of a column", off="no examples", why="they cost tokens")
    """Most frequent values of a column that are shown where fewer match the question."""
    gold_in_training: bool | None = key(
        True,
        "training rows are shown what their answer names as well",
        off="training rows are shown what fits alone",
        why="no row teaches to name what its prompt does not show",
    )
    """Show training rows also the tables and columns that their answer names. Never done where an expert is asked."""
    databases: Annotated[Text, Field(pattern=WITH_COLUMN)] | None = key(None, "SQLite files of the rows")
    """The rows' SQLite files, `databases/{db_id}.sqlite`: the column that names one stands in braces; relative to the manifest,
    then to the project root. Without it, and where a row's column is empty, the CREATE TABLE texts of the input are read."""


@dataclass(frozen=True)
class SchemaPromptConfig:
    """What a question is shown of its database. tables, columns: the most of them; None = all.

    values: of a column, that match the question; examples: of a column, whatever is asked. databases: the pattern of the rows'
    files with an absolute path, "" = none.
    """

    style: SchemaStyle = "compact"
    types: bool = True
    keys: bool = True
    tables: int | None = 4
    columns: int | None = 8
    values: int = 2
    examples: int = 0
    gold_in_training: bool = True
    databases: str = ""

    @property
    def database_column(self) -> str:
        """The column of a row that names its database; "" = none."""
        return self.databases.partition("{")[2].partition("}")[0]

    def file_named(self, name: str) -> Path:
        """Return the file of a database. Raises InputError: it is no name, but a path."""
        if name in (".", "..") or PurePath(name).name != name:
            raise InputError(f"{name!r} in the column {self.database_column!r} names no database", "give a name")
        return Path(self.databases.replace(f"{{{self.database_column}}}", name))

    def files(self) -> list[Path]:
        """Return the files that rows may name, in order."""
        parts = Path(self.databases).parts
        fixed = next((number for number, part in enumerate(parts) if "{" in part), 0)
        named = "/".join(parts[fixed:]).replace(f"{{{self.database_column}}}", "*")
        return sorted(path for path in Path(*parts[:fixed]).glob(named) if path.is_file()) if named else []
