"""What stands below a question that someone asks an expert: its database as training showed them, or the input as it is."""

from __future__ import annotations

from pathlib import Path

from expert_cli.data.schema_prompt import schema_prompt
from expert_cli.data.schema_prompt.database import creates_tables
from expert_cli.errors import InputError
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig


def shown_input(question: str, input_: str, settings: SchemaPromptConfig | None, database: Path | None = None) -> str:
    """Return what a question is shown of a database, or of the CREATE TABLE texts of its input; else its input as it is.

    settings: those of training, None = databases were not shown. Raises InputError: there is a database, and it cannot be
    read, or training showed none; or SQLite refuses the CREATE TABLE texts.
    """
    if settings is None and database is not None:
        hint = "give the tables as the input; or train with training.dataset.schema_prompt"
        raise InputError(f"{database}: the expert was not trained to be shown databases", hint)
    if settings is None or (database is None and not creates_tables(input_)):
        return input_
    return schema_prompt(settings, question, input_, database)
