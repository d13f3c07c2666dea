"""Reads a graph's schema from a prompt, in the forms that schemas are written in.

`Movie {title, released}`, `- **Movie**` with a property a line, `(:Person)-[:ACTED_IN {role}]->(:Movie)`, lists of names below
a heading, and documents, see `graph_schema_json`. What is none of these is passed over.
"""

from __future__ import annotations

import re

from expert_cli.inference.grammar.cypher.graph_schema import GraphSchema
from expert_cli.inference.grammar.cypher.graph_schema_json import FoundNames, documents

_NAME = r"`[^`\n]+`|[^\W\d]\w*"
_MAP = r"\{[^{}]*\}"
_NODE = rf"\(\s*(?:\w*\s*:)?\s*(?:{_NAME})(?:\s*[:|&]\s*(?:{_NAME}))*\s*(?:{_MAP})?\s*\)"
_LINK = rf"<?\s*-\s*\[\s*(?:\w*\s*:)?\s*(?:{_NAME})(?:\s*\|\s*:?(?:{_NAME}))*\s*(?:{_MAP})?\s*\]\s*-\s*>?"
_PATH = re.compile(
    rf"{_NODE}(?:\s*{_LINK}\s*{_NODE})+|^\W*\(\s*\w*\s*:\s*(?:{_NAME})\s*(?:{_MAP})?\s*\)(?!\s*<?\s*-)", re.MULTILINE
)
_PART = re.compile(rf"({_NODE})|({_LINK})")
_ENTRY = re.compile(rf"(?:^|[,;:}}\]])\s*[-*•]?\s*({_NAME})\s*({_MAP})", re.MULTILINE)
_BULLET = re.compile(rf"\s*[-*•]?\s*\*\*\s*({_NAME})\s*\*\*\s*:?\s*(.*)")
_PROPERTY = re.compile(rf"\s*[-*•]\s*`?({_NAME}|[^\W\d]\w*)`?\s*(?::.*)?$")
_INLINE_PROPERTY = re.compile(r"`(\w+)(?:`\s*:|\s*:)")
_MEMGRAPH = re.compile(
    r"(Node|Relationship) name: '([^']+)', (?:Node|Relationship) properties: (\[[^\]]*\])", re.IGNORECASE
)
_TRIPLE = re.compile(
    r"\{\s*'?start'?\s*:\s*'?(\w+)'?\s*,\s*'?type'?\s*:\s*'?(\w+)'?\s*,\s*'?end'?\s*:\s*'?(\w+)'?\s*\}"
)
_HEADING = re.compile(r"\b(nodes?|labels?|relationships?|edges?)\b[^.?!:]*:", re.IGNORECASE)
_BARE = re.compile(rf"\s*[-*•]?\s*({_NAME})\s*$")
_LINKS = ("relationship", "edge")
_QUOTES = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")


def read_graph_schema(text: str) -> GraphSchema | None:
    """Return the labels, relationship types and properties that a prompt tells of; None where it tells of none."""
    found = FoundNames()
    rest = documents(text, found)
    for start, type_, end in _TRIPLE.findall(rest):
        found.relationship(start, type_, end)
    rest = _TRIPLE.sub(" ", rest)
    for kind, name, properties in _MEMGRAPH.findall(rest):
        names = re.findall(r"'property': '([^']+)'", properties)
        (found.label if kind.lower() == "node" else found.type)(name, names)
    rest = _PATH.sub(lambda path: _path(path[0], found), _MEMGRAPH.sub(" ", rest))
    _lines(rest, found)
    return found.schema(
        types_told=not re.search(r"^\W*(?:the )?(?:relationship|edge)s?\b[^?\n]*:\s*\S", rest, re.I | re.M)
    )


def _path(path: str, found: FoundNames) -> str:
    """Take a path of the graph; return what stands in its place."""
    before: list[str] = []
    link: tuple[str, list[str]] | None = None
    for node, arrow in _PART.findall(path):
        names = [_plain(name) for name in re.findall(_NAME, _head(node or arrow))]
        properties = _properties(_QUOTES.sub("", node or arrow)) or ()
        if arrow:
            for name in names:
                found.type(name, properties)
            link = (arrow, names)
            continue
        for name in names:
            found.label(name, properties)
        for type_ in link[1] if link is not None else ():
            for one in before:
                for other in names:
                    start, end = (other, one) if link is not None and link[0].startswith("<") else (one, other)
                    found.relationship(start, type_, end)
        before = names
    return " "


def _head(part: str) -> str:
    """Return the names of a node or relationship, without its variable and its properties."""
    bare = re.sub(_MAP, "", part)
    return bare.partition(":")[2] if ":" in bare else bare


def _lines(text: str, found: FoundNames) -> None:
    """Take what stands line by line, below headings or not."""
    text = _QUOTES.sub(lambda quote: " " * len(quote[0]), text)
    headings = [(heading.start(), heading[1].lower().rstrip("s")) for heading in _HEADING.finditer(text)]
    for entry in _ENTRY.finditer(text):
        section = next((kind for start, kind in reversed(headings) if start < entry.start(1)), "")
        name, properties = _plain(entry[1]), _properties(entry[2])
        if properties is not None:
            is_type = name in found.types and name not in found.labels
            (found.type if is_type or section in _LINKS else found.label)(name, properties)
    section, current, add = "", "", None
    for line in _ENTRY.sub(" ", text).splitlines():
        heading, bullet = _HEADING.search(line), _BULLET.match(line)
        if heading:
            section, add = heading[1].lower().rstrip("s"), None
        elif bullet:
            current, add = _plain(bullet[1]), found.type if section in _LINKS else found.label
            add(current, _INLINE_PROPERTY.findall(bullet[2]))
        elif add is not None and _PROPERTY.match(line):
            add(current, re.findall(rf"{_NAME}", line.replace("`", ""))[:1])
        elif section in ("node", "label") and _BARE.match(line):
            found.label(_plain(line.strip(" -*•")), None)


def _properties(text: str) -> list[str] | None:
    """Return the names in `{name: TYPE, other}`, none where there is no such thing, None where it is another one."""
    inside = text.partition("{")[2].rpartition("}")[0]
    parts = [part for part in re.sub(r"<[^<>]*>|\([^()]*\)|\[[^\[\]]*\]", "", inside).split(",") if part.strip()]
    names = [re.fullmatch(rf"\s*({_NAME})\s*(?::.*)?", part, re.DOTALL) for part in parts]
    return None if None in names else [_plain(name[1]) for name in names if name is not None]


def _plain(name: str) -> str:
    return name.strip().strip("`")
