"""What became of one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal["correct", "wrong", "empty", "invalid", "unknown_name", "timeout", "refused", "too_large", "parsed_only"]
"""wrong: it ran, with another result. empty: it ran and returned nothing where something was expected, or there is no answer.
invalid: it does not parse, or does not fit. unknown_name: it names a table or column that the database has not, or a label,
type or property that the graph has nowhere. refused: it tried to write, or to reach outside. too_large: it or its result is
over the limits. parsed_only: no more than parsing was possible on this machine.
"""

Progress = Literal["nothing", "parses", "runs", "columns", "result"]
"""How far an answer came. parses: it is of its language. runs: it gave a result; JSON fits its schema. columns: a query's
rows have as many columns as expected, a JSON value has the expected keys and lengths. result: it is right.
"""

_PROGRESS: Mapping[Kind, Progress] = {
    "correct": "result",
    "wrong": "runs",
    "empty": "nothing",
    "invalid": "nothing",
    "unknown_name": "parses",
    "timeout": "nothing",
    "refused": "nothing",
    "too_large": "nothing",
    "parsed_only": "parses",
}
"""Where a verifier knows no more than the verdict. What had to be stopped is worth nothing, whatever it was."""

DETAIL_CHARACTERS = 200


@dataclass(frozen=True)
class Grade:
    """The judgment of one answer; `detail` is one line without control characters, for people.

    reached: how far it came, where a verifier knows more than the verdict says.
    """

    kind: Kind
    detail: str = ""
    reached: Progress | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Make any text fit for `detail`: it often quotes the answer."""
        object.__setattr__(self, "detail", detail_line(self.detail))

    @property
    def progress(self) -> Progress:
        """How far the answer came."""
        return self.reached or _PROGRESS[self.kind]

    @property
    def of_a_program(self) -> Grade:
        """The same for a text that is known to parse: where it is invalid, that is not why."""
        return replace(self, reached="parses") if self.kind == "invalid" else self

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.kind == "correct"


def detail_line(text: str, limit: int = DETAIL_CHARACTERS) -> str:
    """Return `text` on one line of at most `limit` characters, what cannot be printed left out."""
    words = "".join(character for character in text[: 8 * limit] if character.isprintable() or character.isspace())
    line = " ".join(words.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
