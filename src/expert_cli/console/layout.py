"""How words, figures and tables are set before they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

_FIGURE = re.compile(r"(?:[\d,]+(?:\.\d+)?(?:%| [kMGT]?B)?)?")


def _is_figures(column: Sequence[str]) -> bool:
    """Whether a column holds nothing but figures, which stand on the right."""
    return any(column) and all(_FIGURE.fullmatch(cell) for cell in column)


def justified(column: Sequence[str], heads: int) -> list[str]:
    """Return the cells of a column in one width, figures on the right; the first `heads` cells are headings."""
    right, width = _is_figures(column[heads:]), max(map(len, column))
    return [cell.rjust(width) if right else cell.ljust(width) for cell in column]


def aligned(columns: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table as lines to search: the heads, where there are any, and every row, cells two blanks apart."""
    head = [columns] if any(columns) and rows else []
    cells = [justified(column, len(head)) for column in zip(*head, *rows, strict=True)]
    return ["  ".join(line).rstrip() for line in zip(*cells, strict=True)]


def group_table(columns: list[str], rows: list[list[str]]) -> Table:
    """Return a table for a terminal: of dotted keys in the first column the block once, as a heading."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        right = _is_figures([row[index] for row in rows])
        table.add_column(column, no_wrap=index == 0, overflow="fold", justify="right" if right else "left")
    block = ""
    for first, *rest in rows:
        head, _, name = first.rpartition(".")
        if head != block:
            table.add_row(Text(head, "bold"))
            block = head
        table.add_row(*(Text(cell) for cell in (f"  {name}" if head else name, *rest)))
    return table
