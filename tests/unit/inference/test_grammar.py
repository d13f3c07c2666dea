"""Right answers are taken by the grammar of their question, and what the question does not show is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from llguidance import LLMatcher

from expert_cli.inference.expert_config import GenerationConfig, Grammar
from expert_cli.inference.generate import Request, generate
from expert_cli.inference.grammar import GrammarLogitsProcessor, Held, grammar_for
from expert_cli.inference.sql_correction import corrected
from expert_cli.inference.sql_grammar import Rest, compiler, sql_grammar, tables_of
from expert_cli.manifest.key import GrammarType
from tests import tiny

EXPERTS = Path(__file__).parents[3] / "experts"
BACKEND, TOKENIZER = tiny.tiny_backend(), tiny.tiny_tokenizer()
END = 2


class Texts(tiny.IdsAsText):
    """Answers end at END, and are text."""

    def decode(self, ids: Sequence[int]) -> str:
        return str(BACKEND.decode(list(ids), skip_special_tokens=False))


ENDS = Texts(frozenset({END}), TOKENIZER)
SHOP = "CREATE TABLE shops (id INTEGER PRIMARY KEY, name TEXT, `the city` TEXT);\nCREATE TABLE sales(shop_id INT, price REAL)"
COMPACT = "Who?\n\nTables:\nshops(id, name, ...)\nsales(shop_id, price)\nJoins:\nsales.shop_id = shops.id"
GRAPH = "Person {name, born}\nMovie {title, released}\n(:Person)-[:ACTED_IN {role}]->(:Movie)\n(:Person)-[:KNOWS]->(:Person)"
LISTED = """Node properties:
- **Movie**
  - `title`: STRING
- **Person**
  - `name`: STRING
Relationship properties:
- **ACTED_IN**
  - `roles: LIST`
The relationships:
(:Person)-[:ACTED_IN]->(:Movie)"""


def taken(held: Held | None, text: str) -> str:
    """Return how much of an answer is taken, with a mark behind it where it may not end there."""
    assert held is not None
    processor = GrammarLogitsProcessor(TOKENIZER, [END], [held], [0], "drawn")
    ids = [*BACKEND.encode(text).ids, END]
    for number, token in enumerate(ids):
        scores = processor(torch.tensor([ids[:number]], dtype=torch.long).reshape(1, number), torch.zeros(1, 384))
        if scores[0, token] == -torch.inf:
            return str(BACKEND.decode(ids[:number])) + ("" if token != END else " ...")
    return text


def test_properties_are_those_of_what_their_heading_names() -> None:
    text = "Node properties:\nPerson {name: STRING}\nRelationship properties:\nKNOWS {since: DATE}\n"
    text += "(:Person)-[:KNOWS]->(:Person)"
    right = "MATCH (p:Person)-[r:KNOWS {since: 1}]->(q:Person) RETURN r.since"
    assert taken(grammar_for(Grammar("cypher"), text), right) == right
    assert taken(grammar_for(Grammar("cypher"), text), "MATCH (k:KNOWS) RETURN k") == "MATCH (k:"


def test_a_column_may_have_the_name_of_an_index() -> None:
    text = "CREATE TABLE t (key VARCHAR(50) PRIMARY KEY, a INT, UNIQUE KEY u (a), KEY (a), INDEX i (a), CHECK (0 < a))"
    assert tables_of(text) == {"t": ["key", "a"]}


def rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EXPERTS / path).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("expert", ["sql", "neo4j", "json"])
@pytest.mark.parametrize("file", ["cases", "unseen"])
def test_right_answers_are_taken(expert: str, file: str) -> None:
    kind: GrammarType = {"sql": "sql", "neo4j": "cypher", "json": "json"}[expert]  # type: ignore[assignment]
    for row in islice(rows(f"expert-{expert}/tests/{file}.jsonl"), 0, None, 6):
        question = "\n\n".join(filter(None, (row["prompt"], row.get("input"))))
        right = row["expected"] if expert != "json" else json.dumps(row["expected"], ensure_ascii=False)
        assert taken(grammar_for(Grammar(kind), question, row.get("schema")), right) == right


@pytest.mark.parametrize("question", [SHOP, COMPACT])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("SELECT name FROM shops WHERE id = 3", "SELECT nam"),
        ("SELECT T1.name FROM shops AS T1 JOIN sales AS T2 ON T1.id = T2.shop_id", "SELECT T1.wage"),
        ("SELECT sales.price FROM sales", "SELECT sales.name"),
        ("SELECT sum(price) AS money FROM sales ORDER BY money", "SELECT sum(price) AS money FROM sales ORDER BY gold"),
        (
            "WITH rich AS (SELECT id FROM shops) SELECT id FROM rich",
            "WITH rich AS (SELECT id FROM shops) SELECT id FROM rice",
        ),
        ("SELECT count(*) FROM sales WHERE price > 2.5e3 AND 'it''s' <> 'x';", "SELECT count(*)) "),
    ],
)
def test_sql_says_the_names_of_its_tables_and_those_that_it_makes(question: str, right: str, wrong: str) -> None:
    held = grammar_for(Grammar("sql"), question)
    assert taken(held, right) == right
    assert taken(held, wrong) != wrong


@pytest.mark.parametrize(
    ("kind", "question", "right", "wrong"),
    [
        ("sql", SHOP, "SELECT T1.name FROM shops AS T1", "SELECT T1.wage FROM shops AS T1"),
        ("cypher", GRAPH, "MATCH (p:Person) RETURN p.name", "MATCH (p:Person) RETURN p.wage"),
    ],
)
def test_what_a_server_is_given_takes_names_that_a_query_will_make(
    kind: GrammarType, question: str, right: str, wrong: str
) -> None:
    held = grammar_for(Grammar(kind), question)
    assert held is not None
    lark = json.dumps({"grammars": [{"lark_grammar": held.served["structured_outputs"]["grammar"]}]})
    assert taken(Held(lambda *_: lark), right) == right
    assert taken(Held(lambda *_: lark), wrong) != wrong


def test_a_name_that_must_be_quoted_is() -> None:
    held = grammar_for(Grammar("sql"), SHOP)
    for query in ('SELECT "the city" FROM shops', "SELECT `the city` FROM shops", "SELECT [the city] FROM shops"):
        assert taken(held, query) == query
    assert taken(held, "SELECT the city FROM shops") != "SELECT the city FROM shops"


def test_postgresql_has_words_of_its_own() -> None:
    query = "SELECT name ILIKE 'a%' FROM shops WHERE id::text ~ 'x'"
    assert taken(grammar_for(Grammar("sql-postgres"), SHOP), query) == query
    assert taken(grammar_for(Grammar("sql"), SHOP), query) != query


def test_tables_are_read_as_people_write_them() -> None:
    text = '''create table if not exists main."Odd ""One""" (
        id int primary key, -- the (first)
        [my col] decimal(10, 2) default (1), /* , no */
        constraint fk foreign key (id) references b(id), unique (id), "check" text)
        ; CREATE VIEW v (key, b) AS SELECT 1'''
    assert tables_of(text) == {'Odd "One"': ["id", "my col", "check"], "v": ["key", "b"]}
    assert tables_of("How many boats?") == {}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("MATCH (p:Person)-[:ACTED_IN]->(m:Movie) RETURN p.name", "MATCH (p:Person)-[:ACTED_IN]->(m:Person"),
        ("MATCH (m:Movie)<-[a:ACTED_IN]-(p:Person) RETURN a.role", "MATCH (m:Movie)-[a:ACTED_IN]->"),
        (
            "MATCH (p:Person {name: 'Ann'}) WHERE p.born > 1950 RETURN count(p) AS n ORDER BY n",
            "MATCH (p:Person {title",
        ),
        ("MATCH (p:Person)-[:KNOWS]->(q:Person) RETURN q.name", "MATCH (p:Person)-[:LIKES"),
        ("MATCH (p:Person) RETURN p.name", "MATCH (p:Person) RETURN p.title"),
        ("MATCH (p:Person)-[:ACTED_IN]->(m:Movie) RETURN m.title", "MATCH (p:Person)-[:ACTED_IN]->(p:Movie)"),
        ("MATCH (p:Person), (p:Person)-[:ACTED_IN]->(m) RETURN m.title", "MATCH (p:Person), (p:Movie)"),
        ("MATCH (p:Person) WITH p AS who RETURN who.born > 1E3", "MATCH (p:Person) RETURN who"),
        ("MATCH (p:Person) WHERE NOT (p)-[:ACTED_IN]->() RETURN p", "MATCH (p:Person)<-[:ACTED_IN]-"),
    ],
)
def test_cypher_goes_along_the_relationships_that_are_shown(right: str, wrong: str) -> None:
    held = grammar_for(Grammar("cypher"), GRAPH)
    assert taken(held, right) == right
    assert taken(held, wrong) != wrong


def test_cypher_reads_lists_of_properties() -> None:
    held = grammar_for(Grammar("cypher"), LISTED)
    right = "MATCH (p:Person)-[r:ACTED_IN]->(m:Movie)\nRETURN m.title, r.roles LIMIT 3"
    assert taken(held, right) == right
    assert taken(held, "MATCH (p:Person) RETURN p.title") == "MATCH (p:Person) RETURN p."


@pytest.mark.parametrize("kind", ["sql", "sql-postgres", "cypher"])
def test_without_a_schema_in_the_question_the_answer_is_free(kind: GrammarType) -> None:
    assert grammar_for(Grammar(kind), "How old are they?") is None


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def test_json_has_the_separators_of_the_rows_and_keys_in_the_order_of_schema_or_question() -> None:
    held = grammar_for(Grammar("json", SCHEMA), "Give it.")
    assert taken(held, '{"a": 1, "b": "x"}') == '{"a": 1, "b": "x"}'
    assert taken(held, '{"a": 1,\t"b": "x"}') == '{"a": 1,'
    assert taken(held, '{"b": "x"') == '{"'
    asked = grammar_for(Grammar("json", SCHEMA), "Give `b` and `a`.")
    assert taken(asked, '{"b": "x", "a": 1}') == '{"b": "x", "a": 1}'
    assert taken(asked, '{"a": 1') == '{"'
    compact = grammar_for(Grammar("json", SCHEMA, (",", ":")), "")
    assert taken(compact, '{"a":1,"b":"y"}') == '{"a":1,"b":"y"}'
    assert taken(grammar_for(Grammar("json"), ""), '[1, {"k": null}]') == '[1, {"k": null}]'


def test_what_of_a_schema_nothing_holds_is_told() -> None:
    unheld = grammar_for(Grammar("json", {"type": "array", "uniqueItems": True}), "")
    assert unheld
    assert "uniqueItems" in unheld.lacks
    assert taken(unheld, "[1, 1]") == "[1, 1]"


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny.tiny_model("llama", initializer_range=0.3).eval()


@pytest.mark.parametrize("ways", [{}, {"temperature": 1.5}, {"num_beams": 3}], ids=["greedy", "drawn", "beams"])
def test_what_is_written_is_taken(model: Any, ways: dict[str, Any]) -> None:
    sql, free = grammar_for(Grammar("sql"), SHOP), None
    json_ = grammar_for(Grammar("json", SCHEMA), "")
    requests = [Request([3 + n, 9, 9 + n], held, n) for n in range(4) for held in (sql, json_, free)]
    found = generate(model, requests, GenerationConfig(60, 64, **ways), ENDS)
    ended = 0
    for request, (one,) in zip(requests, found, strict=True):
        if request.held is not None and one.stop == "end":
            text = BACKEND.decode(list(one.ids), skip_special_tokens=False)
            assert taken(request.held, text) == text
            ended += 1
    assert ended >= 3


def test_a_beam_without_a_continuation_neither_raises_nor_is_returned(model: Any) -> None:
    nothing = json.dumps({"grammars": [{"lark_grammar": 'start: "zq" | "zq" "~" /[a-c]/ | /\\u4e00/'}]})
    (found,) = generate(model, [Request([5, 6], Held(lambda *_: nothing))], GenerationConfig(9, 8, num_beams=4), ENDS)[
        0
    ]
    assert BACKEND.decode(list(found.ids)) in ("zq", "zq~a", "zq~b", "zq~c", "\u4e00")


def refusing(*refused: str) -> Callable[[str], str]:
    return lambda text: "no such column" if text in refused else ""


def test_no_beam_ends_in_a_query_that_its_tables_refuse(model: Any) -> None:
    letters = json.dumps({"grammars": [{"lark_grammar": "start: /[a-f]/"}]})

    def written(*refused: str) -> str:
        held = Held(lambda *_: letters, refusing(*refused))
        (one,) = generate(model, [Request([5, 6], held)], GenerationConfig(9, 8, num_beams=2), ENDS)[0]
        return str(BACKEND.decode(list(one.ids)))

    assert {written(), written(written())} < {*"abcdef"}
    assert written(written()) != written()


@pytest.mark.parametrize(("last", "most"), [("ON 1", 60), ("ON 2e", 60), ("ON 1234567", 31)])
def test_a_query_that_names_what_is_not_there_goes_on_otherwise(model: Any, last: str, most: int) -> None:
    """Only what compiles and is not cut takes the place of the first answer."""

    def grammar(_: str, rest: Rest | None) -> str:
        start = "SELECT name FROM sales LIMIT 1" if rest is None else f"{rest.kept}{rest.ways[0]}{last[2:]}"
        return json.dumps({"grammars": [{"lark_grammar": f"start: {json.dumps(start)}"}]})

    tables = tables_of(SHOP)
    held = Held(grammar, compiler(tables), tables)
    found = generate(model, [Request([5, 6], held), Request([7, 8, 9])], GenerationConfig(most, 8), ENDS)
    joined = BACKEND.decode(list(found[0][0].ids))
    is_compiled = last == "ON 1"
    assert joined == ("SELECT name FROM sales JOIN shops ON 1" if is_compiled else "SELECT name FROM sales LIMIT 1")
    assert found[1] == generate(model, [Request([7, 8, 9])], GenerationConfig(most, 8), ENDS)[0]


@pytest.mark.parametrize(
    ("query", "kept", "ways"),
    [
        ("SELECT name FROM sales WHERE price > 3", "SELECT name FROM sales", [" JOIN shops ON"]),
        ("SELECT s.price FROM sales AS s WHERE Name = 'it'", "SELECT s.price FROM sales AS s", [" JOIN shops AS"]),
        ("SELECT price FROM sales WHERE 'name' = name;", "SELECT price FROM sales", [" JOIN shops ON"]),
        ("SELECT 'İ', price FROM sales WHERE name = 1", "SELECT 'İ', price FROM sales", [" JOIN shops ON"]),
        ("SELECT shops.name FROM sales;", "SELECT shops.name FROM sales", [" JOIN shops ON"]),
        ("SELECT max(name)\nFROM sales\nLIMIT 1", "SELECT max(name)\nFROM sales", [" JOIN shops ON"]),
        (
            "SELECT 1 UNION SELECT name FROM sales UNION SELECT 2",
            "SELECT 1 UNION SELECT name FROM sales",
            [" JOIN shops ON"],
        ),
        (
            "SELECT id FROM shops WHERE id IN (SELECT max(shop_id) FROM shops) LIMIT 3",
            "SELECT id FROM shops WHERE id IN (SELECT max(shop_id) FROM shops",
            [" JOIN sales ON"],
        ),
        ("SELECT a.price FROM shops AS a", "SELECT ", ['a."the city"', "a.id", "a.name", "id", "name"]),
        (
            "SELECT sales.price FROM shops, sales WHERE name = sales.name",
            "SELECT sales.price FROM shops, sales WHERE name = ",
            [
                *["id", "name", "price", "sales.price", "sales.shop_id", "shop_id"],
                'shops."the city"',
                "shops.id",
                "shops.name",
            ],
        ),
        ("SELECT shops.id FROM shops JOIN shops ON 1", "SELECT shops.id FROM shops JOIN ", ["sales", '"order"']),
        ("SELECT price, sales FROM sales", "SELECT price, ", ["price", "sales.price", "sales.shop_id", "shop_id"]),
        ("SELECT price FROM sales AS a, sales b", "SELECT ", [f"{one}.price FROM sales AS a, sales b" for one in "ab"]),
        (
            "SELECT 1 FROM sales JOIN sales AS b ON b.shop_id = shops.id WHERE shops.id = 1",
            "SELECT 1 FROM sales",
            [" JOIN shops ON"],
        ),
        ("SELECT 1 FROM name", "SELECT 1 FROM ", ["shops", "sales", '"order"']),
        ('SELECT id FROM "order"', 'SELECT id FROM "order"', [" JOIN shops ON"]),
        ("SELECT `group` FROM sales", "SELECT `group` FROM sales", [' JOIN "order" ON']),
        ("SELECT sales, shop_id FROM\n`sales`", "SELECT ", ["`sales`.price", "`sales`.shop_id", "price", "shop_id"]),
    ],
)
def test_a_query_is_cut_where_it_names_what_is_not_there(query: str, kept: str, ways: list[str]) -> None:
    tables = tables_of(f'{SHOP};\nCREATE TABLE "order" ("group" INT)')
    rest = corrected(query, compiler(tables), tables)
    assert rest == Rest(kept, tuple(ways), kept.count("(") - kept.count(")"))
    going_on = f"{kept}{ways[0]} {'b' if ways[0].endswith('AS') else 1}{')' * rest.depth} LIMIT 5"
    assert taken(Held(lambda *_: LLMatcher.grammar_from_lark(sql_grammar(tables, (), rest))), going_on) == going_on


def test_what_no_other_name_can_help_is_left() -> None:
    tables = tables_of(SHOP)
    for query in ("SELECT name FROM shops", "SELECT FROM", "SELECT wide(name) FROM shops"):
        assert corrected(query, compiler(tables), tables) is None


def test_sqlite_tells_why_a_query_cannot_be_and_runs_none(tmp_path: Path) -> None:
    fault = compiler(tables_of(f"{SHOP}; CREATE TABLE sqlite_sequence(name, seq)"))
    assert fault("SELECT name FROM shops ORDER BY `the city`") == ""
    assert fault("SELECT price FROM shops") == "no such column: price"
    assert "syntax error" in fault("SELECT FROM")
    assert fault(f"ATTACH '{tmp_path}/x.db' AS x") == "not authorized"
    assert fault("SELECT 1; SELECT 2") != ""
    assert not [*tmp_path.iterdir()]
