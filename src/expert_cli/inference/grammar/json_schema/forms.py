"""The form of a JSON Schema: what its keywords hold, and what its references lead to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from expert_cli.errors import InputError
from expert_cli.inference.grammar.json_schema.texts import pattern_of

_TYPES = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))
_SCHEMAS = ("additionalProperties", "propertyNames", "additionalItems")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPPINGS = ("properties", "patternProperties", "$defs", "definitions")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS = ("minimum", "maximum", "multipleOf")


def require_form(schema: Any, place: str = "#") -> Iterator[tuple[str, Any]]:
    """Yield a schema and all in it with their places. Raises InputError where a keyword does not hold what it should."""
    if isinstance(schema, bool):
        return
    _require(isinstance(schema, Mapping), place, "is no schema")
    yield place, schema
    _require_values(schema, place)
    for word in _SCHEMAS:
        if word in schema:
            yield from require_form(schema[word], f"{place}/{word}")
    items = schema.get("items", True)
    listed = {word: schema[word] for word in _LISTS if word in schema} | (
        {"items": items} if isinstance(items, list) else {}
    )
    if not isinstance(items, list):
        yield from require_form(items, f"{place}/items")
    for word, ones in listed.items():
        _require(isinstance(ones, list) and bool(ones), f"{place}/{word}", "is no list of schemas")
        for number, one in enumerate(ones):
            yield from require_form(one, f"{place}/{word}/{number}")
    for word in _MAPPINGS:
        ones = schema.get(word, {})
        _require(isinstance(ones, Mapping), f"{place}/{word}", "holds no schemas by name")
        for name, one in ones.items():
            yield from require_form(one, f"{place}/{word}/{name}")


def resolve(root: Any, reference: Any) -> Any:
    """Return what a reference inside the schema leads to. Raises InputError for any other."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise InputError(f"$ref {reference!r} leads out of the schema", "put what it names under $defs")
    found = root
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(name)] if isinstance(found, list) else found[name]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise InputError(f"$ref {reference!r} leads nowhere") from error
    return found


def _require_values(schema: Mapping[str, Any], place: str) -> None:
    types = schema.get("type", [])
    for name in [types] if isinstance(types, str) else types if isinstance(types, list) else [None]:
        _require(name in _TYPES, f"{place}/type", f"is {name!r}, not one of {', '.join(sorted(_TYPES))}")
    for word in ("required", "enum"):
        _require(isinstance(schema.get(word, []), list), f"{place}/{word}", "is no list")
    for word in _COUNTS:
        _require(isinstance(schema.get(word, 0), int), f"{place}/{word}", "is no count")
    for word in _NUMBERS:
        _require(
            isinstance(schema.get(word, 1), (int, float)) and schema.get(word) is not False,
            f"{place}/{word}",
            "is no number",
        )
    _require(schema.get("multipleOf", 1) > 0, f"{place}/multipleOf", "is not above 0")
    for pattern in [*([schema["pattern"]] if "pattern" in schema else []), *schema.get("patternProperties", ())]:
        _require(isinstance(pattern, str), f"{place}/pattern", "is no text")
        pattern_of(pattern)
    more = schema.get("dependentRequired", {})
    _require(
        isinstance(more, Mapping) and all(isinstance(one, list) for one in more.values()),
        f"{place}/dependentRequired",
        "is no lists by name",
    )


def _require(fits: bool, place: str, what: str) -> None:
    if not fits:
        raise InputError(f"{place} of the JSON Schema {what}")
