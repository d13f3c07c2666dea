"""Reads a graph's schema from documents in a prompt: those of Neo4j's procedures and of the libraries that ask for them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from expert_cli.inference.grammar.cypher.graph_schema import GraphSchema, Step

_START = ("start", "source", "from", "startNode", "start_node")
_TYPE = ("type", "relationship", "relType", "label", "name")
_END = ("end", "target", "to", "endNode", "end_node")
_LABEL = ("labels", "label", "nodeLabels", "nodeType", "name")
_PROPERTY = ("property", "propertyName", "name", "key")


class FoundNames:
    """What was found so far. Properties are None where none are told."""

    def __init__(self) -> None:
        self.labels: dict[str, set[str] | None] = {}
        self.types: dict[str, set[str] | None] = {}
        self._relationships: set[Step] = set()

    def label(self, name: str, properties: Iterable[str] | None) -> None:
        """Take a label."""
        _add(self.labels, name, properties)

    def type(self, name: str, properties: Iterable[str] | None) -> None:
        """Take a relationship type."""
        _add(self.types, name, properties)

    def relationship(self, start: str, type_: str, end: str) -> None:
        """Take a relationship."""
        if all(isinstance(name, str) and name for name in (start, type_, end)):
            self.label(start, ())
            self.label(end, ())
            self.type(type_, ())
            self._relationships.add((start, type_, end))

    def schema(self, types_told: bool) -> GraphSchema | None:
        """Return the schema; where no properties are told, any may be. types_told: where no type was found, there is none."""
        if not self.labels:
            return None
        told = any(self.labels.values())

        def known(names: Mapping[str, set[str] | None]) -> dict[str, frozenset[str] | None]:
            return {name: frozenset(of) if of is not None and told else None for name, of in names.items()}

        types = known(self.types) if self.types or types_told else None
        return GraphSchema(known(self.labels), types, frozenset(self._relationships))


def documents(text: str, found: FoundNames) -> str:
    """Take the documents in a text, as JSON or as Python writes them; return the text without them."""
    rest, at = [], 0
    for start, end, document in _documents(text):
        if _take(document, found):
            rest.append(text[at:start])
            at = end
    return " ".join([*rest, text[at:]])


def _documents(text: str) -> Iterator[tuple[int, int, Any]]:
    decoder, at = json.JSONDecoder(), 0
    for match in re.finditer(r"[\[{]", text):
        if match.start() < at:
            continue
        try:
            document, at = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            end = _closing(text, match.start())
            try:
                document, at = ast.literal_eval(text[match.start() : end]), end
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
        yield match.start(), at, document


def _closing(text: str, start: int) -> int:
    """Return where the bracket that opens there is closed, or the text ends."""
    depth = 0
    for match in re.compile(r"[\[{]|[\]}]").finditer(text, start):
        depth += 1 if match[0] in "[{" else -1
        if not depth:
            return match.end()
    return len(text)


def _take(document: Any, found: FoundNames) -> bool:
    """Take the names of a document; return whether it has any."""
    if isinstance(document, list):
        return sum(_take(one, found) for one in document) > 0  # each is to be taken
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        return False
    start, end = (_first(document, keys) for keys in (_START, _END))
    if start and end:
        for type_ in _first(document, _TYPE):
            found.type(type_, _names(document.get("properties")))
            for one in start:
                for other in end:
                    found.relationship(one, type_, other)
        return True
    return _entry(document, found) or _sections(document, found) or _by_name(document, found)


def _sections(document: Mapping[str, Any], found: FoundNames) -> bool:
    """Take a document that tells of nodes and of relationships under names of their own."""
    taken = False
    for key, value in document.items():
        kinds = {"node": found.label, "rel": found.type, "edge": found.type}
        add = next((add for start, add in kinds.items() if key.lower().startswith(start)), None)
        if key == "patterns" and isinstance(value, list):
            for start, type_, end in (one for one in value if isinstance(one, list | tuple) and len(one) == 3):
                found.relationship(start, type_, end)
        elif add is not None and isinstance(value, dict) and "type" not in document:
            for name, properties in value.items():
                inner = isinstance(properties, dict) and "properties" in properties
                add(name, _names(properties["properties"] if inner else properties))
                taken = True
        elif add is not None and isinstance(value, list):
            taken = sum(_listed(one, found, add == found.label) for one in value) > 0 or taken
    return taken


def _listed(one: Any, found: FoundNames, is_node: bool) -> bool:
    if isinstance(one, str):
        (found.label if is_node else found.type)(one, None)
        return True
    if not isinstance(one, dict):
        return False
    if _first(one, _START) and _first(one, _END):
        return _take(one, found)
    for name in _first(one, _LABEL if is_node else _TYPE):
        (found.label if is_node else found.type)(name, _names(one.get("properties")))
    return True


def _entry(document: Mapping[str, Any], found: FoundNames) -> bool:
    """Take one label or type with its properties, or with one of them."""
    for keys, add in ((_LABEL[:4], found.label), (("relType", "type"), found.type)):
        names = _first(document, keys)
        if names and ("properties" in document or "propertyName" in document):
            properties = document.get("properties", [document.get("propertyName")])
            for name in names:
                add(name, _names(properties))
            return True
    if isinstance(document.get("key"), str) and isinstance(document.get("value"), dict):
        return _by_name({document["key"]: document["value"]}, found)
    return False


def _by_name(document: Mapping[str, Any], found: FoundNames) -> bool:
    """Take what apoc.meta.schema tells: {name: {type: node or relationship, properties, relationships}}."""
    taken = False
    for name, value in document.items():
        if isinstance(value, dict) and (value.get("type") in ("node", "relationship") or "properties" in value):
            taken = True
            is_type = value.get("type") == "relationship"
            (found.type if is_type else found.label)(name, _names(value.get("properties") or {}))
            links = value.get("relationships")
            for type_, link in links.items() if isinstance(links, dict) else ():
                told = link if isinstance(link, dict) else {}
                found.type(type_, _names(told.get("properties") or {}))
                for other in _first(told, ("labels",)):
                    ends = (name, other) if told.get("direction") != "in" else (other, name)
                    found.relationship(ends[0], type_, ends[1])
        elif isinstance(value, dict):
            taken = _take(value, found) or taken
    return taken


def _names(properties: Any) -> list[str] | None:
    """Return the properties' names."""
    if isinstance(properties, dict):
        return list(properties)
    if not isinstance(properties, list):
        return None
    return [one if isinstance(one, str) else next(iter(_first(one, _PROPERTY)), "") for one in properties]


def _first(document: Any, keys: Iterable[str]) -> list[str]:
    """Return the names under the first of the keys: one, or several in a list."""
    for key in keys:
        value = document.get(key) if isinstance(document, dict) else None
        if isinstance(value, str):
            return [name.strip("`") for name in re.split(r"`?:`?", value.strip(":`")) if name]
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            return value
    return []


def _add(to: dict[str, set[str] | None], name: str, properties: Iterable[str] | None) -> None:
    if not isinstance(name, str) or not name:
        return
    known = to.setdefault(name, None if properties is None else set())
    if properties is not None:
        to[name] = (known or set()) | {one for one in properties if one}
