"""The text of docs/INTERFACE.md: what other programs may rely on, from the JSON Schemas that tests hold the commands to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Schema = Mapping[str, Any]

INTRODUCTION = """\
# The interface

What programs around expert-cli may rely on: exit codes, the documents that `--json` prints, the files of a run. The tables
below are made from the JSON Schemas in the repository's `docs/schemas/`, to which tests hold the commands. A key never comes to
mean another thing within `schema_version` 1, and new keys may come; before version 1.0.0 of the tool a key may go, which the
changelog says. The command line
itself is in [Commands](CLI.md), the rows of cases and answers are in [Manifest](EXPERT_FORMAT.md#test-cases).

Every document also has `schema_version`, which is 1, and what a command prints has its name, `command`. A key of a list's
items is written `list[].key`, one below any name `object.*.key`.

"""
FILES = """\
## Files of a run

| file | what it holds |
|---|---|
| `status.json` | [state of the run](#statusjson), written when it begins, with every checkpoint, and whatever ends it |
| `report.json` | [what `train --json` prints](#train), but for `schema_version` and `command` |
| `evaluation.json` | [what `evaluate --json` prints](#evaluate), of all of the expert's own cases |
| `metrics.jsonl` | an object a line for every logged step, with `step`; further keys depend on the step |
| `run.json` | what was decided, and hashes of data, base model, tokenizer and code; `train --locked` takes it |
| `adapter/` | an adapter as PEFT writes it, with its tokenizer; `base_model.json`: on which base model, and how \
that was held; `expert.json`: [how it is asked](#expertjson); \
`generation_config.json`, as transformers writes it: what ends and shapes its answers |
| `sft/`, `round-N/` | with `method` rft: the first training, and [what each round drew, trained and answered]\
(TRAINING_GUIDE.md#learning-from-answers-that-were-run) |
| `COMPLETE` | written last: the SHA-256 of the adapter's weights and of `adapter_config.json`, compared when it is used |

A file named `STOP` that is put into the folder lets the step end, saves, and ends the run.

"""
LEFT_OUT = ("schema_version", "command")
FAILURE = "failure"


def interface(folder: Path, exit_codes: str, commands: Sequence[str]) -> str:
    """Return the text. folder: of the schemas; exit_codes: their section; commands: in the order of the sections."""
    names = [FAILURE, *(name for command in commands for name in (command, f"{command}-plan")), "status", "expert"]
    parts = [INTRODUCTION, exit_codes, FILES]
    for name in names:
        path = folder / f"{name}.schema.json"
        if path.is_file():
            parts.append(_section(name, json.loads(path.read_text(encoding="utf-8"))))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _section(name: str, schema: Schema) -> str:
    heading = {
        FAILURE: "A failure",
        "status": "`status.json`",
        "expert": "`expert.json`",
        "train-plan": "`train`, with `--plan`",
    }.get(name, f"`{name}`")
    words = schema.get("description", "")
    lines = [f"## {heading}", "", *([words, ""] if words else [])]
    for title, part in _forms(schema):
        lines += [f"### {title}", ""] if title else []
        lines += [part["description"], ""] if title and "description" in part else []
        table = _Table({**schema, **part, "properties": {**schema.get("properties", {}), **part.get("properties", {})}})
        lines += ["| key | value | meaning |", "|---|---|---|", *table.lines(), ""]
    return "\n".join(lines)


def _forms(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the forms that a document has beside that of a failure, with their names where there are several."""
    named = {}
    for part in schema.get("oneOf", schema.get("anyOf", ())):
        form = schema["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        kind = form.get("properties", {}).get("kind", {}).get("const")
        named[f"`kind` {kind}" if kind else part.get("$ref", "").rpartition("/")[2]] = form
    named.pop(FAILURE, None)
    if not named:
        yield "", schema
    for name, form in named.items():
        yield (name if len(named) > 1 else ""), form


class _Table:
    """The keys of a document, nested ones as `a.b`, those of a list's items as `a[].b`, those under any name as `a.*.b`."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[str, str] = {}

    def lines(self) -> list[str]:
        """Return the lines of the table."""
        written = self._schema["properties"]
        fixed = [key for key in LEFT_OUT if isinstance(written.get(key), dict) and "const" in written[key]]
        rows = (row for row in self._keys(self._schema, "") if row[0] not in fixed)
        return [f"| `{key}` | {value} | {meaning} |" for key, value, meaning in rows]

    def _keys(self, schema: Schema, prefix: str) -> Iterator[tuple[str, str, str]]:
        required = schema.get("required", ())
        for key, part in schema.get("properties", {}).items():
            if part is True:
                continue
            absent = "" if key in required else "May be absent."
            yield from self._key(f"{prefix}{key}", part, absent)

    def _key(self, path: str, schema: Schema, absent: str) -> Iterator[tuple[str, str, str]]:
        meaning = " ".join(filter(None, (self._meaning(schema), absent)))
        first = next((self._known[ref] for ref in _references(schema) if ref in self._known), None)
        if first is not None:
            yield path, f"{self._value(schema)}, as `{first}`", meaning
            return
        yield path, self._value(schema), meaning
        for ref in _references(schema):
            if self._has_keys(self._resolved({"$ref": ref})):
                self._known[ref] = path
        inside = list(self._inside(schema))
        for number, (suffix, part) in enumerate(inside):
            several = len([one for one, _ in inside if one == suffix]) > 1
            for key, value, meaning in self._keys(part, f"{path}{suffix}."):
                yield key, value, f"Another form. {meaning}" if several and number else meaning

    def _inside(self, schema: Schema) -> Iterator[tuple[str, Schema]]:
        """Yield the objects in a value, with what their keys' path goes on with."""
        schema = self._resolved(schema)
        for part in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
            yield from self._inside(part)
        if schema.get("properties"):
            yield "", schema
        if isinstance(schema.get("items"), Mapping):
            for suffix, part in self._inside(schema["items"]):
                yield f"[]{suffix}", part
        if isinstance(schema.get("additionalProperties"), Mapping):
            for suffix, part in self._inside(schema["additionalProperties"]):
                yield f".*{suffix}", part

    def _has_keys(self, schema: Schema) -> bool:
        return any(True for _ in self._inside(schema))

    def _resolved(self, schema: Schema) -> Schema:
        if "$ref" not in schema:
            return schema
        if not schema["$ref"].startswith("#"):
            return {"type": "object", "description": f"As {schema['$ref']} says."}
        found: Any = self._schema
        for key in schema["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        return {**self._resolved(found), **{key: value for key, value in schema.items() if key != "$ref"}}

    def _meaning(self, schema: Schema) -> str:
        words = schema.get("description") or self._resolved(schema).get("description", "")
        return " ".join(str(words).split()).replace("|", "\\|")

    def _value(self, schema: Schema) -> str:
        schema = self._resolved(schema)
        if "const" in schema:
            return f"`{json.dumps(schema['const'])}`"
        if "enum" in schema:
            return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
        parts = (*schema.get("oneOf", ()), *schema.get("anyOf", ()))
        if parts:
            return " or ".join(dict.fromkeys(self._value(part) for part in parts))
        kinds = schema.get("type", "any value")
        return " or ".join(self._kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))

    def _kind(self, kind: str, schema: Schema) -> str:
        items = schema.get("items")
        if kind == "array" and isinstance(items, Mapping):
            many = (
                f"{schema['minItems']} x "
                if schema.get("minItems") and schema["minItems"] == schema.get("maxItems")
                else ""
            )
            return f"list of {many}{self._value(items)}"
        return {"integer": "whole number", "array": "list", "string": "text", "boolean": "true or false"}.get(
            kind, kind
        )


def _references(schema: Schema) -> Iterator[str]:
    """Yield the definitions that a value may be of, itself or as an item."""
    if "$ref" in schema:
        yield schema["$ref"]
    for part in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        yield from _references(part)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, Mapping):
            yield from _references(inner)
