"""Axolotl's `datasets`: places, forms of rows, and what of each is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from expert_cli.manifest.importers.draft import Draft
from expert_cli.manifest.importers.rules import NOTHING, Rule, own_template, refused, together, unknown
from expert_cli.manifest.importers.sources import NO_ROWS, Source, places, write_sources

Columns = Mapping[str, Any]
PREAMBLE = "Below is an instruction that describes a task. Write a response that appropriately completes the request."
"""What axolotl writes before the instruction of Alpaca's form."""
_QUESTION = {"instruction": "question", "response": "answer"}
_ALPACA: Mapping[str, Columns] = {
    "alpaca": {},
    "alpaca_w_system": {},
    "gpteacher": {},
    "alpaca_chat": {},
    "alpaca_chat.load_qa": _QUESTION,
    "context_qa": {**_QUESTION, "input": "context"},
    "jeopardy": {**_QUESTION, "input": "category"},
    "oasst": {"instruction": "INSTRUCTION", "response": "RESPONSE"},
    "summarizetldr": {"instruction": "article", "response": "summary"},
}
"""Forms of pairs that are written in Alpaca's template: their columns."""
_CONVERSATIONS = ("chat_template", "sharegpt")
_TEXTS = ("completion", "pretrain")
_USUAL: Mapping[str, tuple[str, ...]] = {
    "role": ("role", "from"),
    "content": ("content", "value"),
    "tools": ("tools",),
    "system": ("system",),
}
"""What is recognized without a name."""
_ROLES = {
    "user": {"user", "human"},
    "assistant": {"assistant", "gpt"},
    "system": {"system"},
    "tool": {"tool"},
    "developer": {"developer"},
}
"""The names of roles that are read here."""


def _fields(draft: Draft, key: str, value: Any) -> None:
    told = value if isinstance(value, dict) else {}
    strange = {name: field for name, field in told.items() if name not in ("role", "content", field)}
    if strange:
        draft.lose(key, "field_mapping names the fields of a message's role and content", strange)
    else:
        draft.agree(key)


def _roles(draft: Draft, key: str, value: Any) -> None:
    told = value if isinstance(value, dict) else {}
    if strange := sorted(set(told) - set(_ROLES)):
        draft.lose(key, f"there are no turns of {', '.join(strange)} here", value)
    else:
        draft.agree(key)


def _trained_roles(draft: Draft, key: str, value: Any) -> None:
    """Whose turns are trained, by their names here; one list for all rows."""
    number = int(key.partition("[")[2].partition("]")[0])
    entry = draft.values[key.partition("[")[0]][number]
    own = entry.get("roles") or {}
    named = {name: role for roles in (_ROLES, own) for role, names in roles.items() for name in names}
    trained = sorted({named.get(str(name), str(name)) for name in (value if isinstance(value, list) else [value])})
    before = draft.blocks["config"].get("roles_to_train")
    if trained == ["assistant"] and before is None:
        draft.agree(key)
    elif before not in (None, trained):
        draft.lose(key, f"one list of roles is for all rows, here {', '.join(before)}", value)
    else:
        draft.put(key, "config", "roles_to_train", trained)


def _entry_template(draft: Draft, key: str, value: Any) -> None:
    if value in ("tokenizer_default", "jinja"):
        draft.agree(key)
    else:
        draft.lose(key, "one template writes all rows: prompt_template, or the tokenizer's own", value)


_ENTRY: dict[str, Rule] = {
    **dict.fromkeys(("path", "type", "split", "name", "data_files", "field", "field_messages"), lambda *_: None),
    **dict.fromkeys(("message_field_role", "message_field_content", "field_tools", "field_system"), together),
    "chat_template": _entry_template,
    "chat_template_jinja": own_template,
    "message_property_mappings": _fields,
    "roles": _roles,
    "roles_to_train": _trained_roles,
    "field_chosen": refused("pairs of a better and a worse answer are not trained here"),
}
"""What becomes of the keys of one entry."""


def read_datasets(draft: Draft) -> None:
    """Write the rows that `datasets` and `test_datasets` name, their columns and their template."""
    named = {name: draft.values.get(name) or [] for name in ("datasets", "test_datasets")}
    for name, value in named.items():
        if not isinstance(value, list) or (name == "datasets" and not value):
            draft.refuse(name, f"{NO_ROWS} in a list")
            return
    train, valid = (
        [source for number, entry in enumerate(entries) for source in _sources(draft, f"{name}[{number}]", entry)]
        for name, entries in named.items()
    )
    write_sources(draft, train, valid)


def _sources(draft: Draft, key: str, entry: Any) -> list[Source]:
    told = entry if isinstance(entry, dict) else {"path": entry}
    for name, value in told.items():
        if value not in NOTHING:
            if name in _ENTRY:
                _ENTRY[name](draft, f"{key}.{name}", value)
            else:
                draft.lose(f"{key}.{name}", unknown(name, _ENTRY), value)
    columns = _form(draft, f"{key}.type", told)
    found = places(draft, key, told)
    if not found:
        draft.refuse(key, NO_ROWS, entry)
    split, config = str(told.get("split") or ""), str(told.get("name") or "")
    return [Source(key, place, split, config, 1.0, columns) for place in found]


def _form(draft: Draft, key: str, told: Mapping[str, Any]) -> Columns:
    """Return the columns of a form of rows, and write what the form says of prompts."""
    form = told.get("type")
    if isinstance(form, dict):
        for name in ("format", "no_input_format", "system_format"):
            if form.get(name):
                draft.lose(f"{key}.{name}", "prompt_template writes the prompt", form[name])
        if form.get("system_prompt"):
            draft.put(key, "config", "system_prompt", form["system_prompt"])
        roles = {"instruction": "field_instruction", "input": "field_input", "response": "field_output"}
        return {role: str(form[name]) for role, name in roles.items() if form.get(name)}
    kind = _kind(told)
    if kind in _ALPACA:
        _alpaca(draft, key, form)
        return _ALPACA[kind]
    if kind.partition(".")[0] in _CONVERSATIONS:
        column = told.get("field_messages") or ("messages" if kind == "chat_template" else "conversations")
        return {"messages": str(column), **_turns(told)}
    if kind in _TEXTS:
        return {"text": str(told.get("field") or "text")}
    if kind != "input_output":  # whose column is recognized
        draft.lose(key, "this form is not known here: name the columns in training.dataset.field_mapping", form)
    return {}


def _turns(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a field_mapping says of the turns of conversations, where their fields and roles have no usual name."""
    mapped = told.get("message_property_mappings") or {}
    named = {name: told.get(f"message_field_{name}") or mapped.get(name) for name in ("role", "content")}
    named |= {name: told.get(f"field_{name}") for name in ("tools", "system")}
    written = {role: names for role, names in (told.get("roles") or {}).items() if role in _ROLES}
    own = {role: [name for name in names if name not in _ROLES[role]] for role, names in written.items()}
    roles = {role: names for role, names in own.items() if names}
    fields = {name: str(field) for name, field in named.items() if field and field not in _USUAL[name]}
    return {**fields, **({"roles": roles} if roles else {})}


def _kind(told: Mapping[str, Any]) -> str:
    """Return the form of an entry's rows: what stands behind a colon is one of old ways to write its conversations."""
    return str(told.get("type") or "").partition(":")[0]


def _alpaca(draft: Draft, key: str, form: Any) -> None:
    """Write Alpaca's template, unless there are conversations: one template writes all rows."""
    kinds = [_kind(entry) for entry in draft.values["datasets"] if isinstance(entry, dict)]
    if any(kind.partition(".")[0] in _CONVERSATIONS for kind in kinds):
        draft.lose(key, "one template writes all rows, here that of the conversations", form)
        return
    draft.put(key, "base", "prompt_template", "alpaca")
    if not draft.written.get("default_system_message"):
        draft.put(key, "config", "system_prompt", PREAMBLE)
    draft.lose(
        key, "a preamble that is worded otherwise, as for rows with an input, is left: one stands before all rows", form
    )
