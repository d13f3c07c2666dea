"""The kinds of rows there are: one entry a kind, which is all that is known of it, in the order in which columns are asked.

Another kind is a subclass of `Rows` with an entry in `KINDS`; its columns are roles of `Columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.rows.columnar import Example, Message, Rows, Shown
from expert_cli.data.rows.columns import FLAGS, ColumnNames, Columns
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.validation import answer_of, answers_of, text_of, texts_of
from expert_cli.errors import InputError

if TYPE_CHECKING:
    from expert_cli.data.formats.raw_row import Texts
    from expert_cli.data.templates.loss_mask import PieceColumn
    from expert_cli.data.templates.segment import Document
    from expert_cli.data.templates.template import Template


@dataclass
class TextRows(Rows):
    """Whole documents, written in a template already, or in none."""

    kind = "text"
    roles = ("text",)
    answer_role = "text"
    masking_rule = rendered_rule = "3"
    is_whole_text = True
    example_row: ClassVar[Mapping[str, object]] = {"text": "Once upon a time"}

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


@dataclass
class PairRows(Rows):
    """A question, what stands below it ("" = nothing), and the answer. database: of each its name, "" = none; [] = of all."""

    kind = "pair"
    roles = ("instruction", "input", "response")
    answer_role = "response"
    masking_rule = "1"
    rendered_rule = "3"
    is_whole_text = False
    example_row: ClassVar[Mapping[str, object]] = {"question": "How many?", "context": "4 boats", "answer": "Four."}

    instruction: list[str] = field(default_factory=list)
    input: list[str] = field(default_factory=list)
    response: list[str] = field(default_factory=list)
    database: list[str] = field(default_factory=list)

    @classmethod
    def choose(cls, names: ColumnNames) -> Columns | None:
        instruction, response = names.mapped("instruction"), names.mapped("response")
        database = names.mapped("database")
        if instruction and response:
            return Columns(instruction, names.mapped("input"), response, database=database)
        response = response or _only_response(names, instruction)
        instruction = instruction or names.usual("instruction", other_than=response)
        if not instruction:
            raise names.unclear(f'no column is recognized as the instruction beside "{response}"', "", response)
        return Columns(instruction, names.mapped("input") or names.usual("input"), response, database=database)

    @classmethod
    def of_texts(cls, texts: Texts, columns: Columns) -> Rows | None:
        answers = answers_of(texts.get(columns.response))
        questions = None if answers is None else texts_of(texts.get(columns.instruction))
        if answers is None or questions is None:
            return None
        given = texts.get(columns.input)
        inputs = [""] * len(answers) if given is None else [text or "" for text in given]
        databases = [text or "" for text in texts[columns.database]] if columns.database in texts else []
        return cls(questions, inputs, answers, databases)

    def append(self, fields: Mapping[str, object], columns: Columns) -> None:
        instruction = text_of(fields, columns.instruction)
        absent = not columns.input or fields.get(columns.input) is None
        given = "" if absent else text_of(fields, columns.input)
        response = answer_of(fields, columns.response)
        named = bool(columns.database) and fields.get(columns.database) is not None
        database = text_of(fields, columns.database) if named else ""
        self.instruction.append(instruction)
        self.input.append(given)
        self.response.append(response)
        if columns.database:
            self.database.append(database)

    def conversations(self, template: Template) -> Iterable[tuple[Message, ...]]:
        if template.compiler.watched:
            for asked, answer in zip(self._asked(template), self.response, strict=True):
                yield Message("user", asked), Message("assistant", answer)

    def documents(self, template: Template, forms: dict[str, int]) -> list[Document]:  # noqa: ARG002
        turns = zip(self._asked(template), self.response, self.origins, strict=True)
        return [template.pair(asked, answer, origin) for asked, answer, origin in turns]

    def piece_columns(self, template: Template) -> list[PieceColumn]:
        asked, watched = self._asked(template), template.compiler.watched
        if watched.occurs(asked) or watched.occurs(self.response):
            return []
        return template.compiler.compiled(("user", "assistant")).fill_columns((asked, self.response))

    def shot(self, row: int) -> Example | None:
        return Example(self.instruction[row], self.input[row], self.response[row], self.origins[row])

    def show_databases(self, shown: Shown) -> dict[int, str]:
        bad = {}
        for number, asked in enumerate(zip(self.instruction, self.response, strict=True)):
            name = self.database[number] if self.database else ""
            try:
                self.input[number] = shown(name, self.input[number], *asked)
            except InputError as error:
                bad[number] = error.message
        return bad

    def question(self, row: int) -> tuple[str, str]:
        return self.instruction[row], self.input[row]

    def _asked(self, template: Template) -> list[str]:
        return [template.user_turn(a, b) for a, b in zip(self.instruction, self.input, strict=True)]


KINDS: Mapping[str, type[Rows]] = MappingProxyType({rows.kind: rows for rows in (MessageRows, TextRows, PairRows)})
"""The kinds by name. Columns are theirs of which the first one says so; the last one says what is missing."""


def kind_named(name: str) -> type[Rows]:
    """Return a kind of rows. Raises InputError naming those there are."""
    if name not in KINDS:
        raise InputError(f"there are no rows of the kind {name!r}", f"Use one of: {', '.join(KINDS)}.")
    return KINDS[name]


def kind_of(columns: Columns) -> type[Rows]:
    """Return the kind of rows that are read from some columns."""
    return next(kind for kind in KINDS.values() if getattr(columns, kind.answer_role))


def choose_columns(names: Sequence[str], mapping: ColumnMapping, where: str) -> Columns:
    """Return the columns to read out of `names`, all columns that the rows at `where` have.

    Raises InputError: a mapped column is absent, the response (or the instruction) is missing or ambiguous.
    """
    roles = {role for kind in KINDS.values() for role in kind.roles}
    named = [role.name for role in fields(mapping) if role.name in roles and getattr(mapping, role.name)]
    kinds = [kind for kind in KINDS.values() if not set(named).isdisjoint(kind.roles)] if named else [*KINDS.values()]
    if named and len(kinds) > 1:
        raise InputError(
            f'"field_mapping" names {" and ".join(named)}, which are of rows of several kinds',
            f"Keep one of: {'; '.join(' and '.join(kind.roles) for kind in kinds)}.",
        )
    table = ColumnNames(names, mapping, where)
    chosen = next(columns for kind in kinds if (columns := kind.choose(table)))
    others = ColumnNames([name for name in names if name not in chosen.read()], mapping, where)
    return replace(chosen, **{role: others.usual(role) for role in FLAGS})


def _only_response(names: ColumnNames, instruction: str) -> str:
    found = [column for column in names.all_usual("response") if column != instruction]
    instruction = instruction or names.usual("instruction")
    if len(found) > 1:
        listed = ", ".join(f'"{name}"' for name in found)
        raise names.unclear(f"{len(found)} columns could be the response ({listed})", instruction, found[0])
    if not found:
        raise names.unclear("no column is recognized as the response", instruction, "")
    return found[0]
