"""One raw row -> its text, or the reason why it cannot be used. Nothing is turned into text that is not text."""

from __future__ import annotations

from collections.abc import Mapping

from expert_cli.data.columns import Columns
from expert_cli.data.rows import Message, Rows

_ROLES = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "human": "user",
    "gpt": "assistant",
}
"""The roles of a conversation, OpenAI's and ShareGPT's, and what they are here."""

_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),  # before int: True is one
    (int, "a number"),
    (float, "a number"),
    (dict, "an object"),
    (list, "a list"),
    (bytes, "bytes"),
    (str, "text"),
)


class _BadRow(Exception):
    """The reason why a row cannot be used, in the same words for every row with this fault."""


def append_row(rows: Rows, fields: Mapping[str, object], columns: Columns, where: str) -> str:
    """Append one row read at `where` to `rows`, whose kind is that of `columns`.

    Returns "", or the reason why the row is bad; nothing is appended then.
    """
    try:
        if rows.kind == "messages":
            rows.messages.append(_conversation(fields, columns.messages))
        elif rows.kind == "text":
            rows.text.append(_answer(fields, columns.text))
        else:
            _append_pair(rows, fields, columns)
    except _BadRow as bad:
        return str(bad)
    rows.origins.append(where)
    return ""


def _append_pair(rows: Rows, fields: Mapping[str, object], columns: Columns) -> None:
    instruction = _text(fields, columns.instruction)
    absent = not columns.input or fields.get(columns.input) is None
    given = "" if absent else _text(fields, columns.input)
    response = _answer(fields, columns.response)
    rows.instruction.append(instruction)
    rows.input.append(given)
    rows.response.append(response)


def _text(fields: Mapping[str, object], key: str, label: str = "") -> str:
    """The text of a field; `label` names it in the reason where the key alone would not."""
    label = label or f'"{key}"'
    if key not in fields:
        raise _BadRow(f"{label} is missing")
    value = fields[key]
    if value is None:
        raise _BadRow(f"{label} is null")
    if not isinstance(value, str):
        raise _BadRow(f"{label} is {_type_name(value)}, not text")
    # isascii() is a flag of the string, so the usual row costs nothing.
    if not value.isascii() and not _encodes(value):
        raise _BadRow(f"{label} is not Unicode text (half of a surrogate pair)")
    return value


def _answer(fields: Mapping[str, object], key: str) -> str:
    value = _text(fields, key)
    if not value.strip():
        raise _BadRow(f'"{key}" is empty')
    return value


def _encodes(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _type_name(value: object) -> str:
    return next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), f"a {type(value).__name__}")


def _conversation(fields: Mapping[str, object], key: str) -> tuple[Message, ...]:
    """The turns up to the last one of the assistant, which is the answer; what follows it could not be trained."""
    if fields.get(key) is None:
        raise _BadRow(f'"{key}" is {"null" if key in fields else "missing"}')
    turns = fields[key]
    if not isinstance(turns, list):
        raise _BadRow(f'"{key}" is {_type_name(turns)}, not a list of messages')
    messages = [_message(turn) for turn in turns]
    last = max((number for number, message in enumerate(messages) if message.role == "assistant"), default=-1)
    if last < 0:
        raise _BadRow("no assistant turn")
    if not messages[last].content.strip():
        raise _BadRow("the last assistant turn is empty")
    return tuple(messages[: last + 1])


def _message(turn: object) -> Message:
    if not isinstance(turn, dict):
        raise _BadRow(f"a message is {_type_name(turn)}, not an object")
    role_key, content_key = ("role", "content") if "role" in turn else ("from", "value")
    role = _text(turn, role_key, "a message's role")
    if role not in _ROLES:
        raise _BadRow(f'a message has the role "{role[:40]}", which is not trained')
    return Message(_ROLES[role], _text(turn, content_key, "a message's content"))
