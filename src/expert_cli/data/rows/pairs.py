"""Rows of a question and its answer, with what stands before them in columns of their own, and of prompts that are messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from expert_cli.data import mask_reasons
from expert_cli.data.rows.columnar import KWARGS, Example, Message, Rows, Shown
from expert_cli.data.rows.columns import ColumnNames, Columns
from expert_cli.data.rows.forms import PAIR_FORMS, Form
from expert_cli.data.rows.messages import Conversation, beside, length_of, memory_of, said_in, up_to_answer
from expert_cli.data.rows.turn import read_turns
from expert_cli.data.rows.validation import BadRow, answer_of, answers_of, text_of, texts_of
from expert_cli.errors import InputError
from expert_cli.utils.text import type_name

if TYPE_CHECKING:
    from expert_cli.data.formats.raw_row import Texts
    from expert_cli.data.templates.compiled_template import PieceColumn
    from expert_cli.data.templates.segment import Document
    from expert_cli.data.templates.template import Template

_BESIDE = ("system", "history", "tools", KWARGS)
"""What a pair may have beside question and answer."""


@dataclass
class PairRows(Rows):
    """A question, what stands below it ("" = nothing), and the answer. database: of each its name, "" = none; [] = of all.

    A system message, earlier questions and answers, tools and arguments of the chat template may stand before them. talks: the
    conversation that ends with question and answer, where there is more to it than these; () = there is not; [] = of all.
    """

    kind = "pair"
    roles: ClassVar[tuple[str, ...]] = ("instruction", "input", "response", *_BESIDE)
    answer_role = "response"
    is_whole_text = False
    row_forms: ClassVar[Mapping[str, Form]] = PAIR_FORMS

    instruction: list[str] = field(default_factory=list)
    input: list[str] = field(default_factory=list)
    response: list[str] = field(default_factory=list)
    database: list[str] = field(default_factory=list)
    talks: list[Conversation] = field(default_factory=list)

    @classmethod
    def choose(cls, names: ColumnNames) -> Columns | None:
        instruction, response = names.mapped("instruction"), names.mapped("response")
        find = names.mapped if instruction and response else names.named_or_usual
        more: dict[str, Any] = {role: find(role) for role in _BESIDE[:-1]}
        more |= {"database": names.mapped("database"), "turns": names.turns(), _BESIDE[-1]: names.usual(_BESIDE[-1])}
        if instruction and response:
            return Columns(instruction, names.mapped("input"), response, **more)
        response = response or _only_response(names, instruction)
        instruction = instruction or names.usual("instruction", other_than=response)
        if not instruction:
            raise names.unclear(f'no column is recognized as the instruction beside "{response}"', "", response)
        return Columns(instruction, names.named_or_usual("input"), response, **more)

    @classmethod
    def of_texts(cls, texts: Texts, columns: Columns) -> Rows | None:
        if any(getattr(columns, role) for role in _BESIDE):
            return None
        answers = answers_of(texts.get(columns.response))
        questions = None if answers is None else texts_of(texts.get(columns.instruction))
        if answers is None or questions is None:
            return None
        given = texts.get(columns.input)
        inputs = [""] * len(answers) if given is None else [text or "" for text in given]
        databases = [text or "" for text in texts[columns.database]] if columns.database in texts else []
        return cls(questions, inputs, answers, databases, [()] * len(answers))

    def append(self, fields: Mapping[str, object], columns: Columns) -> None:
        if _are_messages(fields.get(columns.instruction)) or _are_messages(fields.get(columns.response)):
            self._append_messages(fields, columns)
            return
        instruction = text_of(fields, columns.instruction)
        absent = not columns.input or fields.get(columns.input) is None
        given = "" if absent else text_of(fields, columns.input)
        response = answer_of(fields, columns.response)
        named = bool(columns.database) and fields.get(columns.database) is not None
        database = text_of(fields, columns.database) if named else ""
        before = (*beside(fields, columns, ()), *_history(fields, columns))
        self.instruction.append(instruction)
        self.input.append(given)
        self.response.append(response)
        if columns.database:
            self.database.append(database)
        asked = (Message("user", instruction), Message("assistant", response))
        self.talks.append((*before, *asked) if before else ())

    def _append_messages(self, fields: Mapping[str, object], columns: Columns) -> None:
        """Take a prompt and a completion that are messages, as TRL has them: of these the completion's answers are trained."""
        if columns.database or (columns.input and fields.get(columns.input)):
            raise BadRow(
                f'"{columns.instruction}" is a list of messages, beside a column of the input or of a database'
            )
        prompt = self._turns_of(fields, columns.instruction, "user", columns)
        completion = self._turns_of(fields, columns.response, "assistant", columns)
        answers = up_to_answer(completion)
        asked = (
            replace(turn, trained=False, reason=mask_reasons.IN_PROMPT) if turn.role == "assistant" else turn
            for turn in prompt
        )
        turns = (*beside(fields, columns, prompt), *asked, *answers)
        self.instruction.append(turns[-2].content if len(turns) > 1 else "")
        self.input.append("")
        self.response.append(turns[-1].content + turns[-1].fields)
        self.talks.append(turns)
        self.trailing.append(len(completion) - len(answers))

    def _turns_of(self, fields: Mapping[str, object], key: str, role: str, columns: Columns) -> list[Message]:
        if not isinstance(fields.get(key), list):
            return [Message(role, text_of(fields, key))]
        return read_turns(fields.get(key), key, columns.turns, self.ignored)

    def columns(self) -> list[list[str]]:
        return [self.instruction, self.input, self.response]

    def content(self, row: int) -> tuple[str, ...]:
        return (*super().content(row), *said_in(self._talk(row)))

    def lengths(self) -> list[int]:
        talks, pairs = self.talks or [()] * len(self), zip(self.instruction, self.input, self.response, strict=True)
        return [
            len(given) + (length_of(talk) or len(asked) + len(answer))
            for talk, (asked, given, answer) in zip(talks, pairs, strict=True)
        ]

    def memory(self) -> int:
        return super().memory() + memory_of(self.talks)

    def conversations(self, template: Template) -> Iterable[Conversation]:
        if template.compiler.watched or any(self.talks):
            yield from (self._conversation(row, template) for row in range(len(self)))

    def documents(self, template: Template, forms: dict[str, int]) -> list[Document]:  # noqa: ARG002
        turns = zip(self._asked(template), self.response, self.origins, strict=True)
        if not any(self.talks):
            return [template.pair(asked, answer, origin) for asked, answer, origin in turns]
        return [template.conversation(self._conversation(row, template), at) for row, at in enumerate(self.origins)]

    def piece_columns(self, template: Template) -> list[PieceColumn]:
        asked, watched = self._asked(template), template.compiler.watched
        if any(self.talks) or watched.occurs(asked) or watched.occurs(self.response):
            return []
        return template.compiler.compiled(("user", "assistant")).fill_columns((asked, self.response))

    def shot(self, row: int) -> Example | None:
        if self._talk(row):
            return None
        return Example(self.instruction[row], self.input[row], self.response[row], self.origins[row])

    def show_databases(self, shown: Shown) -> dict[int, str]:
        bad = {}
        for number, asked in enumerate(zip(self.instruction, self.response, strict=True)):
            name = self.database[number] if self.database else ""
            if [turn.role for turn in self._talk(number)[-2:]] not in ([], ["user", "assistant"]):
                bad[number] = "it does not end with one question and its answer, so no schema_prompt"
                continue
            try:
                self.input[number] = shown(name, self.input[number], *asked)
            except InputError as error:
                bad[number] = error.message
        return bad

    def question(self, row: int) -> tuple[str, str]:
        return self.instruction[row], self.input[row]

    def questions(self) -> tuple[list[str], list[str]]:
        return self.instruction, self.input

    def _asked(self, template: Template) -> list[str]:
        return [template.user_turn(a, b) for a, b in zip(self.instruction, self.input, strict=True)]

    def _talk(self, row: int) -> Conversation:
        return self.talks[row] if self.talks else ()

    def _conversation(self, row: int, template: Template) -> Conversation:
        """A row as a conversation, with its input in the last question."""
        talk = self._talk(row) or (Message("user", self.instruction[row]), Message("assistant", self.response[row]))
        if not self.input[row]:
            return talk
        asked = template.user_turn(self.instruction[row], self.input[row])
        return (*talk[:-2], replace(talk[-2], content=asked), talk[-1])


def _history(fields: Mapping[str, object], columns: Columns) -> Iterable[Message]:
    """Yield earlier questions and answers. Raises BadRow."""
    history = fields.get(columns.history) if columns.history else None
    if history not in (None, "") and not isinstance(history, list):
        raise BadRow(f'"{columns.history}" is {type_name(history)}, not a list of [question, answer]')
    for said in history or ():
        if not isinstance(said, list) or len(said) != 2:
            raise BadRow(f'"{columns.history}" is not a list of [question, answer]')
        for role, text in zip(("user", "assistant"), said, strict=True):
            yield Message(role, text_of({columns.history: text}, columns.history))


def _are_messages(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(turn, dict) for turn in value)


def _only_response(names: ColumnNames, instruction: str) -> str:
    found = [column for column in names.all_usual("response") if column != instruction]
    instruction = instruction or names.usual("instruction")
    if len(found) > 1:
        listed = ", ".join(f'"{name}"' for name in found)
        raise names.unclear(f"{len(found)} columns could be the response ({listed})", instruction, found[0])
    if not found:
        raise names.unclear("no column is recognized as the response", instruction, "")
    return found[0]
