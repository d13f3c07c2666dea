"""An expert's grammar for llama.cpp (GBNF): what `evaluate` and `chat` hold answers to, as far as rules without memory can.

SQL and Cypher: one query, its texts and brackets closed, of any words. The names of a schema are not held: rules cannot know
which aliases a query has made.
"""

from __future__ import annotations

from pathlib import Path

from expert_cli.artifacts.gbnf_json import JSON_RULES, json_rules
from expert_cli.errors import InputError
from expert_cli.inference.grammar.grammar import Grammar
from expert_cli.utils.files import json_text, write_text
from expert_cli.utils.reporter import Reporter

GBNF = "grammar.gbnf"
SCHEMA = "schema.json"


def _begun_by(*words: str) -> str:
    """A query that begins with one of some words, in any case."""
    ways = (" ".join(f"[{letter.lower()}{letter}]" for letter in word) for word in words)
    return f'ws ({" | ".join(ways)}) part+ ws (";" ws)?'


_QUERY = {
    "part": "sp word | ws other (ws word)?",
    "inner": "(ws word)? part* ws",
    "number": "[0-9]{1,18} ([eE] [-+]? [0-9]{1,3})?",
    "name": r"([A-Za-z_] | [^\x00-\x7F]) ([A-Za-z0-9_$] | [^\x00-\x7F]){0,63}",
    "sp": r"[ \t\n]{1,40}",
    "ws": r"[ \t\n]{0,40}",
}
_SQL = {
    "root": _begun_by("SELECT", "WITH"),
    "word": r'name | ["] [^"]+ ["] | [`] [^`]+ [`] | number',
    "text": "['] ([^'] | \"''\")* [']",
    "other": '[-+*/%=<>!|.,~&^] | text | "(" inner ")"',
    **_QUERY,
}
_CYPHER = {
    "root": _begun_by("MATCH", "OPTIONAL", "WITH", "UNWIND", "CALL", "RETURN", "CREATE", "MERGE"),
    "word": "name | [`] [^`]+ [`] | number",
    "text": r"""['] ([^'\\] | "\\" [^\x00])* ['] | ["] ([^"\\] | "\\" [^\x00])* ["]""",
    "other": '[-+*/%=<>!|.,~&^:$] | text | "(" inner ")" | "[" inner "]" | "{" inner "}"',
    **_QUERY,
}


def write_grammar(folder: Path, grammar: Grammar, report: Reporter) -> list[str]:
    """Write grammar.gbnf, and schema.json where there is a JSON Schema; return what the card says of them.

    For a JSON Schema that cannot be read grammar.gbnf holds any JSON, which is told.
    """
    schema, unread = grammar.json_schema, ""
    try:
        text = gbnf(grammar)
    except InputError as error:
        unread = f"{GBNF} holds any JSON, not json_schema: {error.message}"
        report.warning(unread)
        text = gbnf(Grammar(grammar.type))
    write_text(folder / GBNF, text)
    lines = [
        f"`{GBNF}` holds answers in llama.cpp: `llama-cli --grammar-file {GBNF}`, or `grammar` of a request to `llama-server`.",
        *([f"{unread}."] if unread else []),
    ]
    if schema is not None:
        write_text(folder / SCHEMA, json_text(schema))
        lines.append(
            f"`{SCHEMA}` is the JSON Schema of an answer, which servers take as `response_format` "
            '(`{"type": "json_schema", "json_schema": {"name": "answer", "schema": ...}}`); llama.cpp as `--json-schema-file`.'
        )
    if not grammar.type.startswith("json"):
        lines.append("It knows no schema: names that do not exist are held back by expert-cli alone.")
    return lines


def gbnf(grammar: Grammar) -> str:
    """Return the grammar's text. Raises InputError where a JSON Schema cannot be read."""
    if grammar.type in ("json", "json-schema"):
        schema = grammar.json_schema
        rules = json_rules(schema) if schema is not None else {"root": "ws value ws", **JSON_RULES}
    elif grammar.type == "sql-postgres":
        rules = {**_SQL, "other": f'{_SQL["other"]} | "::" | "[" inner "]"'}
    else:
        rules = _SQL if grammar.type == "sql" else _CYPHER
    return "".join(f"{name} ::= {body}\n" for name, body in rules.items())
