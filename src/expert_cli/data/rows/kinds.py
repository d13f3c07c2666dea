"""The kinds of rows there are: one entry a kind, which is all that is known of it, in the order in which columns are asked.

Another kind is a subclass of `Rows` with an entry in `KINDS`; its columns are roles of `Columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.rows.columnar import Example, Message, Rows
from expert_cli.data.rows.columns import FLAGS, ColumnNames, Columns
from expert_cli.data.rows.forms import Form
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.rows.segments import SegmentRows
from expert_cli.data.rows.validation import answer_of, answers_of
from expert_cli.errors import InputError

if TYPE_CHECKING:
    from expert_cli.data.formats.raw_row import Texts
    from expert_cli.data.templates.segment import Document
    from expert_cli.data.templates.template import Template


@dataclass
class TextRows(Rows):
    """Whole documents, written in a template already, or in none."""

    kind = "text"
    roles = ("text",)
    answer_role = "text"
    is_whole_text = True
    row_forms: ClassVar[Mapping[str, Form]] = {"document": Form({"text": "Once upon a time"})}

    text: list[str] = field(default_factory=list)

    @classmethod
    def choose(cls, names: ColumnNames) -> Columns | None:
        column = names.mapped("text")
        # "text" stands last among the instruction names: met there, no better instruction exists.
        if not column and not names.usual("response") and not names.usual("input"):
            column = names.usual("text") if names.usual("text") == names.usual("instruction") else ""
        return Columns(text=column) if column else None

    @classmethod
    def of_texts(cls, texts: Texts, columns: Columns) -> Rows | None:
        found = answers_of(texts.get(columns.text))
        return None if found is None else cls(found)

    def append(self, fields: Mapping[str, object], columns: Columns) -> None:
        self.text.append(answer_of(fields, columns.text))

    def conversations(self, template: Template) -> Iterable[tuple[Message, ...]]:  # noqa: ARG002
        return ()

    def documents(self, template: Template, forms: dict[str, int]) -> list[Document]:
        return [template.texts.document(text, forms) for text in self.text]

    def shot(self, row: int) -> Example | None:  # noqa: ARG002
        return None


KINDS: Mapping[str, type[Rows]] = MappingProxyType(
    {rows.kind: rows for rows in (MessageRows, TextRows, SegmentRows, PairRows)}
)
"""The kinds by name. Columns are theirs of which the first one says so; the last one says what is missing."""


def kind_of(columns: Columns) -> type[Rows]:
    """Return the kind of rows that are read from some columns."""
    return next(kind for kind in KINDS.values() if kind.has(columns))


def choose_columns(names: Sequence[str], mapping: ColumnMapping, where: str) -> Columns:
    """Return the columns to read out of `names`, all columns that the rows at `where` have.

    Raises InputError: a mapped column is absent, the response (or the instruction) is missing or ambiguous.
    """
    roles = {role for kind in KINDS.values() for role in kind.roles}
    named = [role.name for role in fields(mapping) if role.name in roles and getattr(mapping, role.name)]
    kinds = [kind for kind in KINDS.values() if set(named) <= set(kind.roles)]
    if not kinds:
        several = [kind for kind in KINDS.values() if not set(named).isdisjoint(kind.roles)]
        raise InputError(
            f'"field_mapping" names {" and ".join(named)}, which are of rows of several kinds',
            f"Keep one of: {'; '.join(' and '.join(kind.roles) for kind in several)}.",
        )
    table = ColumnNames(names, mapping, where)
    chosen = next(columns for kind in kinds if (columns := kind.choose(table)))
    others = ColumnNames([name for name in names if name not in chosen.read()], mapping, where)
    flags: dict[str, Any] = {role: others.usual(role) for role in FLAGS}
    return replace(chosen, **flags)
