"""What a question is shown of its database, as the text that stands below it in the prompt."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from expert_cli.data.schema_prompt.rank import Ranking, Shown, join_keys
from expert_cli.data.schema_prompt.schema import Database, Table
from expert_cli.data.schema_prompt.sqlite_reader import literal, read_file, read_text
from expert_cli.data.schema_prompt.styles import STYLES
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig
from expert_cli.utils.files import stamp

_KEPT = 256
_TEXT_OR_WORD = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|[^\W\d]\w*")


class SchemaPrompt:
    """Writes the part of a prompt that describes a database; databases that were read are kept, a file until it changes."""

    def __init__(self, settings: SchemaPromptConfig) -> None:
        """Take what is shown, and how."""
        self.settings = settings
        self._kept: OrderedDict[object, Database] = OrderedDict()

    def of_file(self, file: Path, question: str, answer: str = "") -> str:
        """Return what a question is shown of an SQLite file. answer: a training row's, whose names are shown as well.

        Raises InputError: the file is no database, or has no table.
        """
        return self._text(self.database(file), question, answer)

    def of_text(self, text: str, question: str, answer: str = "") -> str:
        """Return the same of CREATE TABLE texts, which hold no values. Raises InputError: there are none."""
        return self._text(self._keep(text, lambda: read_text(text)), question, answer)

    def of_question(self, question: str, input_: str, database: Path | None = None) -> str:
        """Return what a question is shown: of its database, or of the CREATE TABLE texts of its input where it has none."""
        return self.of_text(input_, question) if database is None else self.of_file(database, question)

    def database(self, file: Path) -> Database:
        """Return an SQLite file's tables and values. Raises InputError."""
        seen = tuple(stamp(file)) if file.is_file() else ()
        return self._keep((str(file), seen), lambda: read_file(file))

    def _keep(self, key: object, read: Callable[[], Database]) -> Database:
        if key not in self._kept:
            self._kept[key] = read()
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _text(self, database: Database, question: str, answer: str) -> str:
        gold = answer if self.settings.gold_in_training else ""
        return STYLES[self.settings.style](shown(database, question, self.settings, gold), self.settings)


def shown(database: Database, question: str, settings: SchemaPromptConfig, answer: str = "") -> list[Shown]:
    """Return the tables that a question is shown, the one that fits best first. answer: a query whose names are shown, too."""
    ranking = Ranking(database, question)
    answered = _names_of(answer)
    tables = ranking.tables(settings.tables)
    tables += [one for one in database.tables if one.name.casefold() in answered and one not in tables]
    keys = join_keys(tables)
    found = []
    for table in tables:
        named = {column.name for column in table.columns if column.name.casefold() in answered}
        if table.name.casefold() not in answered:
            named = set()
        columns = ranking.columns(table, settings.columns, keys[table.name])
        columns = tuple(one.name for one in table.columns if one.name in named or one.name in columns)
        found.append(
            Shown(table, columns, {name: _values(ranking, database, table, name, settings) for name in columns})
        )
    return found


def _values(
    ranking: Ranking, database: Database, table: Table, column: str, settings: SchemaPromptConfig
) -> tuple[str, ...]:
    """Return the values of a column that are shown: those that match, then the most frequent ones up to `examples`."""
    matched = ranking.matches.get((table.name, column), ())[: settings.values]
    frequent = database.values.frequent.get((table.name, column), ())[: settings.examples]
    literals = [literal(value) for value in matched]
    return (*literals, *[one for one in frequent if one not in literals][: max(0, settings.examples - len(literals))])


def _names_of(query: str) -> set[str]:
    """Return the words of a query that may be names, in small letters; texts in single quotes are none."""
    words = (piece for piece in _TEXT_OR_WORD.findall(query) if piece[0] != "'")
    return {word.strip('"`[]').casefold() for word in words}
