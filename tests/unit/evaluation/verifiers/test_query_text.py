"""Statements are found without taking quotes and comments for code."""

from __future__ import annotations

import pytest

from expert_cli.evaluation.verifiers.query_rows import Dialect, orders_lists, orders_rows, split


@pytest.mark.parametrize(
    ("dialect", "text", "statements"),
    [
        pytest.param("sqlite", " ;; -- x\n/* ; */ ;", [], id="no code"),
        pytest.param("sqlite", "SELECT 1;SELECT 2 ; ", ["SELECT 1", "SELECT 2"], id="two"),
        pytest.param("sqlite", "SELECT ';' ; SELECT 'it''s;'", ["SELECT ';'", "SELECT 'it''s;'"], id="texts"),
        pytest.param("sqlite", "SELECT 1 -- a; b\n, 2", ["SELECT 1 -- a; b\n, 2"], id="line comment"),
        pytest.param("cypher", r"RETURN 'it\'s;' ; RETURN 2", [r"RETURN 'it\'s;'", "RETURN 2"], id="escapes"),
    ],
)
def test_split(dialect: Dialect, text: str, statements: list[str]) -> None:
    assert split(text, dialect) == statements


@pytest.mark.parametrize(
    ("dialect", "query", "ordered"),
    [
        pytest.param("sqlite", "SELECT a FROM t ORDER BY a", True, id="outer"),
        pytest.param("sqlite", "SELECT a FROM t order\nby a LIMIT 1", True, id="lower case"),
        pytest.param("sqlite", "SELECT a FROM (SELECT a FROM t ORDER BY a)", False, id="subquery"),
        pytest.param("sqlite", "SELECT row_number() OVER (ORDER BY a) FROM t", False, id="window"),
        pytest.param("sqlite", "SELECT 'ORDER BY' FROM t -- ORDER BY", False, id="text and comment"),
        pytest.param("cypher", "MATCH (n) RETURN n ORDER BY n.x", True, id="Cypher"),
        pytest.param("cypher", "MATCH (n) WITH n ORDER BY n.x RETURN n", False, id="Cypher, before RETURN"),
        pytest.param("cypher", "CALL { MATCH (n) RETURN n ORDER BY n.x } RETURN n", False, id="Cypher, subquery"),
    ],
)
def test_orders_rows(dialect: Dialect, query: str, ordered: bool) -> None:
    assert orders_rows(query, dialect) is ordered


@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        pytest.param("MATCH (n) RETURN collect(n.x) ORDER BY n.y", False, id="rows only"),
        pytest.param("MATCH (n) RETURN COLLECT { MATCH (n)-->(m) RETURN m.x }", False, id="subquery"),
        pytest.param("MATCH (n) RETURN [(n)-->(m) | m.x]", False, id="pattern"),
        pytest.param("MATCH (n) RETURN labels(n), keys(n)", False, id="labels and keys"),
        pytest.param("MATCH p = (n)-->(m) RETURN nodes(p), [x IN nodes(p) | x.y]", True, id="a path's nodes"),
        pytest.param("MATCH (n) RETURN [n.keys, 'collect(x)'] AS labels", True, id="names and texts"),
        pytest.param("MATCH (n) WITH n ORDER BY n.x RETURN collect(n.x)", True, id="what is collected"),
    ],
)
def test_orders_lists(query: str, ordered: bool) -> None:
    assert orders_lists(query) is ordered
