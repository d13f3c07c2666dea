"""One raw row -> its text, or the reason why it cannot be used. Nothing is turned into text that is not text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from expert_cli.data.rows.columnar import Message, Rows
from expert_cli.data.rows.columns import Columns
from expert_cli.errors import InputError

BAD_SHARE = 0.01
"""The share of bad rows in a source above which it is refused."""

_ROLES = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "human": "user",
    "gpt": "assistant",
    "tool": "tool",
}
"""The roles of a conversation, OpenAI's and ShareGPT's, and what they are here."""

_WEIGHTS: Mapping[str, bool] = {"weight": True, "train": True, "loss": True, "loss_mask": True, "masked": False}
"""Whether an answer is trained, as OpenAI, axolotl and others write it, and whether 1 or true says that it is."""
_REASONING = ("reasoning_content", "thinking", "reasoning")
_OF_ANSWERS = (*_REASONING, "tool_calls")
"""What answers alone have: templates leave it out of any other turn."""
_CARRIED: Mapping[str, type] = {
    **dict.fromkeys(_REASONING, str),
    "tool_calls": list,
    "tool_call_id": str,
    "name": str,
}
"""What else of a turn reaches the chat template, and what it must be; the last two of a tool's answer alone."""
_NOT_CARRIED = ("function_call", "audio", "images", "image", "videos", "refusal", "prefix", "mask", "train_detail")
"""What changes what a turn says or trains, and cannot be expressed."""

_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),  # before int: True is one
    (int, "a number"),
    (float, "a number"),
    (dict, "an object"),
    (list, "a list"),
    (bytes, "bytes"),
    (str, "text"),
)


_SHOWN = 5
NOT_TRAINED = "not to be trained"
"""What becomes of a good row whose weight is 0 or whose train is false."""
_FLAG_TEXTS = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1, "": 1}
"""How CSV, which holds text alone, writes them."""


class _BadRow(Exception):
    """The reason why a row cannot be used, in the same words for every row with this fault."""


@dataclass
class WeightValues:
    """What the rows of a source have in a column called weight: flags, or something else (a factor of the loss, kilograms).

    zero: the first value that says that its row is not trained, with its place. others: the first ones that are no flags, with
    theirs. Which of them there are decides, over all rows of the source, whether the column is read.
    """

    zero: tuple[str, str] | None = None
    others: list[tuple[str, str]] = field(default_factory=list)

    def add(self, value: object, where: str) -> None:
        """Note the value of one row; None says nothing."""
        try:
            trained = value is None or _flag_of_row(value, "")
        except _BadRow:
            if len(self.others) < _SHOWN:
                self.others.append((f"{value!r:.40}", where))
            return
        if not (trained or self.zero):
            self.zero = (f"{value!r:.40}", where)

    def columns(self, columns: Columns, source: str) -> Columns:
        """Return the columns that are read: without the weight where no row says 0 and some value is no flag.

        Raises InputError: some row says 0, and in others the value is no flag.
        """
        if not self.others:
            return columns
        if self.zero:
            others = "; ".join(f"{value} at {where}" for value, where in self.others)
            raise InputError(
                f'{source}: "{columns.weight}" is {self.zero[0]} at {self.zero[1]}, which leaves that row out, and in other '
                f"rows it is neither 0, false, 1 nor true: {others}",
                "Write 0 or 1 there, or rename the column if it says something else than whether a row is trained.",
            )
        return replace(columns, weight="")

    def unread(self, name: str) -> str:
        """Return how a report names the column where it is not read."""
        return f"{name} ({self.others[0][0]} is no flag)"


def validate_row(rows: Rows, fields: Mapping[str, object], columns: Columns, where: str) -> str:
    """Append one row read at `where` to `rows`, whose kind is that of `columns`.

    Returns "", or the reason why the row is bad, or NOT_TRAINED where it says so itself; nothing is appended then.
    """
    try:
        flags = [_flag_of_row(fields[name], name) for name in columns.flags() if fields.get(name) is not None]
        if not all(flags):
            return NOT_TRAINED
        if rows.kind == "messages":
            said, turns = _conversation(fields, columns, rows.ignored)
            rows.messages.append(said)
            rows.trailing.append(turns)
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


def _conversation(fields: Mapping[str, object], columns: Columns, ignored: set[str]) -> tuple[tuple[Message, ...], int]:
    """The turns up to the last one of the assistant, which is the answer; and how many follow, which nothing could train."""
    key = columns.messages
    if fields.get(key) is None:
        raise _BadRow(f'"{key}" is {"null" if key in fields else "missing"}')
    turns = fields[key]
    if not isinstance(turns, list):
        raise _BadRow(f'"{key}" is {_type_name(turns)}, not a list of messages')
    messages = [_message(turn, ignored) for turn in turns]
    answers = [number for number, message in enumerate(messages) if message.role == "assistant"]
    if not answers:
        raise _BadRow("no assistant turn")
    if not any(messages[number].trained for number in answers):
        raise _BadRow("no assistant turn is to be trained")
    last = messages[answers[-1]]
    if not last.content.strip() and "tool_calls" not in last.fields:
        raise _BadRow("the last assistant turn is empty")
    end = answers[-1] + 1
    return (*_beside(fields, columns, messages), *messages[:end]), len(messages) - end


def _beside(fields: Mapping[str, object], columns: Columns, messages: Sequence[Message]) -> Iterator[Message]:
    """The tools that may be called and the system message, where they stand in columns of their own."""
    tools = fields.get(columns.tools) if columns.tools else None
    if isinstance(tools, str):
        tools = _parsed(tools, columns.tools) if tools.strip() else None
    if tools:
        if not isinstance(tools, list) or not all(map(_has_name, tools)):
            raise _BadRow(f'"{columns.tools}" is not a list of tools with names')
        yield Message("tools", _written(tools, columns.tools))
    if columns.system and fields.get(columns.system) not in (None, ""):
        if messages[0].role == "system":
            raise _BadRow(f'"{columns.system}" and the first message are both a system message')
        yield Message("system", _text(fields, columns.system))


def _has_name(tool: object) -> bool:
    function = tool.get("function") or tool if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and bool(function["name"])


def _message(turn: object, ignored: set[str]) -> Message:
    if not isinstance(turn, dict):
        raise _BadRow(f"a message is {_type_name(turn)}, not an object")
    role_key, content_key = ("role", "content") if "role" in turn else ("from", "value")
    role = _text(turn, role_key, "a message's role")
    if role not in _ROLES:
        raise _BadRow(f'a message has the role "{role[:40]}", which is not trained')
    role = _ROLES[role]
    if len(turn) == 2 and content_key in turn:  # the usual turn says nothing else
        return Message(role, _text(turn, content_key, "a message's content"))
    more = _beside_what_is_said(turn, role, content_key)
    carried = _carried(more, role)
    trained = _is_trained(more, role)
    ignored.update(
        name for name, value in more.items() if name not in (*carried, *_WEIGHTS) and value not in ("", [], {})
    )
    if turn.get(content_key) is None and "tool_calls" in carried:
        return Message(role, "", trained, _written(carried, "a message"))
    content = _text(turn, content_key, "a message's content")
    return Message(role, content, trained, _written(carried, "a message") if carried else "")


def _beside_what_is_said(turn: Mapping[str, object], role: str, content_key: str) -> dict[str, object]:
    """What a turn has beside its role and content, OpenAI's and ShareGPT's, which must not contradict each other."""
    sender = turn.get("from")
    known = isinstance(sender, str) and sender in _ROLES  # else it is a name
    if known and _ROLES[str(sender)] != role:
        raise _BadRow('a message\'s "from" is not its "role"')
    for name in ("content", "value"):
        if turn.get(name) not in (None, turn.get(content_key)):
            raise _BadRow(f'a message\'s "{name}" is not its "{content_key}"')
    said = ("role", "content", "value", *(["from"] if known else []))
    return {name: value for name, value in turn.items() if name not in said and value is not None}


def _carried(more: Mapping[str, object], role: str) -> dict[str, object]:
    """What else a turn says; an empty text or list says nothing."""
    for name in _NOT_CARRIED:
        if more.get(name):
            raise _BadRow(f'a message has "{name}", which cannot be trained')
    for name in _OF_ANSWERS:
        if more.get(name) and role != "assistant":
            raise _BadRow(f'a message of the role "{role}" has "{name}", which only answers have')
    for name, kind in _CARRIED.items():
        if name in more and not isinstance(more[name], kind):
            raise _BadRow(f'a message\'s "{name}" is {_type_name(more[name])}')
    thoughts = [name for name in _REASONING if more.get(name)]
    if any(more[name] != more[thoughts[0]] for name in thoughts):
        raise _BadRow(f"a message has {' and '.join(map(_quoted, thoughts))}, which differ")
    calls = more.get("tool_calls") or []
    if isinstance(calls, list) and not all(map(_has_name, calls)):
        raise _BadRow('a message\'s "tool_calls" is not a list of calls with names')
    read = list(_CARRIED) if role == "tool" else list(_CARRIED)[:-2]
    return {name: more[name] for name in read if more.get(name)}


def _is_trained(more: Mapping[str, object], role: str) -> bool:
    """Whether a turn carries loss, as its weight or another of these fields says."""
    said = {
        name: _flag(more[name], f'a message\'s "{name}"') == kept for name, kept in _WEIGHTS.items() if name in more
    }
    for name, trained in said.items():
        if trained and role != "assistant":
            raise _BadRow(f'a message of the role "{role}" has "{name}": {more[name]!r}, but only answers are trained')
    return all(said.values())


def _flag(value: object, label: str) -> bool:
    if value not in (0, 1):  # false and true are 0 and 1
        raise _BadRow(f"{label} is {value!r:.40}: 0 and false, 1 and true are known")
    return bool(value)


def _flag_of_row(value: object, name: str) -> bool:
    known = _FLAG_TEXTS.get(value.strip().lower(), value) if isinstance(value, str) else value
    return _flag(known, f'"{name}"')


def _quoted(name: str) -> str:
    return f'"{name}"'


def _parsed(text: str, key: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _BadRow(f'"{key}" is not JSON') from error
    return value


def _written(value: object, label: str) -> str:
    """A value as JSON. Fields of Parquet may hold what JSON has no word for."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise _BadRow(f"{label} holds what JSON cannot") from error
    if not _encodes(text):
        raise _BadRow(f"{label} is not Unicode text (half of a surrogate pair)")
    return text
