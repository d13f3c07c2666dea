"""The forms in which data sets have rows, by the name that they go by: an example row of each, and its field_mapping."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from expert_cli.config.run_config import ColumnMapping
from expert_cli.data.columns import Columns, choose_columns


class Form(NamedTuple):
    """One row as a file has it, and the "field_mapping" that it needs."""

    row: dict[str, Any]
    mapping: Mapping[str, Any] = MappingProxyType({})


_TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
_CALL = {"name": "add", "arguments": '{"a": 2, "b": 2}'}
_ASKED = {"role": "user", "content": "How many?"}
_ANSWER = {"role": "assistant", "content": "Four."}
_SHAREGPT = [{"from": "human", "value": "How many?"}, {"from": "gpt", "value": "Four."}]

MESSAGE_FORMS: dict[str, Form] = {
    "messages": Form({"messages": [_ASKED, _ANSWER], "system": "Count."}),
    "messages of a developer": Form({"messages": [{"role": "developer", "content": "Count."}, _ASKED, _ANSWER]}),
    "messages as JSON text": Form(
        {"messages": '[{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Four."}]'}
    ),
    "messages of text parts": Form(
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "How many?"}]}, _ANSWER]}
    ),
    "OpenAI": Form(
        {
            "messages": [
                _ASKED,
                {"role": "assistant", "content": "Three.", "weight": 0},
                {"role": "user", "content": "Sure?"},
                {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": _CALL}]},
                {"role": "tool", "tool_call_id": "c1", "content": "4"},
                _ANSWER,
            ],
            "tools": _TOOLS,
        }
    ),
    "ShareGPT": Form({"conversations": [{"from": "system", "value": "Count."}, *_SHAREGPT]}),
    "ShareGPT, calls": Form(
        {
            "conversations": [
                _SHAREGPT[0],
                {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 2, "b": 2}}'},
                {"from": "observation", "value": "4"},
                _SHAREGPT[1],
            ],
            "system": "Count.",
            "tools": '[{"name": "add", "parameters": {"type": "object"}}]',
        }
    ),
    "own names": Form(
        {"dialog": [{"speaker": "client", "text": "How many?"}, {"speaker": "bot", "text": "Four."}]},
        {
            "messages": "dialog",
            "role": "speaker",
            "content": "text",
            "roles": {"user": ["client"], "assistant": ["bot"]},
        },
    ),
}
PAIR_FORMS: dict[str, Form] = {
    "question and answer": Form({"question": "How many?", "context": "4 boats", "answer": "Four."}),
    "prompt and completion": Form({"prompt": "How many?", "completion": "Four."}),
    "prompt and completion of messages": Form({"prompt": [_ASKED], "completion": [_ANSWER]}),
    "Alpaca with a system message": Form(
        {"instruction": "How many?", "input": "4 boats", "output": "Four.", "system": "Count."}
    ),
    "prompt and completion of messages, with tools": Form(
        {
            "prompt": [_ASKED],
            "completion": [{"role": "assistant", "tool_calls": [{"function": _CALL}]}],
            "tools": _TOOLS,
        }
    ),
}
SEGMENT_FORMS: dict[str, Form] = {
    "axolotl, input_output": Form(
        {"segments": [{"label": False, "text": "How many?"}, {"label": True, "text": "Four."}]}
    )
}

FORMS = {**MESSAGE_FORMS, "document": Form({"text": "Once upon a time"}), **SEGMENT_FORMS, **PAIR_FORMS}


def mapping_of(form: Form) -> ColumnMapping:
    named = {name: value for name, value in form.mapping.items() if name != "roles"}
    roles = tuple((said, role) for role, saying in form.mapping.get("roles", {}).items() for said in saying)
    return ColumnMapping(**named, roles=roles)


def columns_of(form: Form) -> Columns:
    return choose_columns(list(form.row), mapping_of(form), "x")
