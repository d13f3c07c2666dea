"""What became of one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["correct", "wrong", "empty", "invalid", "unknown_name", "timeout", "refused", "too_large", "parsed_only"]
"""wrong: it ran, with another result. empty: it ran and returned nothing where something was expected, or there is no answer.
invalid: it does not parse, or does not fit. unknown_name: it names a table or column that the database has not, or a label,
type or property that the graph has nowhere. refused: it tried to write, or to reach outside. too_large: it or its result is
over the limits. parsed_only: no more than parsing was possible on this machine.
"""

DETAIL_CHARACTERS = 200


@dataclass(frozen=True)
class Grade:
    """The judgment of one answer; `detail` is one line without control characters, for people."""

    kind: Kind
    detail: str = ""

    def __post_init__(self) -> None:
        """Make any text fit for `detail`: it often quotes the answer."""
        object.__setattr__(self, "detail", detail_line(self.detail))

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.kind == "correct"


def detail_line(text: str, limit: int = DETAIL_CHARACTERS) -> str:
    """Return `text` on one line of at most `limit` characters, what cannot be printed left out."""
    words = "".join(character for character in text[: 8 * limit] if character.isprintable() or character.isspace())
    line = " ".join(words.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
