"""SQL held to the tables that its prompt describes, while it is written: no name that they, or the query itself, lack."""

from __future__ import annotations

from collections.abc import Mapping

from expert_cli.inference.grammar.sql.query import QueryReader
from expert_cli.inference.grammar.sql.relations import Relations
from expert_cli.inference.grammar.sql.table_schema import Table
from expert_cli.inference.grammar.sql.tokens import Reading, Token, Want, find, may_begin, taken
from expert_cli.inference.grammar.sql.words import SqlDialect, words_of


class SqlChecker:
    """Tells whether a text may become a query, SELECT or WITH, that names only what there is; for one answer at a time.

    What was read of the last text is kept, so a text that goes on from it costs what is new.
    """

    def __init__(self, tables: Mapping[str, Table], dialect: SqlDialect) -> None:
        self._relations = Relations.of(tables, rowid=dialect == "sqlite")
        self._dialect: SqlDialect = dialect
        self._words = words_of(dialect)
        self._text = ""
        self._taken: list[tuple[Token, int, int]] = []
        self._reading: Reading
        self._want: Want
        self._replay(0)

    def viable(self, text: str) -> bool:
        """Whether some query that is right in its names begins with `text`."""
        return self._read(text, ended=False)

    def complete(self, text: str) -> bool:
        """Whether `text` is a query that is right in its names."""
        return self._read(text, ended=True) and self._want.end

    def _read(self, text: str, ended: bool) -> bool:
        """Read what is new of a text; ended: whether it ends here, so that its last token is whole."""
        position = self._resume(text)
        while True:
            found = find(text, position, self._dialect)
            if found is None:
                return False
            if found.token is None:
                return True
            if not found.over and not ended:
                closed = found.token.kind == "quoted" and found.whole
                may = taken(self._want, found.token, self._words) if closed else may_begin(self._want, found.token)
                return bool(may)
            token = taken(self._want, found.token, self._words) if found.whole else None
            if token is None:
                return False
            self._want = self._reading.send(token)
            self._taken.append((token, position, found.end))
            self._text = text[: found.end]
            position = found.end

    def _resume(self, text: str) -> int:
        """Go back to the last token that a text shares with the last one; return where it ends."""
        if not self._taken:
            return 0
        _, start, end = self._taken[-1]
        if text.startswith(self._text):
            last = find(text, start, self._dialect)
            if last is not None and last.end == end:
                return end
        shared = next(
            (n for n, (old, new) in enumerate(zip(self._text, text, strict=False)) if old != new),
            min(len(self._text), len(text)),
        )
        return self._replay(sum(end < shared for _, _, end in self._taken))

    def _replay(self, count: int) -> int:
        """Read the first tokens of the last text anew; return where they end."""
        del self._taken[count:]
        self._reading = QueryReader(self._dialect, self._relations).statement()
        self._want = next(self._reading)
        for token, _, _ in self._taken:
            self._want = self._reading.send(token)
        end = self._taken[-1][2] if self._taken else 0
        self._text = self._text[:end]
        return end
