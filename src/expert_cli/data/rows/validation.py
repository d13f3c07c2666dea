"""One raw row -> its text, or the reason why it cannot be used. Nothing is turned into text that is not text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.columns import Columns
from expert_cli.errors import InputError
from expert_cli.utils.text import type_name

BAD_SHARE = 0.01
"""The share of bad rows in a source above which it is refused."""
_SHOWN = 5
NOT_TRAINED = "not to be trained"
"""What becomes of a good row whose weight is 0 or whose train is false."""
_FLAG_TEXTS = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1, "": 1}
"""How CSV, which holds text alone, writes them."""


class BadRow(Exception):
    """The reason why a row cannot be used, in the same words for every row with this fault."""


@dataclass
class WeightValues:
    """What the rows of a source have in a column called weight: flags, or something else (a factor of the loss, kilograms).

    zeros: (value, place) of rows that say that they are not trained; others: of those whose value is no flag; the first ones.
    """

    zeros: list[tuple[str, str]] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)

    def add(self, value: object, where: str) -> None:
        """Note the value of one row; None says nothing."""
        try:
            noted = self.zeros if value is not None and not _flag_of_row(value, "") else None
        except BadRow:
            noted = self.others
        if noted is not None and len(noted) < _SHOWN:
            noted.append((f"{value!r:.40}", where))

    def extend(self, later: WeightValues) -> None:
        """Note what the rows of the next piece of the source have."""
        self.zeros = [*self.zeros, *later.zeros][:_SHOWN]
        self.others = [*self.others, *later.others][:_SHOWN]

    def columns(self, columns: Columns, source: str) -> Columns:
        """Return the columns that are read: without the weight where no row says 0 and some value is no flag.

        Raises InputError: some row says 0, and in others the value is no flag.
        """
        if self.zeros and self.others:
            zero, *others = (f"{value} at {where}" for value, where in (self.zeros[0], *self.others))
            raise InputError(
                f'{source}: "{columns.weight}" is {zero}, which leaves that row out, and in other rows it is neither 0, false, '
                f"1 nor true: {'; '.join(others)}",
                "Write 0 or 1 there, or rename the column if it says something else than whether a row is trained.",
            )
        return replace(columns, weight="") if self.others else columns

    def unread(self, name: str) -> str:
        """Return how a report names the column where it is not read."""
        return f"{name} ({self.others[0][0]} is no flag)"


def validate_row(rows: Rows, fields: Mapping[str, object], columns: Columns, where: str) -> str:
    """Append one row read at `where` to `rows`, whose kind is that of `columns`.

    Returns "", or the reason why the row is bad, or NOT_TRAINED where it says so itself; nothing is appended then.
    """
    try:
        flags = [_flag_of_row(fields[name], name) for name in columns.flags() if fields.get(name) is not None]
        if not all(flags):
            return NOT_TRAINED
        rows.append(fields, columns)
    except BadRow as bad:
        return str(bad)
    rows.origins.append(where)
    return ""


def text_of(fields: Mapping[str, object], key: str, label: str = "") -> str:
    """Return the text of a field; `label` names it in the reason where the key alone would not. Raises BadRow."""
    label = label or f'"{key}"'
    if key not in fields:
        raise BadRow(f"{label} is missing")
    value = fields[key]
    if value is None:
        raise BadRow(f"{label} is null")
    if not isinstance(value, str):
        raise BadRow(f"{label} is {type_name(value)}, not text")
    # isascii() is a flag of the string, so the usual row costs nothing.
    if not value.isascii() and not encodes(value):
        raise BadRow(f"{label} is not Unicode text (half of a surrogate pair)")
    return value


def answer_of(fields: Mapping[str, object], key: str) -> str:
    """Return the text of a field that must say something. Raises BadRow."""
    value = text_of(fields, key)
    if not value.strip():
        raise BadRow(f'"{key}" is empty')
    return value


def texts_of(column: list[str | None] | None) -> list[str] | None:
    """Return the texts of a column if every row has one: `text_of`, column by column."""
    texts = [text for text in column or () if text is not None]
    return texts if column is not None and len(texts) == len(column) else None


def answers_of(column: list[str | None] | None) -> list[str] | None:
    """Return the texts of a column if every row has one that says something: `answer_of`, column by column."""
    texts = texts_of(column)
    return None if texts is None or any(not text or text.isspace() for text in texts) else texts


def encodes(value: str) -> bool:
    """Return whether a text is Unicode."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def flag_of(value: object, label: str) -> bool:
    """Return what 0 or false, 1 or true says. Raises BadRow for another value, which `label` names."""
    if value not in (0, 1):  # false and true are 0 and 1
        raise BadRow(f"{label} is {value!r:.40}: 0 and false, 1 and true are known")
    return bool(value)


def _flag_of_row(value: object, name: str) -> bool:
    known = _FLAG_TEXTS.get(value.strip().lower(), value) if isinstance(value, str) else value
    return flag_of(known, f'"{name}"')
