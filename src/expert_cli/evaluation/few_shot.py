"""Examples in front of a question: training rows, drawn by the seed, as turns of a conversation before it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from expert_cli.config.plan import TrainedAdapter
from expert_cli.data.rows import Example
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.cases import EvalCase
from expert_cli.evaluation.verifiers.case import plain
from expert_cli.utils.reporter import Reporter


@dataclass(frozen=True)
class Shots:
    """Training rows in an order that the seed draws, the first `count` of which stand before a question."""

    count: int = 0
    rows: tuple[Example, ...] = ()

    def require_for(self, cases: Sequence[EvalCase]) -> None:
        """Raise InputError where there are too few rows for a case: said before anything is answered."""
        for asked in cases:
            self.before(asked)

    def before(self, asked: EvalCase) -> list[Example]:
        """Return the examples for a case: the same for all, but for one that is the case's own row."""
        found = list(islice((row for row in self.rows if not _is_of(row, asked)), self.count))
        if len(found) < self.count:
            raise InputError(
                f"--shots {self.count}: {len(found)} training rows are not the row of case {asked.id!r}",
                "ask for fewer",
            )
        return found


NO_SHOTS = Shots()


def drawn_shots(trained: TrainedAdapter, count: int, report: Reporter) -> Shots:
    """Return `count` of the rows that an adapter was trained on, and others to stand in for a case's own row.

    Raises InputError where the rows are gone, or are whole texts, which nothing parts into question and answer.
    """
    from expert_cli.data.select import select_rows
    from expert_cli.data.sources import locate_data

    data, rows_of = replace(trained.plan.run.data.as_asked, validation=()), trained.origin.rows
    if rows_of is not None:  # --dataset, --validation and --seed may have said other than the manifest
        sources, share, seed = rows_of
        data = replace(data, train=sources, validation_share=share, seed=seed)
    try:
        rows = list(select_rows(data, locate_data(data, report), report).rows())
    except (InputError, EnvironmentProblem) as error:
        raise InputError(
            f"--shots: the rows of training cannot be read: {error.message}", "put them there, or leave --shots out"
        ) from error
    if any(row.is_whole_text for row in rows):
        raise InputError("--shots: rows of whole texts hold no questions with answers", "leave --shots out")
    order = random.Random(trained.plan.run.seed).sample(range(len(rows)), len(rows))  # noqa: S311
    return Shots(count, tuple(filter(None, (rows[number].example() for number in order))))


def _is_of(row: Example, asked: EvalCase) -> bool:
    """Whether a row is a case's own: it asks the same, or gives the right answer to the same input in other words."""
    if plain(row.input) != plain(asked.asked.input):
        return False
    return plain(row.prompt) == plain(asked.prompt) or bool(row.input.strip() and asked.case.is_expected(row.answer))
