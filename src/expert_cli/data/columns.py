"""Which column is the question, which the answer: decided from the names of the first rows' columns, never from what they hold.

A name is met exactly, or else without regard to case if only one column fits. Where the manifest names instruction and
response, nothing is recognized beside them; a mapping that names less is completed by the usual names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from expert_cli.config.run_config import ColumnMapping
from expert_cli.errors import InputError
from expert_cli.manifest.messages import typo_of

USUAL_NAMES = {
    "instruction": ("instruction", "prompt", "question", "text"),
    "input": ("input", "context", "schema"),
    "response": ("response", "output", "answer", "completion", "cypher", "sql"),
    "messages": ("messages", "conversations", "conversation"),
    **{name: (name,) for name in ("text", "tools", "system", "history", "parallel_tool_calls", "chat_template_kwargs")},
    **{name: (name,) for name in ("segments", "weight", "train")},
}
"""The names by which columns are recognized, the preferred one first; two that could be the response are an error."""
Form = Literal["messages", "text", "segments", "pair"]
MEDIA = ("image", "images", "pixel_values", "audio", "audios", "video", "videos")
"""Columns that rows of text models have not, or leave empty."""
_OTHER_TASKS = {
    "chosen rejected": "preferences, of a right and a wrong answer (DPO)",
    "completion label": "answers that are judged right or wrong (KTO)",
    "input_ids": "tokens, of whatever tokenizer",
    "contents": "conversations in Gemini's form",
    **{
        f"{text} {label}": "texts with labels (classification)"
        for text in ("text", "sentence")
        for label in ("label", "labels")
    },
}
"""Columns that stand for another task, and what their rows are: refused unless field_mapping names columns."""
FORMS: dict[Form, tuple[str, ...]] = {
    "messages": ("messages", "tools", "system", "parallel_tool_calls", "chat_template_kwargs"),
    "text": ("text",),
    "segments": ("segments",),
    "pair": ("instruction", "input", "response", "system", "history", "tools", "chat_template_kwargs"),
}
"""The forms of rows, in the order in which they are looked for, and the columns of each."""


@dataclass(frozen=True)
class Columns:
    """The columns that are read, by role; "" = there is none.

    tools, system, history: what stands beside a conversation, or before a question. segments: pieces of a document that say
    whether they are trained. weight, train: whether a row is trained. database: names the database of a pair. media: columns
    of pictures and sounds, which a row must not have.
    """

    form: Form
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
    media: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the choice as one line: "instruction <- question, response <- answer"."""
        return ", ".join(f"{role} <- {name}" for role, name in list(vars(self).items())[1:-1] if name)

    def unread(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that are not read."""
        read = {*list(vars(self).values())[1:-1], *self.media}
        return [name for name in names if name not in read]


def choose_columns(names: Sequence[str], mapping: ColumnMapping, where: str) -> Columns:
    """Return the columns to read out of `names`, those that the rows at `where` have.

    Raises InputError: a mapped column is absent, the response (or the instruction) is missing or ambiguous, rows of another
    task, which are read where the manifest names columns.
    """
    for columns, what in () if mapping.columns() else _OTHER_TASKS.items():
        if all(find_column(name, names) for name in columns.split()):
            told = f"{where}: {' and '.join(map(json.dumps, columns.split()))}: rows of {what}"
            raise InputError(
                told, f'Name what is trained in training.dataset: "field_mapping": {_mapping_text("", "")}.'
            )
    table = _Names(names, mapping, where)
    named = [role for role in USUAL_NAMES if getattr(mapping, role, "")]
    forms = [form for form, roles in FORMS.items() if set(named) <= set(roles)]
    if not forms:
        told = f'"field_mapping" names {" and ".join(named)}, which are of rows of several kinds'
        several = "; ".join(" and ".join(roles) for roles in FORMS.values() if not set(named).isdisjoint(roles))
        raise InputError(told, f"Keep one of: {several}.")
    form = next(form for form in forms if form == "pair" or table.column_of(form))
    found: dict[str, str] = table.pair() if form == "pair" else {form: table.column_of(form)}
    are_both_named = bool(mapping.instruction and mapping.response)
    for role in FORMS[form]:
        if role not in found:
            is_usual = not (are_both_named and hasattr(mapping, role))
            found[role] = table.mapped(role) or (table.usual(role) if is_usual else "")
    others = replace(table, names=[name for name in names if name not in found.values()])
    media = tuple(name for name in others.names if name.casefold() in MEDIA)
    return Columns(form, **found, weight=others.usual("weight"), train=others.usual("train"), media=media)


def listed(names: Sequence[str], at_most: int = 20) -> str:
    """Return the names as a message shows them: a name with half of a surrogate pair could not be printed."""
    shown = ", ".join(names[:at_most]).encode("utf-8", "replace").decode("utf-8")
    return f"{shown} and {len(names) - at_most} more" if len(names) > at_most else shown or "none"


def find_column(wanted: str, names: Sequence[str]) -> str:
    """Return the column of that name: exact, else the only one that differs in case alone; "" if there is none."""
    alike = [name for name in names if name.casefold() == wanted.casefold()]
    return wanted if wanted in names else alike[0] if len(alike) == 1 else ""


@dataclass(frozen=True)
class _Names:
    """All columns that the rows at `where` have, and what the manifest names."""

    names: Sequence[str]
    mapping: ColumnMapping
    where: str

    def mapped(self, role: str) -> str:
        """Return the column that the manifest names for a role; "" where it names none. Raises InputError: it is absent."""
        wanted = getattr(self.mapping, role, "")
        if not wanted or (found := find_column(wanted, self.names)):
            return found if wanted else ""
        raise InputError(
            f'{self.where}: the column "{wanted}" of "field_mapping.{role}" is not there; columns: {listed(self.names)}',
            f'Did you mean "{near}"?' if (near := typo_of(wanted, self.names)) else "Name one of these columns.",
        )

    def usual(self, role: str, *, other_than: str = "") -> str:
        """Return the first column with one of a role's usual names, or ""."""
        found = (find_column(name, self.names) for name in USUAL_NAMES[role])
        return next((column for column in found if column and column != other_than), "")

    def column_of(self, form: Form) -> str:
        """Return the column that makes rows those of a form other than "pair", or ""."""
        column = self.mapped(form) or self.usual(form)
        if getattr(self.mapping, form, ""):
            return column
        instruction, response = self.usual("instruction"), self.usual("response")
        if form == "messages" and column and instruction and response:
            raise InputError(
                f'{self.where}: rows hold both a conversation ("{column}") and a pair ("{instruction}", "{response}")',
                f'Write "field_mapping": {json.dumps({"messages": column})} or {_mapping_text(instruction, response)}.',
            )
        if form == "text":  # it stands last among the instruction names: met there, no better instruction exists
            return "" if response or self.usual("input") or column != instruction else column
        others = (instruction, response, self.usual("text"), self.usual("messages"), self.mapping.columns())
        return "" if form == "segments" and any(others) else column

    def pair(self) -> dict[str, str]:
        """Return the columns of question, answer and database. Raises InputError: these cannot be told."""
        instruction, response, what = self.mapped("instruction"), self.mapped("response"), ""
        if not response:
            alike = (find_column(name, self.names) for name in USUAL_NAMES["response"])
            found = [column for column in alike if column and column != instruction]
            response = next(iter(found), "")
            if len(found) > 1:
                what = f"{len(found)} columns could be the response ({', '.join(map(json.dumps, found))})"
            elif not found:
                what = "no column is recognized as the response"
        instruction = instruction or self.usual("instruction", other_than=response)
        if not what and not instruction:
            what = f'no column is recognized as the instruction beside "{response}"'
        if what:
            told = f"{self.where}: {what}; columns: {listed(self.names)}"
            raise InputError(
                told, f'Write in "training.dataset": "field_mapping": {_mapping_text(instruction, response)}.'
            )
        return {"instruction": instruction, "response": response, "database": self.mapped("database")}


def _mapping_text(instruction: str, response: str) -> str:
    """Return the "field_mapping" of pairs as an error tells to write it."""
    question, answer = instruction or "<column of the question>", response or "<column of the answer>"
    return json.dumps({"instruction": question, "response": answer}, ensure_ascii=False)
