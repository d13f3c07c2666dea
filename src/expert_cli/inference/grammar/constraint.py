"""What decides, token by token, whether an answer may go on so."""

from __future__ import annotations

from typing import Protocol


class Constraint(Protocol):
    """One answer's grammar, where the answer stands in it.

    Tokens are proposed in the order of their likelihood, or as they are drawn, and taken where they are accepted: mostly the
    first. So nothing is computed over the vocabulary. Some token must be accepted after whatever was accepted before.
    """

    def accepts(self, token: int) -> bool:
        """Return whether the answer may go on with a token, or end with it where it is an end token; nothing changes."""
        ...

    def advance(self, token: int) -> None:
        """Take an accepted token as the answer's next one."""
        ...

    def fork(self) -> Constraint:
        """Return what holds another answer that begins with the same."""
        ...
