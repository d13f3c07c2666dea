"""A raw row -> the one `Row` that everything after it knows: a conversation, a whole text, or segments.

One function a form of file. Nothing is turned into text that is not text; what cannot be used is a `BadRow`, with the reason
in the same words for every row with this fault.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import Columns
from expert_cli.data.tool_calls import NULL_ARGUMENTS, BadCall, as_meant, with_arguments
from expert_cli.utils.text import type_name

T = TypeVar("T")
CALL = "function_call"
ROLES: Mapping[str, str] = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool", CALL)},
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
    "human": "user",
    "gpt": "assistant",
}
"""The roles of a conversation, OpenAI's, ShareGPT's and LLaMA-Factory's, and what they are here."""
_PLAIN_ROLES = frozenset(("system", "user", "assistant"))
_WEIGHTS: Mapping[str, bool] = {"weight": True, "train": True, "loss": True, "loss_mask": True, "masked": False}
"""Whether a turn is trained, as OpenAI, axolotl and others write it, and whether 1 or true says that it is."""
REASONING = ("reasoning_content", "thinking", "reasoning")
_CARRIED: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(REASONING, (str, "assistant")),
    "tool_calls": (list, "assistant"),
    "tool_call_id": (str, "tool"),
    "name": (str, "tool"),
}
"""What else of a turn reaches the chat template: what it must be, and the role whose turns have it."""
_NOT_CARRIED = ("audio", "images", "image", "videos", "refusal", "prefix", "mask", "train_detail")
"""What changes what a turn says or trains, and cannot be expressed."""
_FLAGS: Mapping[str, bool] = {
    **dict.fromkeys(("0", "0.0", "false"), False),
    **dict.fromkeys(("1", "1.0", "true", ""), True),
}
"""How weight and train are written, in any case; "": nothing is said."""


class BadRow(Exception):
    """The reason why a row cannot be used."""


class NotTrained(Exception):
    """A good row whose weight is 0 or whose train is false."""


class Example(NamedTuple):
    """A row as a question: what is asked, what stands below it, the right answer, and where the row stands."""

    prompt: str
    input: str
    answer: str
    where: str


@dataclass(slots=True)  # not frozen: there are millions, and each would take three times as long to make
class Row:
    """What one row of a file means, and where it stands ("file:line"). One of messages, text and segments is there.

    messages: as chat templates read them; trained: of each, whether the row says that it carries loss (None: it does not say).
    input: what stands below the last question, which the template joins to it. text: a document that is written in a template
    already. segments: (text, trained) pieces of a document. is_pair: read from columns of question and answer. unread: fields
    of messages that nothing reads; trailing: how many turns after the last answer are left out.
    """

    where: str
    messages: Sequence[Mapping[str, Any]] = ()
    trained: Sequence[bool | None] = ()
    tools: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    input: str = ""
    database: str = ""
    text: str = ""
    segments: Sequence[tuple[str, bool]] = ()
    is_pair: bool = False
    unread: frozenset[str] = frozenset()
    trailing: int = 0

    @property
    def is_whole_text(self) -> bool:
        """Whether it is written in a template already, so that nothing is put around it."""
        return not self.messages

    @property
    def answer(self) -> str:
        """What it trains: the last turn of its conversation with its calls, or the whole text."""
        if self.messages:
            return str(self.messages[-1]["content"]) + _more(self.messages[-1])
        return self.text or "".join(text for text, trained in self.segments if trained)

    @property
    def question(self) -> tuple[str, str]:
        """What it asks, and its input or what stands before the conversation; of a whole text all that it says."""
        if not self.messages:
            return self.text or "".join(text for text, _ in self.segments), ""
        if self.is_pair:
            return str(self.messages[-2]["content"]) if len(self.messages) > 1 else "", self.input
        turns = self.messages[:-1]
        before = list(self._beside().values())
        before += [turn["content"] for turn in turns if turn["role"] in ("system", "developer")]
        asked = (turn for turn in turns if turn["role"] not in ("system", "developer"))
        said = (t["content"] if t["role"] == "user" else f"{t['role']}: {t['content']}{_more(t)}" for t in asked)
        return "\n".join(said), "\n".join(before)

    def _beside(self) -> dict[str, str]:
        """What the template is given beside the conversation, as JSON."""
        given = {"tools": self.tools, "chat_template_kwargs": self.kwargs}
        return {name: _json(value) for name, value in given.items() if value}

    def content(self) -> tuple[str, ...]:
        """Return all that it says, roles and what is not trained included: two rows are repeats when this is equal."""
        if not self.messages:
            segments = (f"{'trained' if trained else 'not trained'}: {text}" for text, trained in self.segments)
            return (self.text,) if self.text else tuple(segments)
        pair = (*self.question, self.answer) if self.is_pair else ()
        beside = self._beside()
        if pair and not beside and len(self.messages) == 2:
            return pair
        said = (part for turn in self.messages for part in (turn["role"], turn["content"]))
        more = filter(None, map(_more, self.messages))
        untrained = (number for number, trained in enumerate(self.trained, len(beside)) if trained is False)
        return (*pair, *chain(*beside.items()), *said, *more, *(f"{number} is not trained" for number in untrained))

    def __len__(self) -> int:
        """Return how many characters it says, prompt and answer together."""
        if not self.messages:
            return len(self.text) + sum(len(text) for text, _ in self.segments)
        beside = sum(map(len, self._beside().values()))
        return beside + len(self.input) + sum(len(turn["content"]) + len(_more(turn)) for turn in self.messages)

    def example(self) -> Example | None:
        """Return it as an example before a question, None where it cannot be one."""
        turns = [turn for turn in self.messages if turn["role"] not in ("system", "developer")]
        turns = turns[-2:] if self.is_pair and len(self.messages) == 2 else turns[:2] if not self.is_pair else []
        if [turn["role"] for turn in turns] != ["user", "assistant"] or any(map(_more, turns)):
            return None
        return Example(turns[0]["content"], self.input, turns[1]["content"], self.where)


def digest(said: str) -> bytes:
    """Return 16 bytes that are equal for equal texts."""
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


def to_row(fields: Mapping[str, object], columns: Columns, mapping: ColumnMapping, where: str) -> Row:
    """Return what a raw row means. Raises BadRow, NotTrained."""
    for name in (columns.weight, columns.train):
        if name and not flag_of(fields.get(name), f'"{name}"'):
            raise NotTrained
    for name in columns.media:
        if fields.get(name):
            raise BadRow(f'"{name}" is there, but text alone is trained')
    if columns.form == "text":
        return Row(where, text=answer_of(fields, columns.text))
    if columns.form == "segments":
        return _of_segments(fields, columns, where)
    if columns.form == "messages":
        row = _of_messages(fields, columns, mapping, where)
    elif _are_messages(fields.get(columns.instruction)) or _are_messages(fields.get(columns.response)):
        row = _of_prompt_and_completion(fields, columns, mapping, where)
    else:
        row = _of_pair(fields, columns, where)
    return _with_calls(row) if row.tools or any("tool_calls" in turn for turn in row.messages) else row


def _with_calls(row: Row) -> Row:
    """Return a row whose tools and calls are what its author meant."""
    tools, unread, turns = as_meant(row.tools), row.unread, list(row.messages)
    for number, turn in enumerate(turns):
        if "tool_calls" in turn:
            try:
                calls, left_out = with_arguments(turn["tool_calls"], tools)
            except BadCall as bad:
                raise BadRow(str(bad)) from bad
            turns[number] = {**turn, "tool_calls": calls}
            unread |= {NULL_ARGUMENTS} if left_out else frozenset()
    return replace(row, messages=turns, tools=tools, unread=unread)


def _of_segments(fields: Mapping[str, object], columns: Columns, where: str) -> Row:
    """Pieces of a document that say whether they are trained: axolotl's input_output."""
    pieces = []
    for segment in _field(fields, columns.segments, list, "a list of segments"):
        if not isinstance(segment, dict):
            raise BadRow(f"a segment is {type_name(segment)}, not an object")
        trained = _field(segment, "label", bool, "true or false", "a segment's label")
        pieces.append((text_of(segment, "text", "a segment's text"), trained))
    if not any(trained and text for text, trained in pieces):
        raise BadRow("no segment is to be trained")
    return Row(where, segments=tuple(pieces))


def _of_messages(fields: Mapping[str, object], columns: Columns, mapping: ColumnMapping, where: str) -> Row:
    """A conversation: OpenAI's messages, ShareGPT's conversations, or the same as JSON text."""
    key = columns.messages
    if fields.get(key) is None:
        raise BadRow(f'"{key}" is {"null" if key in fields else "missing"}')
    turns, trained, unread = _turns(fields[key], key, mapping)
    is_parallel = _optional(fields, columns.parallel_tool_calls, bool, "true or false")
    if is_parallel is False and any(len(turn.get("tool_calls", ())) > 1 for turn in turns):
        raise BadRow(f'"{columns.parallel_tool_calls}" is false, but a turn has several calls')
    count = _up_to_answer(turns, trained)
    row = Row(where, turns[:count], trained[:count], unread=unread, trailing=len(turns) - count)
    return _with_beside(row, fields, columns)


def _of_prompt_and_completion(
    fields: Mapping[str, object], columns: Columns, mapping: ColumnMapping, where: str
) -> Row:
    """A prompt and a completion that are messages, as TRL has them: of these the completion's answers are trained."""
    if columns.database or (columns.input and fields.get(columns.input)):
        raise BadRow(f'"{columns.instruction}" is a list of messages, beside a column of the input or of a database')

    def turns_of(key: str, role: str) -> tuple[list[dict[str, Any]], list[bool | None], frozenset[str]]:
        if not isinstance(fields.get(key), list):
            return [{"role": role, "content": text_of(fields, key)}], [None], frozenset()
        return _turns(fields[key], key, mapping)

    prompt, asked, unread = turns_of(columns.instruction, "user")
    turns, trained, more = turns_of(columns.response, "assistant")
    count = _up_to_answer(turns, trained)
    asked = [False if turn["role"] == "assistant" else said for turn, said in zip(prompt, asked, strict=True)]
    row = Row(where, prompt + turns[:count], asked + trained[:count], is_pair=True, unread=unread | more)
    return _with_beside(replace(row, trailing=len(turns) - count), fields, columns)


def _of_pair(fields: Mapping[str, object], columns: Columns, where: str) -> Row:
    """Alpaca's instruction, input and output, whatever they are called; earlier questions and answers may stand before."""
    instruction = text_of(fields, columns.instruction)
    response = answer_of(fields, columns.response)
    turns: list[dict[str, Any]] = []
    for said in _optional(fields, columns.history, list, "a list of [question, answer]") or ():
        if not isinstance(said, list) or len(said) != 2:
            raise BadRow(f'"{columns.history}" is not a list of [question, answer]')
        question, answer = (text_of({columns.history: text}, columns.history) for text in said)
        turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    turns += [{"role": "user", "content": instruction}, {"role": "assistant", "content": response}]
    given, database = _optional_text(fields, columns.input), _optional_text(fields, columns.database)
    row = Row(where, turns, [None] * len(turns), input=given, database=database, is_pair=True)
    return _with_beside(row, fields, columns)


def _with_beside(row: Row, fields: Mapping[str, object], columns: Columns) -> Row:
    """Add tools, arguments of the chat template and the system message that stand in columns of their own."""
    if not (columns.tools or columns.chat_template_kwargs or columns.system):
        return row
    tools, kwargs = (
        _parsed(fields.get(name) if name else None, name) for name in (columns.tools, columns.chat_template_kwargs)
    )
    if tools and not (isinstance(tools, list) and all(map(_has_name, tools))):
        raise BadRow(f'"{columns.tools}" is not a list of tools with names')
    if not isinstance(kwargs or {}, dict):
        raise BadRow(f'"{columns.chat_template_kwargs}" is {type_name(kwargs)}, not an object')
    kwargs = {name: value for name, value in (kwargs or {}).items() if value is not None}  # of a table: empty fields
    _require_json(tools, columns.tools)
    _require_json(kwargs, columns.chat_template_kwargs)
    row = replace(row, tools=tools or (), kwargs=kwargs)
    if not (said := _optional_text(fields, columns.system)):
        return row
    if row.messages[0]["role"] == "system":
        raise BadRow(f'"{columns.system}" and the first message are both a system message')
    return replace(row, messages=[{"role": "system", "content": said}, *row.messages], trained=[None, *row.trained])


def _turns(
    value: object, label: str, mapping: ColumnMapping
) -> tuple[list[dict[str, Any]], list[bool | None], frozenset[str]]:
    """Return turns as chat templates read them, whether each says that it is trained, and the fields that nothing reads."""
    value = _parsed(value, label)
    if not isinstance(value, list):
        raise BadRow(f'"{label}" is {type_name(value)}, not a list of messages')
    if not (mapping.role or mapping.content or mapping.roles) and all(map(_is_plain, value)):
        return value, [None] * len(value), frozenset()
    turns: list[dict[str, Any]] = []
    trained: list[bool | None] = []
    unread: set[str] = set()
    for turn in value:
        if not isinstance(turn, dict):
            raise BadRow(f"a message is {type_name(turn)}, not an object")
        read, says, left = _turn(turn, mapping)
        turns.append(read)
        trained.append(says)
        unread |= left
    return turns, trained, frozenset(unread)


def _is_plain(turn: object) -> bool:
    """Whether a turn is a role and a text and nothing else, as most are."""
    if type(turn) is not dict or len(turn) != 2 or turn.get("role") not in _PLAIN_ROLES:
        return False
    content = turn.get("content")
    return type(content) is str and _is_unicode(content)


def _turn(turn: Mapping[str, Any], mapping: ColumnMapping) -> tuple[dict[str, Any], bool | None, set[str]]:
    role_key = mapping.role if mapping.role in turn else "role" if "role" in turn else "from"
    usual = "value" if role_key == "from" or (role_key == mapping.role and "content" not in turn) else "content"
    content_key = mapping.content if mapping.content in turn else usual
    said = text_of(turn, role_key, "a message's role")
    role = dict(mapping.roles).get(said) or ROLES.get(said)
    if role is None:
        raise BadRow(
            f'a message has the role "{said[:40]}", which is none here; "field_mapping.roles" says whose turns these are'
        )
    if role == CALL:
        role, turn = "assistant", {**turn, role_key: "assistant", content_key: None, **_called(turn.get(content_key))}
    more = _beside_content(turn, mapping, role, role_key, content_key)
    content = _content(turn.get(content_key), more)
    carried = _carried(more, role)
    says = [flag_of(more[name], f'a message\'s "{name}"') == kept for name, kept in _WEIGHTS.items() if name in more]
    unread = {name for name, value in more.items() if name not in (*carried, *_WEIGHTS) and value not in ("", [], {})}
    if content is not None or "tool_calls" not in carried:
        content = text_of(turn if content is None else {content_key: content}, content_key, "a message's content")
    _require_json(carried, "a message")
    return {"role": role, "content": content or "", **carried}, all(says) if says else None, unread


def _content(value: object, more: dict[str, object]) -> object:
    """What a turn says; the text of its parts where it is a list of them. Reasoning that stands among them goes to `more`."""
    if not isinstance(value, list):
        return value
    texts: list[str] = []
    for part in value:
        if not isinstance(part, (dict, str)):
            raise BadRow(f"a part of a message's content is {type_name(part)}, not text")
        kind = str(part.get("type", "text")) if isinstance(part, dict) else "text"
        if kind not in ("text", "input_text", "output_text", *REASONING):
            raise BadRow(f'a message\'s content has a part of the type "{kind:.40}", but text alone is trained')
        key = kind if kind in REASONING else "text"
        said = part if isinstance(part, str) else text_of(part, key, "a part of a message's content")
        if kind in REASONING:
            more["reasoning_content"] = f"{more.get('reasoning_content') or ''}{said}"
        else:
            texts.append(said)
    return "".join(texts)


def _called(value: object) -> dict[str, object]:
    """The calls of a turn that is one, or a list of them, as JSON; what stands beside a name is kept."""
    said = _parsed(value, CALL)
    calls: list[Any] = said if isinstance(said, list) else [said]
    if not calls or not all(map(_has_name, calls)):
        raise BadRow('a message of the role "function_call" is not a call with its name as JSON')
    return {"tool_calls": [call if "function" in call else {"type": "function", "function": call} for call in calls]}


def _beside_content(
    turn: Mapping[str, Any], mapping: ColumnMapping, role: str, role_key: str, content_key: str
) -> dict[str, object]:
    """What a turn has beside its role and content, OpenAI's and ShareGPT's, which must not contradict each other."""
    read = {role_key, content_key}
    sender = turn.get("from")
    if role_key == "role" and isinstance(sender, str) and sender in ROLES:  # else it is a name
        if ROLES[sender] != role:
            raise BadRow('a message\'s "from" is not its "role"')
        read.add("from")
    if not mapping.content:
        for name in ("content", "value"):
            if turn.get(name) not in (None, turn.get(content_key)):
                raise BadRow(f'a message\'s "{name}" is not its "{content_key}"')
        read |= {"content", "value"}
    more = {name: value for name, value in turn.items() if name not in read and value is not None}
    if CALL in more:  # OpenAI's, before there were several
        if more.get("tool_calls") or role != "assistant":
            raise BadRow('a message has "function_call" beside "tool_calls", or is no answer')
        more |= _called(more.pop(CALL))
    return more


def _carried(more: Mapping[str, object], role: str) -> dict[str, object]:
    """What else a turn says; an empty text or list says nothing."""
    for name in _NOT_CARRIED:
        if more.get(name):
            raise BadRow(f'a message has "{name}", which cannot be trained')
    for name, (kind, of) in _CARRIED.items():
        if more.get(name) and role != of == "assistant":
            raise BadRow(f'a message of the role "{role}" has "{name}", which only answers have')
        if name in more and not isinstance(more[name], kind):
            raise BadRow(f'a message\'s "{name}" is {type_name(more[name])}')
    thoughts = [name for name in REASONING if more.get(name)]
    if any(more[name] != more[thoughts[0]] for name in thoughts):
        raise BadRow(f"a message has {' and '.join(map(json.dumps, thoughts))}, which differ")
    calls: Any = more.get("tool_calls") or []
    if not all(map(_has_name, calls)):
        raise BadRow('a message\'s "tool_calls" is not a list of calls with names')
    return {name: more[name] for name, (_, of) in _CARRIED.items() if role == of and more.get(name)}


def _up_to_answer(turns: Sequence[Mapping[str, Any]], trained: Sequence[bool | None]) -> int:
    """Return how many turns there are up to the last one of the assistant; nothing could train those that follow."""
    answers = [number for number, turn in enumerate(turns) if turn["role"] == "assistant"]
    if not answers:
        raise BadRow("no assistant turn")
    if all(trained[number] is False for number in answers) and not any(trained):
        raise BadRow("no assistant turn is to be trained")
    for number in answers:
        turn = turns[number]
        if trained[number] is not False and "tool_calls" not in turn and is_blank(turn["content"]):
            raise BadRow(f"{'the last' if number == answers[-1] else 'an earlier'} assistant turn is empty")
    return answers[-1] + 1


def is_blank(text: str) -> bool:
    """Whether a text shows nothing: blanks, or characters without a form like U+200B."""
    said = text.strip()
    return not said or not (said.isascii() or any(map(str.isprintable, said)))


def _are_messages(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(turn, dict) for turn in value)


def _has_name(tool: object) -> bool:
    """Return whether this is a tool, or a call of one, with its name."""
    function = tool.get("function") or tool if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and bool(function["name"])


def _parsed(value: object, label: str) -> Any:
    """Return a field that may hold its value as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError) as error:
        raise BadRow(f'"{label}" is not JSON') from error


def _require_json(value: object, label: str) -> None:
    """Refuse what chat templates cannot be given: fields of Parquet may hold what JSON has no word for."""
    try:
        _json(value).encode()
    except UnicodeEncodeError as error:
        raise BadRow(f"{label} is not Unicode text (half of a surrogate pair)") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRow(f"{label} holds what JSON cannot") from error


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _more(turn: Mapping[str, Any]) -> str:
    """Return as JSON what a turn has beside its role and content, "" for nothing."""
    return _json({name: turn[name] for name in turn if name not in ("role", "content")}) if len(turn) > 2 else ""


def _field(fields: Mapping[str, Any], key: str, kind: type[T], what: str, label: str = "") -> T:
    """Return a field of this type, `what` in words; `label` names it where the key alone would not. Raises BadRow."""
    label = label or f'"{key}"'
    value = fields.get(key)
    if value is None:
        raise BadRow(f"{label} is {'null' if key in fields else 'missing'}")
    if not isinstance(value, kind):
        hint = ": write it as JSON text" if kind is str and isinstance(value, dict | list) else ""
        raise BadRow(f"{label} is {type_name(value)}, not {what}{hint}")
    return value


def _optional(fields: Mapping[str, Any], key: str, kind: type[T], what: str) -> T | None:
    """Return a field of this type, None where it says nothing; "" is no column, though pandas names its index so."""
    return None if not key or fields.get(key) in (None, "") else _field(fields, key, kind, what)


def _optional_text(fields: Mapping[str, Any], key: str) -> str:
    return text_of(fields, key) if key and fields.get(key) is not None else ""


def text_of(fields: Mapping[str, Any], key: str, label: str = "") -> str:
    """Return the text of a field, which `label` names where the key alone would not. Raises BadRow."""
    value = fields.get(key)
    if not isinstance(value, str):
        value = _field(fields, key, str, "text", label)
    if not _is_unicode(value):
        label = label or f'"{key}"'
        raise BadRow(f"{label} is not Unicode text (half of a surrogate pair)")
    return value


def _is_unicode(text: str) -> bool:
    if text.isascii():  # a flag of the string, so that the usual row costs nothing
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def answer_of(fields: Mapping[str, Any], key: str) -> str:
    """Return the text of a field that must say something. Raises BadRow."""
    value = text_of(fields, key)
    if is_blank(value):
        raise BadRow(f'"{key}" is empty')
    return value


def flag_of(value: object, label: str) -> bool:
    """Return what 0 or false, 1 or true says; nothing says that it is. Raises BadRow for another value, which `label` names."""
    known = "" if value is None else str(value).strip().lower()
    if known not in _FLAGS:
        raise BadRow(f"{label} is {value!r:.40}: 0 and false, 1 and true are known")
    return _FLAGS[known]
