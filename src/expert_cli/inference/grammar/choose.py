"""What holds an answer to a question: the kind of grammar, with what of the question it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from expert_cli.config.defaults.decoding import JSON_GRAMMARS
from expert_cli.errors import InputError
from expert_cli.inference.grammar.constraint import Constraint
from expert_cli.inference.grammar.grammar import Grammar
from expert_cli.inference.grammar.text_constraint import Checker, TextConstraint
from expert_cli.inference.grammar.vocabulary import Vocabulary

if TYPE_CHECKING:
    from expert_cli.inference.grammar.json_schema.schema import JsonSchema


def constraint_for(
    grammar: Grammar, question: str, vocabulary: Vocabulary, json_schema: Mapping[str, Any] | None = None
) -> Callable[[], Constraint] | None:
    """Return what makes the constraint of one answer to a question; None where the question names no schema: free text.

    question: the text of the user's turn, in which a database's or a graph's schema stands. json_schema: the question's own;
    else the grammar's, else any JSON, as for one that cannot be read (`unread`).
    """
    checker = _checker(grammar, question, json_schema)
    return None if checker is None else lambda: TextConstraint(checker(), vocabulary, question)


def unread(json_schema: Mapping[str, Any]) -> str:
    """Return why answers cannot be held to a JSON Schema, "" where they can be."""
    return _read(json_schema)[1]


def _read(json_schema: Mapping[str, Any]) -> tuple[JsonSchema, str]:
    """Return a JSON Schema, and ""; where it cannot be read that of any JSON, and why."""
    from expert_cli.inference.grammar.json_schema.schema import JsonSchema

    try:
        return JsonSchema(json_schema), ""
    except InputError as error:
        return JsonSchema({}), error.message


def _checker(grammar: Grammar, question: str, json_schema: Mapping[str, Any] | None) -> Callable[[], Checker] | None:
    if grammar.type in JSON_GRAMMARS:
        from expert_cli.inference.grammar.json_schema.checker import JsonChecker

        schema = grammar.json_schema if json_schema is None else json_schema
        return partial(JsonChecker, _read(schema or {})[0])
    if grammar.type == "cypher":
        from expert_cli.inference.grammar.cypher.checker import CypherChecker
        from expert_cli.inference.grammar.cypher.graph_schema_text import read_graph_schema

        graph = read_graph_schema(question)
        return None if graph is None else partial(CypherChecker, graph)
    from expert_cli.inference.grammar.sql.checker import SqlChecker
    from expert_cli.inference.grammar.sql.table_schema import tables_of

    tables = tables_of(question)
    return partial(SqlChecker, tables, "sqlite" if grammar.type == "sql" else "postgresql") if tables else None
