"""What rows and cases ask, as they are looked for in each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from expert_cli.data.rows.columnar import Rows


@dataclass(frozen=True)
class Asked:
    """What rows or cases ask, column by column: the questions, what stands below each, and the places of the rows."""

    questions: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.questions)

    def part(self, start: int, stop: int) -> Asked:
        """Return those that are numbered so."""
        return Asked(self.questions[start:stop], self.inputs[start:stop], self.places[start:stop])

    def extend(self, other: Asked) -> None:
        """Append others."""
        self.questions.extend(other.questions)
        self.inputs.extend(other.inputs)
        self.places.extend(other.places)


def asked_by(rows: Rows) -> Asked:
    """Return what rows ask; of whole texts, in which nothing tells question and answer apart, all they say."""
    if rows.is_whole_text:
        return Asked(list(map(rows.answer, range(len(rows)))), [""] * len(rows), rows.origins)
    return Asked(*rows.questions(), rows.origins)
