"""What is read in the text of a Cypher query: forms that graphqlite lacks or runs otherwise than Neo4j, which are written in
others or named; and labels, types and properties that its graph does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping

from expert_cli.evaluation.verifiers.query_text import PRIVATE, hide_quotes, show_quotes

DISTINCT = "collect(DISTINCT)"
"""Marks a list of two whose second is a list to be kept without repetitions, see `sandbox/graphqlite.py`."""
_MAX_CALLS = 50
_REPEATED = re.compile(r"(-\[[^\[\]{}*]*)\](->?)\s*(?:\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}|([+*]))(?=\s*\()")
_BOTH_LABELS = re.compile(r"(?<=\w)&(?=\w)")
_CASE = re.compile(r"(?<![.\w])(?:upper|lower)(?=\s*\()", re.IGNORECASE)
_COUNT = re.compile(r"\bCOUNT\s*\{", re.IGNORECASE)
_PATTERN = re.compile(r"\s*(?:MATCH\b\s*)?(?=\()", re.IGNORECASE)
_WHERE = re.compile(r"\bWHERE\b", re.IGNORECASE)
_CLAUSE = re.compile(r"\b(?:RETURN|WITH|UNION|MATCH|CALL|UNWIND)\b", re.IGNORECASE)
_COLLECT = re.compile(r"(?<![.\w])collect\s*\(\s*DISTINCT\b", re.IGNORECASE)
_EXTREME = re.compile(r"(?<![.\w])(?:max|min)\s*\(", re.IGNORECASE)
_RUN_WRONGLY = "CALL { WITH }"
_LACKING = {
    _RUN_WRONGLY: r"\bCALL\s*\{\s*WITH\b",
    "CALL (variables) { }": r"\bCALL\s*\(",
    "COUNT { }": _COUNT.pattern,
    "COLLECT { }": r"\bCOLLECT\s*\{",
    "quantified paths": r"[)\]>-]\s*(?:\{\s*\d*\s*,?\s*\d*\s*\}|[+*](?=\s*\())",
    "label expressions": r":\s*[!%(]|\w\s*&\s*!?",
    "WHERE inside a pattern": r"[(\[]\s*\w*\s*(?::[^()\[\]]*)?\bWHERE\b",
    "SHORTEST": r"\b(?:SHORTEST|ANY)\s+\d*\s*(?:PATHS?|GROUPS?)?\s*\(",
    "IS ::": r"\bIS\s+(?:NOT\s+)?(?:::|TYPED\b)",
    "FILTER": r"\bFILTER\b",
    "LET": r"\bLET\b",
    "TRIM(... FROM ...)": r"\btrim\s*\([^()]*\bFROM\b",
    "fields of dates and durations": r"\b(?:date|(?:local)?(?:date)?time|duration)(?:\.\w+)?\s*"
    r"\([^()]*(?:\([^()]*\)[^()]*)*\)\s*\.",
    "toIntegerList and its like": r"\bto(?:Integer|Float|String|Boolean)List\s*\(",
}


def for_graphqlite(query: str) -> str:
    """Return the query as graphqlite understands it."""
    code, quotes = hide_quotes(query, "cypher")
    code = _REPEATED.sub(_repeated, _CASE.sub(r"to\g<0>", _BOTH_LABELS.sub(":", code)))
    code = _each(_COUNT, code, _count)
    code = _each(_EXTREME, code, lambda call, inside: f"{call}coalesce({inside}, null))")
    code = _each(_COLLECT, code, lambda _, inside: f"reverse(['{DISTINCT}', collect({inside})])")
    return show_quotes(code, quotes)


def lacking(query: str, *, refused: bool) -> str:
    """Return the form of Cypher in a query that graphqlite lacks, "" for none; only what it runs wrongly unless `refused`."""
    code, _ = hide_quotes(query, "cypher")
    names = _LACKING if refused else (_RUN_WRONGLY,)
    return next((name for name in names if re.search(_LACKING[name], code, re.IGNORECASE)), "")


def _repeated(found: re.Match[str]) -> str:
    """Write -[:X]->{1,2} as -[:X*1..2]->."""
    start, arrow, least, comma, most, mark = found.groups()
    least, most = ("1" if mark == "+" else "0", "") if mark else (least or "0", most if comma else least)
    return f"{start}*{least}..{most}]{arrow}"


def _count(call: str, inside: str) -> str:
    """Write COUNT { pattern } as the size of a list."""
    start = _PATTERN.match(inside)
    pattern = inside[start.end() :].strip() if start else ""
    paths = _WHERE.split(pattern, maxsplit=1)[0]
    if not start or "," in re.sub(r"\{[^{}]*\}", "", paths) or _CLAUSE.search(pattern):
        return f"{call}{inside}}}"
    return f"size([{pattern} | 1])"


def _each(opening: re.Pattern[str], code: str, by: Callable[[str, str], str]) -> str:
    """Replace what begins with `opening`, a bracket at its end, and what stands in that bracket; the inner ones first."""
    calls = list(opening.finditer(code))
    for call in reversed(calls if len(calls) <= _MAX_CALLS else []):
        depth = sum((mark in "([{") - (mark in ")]}") for mark in call[0])
        for end in range(call.end(), len(code)):
            depth += (code[end] in "([{") - (code[end] in ")]}")
            if not depth:
                code = code[: call.start()] + by(call[0], code[call.end() : end]) + code[end + 1 :]
                break
    return code


_NAME = rf"(?:[^\W\d]\w*|[{PRIVATE}])(?!\w)"
_OPENS = r"(?:(?<!\w)\(|-\s*\[)\s*"
_VARIABLE = re.compile(rf"{_OPENS}({_NAME})")
_KEY = re.compile(rf"[{{,]\s*({_NAME})\s*:")
_PATTERN_MAP = re.compile(rf"{_OPENS}(?:{_NAME})?\s*(?::[^()\[\]{{}}]*)?\{{[^{{}}]*\}}")
_TYPES = re.compile(rf"-\s*\[\s*(?:{_NAME})?\s*:[^\]{{*]*")
_LABELS = re.compile(rf":\s*!?\s*{_NAME}(?:\s*[|&]\s*[:!]?\s*{_NAME})*")
_PROPERTY = re.compile(rf"(?<![\w.])({_NAME})\s*\.\s*({_NAME})(?!\s*\()")
_COMPONENTS = re.compile(
    "(?:year|quarter|month|week|day|hour|minute|(?:milli|micro|nano)?second)s?|weekYear|weekDay|ordinalDay|dayOf(?:Week|Quarter)"
    "|timezone|offset|epoch(?:Seconds|Millis)|[xyz]|latitude|longitude|height|crs|srid"
)
"""What dates, times, durations and points have, which are no nodes."""


def unknown_name(statement: str, graph: Mapping[str, Container[str]]) -> str:
    """Return the first name of a statement that the graph does not have, and of what sort it is; "" for none.

    A graph has no schema: such a query runs, and finds nothing. What counts is what Neo4j warns of, too: a label, type or
    property that the graph has nowhere, on whatever node; one that only other nodes have is no unknown name.
    """
    code, quotes = hide_quotes(statement, "cypher")

    def read(name: str) -> str:
        return re.sub("`(`?)", r"\1", show_quotes(name, quotes))

    in_patterns = [(found.start(), found.end()) for found in _PATTERN_MAP.finditer(code)]
    keys = {key.start(1): read(key[1]) for key in _KEY.finditer(code)}
    asked = {at: name for at, name in keys.items() if any(start < at < end for start, end in in_patterns)}
    made, variables = {*keys.values()} - {*asked.values()}, {read(name) for name in _VARIABLE.findall(code)}
    named = [(at, "property", name) for at, name in asked.items()]
    for owner in _PROPERTY.finditer(code):
        name = read(owner[2])
        if read(owner[1]) in variables or not (name in made or _COMPONENTS.fullmatch(name)):
            named.append((owner.start(2), "property", name))
    labels = code
    for other in (_KEY, _TYPES):
        labels = other.sub(lambda found: " " * len(found[0]), labels)
    for sort, pattern, text in (("type", _TYPES, code), ("label", _LABELS, labels)):
        for group in pattern.finditer(text):
            found = re.finditer(rf"[:|&!]\s*({_NAME})", group[0])
            named += [(group.start() + one.start(), sort, read(one[1])) for one in found]
    return next((f"the graph has no {sort} {name}" for _, sort, name in sorted(named) if name not in graph[sort]), "")
