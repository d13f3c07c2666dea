"""Which column is the question, which the answer: decided from the names of all columns, never from a row.

A name is met exactly, or else without regard to case if only one column fits. Where the manifest names instruction and
response, nothing is recognized beside them; a mapping that names less is completed by the usual names. Each kind of rows
(`kinds.py`) chooses with what stands here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from expert_cli.config.run_config import ColumnMapping
from expert_cli.errors import InputError
from expert_cli.manifest.spelling import typo_of

USUAL_NAMES = {
    "instruction": ("instruction", "prompt", "question", "text"),
    "input": ("input", "context", "schema"),
    "response": ("response", "output", "answer", "completion", "cypher", "sql"),
    "messages": ("messages", "conversations", "conversation"),
    "text": ("text",),
    "tools": ("tools",),
    "system": ("system",),
    "history": ("history",),
    "parallel_tool_calls": ("parallel_tool_calls",),
    "chat_template_kwargs": ("chat_template_kwargs",),
    "segments": ("segments",),
    "weight": ("weight",),
    "train": ("train",),
}
"""The names by which columns are recognized, the preferred one first; two that could be the response are an error."""
FLAGS = ("weight", "train")
"""What says of a whole row whether it is trained, whatever else is read and whatever the manifest names."""


@dataclass(frozen=True)
class TurnNames:
    """What the turns of conversations call their role and content, and (what stands there, the role that it is); see `turn.py`.

    Beside these, their usual names are known.
    """

    role: str = ""
    content: str = ""
    roles: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Columns:
    """The columns that are read, by role; "" = there is none. The roles that are set make the kind of the rows.

    tools, system, history: what a conversation has beside its messages or its last question and answer: the tools that may be
    called, its system message, earlier questions and answers. parallel_tool_calls: whether a turn may call several.
    chat_template_kwargs: what the chat template is given for this row. segments: pieces of a document that say whether they are
    trained.
    weight, train: whether a row is trained, which rows of every kind may say. database: names the database of a pair.
    turns: no column; what is called how in the turns of one.
    """

    instruction: str = ""
    input: str = ""
    response: str = ""
    messages: str = ""
    text: str = ""
    tools: str = ""
    system: str = ""
    history: str = ""
    parallel_tool_calls: str = ""
    chat_template_kwargs: str = ""
    segments: str = ""
    weight: str = ""
    train: str = ""
    database: str = ""
    turns: TurnNames = TurnNames()

    def __str__(self) -> str:
        """Return the choice as one line: "instruction <- question, response <- answer"."""
        return ", ".join(f"{role} <- {name}" for role, name in self.by_role().items())

    def by_role(self) -> dict[str, str]:
        """Return the columns that are read, by role."""
        named = ((role.name, getattr(self, role.name)) for role in fields(self) if role.name != "turns")
        return {role: name for role, name in named if name}

    def ignored(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that are not read."""
        read = set(self.read())
        return [name for name in names if name not in read]

    def read(self) -> list[str]:
        """Return the columns that are read."""
        return list(self.by_role().values())

    def flags(self) -> list[str]:
        """Return the columns that say whether a row is trained."""
        return [name for name in (self.weight, self.train) if name]


def names_of_interest(mapping: ColumnMapping) -> frozenset[str]:
    """Return every column name that could be chosen, in small letters: readers need to keep no other column."""
    usual = {name for names in USUAL_NAMES.values() for name in names}
    return frozenset(usual.union(map(str.casefold, mapping.columns().values())))


def absent(names: Sequence[str], mapping: ColumnMapping) -> dict[str, str]:
    """Return why a column that the manifest names is not there, by its role, for those that are none of `names`."""
    reason = f"names no column of the first rows; these have: {listed(names)}"
    return {role: reason for role, column in mapping.columns().items() if not find_column(column, names)}


def listed(names: Sequence[str], at_most: int = 20) -> str:
    """Return the names as a message shows them: a name with half of a surrogate pair could not be printed."""
    shown = ", ".join(names[:at_most]).encode("utf-8", "replace").decode("utf-8")
    return f"{shown} and {len(names) - at_most} more" if len(names) > at_most else shown or "none"


def mapping_text(instruction: str, response: str) -> str:
    """Return the "field_mapping" of pairs as an error tells to write it."""
    written = {
        "instruction": instruction or "<column of the question>",
        "response": response or "<column of the answer>",
    }
    return json.dumps(written, ensure_ascii=False)


@dataclass(frozen=True)
class ColumnNames:
    """All columns that the rows at `where` have, among which a kind of rows chooses its own, and what the manifest names."""

    names: Sequence[str]
    mapping: ColumnMapping
    where: str

    def mapped(self, role: str) -> str:
        """Return the column that the manifest names for a role; "" where it names none. Raises InputError: it is absent."""
        wanted = getattr(self.mapping, role)
        if not wanted:
            return ""
        found = find_column(wanted, self.names)
        if found:
            return found
        alike = [name for name in self.names if name.casefold() == wanted.casefold()] or [typo_of(wanted, self.names)]
        near = " or ".join(f'"{name}"' for name in alike if name)
        raise InputError(
            f'{self.where}: the column "{wanted}" of "field_mapping.{role}" is not there; columns: {listed(self.names)}',
            f"Did you mean {near}?" if near else f'Write one of these columns as "field_mapping.{role}".',
        )

    def named_or_usual(self, role: str) -> str:
        """Return the column that the manifest names for a role, else the first one with a usual name, or ""."""
        return self.mapped(role) or self.usual(role)

    def turns(self) -> TurnNames:
        """Return what the manifest says of the turns of conversations."""
        return TurnNames(self.mapping.role, self.mapping.content, self.mapping.roles)

    def usual(self, role: str, *, other_than: str = "") -> str:
        """Return the first column with one of a role's usual names, or ""."""
        return next((column for column in self.all_usual(role) if column != other_than), "")

    def all_usual(self, role: str) -> list[str]:
        """Return the columns with a role's usual names, the preferred one first."""
        return [column for name in USUAL_NAMES[role] if (column := find_column(name, self.names))]

    def unclear(self, what: str, instruction: str, response: str) -> InputError:
        """Return the error that a question and an answer cannot be told, of which these are known."""
        return InputError(
            f"{self.where}: {what}; columns: {listed(self.names)}",
            f'Write in "training.dataset": "field_mapping": {mapping_text(instruction, response)}.',
        )


def find_column(wanted: str, names: Sequence[str]) -> str:
    """Return the column of that name: exact, else the only one that differs in case alone; "" if there is none."""
    if wanted in names:
        return wanted
    alike = [name for name in names if name.casefold() == wanted.casefold()]
    return alike[0] if len(alike) == 1 else ""
