"""docs/EXPERT_FORMAT.md, made from the manifest's schema and the code that reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

from expert_cli.commands.schema import manifest_schema
from expert_cli.config.data_sources import COMPRESSED_SUFFIXES, DATA_SUFFIXES, format_name
from expert_cli.data.columns import USUAL_NAMES
from expert_cli.data.templates.make_template import STYLES, style_text
from expert_cli.evaluation.verifiers.registry import VERIFIERS
from expert_cli.manifest.json_text import MAX_BYTES, MAX_DEPTH
from expert_cli.manifest.key import LARGEST, LARGEST_NUMBER, declared
from expert_cli.manifest.keys.dataset import Dataset
from expert_cli.manifest.keys.optim import SCHEDULERS
from expert_cli.manifest.messages import BY_HAND, OTHER_TOOLS
from expert_cli.manifest.schema import Base, Manifest
from expert_cli.manifest.training_config import TrainingConfig
from tests.row_forms import FORMS

HOLDS = {
    "JSON lines": "one JSON object per line",
    "JSON": "a list of JSON objects",
    "CSV": "a line of names, then one row per line, or more lines if a quoted text has line breaks",
    "TSV": "the same with tabs instead of commas",
    "Parquet": "a table",
    "Arrow": "a table, as a file or as the stream that `datasets` writes",
}
"""What the rows of each format of data files are."""
WORDS = {
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "string": "text",
    "object": "object",
}
"""Types of JSON Schema."""
TEMPLATE = Path(__file__).with_name("EXPERT_FORMAT.template.md")


def expert_format() -> str:
    """Return the text of docs/EXPERT_FORMAT.md: the template, its tables filled in from the code."""
    schema = manifest_schema()
    old = {**TrainingConfig.old_names, **Dataset.old_names}
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        {name: _block(block) for name, block in {"Manifest": schema, **schema["$defs"]}.items()},
        max_bytes=f"{MAX_BYTES:,}",
        max_depth=MAX_DEPTH,
        largest=f"{LARGEST:,}",
        largest_number=f"{LARGEST_NUMBER:,.0f}",
        without_effect=_table(("key", "why"), ((f"`{key}`", why) for key, why in without_effect().items())),
        suffixes=_codes(DATA_SUFFIXES),
        compressions=_codes(COMPRESSED_SUFFIXES),
        files=_files(),
        columns=_rows((role, _codes(names)) for role, names in USUAL_NAMES.items()),
        forms=_rows(
            (name, f"`{json.dumps(form.row)}`", f"`{json.dumps(dict(form.mapping))}`" if form.mapping else "")
            for name, form in FORMS.items()
        ),
        verifiers=_rows(
            (f"`{name}`", " ".join(str(case.__doc__).split()).rstrip(".")) for name, case in VERIFIERS.items()
        ),
        cases="\n".join(json.dumps({"verifier": name, **case.example.row}) for name, case in VERIFIERS.items()),
        schedulers=_table(
            ("`lr_scheduler`", "keys of `lr_scheduler_kwargs`"),
            ((f"`{name}`", _codes(sorted(keys)) or "none") for name, keys in SCHEDULERS.items()),
        ),
        templates=_templates(),
        old_names=", ".join(f"`{name}` is now `{new}`" for name, new in old.items()),
        other_tools=_table(
            ("key of other tools", "key here", "note"),
            (
                (f"`{name}`", f"`{new}`", BY_HAND.get(name, ""))
                for name, new in OTHER_TOOLS.items()
                if new in {*TrainingConfig.model_fields, *Base.model_fields}
            ),
        ),
    )


def without_effect() -> dict[str, str]:
    """Return the keys that change no run, and why, as the effects table says it."""
    blocks = (("training.config.", TrainingConfig), ("training.dataset.", Dataset), ("", Manifest))
    keys = {f"{place}{name}": declared(block, name).always for place, block in blocks for name in block.model_fields}
    return {key: outcome.reason for key, outcome in keys.items() if outcome and outcome.status == "not_used"}


def allowed(node: dict[str, Any]) -> str:
    """Return the values that a part of a JSON Schema allows, in words."""
    options = [option for option in node.get("anyOf", [node]) if option.get("type") != "null"]
    if len(options) > 1:
        return " or ".join(dict.fromkeys(allowed(option) for option in options))
    (node,) = options
    if "$ref" in node:
        return "object"
    if "const" in node or "enum" in node:
        return ", ".join(f"`{json.dumps(value)}`" for value in node.get("enum", [node.get("const")]))
    if node.get("type") == "array":
        return f"list: {allowed(node['items'])}"
    return WORDS.get(node.get("type", ""), "anything") + _bounds(node)


def _bounds(node: dict[str, Any]) -> str:
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    said = {name: node[name] for name in signs if name in node and node[name] not in (LARGEST, LARGEST_NUMBER)}
    return ",".join(f" {signs[name]} {bound}" for name, bound in said.items())


def _block(block: dict[str, Any]) -> str:
    """Return the table of a block's keys; it has columns of defaults and their reasons where there are any."""
    required, unused = block.get("required", []), without_effect()
    nodes = {key: node for key, node in block["properties"].items() if f"training.config.{key}" not in unused}
    with_whys = any("$comment" in node for node in nodes.values())
    rows = []
    for key, node in nodes.items():
        value = allowed(node) + (" (required)" if key in required else "")
        meaning, default = " ".join(node["description"].split()), node.get("default")
        shown = "" if default is None else f"`{json.dumps(default)}`"
        rows.append((f"`{key}`", value, *([shown, meaning, node.get("$comment", "")] if with_whys else [meaning])))
    heads = ("default", "meaning", "why this default") if with_whys else ("meaning",)
    is_closed = block.get("additionalProperties") is False
    closed = "Unknown keys are errors." if is_closed else "Other keys are kept as information."
    return f"{_table(('key', 'value', *heads), rows)}\n{closed}\n"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|\n{_rows(rows)}"


def _rows(rows: Iterable[Sequence[str]]) -> str:
    """Return the body of a table."""
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |\n" for row in rows)


def _files() -> str:
    """Return a row for every format of data files, with what may follow its suffix."""
    rows = []
    for name in dict.fromkeys(DATA_SUFFIXES.values()):
        suffixes = [suffix for suffix, format_ in DATA_SUFFIXES.items() if format_ == name]
        compressed = [more for more in COMPRESSED_SUFFIXES if format_name(f"x{suffixes[0]}{more}")]
        rows.append((_codes(suffixes), _codes(compressed) or "no: inside", HOLDS[name]))
    return _rows(rows)


def _templates() -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    turns = (("system", "SYSTEM"), ("user", "QUESTION"), ("assistant", "ANSWER"))
    messages = [{"role": role, "content": content} for role, content in turns]
    written = {
        name: render_jinja_template([messages], chat_template=style_text(name), eos_token="EOS")[0][0]  # noqa: S106
        for name in STYLES
    }
    return "\n".join(f"`{name}`:\n\n```text\n{text}\n```\n" for name, text in written.items())
