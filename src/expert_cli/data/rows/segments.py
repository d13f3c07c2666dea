"""Rows of whole documents in pieces, each of which says whether it is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from expert_cli.data import mask_reasons
from expert_cli.data.rows.columnar import Example, Message, Rows
from expert_cli.data.rows.columns import ColumnNames, Columns
from expert_cli.data.rows.forms import SEGMENT_FORMS, Form
from expert_cli.data.rows.validation import BadRow, text_of
from expert_cli.data.templates.segment import Segment
from expert_cli.utils.text import type_name

if TYPE_CHECKING:
    from expert_cli.data.templates.segment import Document
    from expert_cli.data.templates.template import Template


@dataclass
class SegmentRows(Rows):
    """Documents in pieces, (text, trained) each, as axolotl's input_output has them; nothing is put around these.

    text: each document whole.
    """

    kind = "segments"
    roles = ("segments",)
    answer_role = "segments"
    is_whole_text = True
    row_forms: ClassVar[Mapping[str, Form]] = SEGMENT_FORMS

    segments: list[tuple[tuple[str, bool], ...]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    @classmethod
    def choose(cls, names: ColumnNames) -> Columns | None:
        column = names.usual("segments")
        others = any(names.usual(role) for role in ("instruction", "response", "text", "messages"))
        return Columns(segments=column) if column and not others and not names.mapping.columns() else None

    def append(self, fields: Mapping[str, object], columns: Columns) -> None:
        given = fields.get(columns.segments)
        if not isinstance(given, list):
            raise BadRow(f'"{columns.segments}" is {type_name(given)}, not a list of segments')
        pieces = tuple(map(_piece, given))
        if not any(trained and text for text, trained in pieces):
            raise BadRow("no segment is to be trained")
        self.segments.append(pieces)
        self.text.append("".join(text for text, _ in pieces))

    def columns(self) -> list[list[str]]:
        return [self.text]

    def content(self, row: int) -> tuple[str, ...]:
        return tuple(f"{'trained' if trained else 'not trained'}: {text}" for text, trained in self.segments[row])

    def answer(self, row: int) -> str:
        return "".join(text for text, trained in self.segments[row] if trained)

    def conversations(self, template: Template) -> Iterable[tuple[Message, ...]]:  # noqa: ARG002
        return ()

    def documents(self, template: Template, forms: dict[str, int]) -> list[Document]:
        forms[self.kind] = forms.get(self.kind, 0) + len(self)
        everything = not template.compiler.trained.completion_only
        return [
            tuple(
                Segment(text, True, trained or everything, _reason(trained, everything))
                for text, trained in pieces
                if text
            )
            for pieces in self.segments
        ]

    def shot(self, row: int) -> Example | None:  # noqa: ARG002
        return None


def _reason(trained: bool, everything: bool) -> str:
    if everything:
        return mask_reasons.EVERYTHING
    return mask_reasons.TRAINED_SEGMENT if trained else mask_reasons.OTHER_SEGMENT


def _piece(segment: object) -> tuple[str, bool]:
    if not isinstance(segment, dict):
        raise BadRow(f"a segment is {type_name(segment)}, not an object")
    label = segment.get("label")
    if label is None:
        raise BadRow("a segment's label is missing")
    if not isinstance(label, bool):
        raise BadRow(f"a segment's label is {type_name(label)}, not true or false")
    return text_of(segment, "text", "a segment's text"), label
