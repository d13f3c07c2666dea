"""A database, or its CREATE TABLE texts, and a question go in, the part of the prompt that describes the database comes out.
Decides which tables, columns and values a question is shown, by its words alone. What is known of a database is read in
`database.py`; how it is written stands in `styles.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePath

from expert_cli.data.schema_prompt.database import STOPPED, Database, name_words, read_file, read_text, stem, text_words
from expert_cli.data.schema_prompt.styles import STYLES
from expert_cli.errors import InputError
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig

_NAME_OR_TEXT = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|[^\W\d]\w*")


def show_database(settings: SchemaPromptConfig, name: str, input_: str, question: str, answer: str) -> str:
    """Return what a training row is shown, of the database of that name, or where it has none of its input.

    Raises InputError: there is no such database, or no CREATE TABLE in the input.
    """
    if name in (".", "..") or PurePath(name).name != name:
        raise InputError(f"{name!r} in the column {settings.database_column!r} names no database", "give a name")
    file = settings.file_named(name) if name else None
    return schema_prompt(settings, question, input_, file, answer if settings.gold_in_training else "")


def schema_prompt(settings: SchemaPromptConfig, question: str, input_: str, file: Path | None, answer: str = "") -> str:
    """Return what a question is shown of an SQLite file; None: of the CREATE TABLE texts of its input, which hold no values.

    answer: a query whose tables and columns are shown as well. Raises InputError: there is no table.
    """
    database = read_text(input_) if file is None else read_file(file)
    stems = frozenset(map(stem, text_words(question)))
    matches = database.matches(question)
    fits = {
        name: {column: _name_fit(column, stems) + ((name, column) in matches) for column in table.columns}
        for name, table in database.tables.items()
    }
    answered = {word.strip('"`[]').casefold() for word in _NAME_OR_TEXT.findall(answer) if word[0] != "'"}
    chosen = _best_tables(database, fits, stems, settings.tables or len(fits))
    chosen += [name for name in fits if name.casefold() in answered and name not in chosen]
    keys = {name: set(database.tables[name].primary_key) for name in chosen}
    for name in chosen:
        for other, pairs in database.tables[name].foreign_keys:
            if other in keys:
                keys[name] |= pairs.keys()
                keys[other] |= set(pairs.values()) - {""}
    shown = []
    for table in map(database.tables.__getitem__, chosen):
        fit = {
            name: (name in keys[table.name], own + 0.3 * ("name" in name_words(name)))
            for name, own in fits[table.name].items()
        }
        most = max(settings.columns or len(fit), len(keys[table.name]))
        best = set(sorted(fit, key=fit.__getitem__, reverse=True)[:most])
        best |= {name for name in fit if {name.casefold(), table.name.casefold()} <= answered}
        values = {}
        for name in best:
            matched = matches.get((table.name, name), [])[: settings.values]
            frequent = [one for one in table.values.get(name, [])[: settings.examples] if one not in matched]
            values[name] = matched + frequent[: max(0, settings.examples - len(matched))]
        columns = {name: type_ if settings.types else "" for name, type_ in table.columns.items() if name in best}
        foreign_keys = [key for key in table.foreign_keys if settings.keys and key[0] in keys]
        primary_key = table.primary_key if settings.keys else []
        shown.append(replace(table, columns=columns, primary_key=primary_key, foreign_keys=foreign_keys, values=values))
    return STYLES[settings.style](shown)


@lru_cache(maxsize=10_000)
def _name_fit(name: str, stems: frozenset[str]) -> float:
    """Return how well a name fits a question: 1 = it has all words of the name; less: abbreviations, parts of words."""
    fits = weights = 0.0
    for word in name_words(name):
        alike = [own for own in stems - STOPPED if min(len(own), len(word)) >= 3 and (own in word or word in own)]
        starts = any(own.startswith(word) or word.startswith(own) for own in alike)
        part = any(min(len(own), len(word)) >= 4 for own in alike)
        weight = 0.2 if word in STOPPED else 1.0
        fits += weight * (1.0 if word in stems else 0.6 if starts else 0.5 if part else 0.0)
        weights += weight
    return fits / (weights or 1.0)


def _best_tables(database: Database, fits: dict[str, dict[str, float]], stems: frozenset[str], most: int) -> list[str]:
    """Return at most so many tables, the one that fits best first, each with the tables that join it to those before."""
    table_fits = {}
    for name, of_columns in fits.items():
        first, second, third = [*sorted(of_columns.values(), reverse=True), 0.0, 0.0][:3]
        table_fits[name] = 1.5 * _name_fit(name, stems) + (first + 0.5 * second + 0.25 * third)
    chosen: list[str] = []
    while len(chosen) < min(most, len(fits)):
        rest = [name for name in fits if name not in chosen]
        best = max(
            rest, key=lambda name: table_fits[name] + 0.4 * len(database.tables[name].joined.intersection(chosen))
        )
        paths: dict[str, list[str]] = {name: [] for name in chosen}
        queue = [*chosen]
        for name in queue:  # by the fewest joins from the chosen ones
            for other in sorted(database.tables[name].joined - paths.keys()):
                paths[other] = [*paths[name], other]
                queue.append(other)
        path = paths.get(best, [best])
        chosen += path if len(chosen) + len(path) <= most else [best]
    return chosen
