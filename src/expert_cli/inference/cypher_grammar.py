"""A Lark grammar (llguidance) for Cypher that restricts a query to the graph in its prompt.

Outside patterns, the grammar checks words, not clauses. Patterns follow the shown relationships in their direction. A property
after a variable must belong to the label or type of the variable.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

_NAME = r"[^\W\d]\w*"
_ENTRY = re.compile(rf"^\s*[-*]?\s*({_NAME})\s*\{{([^{{}}\n]*)\}}\s*$", re.MULTILINE)
_NODE = rf"\(\s*:\s*({_NAME})\s*(?:\{{[^{{}}]*\}}\s*)?\)"
_PATH = re.compile(rf"{_NODE}-\[\s*:\s*({_NAME})\s*(?:\{{([^{{}}]*)\}})?\s*\]->{_NODE}")
_HEADING = re.compile(
    r"^\W*(node|relationship) properties\b|^- \*\*(.+?)\*\*|^\s+- `(\w+)", re.IGNORECASE | re.MULTILINE
)
_MADE = re.compile(
    rf"\(\s*({_NAME})\s*:\s*({_NAME})(?=\W)|\[\s*({_NAME})\s*:\s*({_NAME})(?=\W)|[(\[]\s*({_NAME})\s*[)\]{{*]|\bas\s+({_NAME}|`[^`]+`)(?=\W)"
    rf"|({_NAME})\s*=\s*(?:\w+\s*)?\(|({_NAME})\s+in\b",
    re.IGNORECASE,
)
_WORDS = """
abs all and any as asc ascending avg by call case ceil coalesce collect contains count date datetime desc descending
distinct duration duration.between else end endnode ends exists false floor foreach head id in is keys labels last left
length limit match max min nodes none not null optional or order properties rand range reduce relationships replace
return right round shortestpath sign single size skip split sqrt startnode starts stdev substring sum tail then time
timestamp toboolean tofloat tointeger tolower tostring toupper trim true type union unwind when where with xor
"""
_FIELDS = "day days hour hours minute minutes month months second seconds week year years"


@dataclass
class Graph:
    """The graph in a prompt: properties by label and by type; relationships as (label, type, label), in their direction."""

    labels: dict[str, list[str]] = field(default_factory=dict)
    types: dict[str, list[str]] = field(default_factory=dict)
    relationships: list[tuple[str, str, str]] = field(default_factory=list)


def read_graph(text: str) -> Graph | None:
    """Return the graph in a prompt, written as `Label {name}` and `(:A)-[:T]->(:B)`, or as lists; None for none."""
    graph = Graph()
    for entry in _ENTRY.finditer(text):
        above = [heading[1].lower() for heading in _HEADING.finditer(text, 0, entry.start()) if heading[1]]
        of_kind = graph.types if above[-1:] == ["relationship"] else graph.labels
        of_kind[entry[1]] = _properties(entry[2])
    shown, current = graph.labels, list[str]()
    for heading, name, listed in _HEADING.findall(text):
        if heading:
            shown = graph.labels if heading.lower() == "node" else graph.types
        elif name:
            current = shown.setdefault(name, [])
        else:
            current.append(listed)
    for start, type_, properties, end in _PATH.findall(text):
        graph.types.setdefault(type_, _properties(properties))
        graph.relationships.append((start, type_, end))
        for label in (start, end):
            graph.labels.setdefault(label, [])
    return graph if graph.labels else None


def _properties(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.partition(":")[0].strip(" `"))]


def made_variables(query: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return the variables that a query, or the beginning of one, defines, each with its labels or types."""
    made: dict[str, frozenset[str]] = defaultdict(frozenset)
    for node, label, relationship, type_, *others in _MADE.findall(query):
        made[node or relationship or next(filter(None, others))] |= {label or type_} - {""}
    return tuple(made.items())


def cypher_grammar(graph: Graph, variables: Iterable[tuple[str, Collection[str]]] | None = ()) -> str:
    """Return the grammar of queries on a graph. variables: those of `made_variables`; None: any name."""
    known, made = {**graph.labels, **graph.types}, dict(variables or ())
    every = sorted({name for names in known.values() for name in names})
    number = {name: n for n, name in enumerate(known)}
    of_any = [*every, *_FIELDS.split()]
    words = [f'NAME ("." ({_any(of_any)}))?'] if variables is None else []
    for name, kinds in made.items():
        own = [one for kind in kinds for one in known.get(kind, ())] if kinds else of_any
        words.append(f'"{name}"' + (f' ("." ({_any(own)}))?' if own else ""))
    rules = []
    for label, properties in graph.labels.items():
        bound = "".join(f' | "{name}"' for name, kinds in made.items() if label in kinds)
        named = f"(FREE{bound})?"  # a bound variable is not a node of another label
        rules.append(f'node_{number[label]}: "(" SP? ({named} ":" "{label}" (SP? {_map(properties)})?{bound}) SP? ")"')
        steps = ["any_way from"]
        for start, type_, end in dict.fromkeys(graph.relationships):
            if start == label:
                steps += [f'"-" of_{number[type_]} ("->" | "-") to_{number[end]}']
            if end == label:
                steps += [f'("<-" | "-") of_{number[type_]} "-" to_{number[start]}']
        rules.append(f"to_{number[label]}: from_{number[label]} | from_any")
        rules.append(f"from_{number[label]}: node_{number[label]} ({' | '.join(dict.fromkeys(steps))})?")
    for type_, properties in graph.types.items():
        rules.append(f'of_{number[type_]}: "[" SP? NAME? ":" "{type_}" (SP? {_map(properties)})? SP? "]"')
    bound = "|".join(name for name, kinds in made.items() if kinds)
    labels = " | ".join(f"from_{number[label]}" for label in graph.labels)
    types = " | ".join(f"of_{number[name]}" for name in graph.types) or '"--"'
    type_names = _any(graph.types) or '"--"'
    return "\n".join(
        [
            'start: body ";"?',
            'body: SP? (word SP | word? SP? (MARK | "(" body ")" | "[" body "]" | "{" body "}" | path) SP?)* word?',
            f'word: WORD | NUMBER | TEXT | "as"i SP NAME | NAME SP "in"i {"".join(f" | {one}" for one in words)}',
            'path: (NAME SP? "=" SP?)? ("shortestPath"i SP? "(" from ")" | from)',
            f"from: {labels} | from_any",
            f'from_any: "(" SP? FREE? (SP? {_map(every)})? SP? ")" (any_way from | ("-" | "<-") ({types}) ("-" | "->") from)?',
            'any_way: ("--" | "-->" | "<--" | ("-" | "<-") "[" SP? NAME? many? SP? "]" ("-" | "->"))',
            f'many: "*" SPAN? | ":" ({type_names}) ("*" SPAN? | ("|" ":"? ({type_names}))+ ("*" SPAN?)?)',
            *rules,
            'value: word | TEXT | NUMBER | "-" NUMBER',
            f"WORD: {_any(_WORDS.split(), 'i')}",
            r"NAME: /[a-zA-Z_][a-zA-Z0-9_]{0,40}/ | /`[^`\n]{1,40}`/",
            f"FREE: NAME{f' & ~/{bound}/' if bound else ''}",
            r"NUMBER: /[0-9]{1,15}(\.[0-9]{1,15})?([eE]-?[0-9]{1,3})?/",
            r"TEXT: /'([^'\n\\]|\\.){0,200}'/ | /\"([^\"\n\\]|\\.){0,200}\"/",
            r"SPAN: /[0-9]{0,2}(\.\.[0-9]{0,2})?/",
            r"MARK: /[-+*\/%=<>,|^]|=~|\.\./",
            r"SP: /[ \t\n]{1,24}/",
        ]
    )


def _map(properties: Iterable[str]) -> str:
    if not (names := _any(properties)):
        return '"{}"'
    entry = f'({names}) SP? ":" SP? value'
    return f'"{{" SP? {entry} (SP? "," SP? {entry})* SP? "}}"'


def _any(names: Iterable[str], flag: str = "") -> str:
    return " | ".join(f"{json.dumps(name)}{flag}" for name in sorted({*names}))
