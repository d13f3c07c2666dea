from typing import Any

import pytest

from expert_cli.inference.grammar.choose import constraint_for, unread
from expert_cli.inference.grammar.grammar import Grammar, GrammarType
from expert_cli.inference.grammar.vocabulary import Vocabulary
from tests.tiny import CONTROL_TOKENS, tiny_backend

END = 0
TOKENIZER = tiny_backend()
VOCABULARY = Vocabulary(TOKENIZER, [END], CONTROL_TOKENS)
TABLE = 'CREATE TABLE head (age INTEGER, "größe" REAL);\nHow old are they?'
GRAPH = "Nodes:\n(:Person {name, born})\n(:Film {title})\nRelationships:\n(:Person)-[:ACTED_IN]->(:Film)\nWho acted?"
INTEGER = {"type": "integer"}


def taken(grammar: Grammar, question: str, text: str, json_schema: Any = None) -> str:
    """Return what of a text is accepted as an answer, token by token, with "¶" behind it where it may end there."""
    make = constraint_for(grammar, question, VOCABULARY, json_schema)
    assert make is not None
    constraint, written = make(), b""
    for token in TOKENIZER.encode(text).ids:
        if not constraint.accepts(token):
            break
        constraint.advance(token)
        written += VOCABULARY.bytes_of(token) or b""
    return written.decode() + "¶" * constraint.accepts(END)


@pytest.mark.parametrize(
    ("type_", "question", "right", "wrong"),
    [
        ("sql", TABLE, 'SELECT age, "größe" FROM head', "SELECT agX FROM head"),
        ("sql", TABLE, "SELECT ifnull(age, 0) FROM head", "SELECT name FROM head"),
        ("sql-postgres", TABLE, "SELECT age::text FROM head", "SELECT age::nothing FROM head"),
        ("cypher", GRAPH, "MATCH (p:Person)-[:ACTED_IN]->(f:Film) RETURN p.name", "MATCH (p:Persona) RETURN p"),
        ("json", "As JSON.", '{"a": [1, "x"]}', '{"a" 1}'),
        ("json-schema", "As JSON.", "[null]", "[nil]"),
    ],
)
def test_answers_are_held_to_what_the_question_names(type_: GrammarType, question: str, right: str, wrong: str) -> None:
    assert taken(Grammar(type_), question, f"\n{right}") == f"\n{right}¶"
    assert not taken(Grammar(type_), question, wrong).startswith(wrong)


@pytest.mark.parametrize("type_", ["sql", "sql-postgres", "cypher"])
def test_without_a_schema_in_the_question_the_answer_is_free(type_: GrammarType) -> None:
    assert constraint_for(Grammar(type_), "How old are they?", VOCABULARY) is None


def test_the_question_s_json_schema_comes_before_the_grammar_s() -> None:
    grammar = Grammar("json", {"type": "boolean"})
    assert taken(grammar, "", "true") == "true¶"
    assert taken(grammar, "", "7") == ""
    assert taken(grammar, "", "7", INTEGER) == "7¶"
    assert taken(grammar, "", "true", INTEGER) == ""
    assert taken(Grammar("json"), "", "true") == "true¶"


def test_a_json_schema_that_cannot_be_read_leaves_any_json() -> None:
    schema = {"type": "dict", "properties": {"a": {"type": "float"}}}
    assert unread(schema) == (
        "#/type of the JSON Schema is 'dict', not one of array, boolean, integer, null, number, object, string"
    )
    assert taken(Grammar("json"), "", '{"a": 1}', schema) == '{"a": 1}¶'
    assert taken(Grammar("json"), "", '{"a": x', schema) == '{"a": '
    assert unread(INTEGER) == ""


def test_answers_to_one_question_are_held_each_by_itself() -> None:
    make = constraint_for(Grammar("json"), "", VOCABULARY)
    assert make is not None
    one, other = make(), make()
    one.advance(TOKENIZER.encode("7").ids[0])
    assert [one.accepts(END), other.accepts(END)] == [True, False]
