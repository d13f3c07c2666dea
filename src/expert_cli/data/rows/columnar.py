"""The form in which rows travel between the reader and the template: columns of text, never one object a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from sys import getsizeof
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from expert_cli.data.rows.forms import Form
from expert_cli.errors import InputError
from expert_cli.utils.text import excerpt, short_place

if TYPE_CHECKING:  # what a kind of rows is read from, and what writes it down
    from expert_cli.data.formats.raw_row import Texts
    from expert_cli.data.rows.columns import ColumnNames, Columns
    from expert_cli.data.templates.compiled_template import PieceColumn
    from expert_cli.data.templates.segment import Document
    from expert_cli.data.templates.template import Template

_MOST_EXAMPLES, _MOST_ALIKE = 5, 2
TOOLS, KWARGS = "tools", "chat_template_kwargs"
BESIDE = (TOOLS, KWARGS)
"""What a row has for its chat template beside turns."""
MOST_LEFT_OUT = 3
Shown = Callable[[str, str, str, str], str]
"""What a row is shown of its database, from its name, the row's input, question and answer. Raises InputError."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; role is "system", "developer", "user", "assistant" or "tool".

    trained: whether it carries loss, as the row says; None: the row does not say. fields: what else the turn has that chat
    templates read (reasoning_content, tool_calls, tool_call_id, name), as JSON, "" = nothing. reason: why it is not trained,
    "" = nothing says. First turns of the roles in BESIDE are none of the conversation: their content is JSON, the list of
    tools, the object of what else the chat template is given.
    """

    role: str
    content: str
    trained: bool | None = None
    fields: str = ""
    reason: str = field(default="", compare=False)


class Example(NamedTuple):
    """A row as a question: what is asked, what stands below it, the right answer, and where the row stands."""

    prompt: str
    input: str
    answer: str
    where: str


@dataclass
class Rows(ABC):
    """Rows of one kind, column by column; all columns are of the same length. A subclass is all that is known of its kind.

    kind: its name. roles: the columns that it reads, as `Columns` calls them; answer_role: the one that every row has.
    is_whole_text: whether a row is written in a template already.
    row_forms: rows as files hold them, by what they are called.

    `origins` has one "file:line" (or "file:row N") a row, for error messages. `ignored`: fields within the column of
    `answer_role` that were not read; `trailing`: of each conversation, how many turns after its last answer.
    """

    kind: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]
    answer_role: ClassVar[str]
    is_whole_text: ClassVar[bool]
    row_forms: ClassVar[Mapping[str, Form]]

    origins: list[str] = field(default_factory=list, kw_only=True)
    ignored: set[str] = field(default_factory=set, kw_only=True)
    trailing: list[int] = field(default_factory=list, kw_only=True)

    @classmethod
    @abstractmethod
    def choose(cls, names: ColumnNames) -> Columns | None:
        """Return the columns of such rows, None if these are others. Raises InputError: a mapped one is absent."""

    @classmethod
    def has(cls, columns: Columns) -> bool:
        """Return whether some columns that were chosen are those of such rows, which no kind before it has."""
        return bool(getattr(columns, cls.answer_role))

    @abstractmethod
    def append(self, fields: Mapping[str, object], columns: Columns) -> None:
        """Append one row, but for its origin. Raises BadRow, and appends nothing then."""

    @abstractmethod
    def conversations(self, template: Template) -> Iterable[tuple[Message, ...]]:
        """Yield each row as the conversation that the template may refuse; nothing where it can refuse none."""

    @abstractmethod
    def documents(self, template: Template, forms: dict[str, int]) -> list[Document]:
        """Return one document a row. forms: how many whole texts are of which form is added to it.

        Raises InputError if the template refuses a row, or does not show all of it.
        """

    @abstractmethod
    def shot(self, row: int) -> Example | None:
        """Return one row as an example before a question, None where it cannot be one."""

    @classmethod
    def of_texts(cls, texts: Texts, columns: Columns) -> Rows | None:  # noqa: ARG003
        """Return the rows of texts, without origins, if `append` takes them all and this is faster."""
        return None

    def piece_columns(self, template: Template) -> list[PieceColumn]:  # noqa: ARG002
        """Return the documents piece by piece where this is faster, else none."""
        return []

    def show_databases(self, shown: Shown) -> dict[int, str]:  # noqa: ARG002  for kinds with an input
        """Put what each row is shown of its database in the place of its input.

        Returns the rows, by their numbers, for which that cannot be, with the reason. Raises InputError: rows of this kind have
        no input.
        """
        raise InputError(
            f'"schema_prompt" is for rows of question and answer; these are {self.kind}',
            'Take "schema_prompt" out of training.dataset.',
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.origins)

    def columns(self) -> list[list[str]]:
        """Return the columns of text, in reading order. A kind that holds others overrides what is made of them below."""
        return [getattr(self, role) for role in self.roles]

    def content(self, row: int) -> tuple[str, ...]:
        """Return all text of one row, roles included: two rows are repeats when this is equal."""
        return tuple([column[row] for column in self.columns()])

    def answer(self, row: int) -> str:
        """Return what one row trains: its response, the last turn of its conversation with its calls, or its whole text."""
        return str(getattr(self, self.answer_role)[row])

    def question(self, row: int) -> tuple[str, str]:  # noqa: ARG002
        """Return what one row asks, and its input or what stands before the conversation; "" in a whole text."""
        return "", ""

    def questions(self) -> tuple[list[str], list[str]]:
        """Return what all rows ask, as `question` does of one, in two columns."""
        asked = list(map(self.question, range(len(self))))
        return [question for question, _ in asked], [below for _, below in asked]

    def lengths(self) -> list[int]:
        """Return the length of every row's text, prompt and answer together."""
        return [sum(lengths) for lengths in zip(*(map(len, column) for column in self.columns()), strict=True)]

    def memory(self) -> int:
        """Return about how many bytes the rows take in memory."""
        return sum(map(getsizeof, chain(self.origins, *self.columns())))

    def extend(self, other: Rows, rows: Iterable[int]) -> None:
        """Append the numbered rows of `other`, which is of the same kind, in the order given."""
        numbers = list(rows)
        for name, theirs in vars(other).items():
            if theirs and isinstance(theirs, list):
                getattr(self, name).extend(theirs[row] for row in numbers)
        self.ignored |= other.ignored

    def take(self, rows: Iterable[int]) -> Rows:
        """Return the numbered rows, in the order given."""
        taken = type(self)()
        taken.extend(self, rows)
        return taken

    def without(self, rows: Container[int]) -> Rows:
        """Return the rows but for the numbered ones."""
        return self.take(row for row in range(len(self)) if row not in rows)


@dataclass
class RowReport:
    """What became of the rows that were read.

    `dropped`: bad rows by reason, the first few named in `examples`. `filtered`: good rows that a filter of the manifest
    leaves out, or that say they are not to be trained, by reason; `left_out`: the first few that a filter leaves out, as
    (place, text). `mapping`: which column became what; `input_column`: the
    one that became the input. `ignored`: columns, and fields of messages ("messages[].id"), that nothing reads. `trailing`:
    how many turns stand after the last answer of their conversation.
    """

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    mapping: str = ""
    input_column: str = ""
    filtered: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    trailing: int = 0

    def unread(self) -> list[str]:
        """Return what nothing reads: columns, fields of messages, turns after the last answer."""
        return [*self.ignored, *([f"turns after the last answer: {self.trailing}"] if self.trailing else [])]

    def drop(self, reason: str, where: str) -> None:
        """Count one bad row; the first few are kept as "where: reason", of one reason two."""
        self.dropped[reason] += 1
        if self.dropped[reason] <= _MOST_ALIKE and len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(f"{where}: {reason}")

    def bad_rows(self) -> str:
        """Return where the first bad rows stand and why they are bad."""
        return "; ".join(self.examples) + ("; ..." if sum(self.dropped.values()) > len(self.examples) else "")

    def leave_out(self, reason: str, where: str, texts: Iterable[str]) -> None:
        """Count one good row that a filter leaves out; the first few are kept with the beginning of what they say."""
        self.filtered[reason] += 1
        examples = self.left_out.setdefault(reason, [])
        if len(examples) < MOST_LEFT_OUT:
            examples.append((where, excerpt(" ".join(texts))))

    def filters(self) -> dict[str, Any]:
        """Return, by the reason, how many rows were left out, and the first few of them."""
        examples = {
            reason: [{"where": short_place(where), "text": text} for where, text in self.left_out.get(reason, ())]
            for reason in self.filtered
        }
        return {reason: {"rows": count, "examples": examples[reason]} for reason, count in self.filtered.items()}

    def add(self, other: RowReport) -> None:
        """Add the counts of another source, or of the next piece of one; its mapping is appended where it differs."""
        self.read += other.read
        self.trailing += other.trailing
        self.dropped.update(other.dropped)
        self.filtered.update(other.filtered)
        for reason, examples in other.left_out.items():
            self.left_out[reason] = [*self.left_out.get(reason, ()), *examples][:MOST_LEFT_OUT]
        self.input_column = self.input_column or other.input_column
        self.ignored = list(dict.fromkeys([*self.ignored, *other.ignored]))
        self.examples = (self.examples + other.examples)[:_MOST_EXAMPLES]
        if other.mapping not in self.mapping.split("; "):
            self.mapping = f"{self.mapping}; {other.mapping}" if self.mapping else other.mapping
