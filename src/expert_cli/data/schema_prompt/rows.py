"""What a training row is shown of its database."""

from __future__ import annotations

from functools import lru_cache
from pathlib import PurePath

from expert_cli.data.schema_prompt.builder import SchemaPrompt
from expert_cli.errors import InputError
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig


@lru_cache(maxsize=4)
def schema_prompt(settings: SchemaPromptConfig) -> SchemaPrompt:
    """Return what shows databases by these settings, one a process: databases are read once."""
    return SchemaPrompt(settings)


def show_database(settings: SchemaPromptConfig, name: str, input_: str, question: str, answer: str) -> str:
    """Return what a training row is shown, of the database of that name, or where it has none of its input.

    Raises InputError: there is no such database, or no CREATE TABLE in the input.
    """
    prompt = schema_prompt(settings)
    if not name:
        return prompt.of_text(input_, question, answer)
    if name in (".", "..") or PurePath(name).name != name:
        raise InputError(f"{name!r} in the column {settings.database_column!r} names no database", "give a name")
    return prompt.of_file(settings.file_named(name), question, answer)
