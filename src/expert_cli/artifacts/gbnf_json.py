"""A JSON Schema as a grammar for llama.cpp (GBNF).

Held: types, listed values, properties and those that must be, lengths, some formats, alternatives, references. Not held:
patterns, bounds of numbers, unlike items. Properties come in any order up to ANY_ORDER of them, then in that of the schema;
others beside them only where `additionalProperties` allows them in words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from expert_cli.inference.grammar.json_schema.forms import require_form, resolve

ANY_ORDER = 6
"""Properties that come in any order: there is a rule for each set of those that are left."""

JSON_RULES = {
    "ws": r'| " " | "\n" [ \t]{0,40}',
    "hex": "[0-9a-fA-F]",
    "char": r'[^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" hex{4})',
    "string": r'"\"" char* "\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,15})',
    "number": 'integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "object": '"{" ws (string ws ":" ws value (ws "," ws string ws ":" ws value)*)? ws "}"',
    "array": '"[" ws (value (ws "," ws value)*)? ws "]"',
    "value": "object | array | string | number | boolean | null",
    "date": '[0-9]{4} "-" [01] [0-9] "-" [0-3] [0-9]',
    "time": '[0-2] [0-9] ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,9})? ("Z" | [-+] [0-2] [0-9] ":" [0-5] [0-9])',
}
_FORMATS = {
    "date": "date",
    "time": "time",
    "date-time": 'date "T" time',
    "uuid": 'hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12}',
}
_TYPES = ("object", "array", "string", "number", "boolean", "null")


def literal(text: str) -> str:
    """Return a text as GBNF quotes it."""
    return json.dumps(text, ensure_ascii=False)


def json_rules(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the rules, root first. Raises InputError for a schema that cannot be read."""
    for _ in require_form(schema):
        pass
    rules = _Rules(schema)
    return {"root": f"ws {rules.of(schema)} ws", **rules.rules, **JSON_RULES}


class _Rules:
    """Rules by name, as they are made."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.rules: dict[str, str] = {}
        self._references: dict[str, str] = {}

    def of(self, schema: Any) -> str:
        """Return what stands for a schema in a rule."""
        if not isinstance(schema, Mapping) or not schema:
            return "value"
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "const" in schema or "enum" in schema:
            return self._any_of([_written(one) for one in schema.get("enum", [schema.get("const")])])
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._any_of([self.of(one) for one in schema[word]])
        if "allOf" in schema:
            return self.of(_merged([{k: v for k, v in schema.items() if k != "allOf"}, *schema["allOf"]]))
        types = schema.get("type", _guessed(schema))
        return self._any_of([self._of_type(one, schema) for one in ([types] if isinstance(types, str) else types)])

    def _reference(self, reference: str) -> str:
        if reference not in self._references:
            name = self._references[reference] = f"ref-{len(self._references)}"
            self.rules[name] = ""  # its place, since it may lead back here
            self.rules[name] = self.of(resolve(self._root, reference))
        return self._references[reference]

    def _any_of(self, ones: Sequence[str]) -> str:
        return ones[0] if len(ones) == 1 else f"({' | '.join(dict.fromkeys(ones))})"

    def _of_type(self, type_: str, schema: Mapping[str, Any]) -> str:
        if type_ == "string":
            return _string(schema)
        if type_ == "array":
            return self._array(schema)
        if type_ == "object" and (schema.get("properties") or schema.get("additionalProperties", True) is not True):
            return self._add(f'"{{" ws {self._members(schema, tuple(schema.get("properties", {})), {}, first=True)}')
        return type_

    def _array(self, schema: Mapping[str, Any]) -> str:
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems", True)
        if first:
            return self._add('"[" ws ' + ' ws "," ws '.join(map(self.of, first)) + ' ws "]"')
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        item = self.of(rest)
        if most == 0 or rest is False:
            return '"[" ws "]"'
        items = f'{item} (ws "," ws {item}){_times(max(0, least - 1), None if most is None else most - 1)}'
        return self._add(f'"[" ws {items if least else f"({items})?"} ws "]"')

    def _members(
        self, schema: Mapping[str, Any], left: tuple[str, ...], known: dict[tuple[Any, bool], str], *, first: bool
    ) -> str:
        """Return the rule of what follows in an object whose names in `left` may still come."""
        if (left, first) in known:
            return known[left, first]
        name = known[left, first] = self._add("")
        comma = "" if first else '"," ws '
        required, properties = set(schema.get("required", ())), schema.get("properties", {})
        ways = []
        for place, key in enumerate(left):
            rest = left[:place] + left[place + 1 :] if len(properties) <= ANY_ORDER else left[place + 1 :]
            after = self._members(schema, rest, known, first=False)
            ways.append(f'{comma}{_written(key)} ws ":" ws {self.of(properties[key])} ws {after}')
            if key in required and len(properties) > ANY_ORDER:
                break
        others = schema.get("additionalProperties", not properties)
        if others is not False:
            after = self._members(schema, left, known, first=False)
            ways.append(f'{comma}string ws ":" ws {self.of(others)} ws {after}')
        if not required.intersection(left):
            ways.append('"}"')
        self.rules[name] = " | ".join(ways)
        return name

    def _add(self, body: str) -> str:
        name = f"part-{len(self.rules)}"
        self.rules[name] = body
        return name


def _string(schema: Mapping[str, Any]) -> str:
    if schema.get("format") in _FORMATS:
        return rf'"\"" {_FORMATS[schema["format"]]} "\""'
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    return rf'"\"" char{_times(least, most)} "\""' if least or most is not None else "string"


def _times(least: int, most: int | None) -> str:
    if not least and most is None:
        return "*"
    return f"{{{least},{'' if most is None else most}}}"


def _written(value: Any) -> str:
    """A value itself as a rule's part."""
    return literal(json.dumps(value, ensure_ascii=False))


def _guessed(schema: Mapping[str, Any]) -> Sequence[str]:
    """The types of a schema that names none."""
    if "properties" in schema or "required" in schema:
        return ("object",)
    return ("array",) if "items" in schema or "prefixItems" in schema else _TYPES


def _merged(schemas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One schema for several that all must fit: of what two say, properties and `required` are joined."""
    merged: dict[str, Any] = {}
    for one in schemas:
        both = {key: merged[key] for key in ("properties", "required") if key in merged and key in one}
        merged |= one
        merged |= {key: {**old, **one[key]} if key == "properties" else [*old, *one[key]] for key, old in both.items()}
    return merged
