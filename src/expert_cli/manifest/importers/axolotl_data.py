"""Axolotl's `datasets`: places, forms of rows, and what of each is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from expert_cli.manifest.importers.draft import Draft
from expert_cli.manifest.importers.rules import NOTHING, Rule, lost, only, refused, same
from expert_cli.manifest.importers.sources import FILES, NO_ROWS, Source, write_sources

Columns = Mapping[str, str]
PREAMBLE = "Below is an instruction that describes a task. Write a response that appropriately completes the request."
"""What axolotl and LLaMA-Factory write before the instruction of Alpaca's form."""
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
_KNOWN_FIELDS = ({"role": "role", "content": "content"}, {"role": "from", "content": "value"})
_ROLES = {"user": {"user", "human"}, "assistant": {"assistant", "gpt"}, "system": {"system"}, "tool": {"tool"}}
"""The names of roles that are read here."""


def _fields(draft: Draft, key: str, value: Any) -> None:
    told = value if isinstance(value, dict) else {}
    if all(any(known.get(name) == column for known in _KNOWN_FIELDS) for name, column in told.items()):
        draft.agree(key)
    else:
        draft.lose(key, "a message has role and content, or from and value: rename its fields", value)


def _roles(draft: Draft, key: str, value: Any) -> None:
    told = value if isinstance(value, dict) else {}
    strange = {name for role, names in told.items() for name in names if name not in _ROLES.get(role, ())}
    if strange:
        draft.lose(key, f"the roles that are read do not have {', '.join(sorted(strange))}", value)
    else:
        draft.agree(key)


_ENTRY: dict[str, Rule] = {
    **dict.fromkeys(("path", "type", "split", "name", "data_files", "field", "field_messages"), lambda *_: None),
    "ds_type": lost("the suffix of a file says its format"),
    "conversation": lost("prompt_template or the tokenizer's own template writes the conversation"),
    "chat_template": same(
        "tokenizer_default", otherwise="one template writes all rows: prompt_template, or the tokenizer's own"
    ),
    "chat_template_jinja": lost("the tokenizer's own chat template is used"),
    "message_property_mappings": _fields,
    "message_field_role": same("role", "from", otherwise="a message has role and content, or from and value"),
    "message_field_content": same("content", "value", otherwise="a message has role and content, or from and value"),
    "message_field_training": same(
        "train", "weight", otherwise="a turn says by train, weight, loss or masked whether it is trained"
    ),
    "message_field_training_detail": lost("a turn is trained whole, or not"),
    "field_tools": same("tools", otherwise='the tools of a row stand in its column "tools"'),
    "field_system": same("system", otherwise='the system message of a row stands in its column "system"'),
    "field_thinking": same(
        "reasoning_content", "thinking", "reasoning", otherwise="reasoning stands in reasoning_content"
    ),
    "roles": _roles,
    "roles_to_train": only(
        ["assistant"],
        ["gpt"],
        ["assistant", "gpt"],
        otherwise="the turns of the assistant are trained, no other role's",
    ),
    "train_on_eos": same("turn", "all", otherwise="every answer's end token is trained"),
    "train_on_eot": same("turn", "all", otherwise="every answer's end token is trained"),
    "drop_system_message": lost("a row's system message is kept"),
    "shards": lost("write a part of the rows as path::train[:10%]"),
    "trust_remote_code": lost("no code that comes with a data set is run"),
    "revision": lost("the newest revision of a hub data set is read"),
    "shuffle": lost("rows come in an order that the seed draws"),
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
            _ENTRY.get(name, lost("not known here"))(draft, f"{key}.{name}", value)
    columns = _form(draft, f"{key}.type", told)
    path, files = str(told.get("path") or ""), told.get("data_files") or []
    files = [files] if isinstance(files, str) else files
    if path in FILES or not path:
        places = [draft.path(str(file)) for file in files]
    else:
        places = [draft.path(path)]
        if files:
            draft.lose(f"{key}.data_files", "a data set of the hub is read by its splits; download the file", files)
    if not places:
        draft.refuse(key, NO_ROWS, entry)
    split, config = str(told.get("split") or ""), str(told.get("name") or "")
    return [Source(key, place, split, config, 1.0, columns) for place in places]


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
        return {"messages": str(column)}
    if kind in _TEXTS:
        return {"text": str(told.get("field") or "text")}
    if kind == "input_output":
        draft.refuse(key, "segments that each say whether they are trained are not read", form)
    else:
        draft.lose(key, "this form is not known here: name the columns in training.dataset.field_mapping", form)
    return {}


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
