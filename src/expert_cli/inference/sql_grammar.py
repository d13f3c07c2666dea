"""A Lark grammar (llguidance) for SQL that restricts a query to the tables in its prompt, and a check by SQLite's compiler.

The grammar checks words, not clauses: keywords, functions, numbers, strings, and the names in the prompt. After a table's name
and a dot, only its columns are allowed. SQLite checks everything else (`compiler`): apsw's, which also judges answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from expert_cli.data.database_prompt import HEADING, quoted

NAME = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+"|`[^`]+`|\[[^\]]+\])'
_CREATE = re.compile(
    rf"\bCREATE\s+(?:\w+\s+){{0,3}}?(?:TABLE|VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?(?:{NAME}\s*\.\s*)*(?P<name>{NAME})\s*\(",
    re.IGNORECASE,
)
_COMPACT = re.compile(rf"^{HEADING}\n(?:{NAME}\(.*\)(?:\n|\Z))+", re.MULTILINE)
_COMPACT_TABLE = re.compile(rf"^(?P<name>{NAME})\(", re.MULTILINE)
_PIECE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|[(),;]", re.DOTALL)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_FIRST = re.compile(rf"\s*({NAME}|[\w$]+)")
_CONSTRAINT = re.compile(
    r"\s*(?:(?:PRIMARY|FOREIGN)\s+KEY\b|CONSTRAINT\s|LIKE\s+\w+\s*$|FULLTEXT\s"
    r"|(?:UNIQUE\s+)?(?:UNIQUE|CHECK|EXCLUDE|KEY|INDEX)\b\s*[\w\"`\[\]]*\s*\((?!\s*\d+\s*[,)]))",  # not key VARCHAR(50)
    re.IGNORECASE,
)
_MADE = re.compile(
    rf"\bas\s+({NAME})(?=\W)|(?:\bwith|\brecursive|\)\s*,)\s+({NAME})\s*(?:\([\w\s,]*\)\s*)?as\b", re.IGNORECASE
)
PLAIN = re.compile(r"[A-Za-z_]\w*")

_WORDS = """
abs all and any as asc avg between bigint blob boolean by case cast ceil ceiling char character coalesce collate concat
concat_ws count cross cume_dist current current_date current_time current_timestamp date datetime day decimal dense_rank
desc distinct double else end escape except exists exp false filter first first_value float floor following format from
full glob group group_concat having ifnull iif in inner instr int integer intersect is join json_array_length
json_extract json_group_array julianday lag last last_value lead left length like limit ln log log10 lower ltrim max min
mod natural nocase not nth_value ntile null nullif nulls numeric offset on or order outer over partition percent_rank pi
pow power preceding precision printf random range rank real recursive replace right round row row_number rows rtrim
select sign smallint sqrt strftime string_agg substr substring sum text then time timestamp total trim true typeof
unbounded unicode union unixepoch upper using values varchar when where with
"""
_POSTGRESQL = """
age array array_agg array_length array_position array_to_string at bool_and bool_or btrim cardinality century
char_length corr cube date_part date_trunc decade dow doy epoch every extract fetch for generate_series greatest
grouping hour ilike initcap interval isodow json jsonb jsonb_array_elements jsonb_build_object lateral least left lpad
make_date minute mode month months next now only ordinality percentile_cont percentile_disc position quarter
regexp_match regexp_replace repeat reverse right rollup rpad second sets similar split_part starts_with stddev
stddev_pop stddev_samp strpos timestamptz to to_char to_date to_number to_timestamp translate trunc unnest uuid var_pop
var_samp variance week width_bucket within without year years zone
"""


def tables_of(text: str) -> dict[str, list[str]]:
    """Return the tables in a text, from CREATE TABLE statements or a schema prompt; the first table of a name counts."""
    found: dict[str, list[str]] = {}
    heads = [*_CREATE.finditer(text)]
    heads += [head for block in _COMPACT.finditer(text) for head in _COMPACT_TABLE.finditer(text, *block.span())]
    for head in heads:
        items = [item for item in _items(text, head.end()) if not _CONSTRAINT.match(item)]
        columns = [unquoted(first[1]) for item in items if (first := _FIRST.match(item))]
        name = unquoted(head["name"])
        if columns and name.lower() not in map(str.lower, found):
            found[name] = columns
    return found


def unquoted(name: str) -> str:
    """Return a name without its quotes."""
    return name[1:-1].replace('""', '"') if name[0] in '"`[' and len(name) > 1 else name


def _items(text: str, start: int) -> list[str]:
    """Return the comma-separated parts of a bracket that opened before `start`, without comments."""
    items, depth, begin = list[str](), 0, start
    for piece in _PIECE.finditer(text, start):
        mark = piece[0]
        depth += (mark == "(") - (mark == ")")
        if mark == ";" or depth < 0 or (mark == "," and not depth):
            items.append(_COMMENT.sub(" ", text[begin : piece.start()]))
            begin = piece.end()
            if mark != ",":
                return items
    return [*items, _COMMENT.sub(" ", text[begin:])]


def made_names(sql: str) -> tuple[str, ...]:
    """Return the names that a query defines: after AS, and before AS in a WITH."""
    return tuple(unquoted(next(filter(None, found))) for found in _MADE.findall(sql))


def sql_grammar(
    tables: Mapping[str, Collection[str]],
    made: Iterable[str] | None = None,
    rest: Rest | None = None,
    *,
    postgresql: bool = False,
) -> str:
    """Return the grammar of queries on tables. made: names that the query has defined; LATER, LETTER: names defined later."""
    words = {*_WORDS.split(), *(_POSTGRESQL.split() if postgresql else ())}
    marks = r"[-+*\/%=<>!|,&~#@:?\[\]^{}]" if postgresql else r"[-+*\/%=<>!|,&~]"
    made, columns = list(made or ()), [column for of_table in tables.values() for column in of_table]
    parts = _any({name.rstrip("s") for name in [*tables, *columns] if PLAIN.fullmatch(name)}, quoted=False)
    or_made = " | MADE" if made else ""
    of_tables = (f'({_any([table])}) "." ({_any(of_table)} | "*")' for table, of_table in tables.items())
    start = 'SP? (("with"i | "with"i SP "recursive"i) SP view (SP? "," SP? view)* SP?)? body ";"?'
    if rest:
        made_now = "SP NEW" if rest.ways[0].endswith(" AS") else ""
        begun = f"{json.dumps(rest.kept, ensure_ascii=False)} ({_any(rest.ways, quoted=False)}) {made_now}"
        # some tokenizers decode the first token with a space
        start = f"""SP? {begun} ((SP | SP? MARK) body)? {'")" (SP? "," SP? view SP?)* body ' * rest.depth}";"?"""
    return f"""
start: {start}
view: NEW SP? ("(" NEW (SP? "," SP? NEW)* ")" SP?)? "as"i SP? "(" body ")"
body: SP? (word SP | word? SP? (MARK | "(" (body | LETTER (SP? MARK body)?) ")") SP?)* word?
word: WORD | NUMBER | TEXT | TABLE (SP ALIAS)? | COLUMN | LATER{or_made} | "as"i SP NEW | qualified
qualified: {" | ".join(of_tables)} | (ALIAS{or_made}) "." (COLUMN | LATER{or_made} | "*")
WORD: {_any(words, quoted=False)}
TABLE: {_any(tables)}
COLUMN: {_any(columns)}
{f"MADE: {_any(made)}" if made else ""}
LATER: /(avg|average|total|sum|num|max|min)_/ ({parts}) "s"? | ({parts}) "_count"
LETTER: /[a-zA-Z][0-9]?/
ALIAS: /[a-zA-Z]{{1,3}}[0-9]{{0,2}}/ | "subquery"i
NEW: /[a-zA-Z_][a-zA-Z0-9_]{{0,40}}/
NUMBER: /[0-9]{{1,15}}(\\.[0-9]{{1,15}})?([eE]-?[0-9]{{1,3}})?/
TEXT: /'([^'\\n]|''){{0,200}}'/
MARK: /{marks}/
SP: /[ \\t\\n]{{1,24}}/
"""


class Rest(NamedTuple):
    """The continuation of a query: the text `kept`, then one of `ways`. depth: the number of brackets open after `kept`."""

    kept: str
    ways: tuple[str, ...]
    depth: int


def _any(names: Iterable[str], *, quoted: bool = True) -> str:
    """Return the alternatives of names in any letter case, quoted if necessary."""
    ways = [_spelled(name) if quoted else [name] for name in sorted({*names})]
    return " | ".join(f"{json.dumps(spelled, ensure_ascii=False)}i" for spelled in chain(*ways))


def _spelled(name: str) -> list[str]:
    return [*([name] if PLAIN.fullmatch(name) else ()), quoted(name), f"`{name}`", f"[{name}]"]


def compiler(tables: Mapping[str, Collection[str]], file: Path | None = None) -> Callable[[str], str]:
    """Return a function that says why SQLite does not compile a single SELECT on these tables or a file, "" if it does."""
    import apsw  # of the extra "evaluate", as llguidance

    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY) if file else apsw.Connection(":memory:")
    for name, columns in tables.items():
        with suppress(apsw.Error):  # a reserved name such as sqlite_sequence
            connection.execute(f"CREATE TABLE {quoted(name)} ({', '.join(dict.fromkeys(map(quoted, columns)))})")
    reading = (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE)
    connection.authorizer = lambda action, *_: apsw.SQLITE_OK if action in reading else apsw.SQLITE_DENY

    def fault(query: str) -> str:
        first = iter([True])
        connection.exec_trace = lambda cursor, *_: next(first, not cursor.get_description())  # a comment has none
        try:
            connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
        except apsw.ExecTraceAbort:
            return "only one statement at a time is allowed"
        except (apsw.Error, ValueError) as error:
            return str(error) or type(error).__name__
        return ""

    return fault
