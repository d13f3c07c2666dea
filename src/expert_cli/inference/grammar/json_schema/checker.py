"""Holds an answer to a JSON Schema while it is written."""

from __future__ import annotations

from expert_cli.inference.grammar.json_schema.prefix import NOTHING, JsonPrefix
from expert_cli.inference.grammar.json_schema.schema import JsonSchema


class JsonChecker:
    """What one answer may say; see `Checker`."""

    def __init__(self, schema: JsonSchema) -> None:
        """Take the schema."""
        self._schema = schema
        self._read: list[tuple[str, JsonPrefix]] = [("", JsonPrefix())]

    def viable(self, text: str) -> bool:
        """Return whether a value that fits begins so."""
        read = self._prefix(text)
        try:
            return read is not None and self._schema.possible(read.root)
        except RecursionError:
            return False  # nested too deep to be read

    def complete(self, text: str) -> bool:
        """Return whether the text is a value that fits."""
        read = self._prefix(text)
        value = NOTHING if read is None else read.ended()
        return value is not NOTHING and self._schema.possible(value)

    def _prefix(self, text: str) -> JsonPrefix | None:
        """Read a text, from where the last ones ended that it goes on."""
        while not text.startswith(self._read[-1][0]):
            self._read.pop()
        start, read = self._read[-1]
        if start == text:
            return read
        read = read.copy()
        if not read.feed(text[len(start) :]):
            return None
        self._read = [self._read[0], *self._read[1:][-1:], (text, read)]
        return read
