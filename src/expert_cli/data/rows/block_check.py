"""The rows of a block, judged: good ones as text, bad ones with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.formats.raw_row import Block
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.columns import Columns
from expert_cli.data.rows.validation import NOT_TRAINED, validate_row


@dataclass(frozen=True)
class Checked:
    """The good rows of a block, which of its rows they are (int64), and the others as (place, reason).

    untrained: how many rows are none of these, as they say that they are not to be trained.
    """

    rows: Rows
    numbers: NDArray[np.int64]
    bad: list[tuple[str, str]]
    untrained: int = 0

    def without(self, reasons: Mapping[int, str]) -> Checked:
        """Return the same block with some of its good rows, by their number among these, as bad ones."""
        numbers = np.delete(self.numbers, list(reasons))
        bad = [(self.rows.origins[row], reason) for row, reason in reasons.items()]
        return Checked(self.rows.without(reasons), numbers, self.bad + bad, self.untrained)


def check_block(block: Block, columns: Columns, start: int, stop: int) -> Checked:
    """Return the rows start <= number < stop of a block as text, the bad ones apart."""
    rows = _all_good(block, columns, start, stop)
    if rows is not None:
        return Checked(rows, np.arange(start, stop), [])
    rows = Rows(columns.kind)
    numbers: list[int] = []
    bad: list[tuple[str, str]] = []
    untrained = 0
    for number, row in enumerate(islice(block.raw(), start, stop), start):
        fault = row.fault or validate_row(rows, row.fields, columns, row.where)
        if fault == NOT_TRAINED:
            untrained += 1
        elif fault:
            bad.append((row.where, fault))
        else:
            numbers.append(number)
    return Checked(rows, np.array(numbers, np.int64), bad, untrained)


def _all_good(block: Block, columns: Columns, start: int, stop: int) -> Rows | None:
    """The rows if all of them are good and text column by column; the rules are those of `validation`."""
    if block.texts is None or columns.kind == "messages" or columns.flags():
        return None
    answers = _plain(block.texts.get(columns.text or columns.response), start, stop)
    if answers is None or any(not text or text.isspace() for text in answers):
        return None
    origins = block.places(start, stop)
    if columns.kind == "text":
        return Rows("text", text=answers, origins=origins)
    questions = _plain(block.texts.get(columns.instruction), start, stop)
    if questions is None:
        return None
    given = block.texts.get(columns.input)
    inputs = [""] * (stop - start) if given is None else [text or "" for text in given[start:stop]]
    return Rows("pair", questions, inputs, answers, origins=origins)


def _plain(column: list[str | None] | None, start: int, stop: int) -> list[str] | None:
    """The texts of a column that has one in every row."""
    if column is None:
        return None
    texts = [text for text in column[start:stop] if text is not None]
    return texts if len(texts) == stop - start else None
