"""What a prompt tells of a graph, in each of the forms that schemas are written in."""

from __future__ import annotations

import pytest

from expert_cli.inference.grammar.cypher.graph_schema import GraphSchema
from expert_cli.inference.grammar.cypher.graph_schema_text import read_graph_schema

LABELS = {"Person": frozenset({"name", "born"}), "Movie": frozenset({"title"}), "Genre": frozenset[str]()}
TYPES = {"ACTED_IN": frozenset({"role"}), "IN_GENRE": frozenset[str]()}
WAYS = frozenset({("Person", "ACTED_IN", "Movie"), ("Movie", "IN_GENRE", "Genre")})
MOVIES = GraphSchema(LABELS, TYPES, WAYS)

FORMS = {
    "short": """Which movies (of 1999) did Ann act in?

Person {name, born}
Movie {title}
Genre {}
(:Person)-[:ACTED_IN {role}]->(:Movie)
(:Movie)-[:IN_GENRE]->(:Genre)""",
    "bullets": """Node properties:
- **Person**
  - `name`: STRING Example: "Ann (a: b)"
  - `born`: INTEGER Min: 1900, Max: 2000
- **Movie**
  - `title`: STRING
Relationship properties:
- **ACTED_IN**
  - `role: STRING`
The relationships:
(:Person)-[:ACTED_IN]->(:Movie)
(:Movie)-[:IN_GENRE]->(:Genre)""",
    "one line each": """Node properties are the following:
Person {name: STRING, born: INTEGER},Movie {title: STRING}
Relationship properties are the following:
ACTED_IN {role: STRING}
The relationships are the following:
(:Person)-[:ACTED_IN]->(:Movie),(:Movie)-[:IN_GENRE]->(:Genre)""",
    "a chain": "(p:Person {name: STRING, born: INTEGER})-[r:ACTED_IN {role: STRING}]->(m:Movie {title: STRING})"
    "-[:IN_GENRE]->(:Genre)",
    "a chain backwards": "(:Genre)<-[:IN_GENRE]-(:Movie {title})<-[:ACTED_IN {role}]-(:Person {`name`, born})",
    "relevant": """Graph schema: Relevant node labels and their properties (with datatypes) are:
Person {name: STRING, born: INTEGER}
Movie {title: STRING}
Genre {}

Relevant relationships are:
{'start': Person, 'type': ACTED_IN, 'end': Movie }
{'start': Movie, 'type': IN_GENRE, 'end': Genre }

Relevant relationship properties (with datatypes) are:
ACTED_IN {role: STRING}""",
    "python": """Node properties are the following:
[{'properties': [{'property': 'name', 'type': 'STRING'}, {'property': 'born', 'type': 'INTEGER'}], 'labels': 'Person'},
{'properties': [{'property': 'title', 'type': 'STRING'}], 'labels': 'Movie'}]
Relationship properties are the following:
[{'type': 'ACTED_IN', 'properties': [{'property': 'role', 'type': 'STRING'}]}]
The relationships are:
['(:Person)-[:ACTED_IN]->(:Movie)', '(:Movie)-[:IN_GENRE]->(:Genre)']""",
    "memgraph": """Node properties are the following:
Node name: 'Person', Node properties: [{'property': 'name', 'type': 'str'}, {'property': 'born', 'type': 'int'}]
Node name: 'Movie', Node properties: [{'property': 'title', 'type': 'str'}]
Relationship properties are the following:
Relationship Name: 'ACTED_IN', Relationship Properties: [{'property': 'role', 'type': 'str'}]
The relationships are the following:
['(:Person)-[:ACTED_IN]->(:Movie)']
['(:Movie)-[:IN_GENRE]->(:Genre)']""",
    "structured": """{"node_props": {"Person": [{"property": "name", "type": "STRING"}, {"property": "born", "type":
"INTEGER"}],
"Movie": [{"property": "title", "type": "STRING"}]}, "rel_props": {"ACTED_IN": [{"property": "role", "type":
"STRING"}]},
"relationships": [{"start": "Person", "type": "ACTED_IN", "end": "Movie"}, {"start": "Movie", "type": "IN_GENRE", "end":
"Genre"}], "metadata": {"constraint": [], "index": []}}""",
    "apoc.meta.schema": """Answer with {one query}. {"Person": {"type": "node", "count": 2, "labels": [],
"properties": {"name": {"type":
"STRING", "indexed": true}, "born": {"type": "INTEGER"}}, "relationships": {"ACTED_IN": {"count": 3, "direction":
"out", "labels":
["Movie"], "properties": {"role": {"type": "STRING"}}}}}, "ACTED_IN": {"type": "relationship", "count": 3,
"properties": {"role":
{"type": "STRING"}}}, "Movie": {"type": "node", "properties": {"title": {"type": "STRING"}}, "relationships":
{"ACTED_IN":
{"direction": "in", "labels": ["Person"]}, "IN_GENRE": {"direction": "out", "labels": ["Genre"]}}}, "Genre": {"type":
"node",
"properties": {}}}""",
    "pairs": """[{"key": "Person", "value": {"type": "node", "properties": {"name": "STRING", "born": "INTEGER"},
"relationships":
{"ACTED_IN": {"direction": "out", "labels": ["Movie"], "properties": {"role": "STRING"}}}}}, {"key": "Movie",
"value": {"type": "node",
"properties": {"title": "STRING"}, "relationships": {"IN_GENRE": {"direction": "out", "labels": ["Genre"]}}}}]""",
    "builder": """{"node_types": [{"label": "Person", "properties": [{"name": "name", "type": "STRING"}, {"name":
"born", "type":
"INTEGER"}]}, {"label": "Movie", "properties": [{"name": "title", "type": "STRING"}]}, {"label": "Genre",
"properties": []}],
"relationship_types": [{"label": "ACTED_IN", "properties": [{"name": "role", "type": "STRING"}]}, {"label":
"IN_GENRE", "properties":
[]}], "patterns": [["Person", "ACTED_IN", "Movie"], ["Movie", "IN_GENRE", "Genre"]]}""",
    "nodeTypeProperties": """[{"nodeType": ":`Person`", "nodeLabels": ["Person"], "propertyName": "name"},
{"nodeType": ":`Person`",
"nodeLabels": ["Person"], "propertyName": "born"}, {"nodeType": ":`Movie`", "nodeLabels": ["Movie"], "propertyName":
"title"},
{"relType": ":`ACTED_IN`", "propertyName": "role"}]
(:Person)-[:ACTED_IN]->(:Movie), (:Movie)-[:IN_GENRE]->(:Genre)""",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_schema_is_read_in_each_form(form: str) -> None:
    assert read_graph_schema(FORMS[form]) == MOVIES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Which movies did Keanu Reeves act in?",
        "List the movies (with their years) that Ann - [sic] - likes.\n\nUse the graph of the last question.",
        'Answer as {"query": "..."}; ["a", "b"] stands for a list, {1, 2} for a set.',
        "{1: {'node': 2}} [{[]}] {'nodes': [1], 'patterns': [[1, 2, 3]]} " + "[" * 1000,
    ],
)
def test_nothing_is_read_where_nothing_is_told(text: str) -> None:
    assert read_graph_schema(text) is None


def test_what_is_not_told_is_left_open() -> None:
    names = read_graph_schema("Relevant node labels and their properties are:\nArticle\nKeyword")
    assert names == GraphSchema({"Article": None, "Keyword": None}, {}, frozenset())
    paths = read_graph_schema("(:A)-[:TO|FROM]->(:B)")
    assert paths == GraphSchema(
        {"A": None, "B": None}, {"TO": None, "FROM": None}, frozenset({("A", "TO", "B"), ("A", "FROM", "B")})
    )
    nodes = read_graph_schema("A {x}")
    assert nodes == GraphSchema({"A": frozenset({"x"})}, {}, frozenset())
    words = read_graph_schema("A {x}\nB {y}\nRelationships: A leads to B, B follows A")
    assert words is not None
    assert words.types is None


def test_names_in_backticks_are_read() -> None:
    found = read_graph_schema("`Big Movie` {`aspect ratio`: FLOAT, title}\n(:`Big Movie`)-[:`MADE IN`]->(:City)")
    assert found is not None
    assert found.labels == {"Big Movie": frozenset({"aspect ratio", "title"}), "City": frozenset()}
    assert found.relationships == {("Big Movie", "MADE IN", "City")}
