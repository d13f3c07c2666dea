"""expert-neo4j's data: the committed rows hold, graphqlite's results are right, the verifier refuses what is wrong."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from datagen.cases import case_worlds
from datagen.common.dataset_files import shape
from datagen.neo4j.domain_table import TEXT
from datagen.neo4j.domains import GraphDomain, domain_graph, parse_graphs
from datagen.neo4j.make import connect, domain_of, graph_connection, main, make_rows, run, verify
from datagen.neo4j.small_domains import TEXT as SMALL_TEXT
from datagen.tests.committed import require_committed

DATASETS = Path(__file__).resolve().parents[2] / "experts" / "expert-neo4j" / "datasets"
KNOWN, SMALL = parse_graphs(TEXT), parse_graphs(SMALL_TEXT)
DOMAINS = parse_graphs(TEXT + SMALL_TEXT)  # refuses a relationship that stands twice
(BOOKS,) = parse_graphs("""
# books
Writer/writers: name person; born int 1900-1995 as birth year by born; country country
Book/books: title title; pages int 80-1200 as number of pages; published date 1950-2023 as publication date by
  published; price? real 5-60
Reader/readers: name person; age int 10-85
Writer AUTHORED Book: who authored | authored by
Reader READ Book: who read | read by: rating int 1-5
Writer ADMIRES Writer: who admire | admired by
""")
SCHEMA = "Reader {name, age}\nBook {title, pages}\n(:Reader)-[:READ {rating}]->(:Book)"
GRAPH = domain_graph(BOOKS)
READERS: list[dict[str, Any]] = GRAPH.nodes["Reader"]
BOOK_NODES: list[dict[str, Any]] = GRAPH.nodes["Book"]
TITLES = [book["title"] for book in BOOK_NODES]
WRITERS = [str(writer["name"]) for writer in GRAPH.nodes["Writer"]]
READ: list[tuple[Any, Any, Any]] = [
    (READERS[a]["name"], TITLES[b], made["rating"]) for a, b, made in GRAPH.links["READ"]
]
ADMIRES = {(WRITERS[a], WRITERS[b]) for a, b, _ in GRAPH.links["ADMIRES"]}


def committed(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATASETS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def ask(query: str) -> list[tuple[Any, ...]]:
    return sorted(run(graph_connection(BOOKS, False), query), key=repr)


def expected(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def steps_from(start: Any) -> dict[Any, int]:
    """The shortest number of ADMIRES steps to every writer that can be reached."""
    found: dict[Any, int] = {}
    edge, steps = {start}, 0
    while edge:
        steps += 1
        edge = {b for a, b in ADMIRES if a in edge} - set(found)
        found |= dict.fromkeys(edge, steps)
    return found


def test_files_hold_enough_rows_with_the_columns_of_the_manifest() -> None:
    train, valid = committed("train"), committed("valid")
    assert len(train) >= 1500
    assert len(valid) >= 100
    for row in train + valid:
        assert list(row) == ["question", "schema", "cypher"]
        assert all(value == value.strip() != "" for value in row.values())
        assert re.match("MATCH", row["cypher"])
        assert "\n" not in row["cypher"]


def test_the_committed_files_are_what_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_committed(main, DATASETS, tmp_path, monkeypatch)


def test_half_of_the_rows_are_about_the_graphs_of_the_cases_and_every_small_one_has_some() -> None:
    rows = Counter(domain_of(row["schema"], DOMAINS).name for row in committed("train"))
    assert rows.keys() == {domain.name for domain in DOMAINS}
    assert sum(rows[domain.name] for domain in KNOWN) >= 0.5 * rows.total()
    assert len(SMALL) >= 40
    assert min(rows.values()) >= 20


def words(domains: list[GraphDomain]) -> tuple[set[str], set[str]]:
    """What labels and types are called and said to be, and what properties are called and hold, however they are written."""
    labels, properties = set[str](), set[str]()
    for domain in domains:
        for label in domain.labels:
            labels |= {label.name, label.plural, label.singular}
        for link in domain.relationships:
            labels |= {link.type, link.words, link.back}
        for column in (column for part in (*domain.labels, *domain.relationships) for column in part.columns):
            properties |= {column.name, column.label, *column.options}
    labels, properties = ({re.sub("[ _]", "", name).lower() for name in names} for names in (labels, properties))
    return labels, properties


def test_no_small_graph_has_a_label_a_type_or_a_rare_property_of_the_unseen_cases() -> None:
    labels, properties = words(SMALL)
    unseen_labels, unseen_properties = words(parse_graphs(case_worlds.GRAPHS))
    assert labels.isdisjoint(unseen_labels | unseen_properties)
    assert properties & (unseen_labels | unseen_properties) <= words(KNOWN)[1]  # name, title, since and the like


def test_rows_are_short() -> None:
    sizes = sorted(sum(map(len, row.values())) for row in committed("train") + committed("valid"))
    assert sizes[len(sizes) * 95 // 100] < 1300
    assert sizes[-1] <= 1800


def test_no_question_and_no_shape_of_valid_stands_in_train() -> None:
    train, valid = committed("train"), committed("valid")
    assert {row["question"] for row in valid}.isdisjoint(row["question"] for row in train)
    assert {shape(row["cypher"]) for row in valid}.isdisjoint(shape(row["cypher"]) for row in train)


def test_a_label_and_a_relationship_are_shown_the_same_way_in_every_prompt() -> None:
    shown = {line for row in committed("train") + committed("valid") for line in row["schema"].splitlines()}
    assert len(shown) == sum(len(domain.labels) + len(domain.relationships) for domain in DOMAINS)


def test_a_question_has_one_answer() -> None:
    rows = committed("train") + committed("valid")
    assert len({(row["question"].lower(), row["schema"]) for row in rows}) == len(rows)


def test_every_committed_row_verifies_again() -> None:
    assert [row for row in committed("train") + committed("valid") if verify(row, DOMAINS)] == []


def test_a_run_repeats_itself_and_another_seed_asks_otherwise() -> None:
    rows, refused = make_rows([BOOKS], 7, 15, ("train",))
    assert (rows, refused) == make_rows([BOOKS], 7, 15, ("train",))
    assert len(rows) == 15
    other, _ = make_rows([BOOKS], 8, 15, ("train",))
    assert rows != other


def test_filters_and_figures_are_what_python_counts() -> None:
    ages = [reader["age"] for reader in READERS]
    assert ask("MATCH (r:Reader) RETURN count(r) AS n, max(r.age) AS m") == [(len(ages), max(ages))]
    average = sum(ages) / len(ages)
    query = "MATCH (r:Reader) WITH avg(r.age) AS mean MATCH (r:Reader) WHERE r.age > mean RETURN r.name"
    assert ask(query) == expected((reader["name"],) for reader in READERS if reader["age"] > average)
    priced = sum("price" in book for book in BOOK_NODES)
    assert ask("MATCH (b:Book) WHERE b.price IS NOT NULL RETURN count(b) AS n") == [(priced,)]
    late = [(book["title"],) for book in BOOK_NODES if book["published"] > "1990-01-01"]
    assert ask("MATCH (b:Book) WHERE b.published > date('1990-01-01') RETURN b.title") == expected(late)


def test_links_are_what_python_follows() -> None:
    counts = Counter(title for _, title, _ in READ)
    with_zero = expected((title, counts[title]) for title in TITLES)
    assert ask("MATCH (b:Book) OPTIONAL MATCH (b)<-[:READ]-(r:Reader) RETURN b.title, count(r) AS n") == with_zero
    unread = expected((title,) for title in TITLES if not counts[title])
    assert ask("MATCH (b:Book) WHERE NOT (b)<-[:READ]-(:Reader) RETURN b.title") == unread
    name = READ[0][0]
    others = expected((title,) for title in TITLES if (name, title) not in {(who, what) for who, what, _ in READ})
    query = "MATCH (b:Book) WHERE NOT EXISTS {{ MATCH (b)<-[:READ]-(:Reader {{name: '{}'}}) }} RETURN b.title"
    assert ask(query.format(name)) == others
    liked = expected((who, what) for who, what, rating in READ if rating >= 4)
    assert ask("MATCH (r:Reader)-[x:READ]->(b:Book) WHERE x.rating >= 4 RETURN r.name, b.title") == liked


def test_shared_neighbors_are_what_python_finds() -> None:
    shared = Counter((a, b) for a, one, _ in READ for b, two, _ in READ if one == two and a < b)
    query = "MATCH (a:Reader)-[:READ]->(x:Book) MATCH (b:Reader)-[:READ]->(x) WHERE a.name < b.name"
    assert ask(query + " RETURN a.name, b.name, count(x) AS n") == expected((*pair, n) for pair, n in shared.items())


@pytest.mark.parametrize("start", WRITERS)
def test_paths_are_what_python_walks(start: str) -> None:
    first = {b for a, b in ADMIRES if a == start}
    second = {b for a, b in ADMIRES if a in first}
    head = f"MATCH (a:Writer {{name: '{start}'}})-[:ADMIRES"
    assert ask(head + "*1..2]->(b:Writer) RETURN DISTINCT b.name") == expected((name,) for name in first | second)
    steps = steps_from(start)
    assert ask(head + "*]->(b:Writer) RETURN DISTINCT b.name") == expected((name,) for name in steps)
    for end in set(steps) - {start}:
        path = f"(a:Writer {{name: '{start}'}})-[:ADMIRES*]->(b:Writer {{name: '{end}'}})"
        assert ask(f"MATCH p = shortestPath({path}) RETURN length(p) AS n") == [(steps[end],)]


def test_graphqlite_still_ignores_property_maps_in_where_patterns() -> None:
    """Why the maker writes EXISTS { MATCH ... }: when this fails, graphqlite has been mended."""
    connection = connect()
    script = "CREATE (a:A {name: 'x'}), (b:B {name: 'y'}), (c:B {name: 'z'}), (a)-[:R]->(b)"
    connection.execute("SELECT cypher(?)", (script,)).fetchall()
    assert run(connection, "MATCH (a:A) WHERE (a)-[:R]->(:B {name: 'z'}) RETURN a.name") == [("x",)]
    assert run(connection, "MATCH (a:A) WHERE EXISTS { MATCH (a)-[:R]->(:B {name: 'z'}) } RETURN a.name") == []


@pytest.mark.parametrize(
    ("cypher", "refused"),
    [
        ("MATCH (r:Reader) WHERE r.age > 40 RETURN count(r) AS total", ""),
        ("MATCH (r:Reader) WHERE r.age > 40 RETURN", "fails: SyntaxError: UnexpectedSyntax"),
        ("MATCH (r:Person) WHERE r.age > 40 RETURN count(r) AS total", "name not in the schema"),
        ("MATCH (r:Reader) WHERE r.years > 40 RETURN count(r) AS total", "name not in the schema"),
        ("MATCH (r:Reader) WHERE r.age > 41 RETURN count(r) AS total", "literal not in the question"),
        ("MATCH (r:Book)-[:READ]->(b:Reader) WHERE b.age > 40 RETURN r.title", "finds nothing"),
        ("MATCH (r:Reader) RETURN r.name LIMIT 5", "the order decides the result"),
        ("MATCH (r:Reader) WHERE r.age > 40 RETURN DISTINCT r.name", "a wrong query gives the same"),
    ],
)
def test_the_verifier_says_what_is_wrong(cypher: str, refused: str) -> None:
    row = {"question": "How many readers are older than 40, or the first 5?", "schema": SCHEMA, "cypher": cypher}
    assert verify(row, [BOOKS]) == refused


def test_a_broken_committed_row_is_refused() -> None:
    row = next(row for row in committed("train") if "-[:" in row["cypher"])
    assert verify(row, DOMAINS) == ""
    assert verify({**row, "cypher": row["cypher"].replace("-[:", "-[:NOT_")}, DOMAINS) == "name not in the schema"


def test_a_relationship_may_stand_in_one_domain_only() -> None:
    with pytest.raises(ValueError, match="two domains"):
        parse_graphs("# a\nA/as: name person\nA R A: to | from\n# b\nA/as: name person\nA R A: to | from\n")
