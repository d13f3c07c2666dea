"""Which column is the question, which the answer: decided from the names of all columns, never from a row.

A name is met exactly, or else without regard to case if only one column fits. Where the manifest names instruction and
response, nothing is recognized beside them; a mapping that names less is completed by the usual names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.rows.columnar import RowKind
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
    "weight": ("weight",),
    "train": ("train",),
}
"""The names by which columns are recognized, the preferred one first; two that could be the response are an error."""
FIRST_COLUMN_RULE = "1"
COLUMN_RULE = "2"
"""Which columns are read of those there are. Part of a store's key: raise it whenever the same names, or weights, give another
choice. `tests/unit/data/templates/test_golden.py` fails until it is."""
_FLAGS = ("weight", "train")
"""What says of a whole row whether it is trained, whatever else is read and whatever the manifest names."""


@dataclass(frozen=True)
class Columns:
    """The columns that are read, by role; "" = there is none. The roles that are set make the kind.

    tools, system: what a conversation has beside its messages, the tools that may be called and its system message.
    weight, train: whether a row is trained, which rows of every kind may say.
    """

    instruction: str = ""
    input: str = ""
    response: str = ""
    messages: str = ""
    text: str = ""
    tools: str = ""
    system: str = ""
    weight: str = ""
    train: str = ""

    @property
    def kind(self) -> RowKind:
        """Return what rows of these columns are."""
        if self.messages:
            return "messages"
        return "text" if self.text else "pair"

    def __str__(self) -> str:
        """Return the choice as one line: "instruction <- question, response <- answer"."""
        chosen = ((role.name, getattr(self, role.name)) for role in fields(self))
        return ", ".join(f"{role} <- {name}" for role, name in chosen if name)

    def ignored(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that are not read."""
        read = set(self.read())
        return [name for name in names if name not in read]

    def read(self) -> list[str]:
        """Return the columns that are read."""
        return [name for role in fields(self) if (name := getattr(self, role.name))]

    def flags(self) -> list[str]:
        """Return the columns that say whether a row is trained."""
        return [name for name in (self.weight, self.train) if name]


def names_of_interest(mapping: ColumnMapping) -> frozenset[str]:
    """Return every column name that could be chosen, in small letters: readers need to keep no other column."""
    usual = {name for names in USUAL_NAMES.values() for name in names}
    named = {getattr(mapping, role.name).casefold() for role in fields(mapping)}
    return frozenset((usual | named) - {""})


def choose_columns(names: Sequence[str], mapping: ColumnMapping, where: str) -> Columns:
    """Return the columns to read out of `names`, all columns that the rows at `where` have.

    Raises InputError: a mapped column is absent, the response (or the instruction) is missing or ambiguous.
    """
    chosen = _choice(names, mapping, where)
    taken = chosen.read()
    found = {role: _usual(role, [name for name in names if name not in taken]) for role in _FLAGS}
    return replace(chosen, **found)


def left_unread(ignored: Iterable[str]) -> list[str]:
    """Return which of some columns say whether a row is trained."""
    return [name for name in ignored if name.casefold() in _FLAGS]


def _choice(names: Sequence[str], mapping: ColumnMapping, where: str) -> Columns:
    if mapping.text or mapping.messages:
        return _whole_rows(names, mapping, where)
    instruction = _mapped("instruction", names, mapping, where)
    response = _mapped("response", names, mapping, where)
    if instruction and response:
        return Columns(instruction, _mapped("input", names, mapping, where), response)
    if mapping.is_empty():
        whole = _recognized_whole_rows(names, where)
        if whole is not None:
            return whole
    response = response or _only_response(names, instruction, where)
    instruction = instruction or _usual("instruction", names, other_than=response)
    if not instruction:
        raise _unclear(f'no column is recognized as the instruction beside "{response}"', names, "", response, where)
    return Columns(instruction, _mapped("input", names, mapping, where) or _usual("input", names), response)


def absent(names: Sequence[str], mapping: ColumnMapping) -> dict[str, str]:
    """Return why a column that the manifest names is not there, by its role, for those that are none of `names`."""
    wanted = {role.name: getattr(mapping, role.name) for role in fields(mapping)}
    reason = f"names no column of the first rows; these have: {_listed(names)}"
    return {role: reason for role, column in wanted.items() if column and not _find(column, names)}


def _whole_rows(names: Sequence[str], mapping: ColumnMapping, where: str) -> Columns:
    """The columns where the manifest names `text` or `messages`, which hold the answer already."""
    named = [role.name for role in fields(mapping) if getattr(mapping, role.name)]
    if len(named) > 1:
        raise InputError(
            f'"field_mapping" names {" and ".join(named)}, but a text or messages column is a whole row',
            'Keep one of "text", "messages", or "instruction" with "response".',
        )
    column = _mapped(named[0], names, mapping, where)
    return Columns(text=column) if mapping.text else _conversations(column, names)


def _conversations(column: str, names: Sequence[str]) -> Columns:
    return Columns(messages=column, tools=_usual("tools", names), system=_usual("system", names))


def _recognized_whole_rows(names: Sequence[str], where: str) -> Columns | None:
    """The messages or text column, where there is no question with an answer; both is an error."""
    messages = _usual("messages", names)
    answers = [name for name in USUAL_NAMES["response"] if _find(name, names)]
    instruction = _usual("instruction", names)
    if messages and answers and instruction:
        found = _find(answers[0], names)
        raise InputError(
            f'{where}: rows hold both a conversation ("{messages}") and a pair ("{instruction}", "{found}")',
            f'Write "field_mapping": {json.dumps({"messages": messages})} or {_mapping_text(instruction, found)}.',
        )
    if messages:
        return _conversations(messages, names)
    # "text" stands last among the instruction names: met there, no better instruction exists.
    if not answers and instruction and instruction == _usual("text", names) and not _usual("input", names):
        return Columns(text=instruction)
    return None


def _only_response(names: Sequence[str], instruction: str, where: str) -> str:
    found = [column for name in USUAL_NAMES["response"] if (column := _find(name, names)) and column != instruction]
    instruction = instruction or _usual("instruction", names)
    if len(found) > 1:
        listed = ", ".join(f'"{name}"' for name in found)
        raise _unclear(f"{len(found)} columns could be the response ({listed})", names, instruction, found[0], where)
    if not found:
        raise _unclear("no column is recognized as the response", names, instruction, "", where)
    return found[0]


def _unclear(what: str, names: Sequence[str], instruction: str, response: str, where: str) -> InputError:
    return InputError(
        f"{where}: {what}; columns: {_listed(names)}",
        f'Write in "training.dataset": "field_mapping": {_mapping_text(instruction, response)}.',
    )


def _listed(names: Sequence[str], at_most: int = 20) -> str:
    """The names as a message shows them: a name with half of a surrogate pair could not be printed."""
    shown = ", ".join(names[:at_most]).encode("utf-8", "replace").decode("utf-8")
    return f"{shown} and {len(names) - at_most} more" if len(names) > at_most else shown or "none"


def _mapping_text(instruction: str, response: str) -> str:
    written = {
        "instruction": instruction or "<column of the question>",
        "response": response or "<column of the answer>",
    }
    return json.dumps(written, ensure_ascii=False)


def _mapped(role: str, names: Sequence[str], mapping: ColumnMapping, where: str) -> str:
    """The column that the manifest names for a role; "" where it names none."""
    wanted = getattr(mapping, role)
    if not wanted:
        return ""
    found = _find(wanted, names)
    if found:
        return found
    alike = [name for name in names if name.casefold() == wanted.casefold()]
    near = " or ".join(f'"{name}"' for name in alike) or (typo_of(wanted, names) and f'"{typo_of(wanted, names)}"')
    raise InputError(
        f'{where}: the column "{wanted}" of "field_mapping.{role}" is not there; columns: {_listed(names)}',
        f"Did you mean {near}?" if near else f'Write one of these columns as "field_mapping.{role}".',
    )


def _usual(role: str, names: Sequence[str], *, other_than: str = "") -> str:
    """The first column with one of a role's usual names, or ""."""
    candidates = (_find(name, names) for name in USUAL_NAMES[role])
    return next((column for column in candidates if column and column != other_than), "")


def _find(wanted: str, names: Sequence[str]) -> str:
    """The column of that name: exact, else the only one that differs in case alone; "" if there is none."""
    if wanted in names:
        return wanted
    alike = [name for name in names if name.casefold() == wanted.casefold()]
    return alike[0] if len(alike) == 1 else ""
