"""What of a JSON Schema the beginning of a value tells: whether the value can still be one that fits.

Properties come in any order, and what a schema leaves open stays open. Held: type, enum, const, the bounds of numbers, texts,
lists and objects, pattern, some formats, uniqueItems, properties of all kinds, required, items, $ref inside the schema, allOf,
anyOf, oneOf (as anyOf). Other keywords hold nothing: an answer may break them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from expert_cli.errors import InputError
from expert_cli.inference.grammar.json_schema.forms import require_form, resolve
from expert_cli.inference.grammar.json_schema.number_bounds import could_reach
from expert_cli.inference.grammar.json_schema.prefix import NOTHING, Array, Number, Object, Text, Word
from expert_cli.inference.grammar.json_schema.texts import could_match, escaped_characters

_TYPES: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((str, Text), ("string",)),
    **dict.fromkeys((list, Array), ("array",)),
    **dict.fromkeys((dict, Object), ("object",)),
    Number: ("number", "integer"),
}


class JsonSchema:
    """A schema that values are held to."""

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        """Take a schema. Raises InputError for one that cannot be read, and says where."""
        self._root = schema
        self._closed: dict[tuple[int, int], tuple[Any, bool]] = {}
        for place, one in require_form(schema):
            try:
                self.fits(NOTHING, one)
            except RecursionError as error:
                raise InputError(f"{place}: $ref leads back to itself") from error

    def possible(self, value: Any) -> bool:
        """Return whether a value, open or closed, can become one that fits."""
        return self.fits(value, self._root)

    def fits(self, value: Any, schema: Any, used: Collection[Hashable] = ()) -> bool:
        """Return whether a value can fit a part of the schema. used: what an item that must be unlike others may not be."""
        if not isinstance(schema, Mapping):
            return schema is not False
        if not schema:
            return True
        if not isinstance(value, (list, dict)):
            return self._fits(value, schema, used)
        known = self._closed.get((id(schema), id(value)))
        if known is None:
            known = self._closed[id(schema), id(value)] = value, self._fits(value, schema, used)
        return known[1]

    def _fits(self, value: Any, schema: Mapping[str, Any], used: Collection[Hashable]) -> bool:
        if not all(any(self.fits(value, one, used) for one in ones) for ones in self._combined(schema)):
            return False
        choices = _choices(schema)
        if choices is not None and not any(_could_be(one, value) for one in choices if identity(one) not in used):
            return False
        if value is NOTHING:
            return True
        types = schema.get("type")
        if types is not None and not _is_of(value, [types] if isinstance(types, str) else types):
            return False
        if isinstance(value, (str, Text)):
            return _text_fits(value, schema)
        if isinstance(value, (list, Array)):
            return self._items_fit(value, schema)
        if isinstance(value, (dict, Object)):
            return self._members_fit(value, schema)
        number = isinstance(value, (int, float, Number)) and not isinstance(value, bool)
        return not number or could_reach(value, schema)

    def _combined(self, schema: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
        """Yield lists of schemas: of each, a value must fit one."""
        if "$ref" in schema:
            yield [resolve(self._root, schema["$ref"])]
        yield from ([one] for one in schema.get("allOf", ()))
        yield from (schema[word] for word in ("anyOf", "oneOf") if word in schema)

    def _items_fit(self, value: list[Any] | Array, schema: Mapping[str, Any]) -> bool:
        items, done = (value, True) if isinstance(value, list) else (value.items, False)
        if len(items) > schema.get("maxItems", math.inf) or (done and len(items) < schema.get("minItems", 0)):
            return False
        first, rest = schema.get("prefixItems", ()), schema.get("items", True)
        if isinstance(rest, list):  # drafts before 2020-12
            first, rest = rest, schema.get("additionalItems", True)
        seen: set[Hashable] = set()
        unique = schema.get("uniqueItems") is True
        for number, item in enumerate(items):
            if not self.fits(item, first[number] if number < len(first) else rest, seen):
                return False
            if unique and not _is_open(item):
                one = identity(item)
                if one in seen:
                    return False
                seen.add(one)
        return True

    def _members_fit(self, value: dict[str, Any] | Object, schema: Mapping[str, Any]) -> bool:
        members, name = (value, None) if isinstance(value, dict) else (value.members, value.name)
        if len(members) + (name is not None) > schema.get("maxProperties", math.inf):
            return False
        for key, item in members.items():
            if not self.fits(key, schema.get("propertyNames", True)):
                return False
            if not all(self.fits(item, one) for one in _of_property(schema, key)):
                return False
        if name is not None and not self._name_possible(name, members, schema):
            return False
        if isinstance(value, Object):
            return True
        needed = [*schema.get("required", ())]
        needed += [one for key, more in schema.get("dependentRequired", {}).items() if key in members for one in more]
        return len(members) >= schema.get("minProperties", 0) and members.keys() >= set(needed)

    def _name_possible(self, name: Text, members: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
        """Whether a name that begins so can be a further member's."""
        open_to_others = schema.get("additionalProperties", True) is not False
        names = (one for one in schema.get("properties", {}) if one not in members)
        if not open_to_others and not any(_begins(one, name) for one in names):
            patterns = schema.get("patternProperties", {})
            return any(_text_fits(name, {"pattern": one}) for one, of in patterns.items() if of is not False)
        return self.fits(name, schema.get("propertyNames", True))


def identity(value: Any) -> Hashable:
    """Return what two values have in common if, and only if, JSON Schema calls them equal: 1 and 1.0 are, 1 and true not."""
    if isinstance(value, dict):
        return frozenset((key, identity(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(map(identity, value))
    return (type(value) if isinstance(value, (bool, str)) else float, value)


def _choices(schema: Mapping[str, Any]) -> Sequence[Any] | None:
    """The values that a schema has alone, None where there are more than it lists."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    types = {schema["type"]} if isinstance(schema.get("type"), str) else set(schema.get("type", ()))
    if types and types <= {"boolean", "null"}:
        return [True, False] * ("boolean" in types) + [None] * ("null" in types)
    return None


def _could_be(choice: Any, value: Any) -> bool:
    """Whether a value can become one of those that are listed."""
    if value is NOTHING:
        return True
    if isinstance(value, Text):
        return isinstance(choice, str) and _begins(choice, value)
    if isinstance(value, (Number, Word)):
        number = isinstance(choice, (int, float)) and not isinstance(choice, bool)
        if isinstance(value, Number) != number or isinstance(choice, (str, list, dict)):
            return False
        return any(one.startswith(value.raw) for one in _written(choice))
    if isinstance(value, Array):
        pairs = zip(choice, value.items, strict=False) if isinstance(choice, list) else ()
        return isinstance(choice, list) and len(value.items) <= len(choice) and all(_could_be(*pair) for pair in pairs)
    if isinstance(value, Object):
        if not isinstance(choice, dict) or not value.members.keys() <= choice.keys():
            return False
        left = choice.keys() - value.members.keys()
        named = value.name is None or any(_begins(one, value.name) for one in left)
        return named and all(_could_be(choice[key], item) for key, item in value.members.items())
    return identity(choice) == identity(value)


def _written(number: Any) -> Iterator[str]:
    """The ways to write a value that is no text; a whole number also as a fraction, and the other way round."""
    yield json.dumps(number)
    if isinstance(number, (int, float)) and not isinstance(number, bool) and Fraction(number).denominator == 1:
        yield f"{int(number)}.0"


def _begins(text: str, written: Text) -> bool:
    """Whether a text, written out or with escapes, begins so."""
    begun = written.raw + written.half
    return any(form.startswith(begun) for form in _forms(text))


@lru_cache(maxsize=65536)
def _forms(text: str) -> tuple[str, ...]:
    return tuple({json.dumps(text, ensure_ascii=escaped)[1:-1]: None for escaped in (False, True)})


def _is_open(value: Any) -> bool:
    return value is NOTHING or isinstance(value, (Text, Number, Word, Array, Object))


def _is_of(value: Any, types: Collection[str]) -> bool:
    if isinstance(value, Word):
        return ("null" if value.raw[0] == "n" else "boolean") in types
    if isinstance(value, bool):
        return "boolean" in types
    if value is None:
        return "null" in types
    if isinstance(value, (int, float)):
        return "number" in types or ("integer" in types and value == int(value))
    return any(name in types for name in _TYPES[type(value)])


def _text_fits(value: str | Text, schema: Mapping[str, Any]) -> bool:
    if isinstance(value, Text):
        if not value.half:
            return could_match(value.value, schema, done=False)
        narrow = not schema.keys().isdisjoint(("maxLength", "pattern", "format"))
        begun = value.value
        return not narrow or any(could_match(begun + one, schema, done=False) for one in escaped_characters(value.half))
    return could_match(value, schema, done=True)


def _of_property(schema: Mapping[str, Any], key: str) -> list[Any]:
    """The schemas of a member's value."""
    found = [schema["properties"][key]] if key in schema.get("properties", ()) else []
    patterns = schema.get("patternProperties", {})
    found += [one for pattern, one in patterns.items() if could_match(key, {"pattern": pattern}, done=True)]
    return found or [schema.get("additionalProperties", True)]
