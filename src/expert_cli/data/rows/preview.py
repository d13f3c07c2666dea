"""The first rows of a source: a look, not for training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, islice

from expert_cli.config.run_config import DataConfig
from expert_cli.data.formats.raw_row import Block, ColumnFilter, RawRow
from expert_cli.data.formats.registry import read_file
from expert_cli.data.located import Located
from expert_cli.data.rows.block_check import check_block
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.columns import Columns, names_of_interest
from expert_cli.data.rows.kinds import choose_columns
from expert_cli.data.rows.look import Refused
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.rows.validation import BAD_SHARE, WeightValues
from expert_cli.errors import InputError


def first_rows(
    data: DataConfig, sources: Sequence[Located], count: int = 64, *, refused: Refused | None = None
) -> Rows:
    """Return the good ones of the first `count` rows of the first source, whatever its slice: for a look, not for training.

    Where fewer than half of these are good, or they do not tell the columns, it is those of the next `count`. No row: none is
    good, and the selection says what is wrong with them. Raises InputError: rows that can be read do not tell the columns.
    """
    names = ColumnFilter(names_of_interest(data.mapping))
    raw = chain.from_iterable(read_file(path, names) for path in sources[0].files)
    found: Rows = PairRows()
    unclear: InputError | None = None
    read = faults = 0
    while some := list(islice(raw, count)):
        readable = [row for row in some if not row.fault]
        read += len(some)
        faults += len(some) - len(readable)
        try:
            rows = _most_good(readable, names.seen, data, str(sources[0]), refused)
        except InputError as error:
            unclear = error
            continue
        if len(rows) > len(found):
            found = rows
        if 2 * len(found) > len(some):
            break
    if unclear and not len(found) and faults <= BAD_SHARE * read:
        raise unclear
    return found


def _most_good(
    raw: Sequence[RawRow], names: Sequence[str], data: DataConfig, where: str, refused: Refused | None
) -> Rows:
    """The good ones of some rows, by the columns that all names tell or, if these are more, that the usual row's names tell.

    Raises InputError: neither tells.
    """
    usual = Counter(tuple(row.fields) for row in raw).most_common(1)
    told: list[Columns] = []
    for known in (names, *(shape for shape, _ in usual)):
        with suppress(InputError):
            told.append(choose_columns(known, data.mapping, where))
    if not told:
        choose_columns(names, data.mapping, where)
    return max((_good(raw, columns, where, data, refused) for columns in told), key=len)


def _good(raw: Sequence[RawRow], columns: Columns, where: str, data: DataConfig, refused: Refused | None) -> Rows:
    block, weights = Block.of_rows(raw), WeightValues()
    check_block(block, columns, weights=weights)
    rows = check_block(block, weights.columns(columns, where), schema_prompt=data.schema_prompt).rows
    return rows.without(refused(rows)) if refused else rows
