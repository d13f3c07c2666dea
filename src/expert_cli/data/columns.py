"""Chooses the columns of question and answer by the column names of the first rows, never by their contents.

If the manifest names instruction and response, no other column is recognized, except chat_template_kwargs. If it names fewer,
the usual names complete them. `BadRow` is raised for a value that its column must not have; such rows get the same message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from expert_cli.config.run_config import ColumnMapping
from expert_cli.errors import InputError
from expert_cli.utils.text import shortened, type_name

T = TypeVar("T")
_SURROGATE = re.compile("[\ud800-\udfff]")
USUAL_NAMES = {
    "instruction": ("instruction", "prompt", "question", "text"),
    "input": ("input", "context", "schema"),
    "response": ("response", "output", "answer", "completion", "cypher", "sql"),
    "messages": ("messages", "conversations", "conversation"),
    **{name: (name,) for name in ("text", "tools", "system", "chat_template_kwargs", "segments")},
}
"""The usual column names of each role, preferred ones first. Two columns that could be the response are an error."""
Form = Literal["messages", "text", "segments", "pair"]
UNUSED = {
    **dict.fromkeys(("image", "images", "pixel_values", "audio", "audios", "video", "videos"), "only text is trained"),
    "history": "earlier turns are read from messages alone",
    "train_detail": "no part of a message is marked: write segments",
}
"""Columns and keys of messages that rows must lack or leave empty, and why."""
_MESSAGES = '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'
_OTHER_TASKS = {
    "chosen rejected": ("preferences, of a right and a wrong answer (DPO)", ("", "chosen")),
    "completion label": ("answers that are judged right or wrong (KTO)", "keep the right ones, without that column"),
    "input_ids": ("tokens, of whatever tokenizer", "give the texts; for `datasets` of tokens see --trust-store"),
    "contents": ("conversations in Gemini's form", f"write each as {_MESSAGES}"),
    **{
        f"{text} {label}": ("texts with labels (classification)", (text, label))
        for text in ("text", "sentence")
        for label in ("label", "labels")
    },
}
"""Columns of other training tasks, refused unless field_mapping names some; their rows; a hint, or the columns to name."""
FORMS: dict[Form, tuple[str, ...]] = {
    "messages": ("messages", "tools", "system", "chat_template_kwargs"),
    "text": ("text",),
    "segments": ("segments",),
    "pair": ("instruction", "input", "response", "system", "tools", "chat_template_kwargs"),
}
"""The forms of rows in the order in which they are tried, and the columns of each."""


@dataclass(frozen=True)
class Columns:
    """The column that is read for each role, "" for none. database: it names a pair's database. unused: must be empty."""

    form: Form
    instruction: str = ""
    input: str = ""
    response: str = ""
    messages: str = ""
    text: str = ""
    tools: str = ""
    system: str = ""
    chat_template_kwargs: str = ""
    segments: str = ""
    database: str = ""
    unused: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the choice as one line: "instruction <- question, response <- answer"."""
        return ", ".join(f"{role} <- {name}" for role, name in list(vars(self).items())[1:-1] if name)

    def unread(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that are not read."""
        return [name for name in names if name not in {*list(vars(self).values())[1:-1], *self.unused}]


def choose_columns(names: Sequence[str], mapping: ColumnMapping, where: str) -> Columns:
    """Choose the columns among `names`. where: the source, for messages. Raises InputError if the choice is not clear."""
    named = {role: find_column(column, names) or column for role, column in mapping.columns().items()}
    if len(names) == 1 and names[0] not in named.values() and (mark := re.search("[;\t|]", names[0])):
        told = f"one column, {shortened(json.dumps(names[0]))}: are its values separated by {json.dumps(mark[0])}?"
        raise InputError(f"{where}: {told}", "save it with commas, or with tabs as .tsv")
    for columns, (what, hint) in () if named else _OTHER_TASKS.items():
        if all(find_column(name, names) for name in columns.split()):
            told = f"{where}: {' and '.join(map(json.dumps, columns.split()))}: rows of {what}"
            raise InputError(told, hint if isinstance(hint, str) else _name_them(*hint))
    for role, column in named.items():
        if column not in names:
            told = f'{where}: the column "{column}" of "field_mapping.{role}" does not exist; columns: {", ".join(names[:20])}'
            raise InputError(told, "name one of these columns")
    usual = {role: [*filter(None, (find_column(name, names) for name in known))] for role, known in USUAL_NAMES.items()}
    form = _form(named, usual)
    found: dict[str, str] = {role: named.get(role, "") for role in (*FORMS[form], "database")}
    found |= _pair(named, usual, names, where) if form == "pair" else {}
    are_both_named = "instruction" in named and "response" in named
    for role in FORMS[form]:
        if not found[role] and usual[role] and not (are_both_named and hasattr(mapping, role)):
            found[role] = usual[role][0]
    others = [name for name in names if name not in found.values()]
    return Columns(form, **found, unused=tuple(name for name in others if name.casefold() in UNUSED))


def find_column(wanted: str, names: Sequence[str]) -> str:
    """Return the column with this name: exactly, else the only one that differs in letter case; "" for none."""
    alike = [name for name in names if name.casefold() == wanted.casefold()]
    return wanted if wanted in names else alike[0] if len(alike) == 1 else ""


def _form(named: Mapping[str, str], usual: Mapping[str, list[str]]) -> Form:
    """Return the form of the rows: by the named columns, else the first form whose columns exist."""
    roles = [role for role in named if role != "database"]
    forms = [form for form, of_form in FORMS.items() if set(roles) <= set(of_form)]
    if not forms:
        several = "; ".join(" and ".join(of_form) for of_form in FORMS.values() if not set(roles).isdisjoint(of_form))
        told = f'"field_mapping" names {" and ".join(roles)}, which belong to different kinds of rows'
        raise InputError(told, f"keep one of: {several}")
    # "text" is the last usual name of an instruction. If it comes first, there is no better instruction column.
    is_document = usual["instruction"][:1] == usual["text"][:1] and not (usual["response"] or usual["input"])
    is_there = {
        "messages": bool(usual["messages"]),
        "text": is_document and bool(usual["text"]),
        "segments": bool(usual["segments"]) and not (usual["instruction"] or usual["response"] or named),
    }
    return next((form for form in forms if form in named or is_there.get(form)), "pair")


def _pair(named: Mapping[str, str], usual: Mapping[str, list[str]], names: Sequence[str], where: str) -> dict[str, str]:
    """Return the columns of question and answer. Raises InputError if the choice is not clear."""
    instruction = named.get("instruction", "")
    answers = [named["response"]] if "response" in named else [one for one in usual["response"] if one != instruction]
    response = answers[0] if answers else ""
    instruction = instruction or next((one for one in usual["instruction"] if one != response), "")
    if len(answers) == 1 and instruction:
        return {"instruction": instruction, "response": response}
    what = f"no column is recognized as the {'instruction' if answers else 'response'}"
    if len(answers) > 1:
        what = f"{len(answers)} columns could be the response ({', '.join(map(json.dumps, answers))})"
    raise InputError(f"{where}: {what}; columns: {', '.join(names[:20]) or 'none'}", _name_them(instruction, response))


def _name_them(instruction: str = "", response: str = "") -> str:
    """Return the hint that says what to write in the manifest if the choice is not clear."""
    named = {
        "instruction": instruction or "<column of the question>",
        "response": response or "<column of the answer>",
    }
    return f'write in training.dataset: "field_mapping": {json_text(named)}'


class BadRow(Exception):
    """The reason why a row cannot be used."""


def field_of(fields: Mapping[str, Any], key: str, kind: type[T], what: str, label: str = "") -> T:
    """Return a field of the type `kind`. what: the type in words; label: the field's name in messages. Raises BadRow."""
    label = label or f'"{key}"'
    value = fields.get(key)
    if value is None:
        raise BadRow(f"{label} is {'null' if key in fields else 'missing'}")
    if not isinstance(value, kind):
        hint = ": write it as JSON text" if kind is str and isinstance(value, dict | list) else ""
        raise BadRow(f"{label} is {type_name(value)}, not {what}{hint}")
    return value


def optional_text(fields: Mapping[str, Any], key: str) -> str:
    return text_of(fields, key) if key and fields.get(key) is not None else ""


def text_of(fields: Mapping[str, Any], key: str, label: str = "", *, may_be_blank: bool = True) -> str:
    """Return a text field. label: its name in messages, by default its key. Raises BadRow."""
    value = field_of(fields, key, str, "text", label)
    if not is_unicode(value):
        raise BadRow(f"{label or json_text(key)} is not Unicode text (half of a surrogate pair)")
    if not may_be_blank and is_blank(value):
        raise BadRow(f"{label or json_text(key)} is empty")
    return value


def is_unicode(text: str) -> bool:
    """Whether a text is valid Unicode: JSON can contain half of a surrogate pair."""
    return text.isascii() or not _SURROGATE.search(text)


def is_blank(text: str) -> bool:
    """Whether a text has no visible character, only white space or characters such as U+200B."""
    said = text.strip()
    return not said or not (said.isascii() or any(map(str.isprintable, said)))


def parsed(value: object, label: str) -> Any:
    """Return a field's value, parsed if it is JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError) as error:
        raise BadRow(f'"{label}" is not JSON') from error


def require_json(value: object, label: str) -> None:
    """Raise BadRow for a value that JSON cannot represent (Parquet may contain some), because chat templates need JSON."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:  # including half of a surrogate pair
        raise BadRow(f"{label} contains a value that JSON cannot represent") from error


def json_text(value: object) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)
