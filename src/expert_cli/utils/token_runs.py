"""The tokens of a document as people are shown them: in runs that are trained, or not, or left out."""

from __future__ import annotations

from typing import NamedTuple


class Token(NamedTuple):
    """A token. text: "" where a later token of the same character has it."""

    id: int
    text: str

    @property
    def shown(self) -> str:
        """The text with its line ends marked."""
        return self.text.replace("\n", "¶\n")


class TokenRun(NamedTuple):
    """Tokens one after the other of which the same holds. reasons: why, from the first of them on.

    kept: whether `max_seq_length` leaves them.
    """

    reasons: tuple[str, ...]
    trained: bool
    kept: bool
    tokens: tuple[Token, ...]

    @property
    def text(self) -> str:
        """The text of all of them."""
        return "".join(token.text for token in self.tokens)

    @property
    def state(self) -> str:
        """What becomes of the tokens, in words."""
        return ("trained" if self.trained else "not trained") if self.kept else "left out"
