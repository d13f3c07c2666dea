"""The rows of a block, judged: good ones as text, bad ones with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.formats.raw_row import Block
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.columns import Columns
from expert_cli.data.rows.kinds import kind_of
from expert_cli.data.rows.validation import NOT_TRAINED, WeightValues, validate_row
from expert_cli.data.schema_prompt.rows import show_database
from expert_cli.manifest.keys.schema_prompt import SchemaPromptConfig


@dataclass(frozen=True)
class Checked:
    """The good rows of a block, their numbers (int64), and the others as (place, reason).

    untrained: how many rows are none of these, as they say that they are not to be trained.
    """

    rows: Rows
    numbers: NDArray[np.int64]
    bad: list[tuple[str, str]]
    untrained: int = 0

    def without(self, reasons: Mapping[int, str]) -> Checked:
        """Return the same block with some of its good rows, by their number among these, as bad ones."""
        if not reasons:
            return self
        numbers = np.delete(self.numbers, list(reasons))
        bad = [(self.rows.origins[row], reason) for row, reason in reasons.items()]
        return Checked(self.rows.without(reasons), numbers, self.bad + bad, self.untrained)


def check_block(
    block: Block,
    columns: Columns,
    first: int = 0,
    weights: WeightValues | None = None,
    schema_prompt: SchemaPromptConfig | None = None,
) -> Checked:
    """Return the rows of a block as text, the bad ones apart; they are counted from `first`.

    weights: what the rows say is added to it. schema_prompt: what questions are shown of their database, as their input.
    """
    checked = _checked(block, columns, first, weights)
    if schema_prompt is None:
        return checked
    return checked.without(checked.rows.show_databases(partial(show_database, schema_prompt)))


def _checked(block: Block, columns: Columns, first: int, weights: WeightValues | None) -> Checked:
    kind = kind_of(columns)
    plain = None if block.texts is None or columns.flags() else kind.of_texts(block.texts, columns)
    if plain is not None:
        plain.origins = list(map(block.place, range(block.count)))
        return Checked(plain, np.arange(first, first + block.count), [])
    rows = kind()
    numbers: list[int] = []
    bad: list[tuple[str, str]] = []
    untrained = 0
    noted = weights if columns.weight else None
    for number, row in enumerate(block.raw(), first):
        if noted is not None:
            noted.add(row.fields.get(columns.weight), row.where)
        fault = row.fault or validate_row(rows, row.fields, columns, row.where)
        if fault == NOT_TRAINED:
            untrained += 1
        elif fault:
            bad.append((row.where, fault))
        else:
            numbers.append(number)
    return Checked(rows, np.array(numbers, np.int64), bad, untrained)
