"""Rows of questions get what they are shown of their database in the place of their input."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from expert_cli.data.schema_prompt.builder import SchemaPrompt
from expert_cli.errors import InputError
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig

if TYPE_CHECKING:
    from expert_cli.data.rows.columnar import Rows


@lru_cache(maxsize=4)
def schema_prompt(settings: SchemaPromptConfig) -> SchemaPrompt:
    """Return what shows databases by these settings, one a process: databases are read once."""
    return SchemaPrompt(settings)


def show_databases(rows: Rows, settings: SchemaPromptConfig) -> Mapping[int, str]:
    """Put what each row is shown into its input; return the numbers of rows for which that cannot be, with the reason.

    Raises InputError: the rows are no pairs of question and answer.
    """
    from expert_cli.data.rows.kinds import PairRows  # which read themselves from columns, as this does

    if not isinstance(rows, PairRows):
        raise InputError(
            f'"schema_prompt" is for rows of question and answer; these are {rows.kind}',
            'Take "schema_prompt" out of training.dataset.',
        )
    prompt = schema_prompt(settings)
    bad = {}
    for number, asked in enumerate(zip(rows.instruction, rows.response, strict=True)):
        name = rows.database[number] if rows.database else ""
        try:
            rows.input[number] = _text(prompt, name, rows.input[number], *asked)
        except InputError as error:
            bad[number] = error.message
    return bad


def _text(prompt: SchemaPrompt, name: str, input_: str, question: str, answer: str) -> str:
    if not name:
        return prompt.of_text(input_, question, answer)
    if name in (".", "..") or PurePath(name).name != name:
        raise InputError(f"{name!r} in the column {prompt.settings.database_column!r} names no database", "give a name")
    return prompt.of_file(prompt.settings.file_named(name), question, answer)
