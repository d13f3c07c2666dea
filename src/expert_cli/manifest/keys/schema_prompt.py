"""`training.dataset.schema_prompt`: how a database is described in a prompt."""

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
    return lambda most: f"all {what}" if most == "all" else f"at most {most} {what}"


class SchemaPromptKeys(Strict):
    """`training.dataset.schema_prompt`: which tables, columns and values of a database are shown with a question, and how.

    The description replaces the input: in training rows, in test cases with a `database`, and in `chat --database`.
    """

    style: SchemaStyle | None = key("compact", "tables are shown in the style {}", why="the fewest tokens")
    """compact: a line for each table, `head(head_id int key, age int = 56)`; joins: names in lower case, joins and values as
    conditions on separate lines, which small models can copy."""
    types: bool | None = key(
        True, "types of columns are shown", off="no types", why="texts are compared differently from numbers"
    )
    """Show the types of columns; compact leaves out that of text."""
    keys: bool | None = key(True, "primary and foreign keys are shown", off="no keys", why="joins use them")
    """Show primary and foreign keys."""
    tables: Most | None = key(4, _at_most("tables"), why="few questions need more, and others distract a small model")
    """Largest number of tables: those that fit the question best and those that join them; `"all"`: no limit."""
    columns: Most | None = key(8, _at_most("columns of each table"), why="as for `tables`")
    """Largest number of a table's columns: those that fit the question best; always its primary key and shown joins' keys."""
    values: NotNegative | None = key(
        2, "{} matching values of each column", off="no values", why="answers must spell them as the database does"
    )
    """Largest number of a column's values that match words of the question; prompts then contain data of the database."""
    examples: NotNegative | None = key(0, "{} example values of each column", off="no examples", why="they take tokens")
    """Number of most frequent values of a column to show if fewer match the question."""
    gold_in_training: bool | None = key(
        True,
        "training rows also show what their answer uses",
        off="training rows show only what fits the question",
        why="rows must not teach names that their prompt does not show",
    )
    """In training rows, also show the tables and columns that the answer uses; never in questions to an expert."""
    databases: Annotated[Text, Field(pattern=WITH_COLUMN)] | None = key(None, "SQLite files of the rows")
    """The rows' SQLite files with a column in braces, `databases/{db_id}.sqlite`; relative to the manifest, then to the
    project root. Without it, and if a row's column is empty, CREATE TABLE statements in the input are used."""


@dataclass(frozen=True)
class SchemaPromptConfig:
    """How a database is described. tables, columns: the largest numbers of them; None = all.

    values: the largest number of a column's values that match the question. examples: the number of its most frequent values to
    show if fewer match. databases: the absolute path pattern of the rows' files, "" = none.
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
        """The column that names a row's database; "" = none."""
        return self.databases.partition("{")[2].partition("}")[0]

    def file_named(self, name: str) -> Path:
        """Return the file of a database. Raises InputError for a name that is a path."""
        if name in (".", "..") or PurePath(name).name != name:
            raise InputError(f"{name!r} in the column {self.database_column!r} names no database", "give a name")
        return Path(self.databases.replace(f"{{{self.database_column}}}", name))

    def files(self) -> list[Path]:
        """Return the files that rows may name, in order."""
        parts = Path(self.databases).parts
        fixed = next((number for number, part in enumerate(parts) if "{" in part), 0)
        named = "/".join(parts[fixed:]).replace(f"{{{self.database_column}}}", "*")
        return sorted(path for path in Path(*parts[:fixed]).glob(named) if path.is_file()) if named else []
