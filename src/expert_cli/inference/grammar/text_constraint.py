"""A grammar over tokens from one over text: tokens are bytes, and a character may lie in several of them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import product
from typing import Protocol

from expert_cli.inference.grammar.vocabulary import Vocabulary


class Checker(Protocol):
    """Knows what an answer may say. White space before the answer is taken off the text that is asked about.

    What is asked about mostly goes on what was asked about last; whatever becomes of it, the same text has the same answer.
    """

    def viable(self, text: str) -> bool:
        """Return whether something can be put after the text so that it is complete."""
        ...

    def complete(self, text: str) -> bool:
        """Return whether the answer may end here."""
        ...


MOST_BLANKS = 24
"""White space in a row, which no grammar bounds: a model that is led astray would write it until it is ended as one that goes
round in circles, after 32 tokens (`inference/ending.py`).
"""


class TextConstraint:
    """One answer, held to what a checker takes."""

    def __init__(self, checker: Checker, vocabulary: Vocabulary, spoken: str = "") -> None:
        """Take the checker, the tokens' bytes, and a text with the characters outside ASCII that names may have."""
        self._checker, self._vocabulary = checker, vocabulary
        self._characters = [c.encode() for c in sorted(set(spoken)) if not c.isascii()]
        self._text, self._half, self._blanks = "", b"", 0
        self._refused: set[str] = set()

    def accepts(self, token: int) -> bool:
        """Return whether the answer may go on with a token; see `Constraint`."""
        if token in self._vocabulary.stop_token_ids:
            return not self._half and self._checker.complete(self._text)
        read = self._after(token)
        if read is None:
            return False
        text, half = read
        if self._blanks_after(text) > MOST_BLANKS:
            return False
        if half:
            return any(self._checker.viable(text + character) for character in self._wholes(half))
        return not text or self._is_viable(text)

    def advance(self, token: int) -> None:
        """Take an accepted token; see `Constraint`."""
        read = self._after(token)
        if read is not None:
            self._blanks = self._blanks_after(read[0])
            self._text, self._half = read
            self._refused = set()

    def fork(self) -> TextConstraint:
        """Return one of another answer that begins with the same; see `Constraint`."""
        return copy(self)  # a checker gives the same text the same answer, whosever it is

    def _is_viable(self, text: str) -> bool:
        """Ask the checker, but for texts that go on with a character which it refused: most of a vocabulary begins with few."""
        more = text[len(self._text) :]
        if more[0] in self._refused:
            return False
        viable = self._checker.viable(text)
        if not viable and (len(more) == 1 or not self._checker.viable(self._text + more[0])):
            self._refused.add(more[0])
        return viable

    def _blanks_after(self, text: str) -> int:
        """Return how much white space in a row a text ends with; before the answer, where it is in no text, how many tokens."""
        blanks = len(text) - len(text.rstrip())
        return blanks if text else self._blanks + 1

    def _after(self, token: int) -> tuple[str, bytes] | None:
        """Return the text with a token, and the bytes at its end that are the start of a character; None where it is none."""
        data = self._vocabulary.bytes_of(token)
        if data is None:
            return None
        data, half = self._half + data, b""
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                return None
            text, half = data[: error.start].decode(), data[error.start :]
        return (self._text + text if self._text else text.lstrip()), half

    def _wholes(self, half: bytes) -> Iterator[str]:
        """Yield characters that begin so: those that were spoken of, and a letter that stands for all others."""
        yield from (character.decode() for character in self._characters if character.startswith(half))
        length = 2 if half[0] < 0xE0 else 3 if half[0] < 0xF0 else 4
        # not every byte may follow every start: E0, ED, F0 and F4 leave only some
        for rest in product(b"\xaa\x9a\x8a", repeat=length - len(half)):
            try:
                yield (half + bytes(rest)).decode()
            except UnicodeDecodeError:
                continue
            return
