"""How tables are set on a terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from expert_cli.utils.text import is_figures


def group_table(columns: list[str], rows: list[list[str]]) -> Table:
    """Return a table for a terminal: of dotted keys in the first column the block once, as a heading."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        right = is_figures([row[index] for row in rows])
        table.add_column(column, no_wrap=index == 0, overflow="fold", justify="right" if right else "left")
    block = ""
    for first, *rest in rows:
        head, _, name = first.rpartition(".")
        if head != block:
            table.add_row(Text(head, "bold"))
            block = head
        table.add_row(*(Text(cell) for cell in (f"  {name}" if head else name, *rest)))
    return table
