"""Forms of Cypher that graphqlite lacks or runs otherwise than Neo4j: written in others, or named where that cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable

from expert_cli.evaluation.verifiers.query_text import rewrite_code

DISTINCT = "collect(DISTINCT)"
"""Marks a list of two whose second is a list to be kept without repetitions, see `graphqlite_engine`."""
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
_LACKING = {
    "CALL { WITH }": r"\bCALL\s*\{\s*WITH\b",
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
_WRONG = ("CALL { WITH }",)


def for_graphqlite(query: str) -> str:
    """Return the query as graphqlite understands it."""
    return rewrite_code(query, "cypher", _rewritten)


def lacking(query: str, *, refused: bool) -> str:
    """Return the form of Cypher in a query that graphqlite lacks, "" for none; only what it runs wrongly unless `refused`."""
    found: list[str] = []
    names = _LACKING if refused else _WRONG

    def look(code: str) -> str:
        found.extend(name for name in names if re.search(_LACKING[name], code, re.IGNORECASE))
        return code

    rewrite_code(query, "cypher", look)
    return found[0] if found else ""


def _rewritten(code: str) -> str:
    code = _BOTH_LABELS.sub(":", code)
    code = _CASE.sub(r"to\g<0>", code)
    code = _REPEATED.sub(_repeated, code)
    code = _each(_COUNT, code, _count)
    code = _each(_EXTREME, code, lambda call, inside: f"{call}coalesce({inside}, null))")
    return _each(_COLLECT, code, lambda _, inside: f"reverse(['{DISTINCT}', collect({inside})])")


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
        bracket = call.end() if opening is not _COLLECT else call.start() + call[0].index("(") + 1
        end = _closing(code, bracket)
        if end:
            code = code[: call.start()] + by(call[0], code[call.end() : end]) + code[end + 1 :]
    return code


def _closing(code: str, start: int) -> int:
    """Return where the bracket before `start` is closed, 0 where it is not."""
    depth = 1
    for place in range(start, len(code)):
        depth += (code[place] in "([{") - (code[place] in ")]}")
        if not depth:
            return place
    return 0
