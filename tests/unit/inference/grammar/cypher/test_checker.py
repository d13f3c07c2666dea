"""What Cypher may say of a graph: each text is read character by character, and where it may not go on is marked by ¦."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from expert_cli.inference.grammar.cypher.checker import CypherChecker
from expert_cli.inference.grammar.cypher.graph_schema import GraphSchema
from expert_cli.inference.grammar.cypher.graph_schema_text import read_graph_schema
from tests.unit.inference.grammar.cypher.walks import ending

MOVIES = """Person {name, born}
Movie {title, released, `aspect ratio`}
Genre {name}
Award {year}
(:Person)-[:ACTED_IN {role}]->(:Movie)
(:Person)-[:DIRECTED]->(:Movie)
(:Person)-[:FOLLOWS {since}]->(:Person)
(:Movie)-[:IN_GENRE]->(:Genre)"""
EXPERT = Path("experts/expert-neo4j")


def schema(text: str = MOVIES) -> GraphSchema:
    found = read_graph_schema(text)
    assert found is not None
    return found


def read(query: str, text: str = MOVIES) -> tuple[str, bool]:
    """Return how far the query is viable, character by character, and whether that is a whole one."""
    checker = CypherChecker(schema(text))
    end = next((n - 1 for n in range(len(query) + 1) if not checker.viable(query[:n])), len(query))
    return query[:end], checker.complete(query[:end])


# read to their end, they are whole
WHOLE = """
MATCH (m:Movie) RETURN m
match (m:Movie) return m.title, m.released order by m.released desc limit 3;
MATCH(m:Movie)WHERE m.title='a'AND m.released>=1.5e3 RETURN m . title
MATCH (m:Movie {title: 'It\\'s', released: $year}) RETURN m.`aspect ratio`, m['title']
MATCH (`a b`:`Movie`) RETURN `a b`.title AS `the title` ORDER BY `the title`
MATCH (n) WHERE n:Movie OR n:!Genre RETURN n.title, n.name
MATCH (n:Person|Movie)-[r:ACTED_IN|DIRECTED]-(x) RETURN n.name, n.title, r.role, x.born
MATCH (n:!Movie), (o:Person&!Movie), (q:(Person|Movie)), (s IS Person), (t:%) RETURN n.name, t.title
MATCH (:Person)-[:ACTED_IN {role: 'lead'}]->(m)<-[:DIRECTED]-(d) RETURN m.title, d.born
MATCH (a:Person)-[r*1..3]-(b), (a)-[:FOLLOWS*]->(c), (a)-[:FOLLOWS*..2]->(d), (a)-[*2]->() RETURN c.born, d.name
MATCH (a:Person)-[:FOLLOWS*0..1]->(b)-[:ACTED_IN]->(m) RETURN m.title
MATCH (a:Person)((x)-[:FOLLOWS]->(y)){1,3}(b:Person), (a)-[:FOLLOWS]->+(c) RETURN b.name, x
MATCH p = shortestPath((a:Person {name: 'x'})-[:FOLLOWS*]->(b)) RETURN length(p)
MATCH p = ()--() RETURN [n IN nodes(p) | n.name], relationships(p)[0].since
MATCH p = ALL SHORTEST (a:Person)-[:FOLLOWS]->+(b) RETURN p
MATCH (a:Person)-->(m), (a)--(b)<--(c)<-->(d) RETURN type(a), m.title
MATCH (m:Movie) WHERE NOT EXISTS { MATCH (m)<-[:DIRECTED]-(p) WHERE p.born < 3 } RETURN EXISTS { (m)-[:IN_GENRE]->() }
MATCH (m:Movie) WHERE (m)<-[:DIRECTED]-(:Person) AND NOT (m)-[:IN_GENRE]->() AND exists((m)--()) RETURN m
MATCH (m:Movie) RETURN COUNT { (m)<-[:ACTED_IN]-() } AS n, size([(m)--() | 1])
MATCH (m:Movie) RETURN COLLECT { MATCH (m)-[:IN_GENRE]->(g) RETURN g.name } AS names
MATCH (m:Movie) WITH m.title AS title, count(*) AS n WHERE n > 1 AND m.released > 3 RETURN title ORDER BY n, title SKIP 1
MATCH (m:Movie) WITH *, 1 AS one WITH DISTINCT m, one RETURN *, one + m.released
MATCH (m:Movie) WITH collect(m) AS all UNWIND all AS one WITH one, all, head(all) AS first RETURN one.title, first.title
MATCH (m:Movie) WITH collect(m) AS all RETURN all[0].title, all[1..2][0].released, all[..1]
MATCH (m:Movie) WITH {title: m.title, n: 1} AS map RETURN map.title, map.n, map['x']
MATCH (m:Movie) RETURN m {.title, .*, again: m.released, m} AS map
MATCH (p:Person) RETURN p.born.year, date(p.born).month, duration.between(date(), date('2020-01-01')).days, date().weekday
MATCH (p:Person) RETURN p.name AS p ORDER BY p.born
MATCH (p:Person) RETURN CASE p.born WHEN 1, 2 THEN 'a' WHEN > 3 THEN 'b' ELSE null END, CASE WHEN p.born IS NOT NULL THEN 1 END
MATCH (p:Person) WHERE all(x IN [1, 2] WHERE x < p.born) AND any(m IN [(p)-[:ACTED_IN]->(f) | f] WHERE m.title =~ '.*') RETURN p
MATCH (p:Person) RETURN reduce(sum = 0, x IN collect(p) | sum + x.born), [x IN [p] WHERE x.born > 1 | x.name]
MATCH (p:Person) WHERE p.name STARTS WITH 'a' OR p.name ENDS WITH 'b' XOR p.name CONTAINS 'c' RETURN -p.born % 2 ^ 3
MATCH (p:Person) RETURN p.name UNION ALL MATCH (p:Movie) RETURN p.title AS name
MATCH (p:Person) CALL { WITH p MATCH (p)-[:ACTED_IN]->(m) RETURN count(m) AS n } RETURN p.name, n
MATCH (p:Person) CALL (p) { MATCH (p)-[:ACTED_IN]->(m) RETURN m UNION MATCH (p)-[:DIRECTED]->(m) RETURN m } RETURN m.title
MATCH (p:Person) OPTIONAL MATCH (p)-[r:FOLLOWS]->(q) WHERE r.since > 1 RETURN startNode(r).name, coalesce(q, p).born, q.name
CALL db.labels() YIELD label AS one WHERE one <> 'a' RETURN one
CALL db.index.fulltext.queryNodes('i', 'x') YIELD node, score RETURN node.title, score
CALL db.labels()
LOAD CSV WITH HEADERS FROM 'file' AS row MERGE (p:Person {name: row.anything}) ON CREATE SET p.born = row.b, p:Person
CREATE (p:Person {name: 'x'})-[:ACTED_IN {role: 'a'}]->(m:Movie) SET p += {born: 3} WITH m MATCH (m) DETACH DELETE m
FOREACH (x IN [1, 2] | CREATE (:Person {born: x}))
UNWIND [1, 2] AS x UNWIND $list AS y RETURN x, y.anything, apoc.coll.toSet([x])
MATCH (m:Movie) RETURN /* all */ m // of them
MATCH (m:Movie) RETURN toUpper(m.title), count(DISTINCT m), round(m.released, 1), rand() < .5
MATCH (:Award)-[:ACTED_IN]->(m) RETURN m.title
MATCH (a:Person), (b:Person) WHERE a.born<-b.born AND (a)<-[:FOLLOWS]-(b) RETURN a.born-b.born, (a.born)-(b.born)
"""

# up to ¦ it may go on; at ¦ it may not go on so
REFUSED = """
MATCH (m:¦Film) RETURN m
MATCH (m:Movie¦s) RETURN m
MATCH (m:¦movie) RETURN m
MATCH (m:Movie|¦Film) RETURN m
MATCH (m:Movie&!¦Film) RETURN m
MATCH (m:`¦Film`) RETURN m
MATCH (m:Movie) WHERE m:¦Film RETURN m
MATCH (m:Movie) RETURN m.¦name
MATCH (m:Movie) RETURN m.title¦s
MATCH (m:Movie) RETURN m.`¦name`
MATCH (m:Movie {¦name: 'x'}) RETURN m
MATCH (m {¦kind: 'x'}) RETURN m
MATCH (m) RETURN m.¦since
MATCH (m:Movie) RETURN m {.¦name}
MATCH (m:Movie) RETURN m.released.¦role
MATCH (:Person)-[:ACTED_IN {¦since: 1}]->(m) RETURN m
MATCH (:Person)-[r:ACTED_IN]->(m) RETURN r.role, r.¦name
MATCH (:Person)-[r:ACTED_IN|FOLLOWS]->(m) RETURN r.since, r.¦name
MATCH (:Person)-[r:DIRECTED]->(m) RETURN r¦.role
MATCH (:Movie)-[r]->(m) RETURN r¦.role
MATCH (m)-[:IN_GENRE]->(g) RETURN m.title, g.name, g.¦title
MATCH (m)<-[:ACTED_IN]-(p) RETURN p.born, m.¦born
MATCH (a:Person)-[r:FOLLOWS*]->(b) RETURN r[0].since, b.name, r¦.since
MATCH (a:Person)-[:FOLLOWS*]->(b) RETURN b.¦title
MATCH (p:Person)-[:¦IN_GENRE]->(g) RETURN g
MATCH (p:Person)-[:ACTED_IN|¦PLAYED]->(g) RETURN g
MATCH (p:Person)<-[:¦ACTED_IN]-(m) RETURN m
MATCH (m:Movie)-[:ACTED_IN]-¦>(p) RETURN p
MATCH (p:Person)-[:ACTED_IN]->(m:¦Person) RETURN m
MATCH (p:Person)-[:ACTED_IN]->(m), (q:Person)-[:ACTED_IN]->(p¦) RETURN m
MATCH (g:Genre), (p:Person)-[:ACTED_IN]->(g¦) RETURN g
MATCH (g:Genre) MATCH (g:¦Movie) RETURN g
MATCH (p:Person)-[r:FOLLOWS]->() MATCH (r¦) RETURN p
MATCH (p:Person) MATCH ()-[p¦]->() RETURN p
MATCH (m:Movie) WITH m.title AS t MATCH (t¦) RETURN t
MATCH (m:Movie) RETURN ¦x
MATCH (m:Movie) WHERE ¦z.born > 1 RETURN m
MATCH (m:Movie) WHERE m.released > ¦z RETURN m
MATCH (m:Movie) WITH m.title AS t RETURN t, m¦.released
MATCH (m:Movie) WITH m.released AS x RETURN x.year, x.¦role
MATCH (m:Movie) WITH m.released ¦RETURN m
MATCH (m:Movie) WITH count(m)¦, m RETURN m
MATCH (m:Movie) WITH [m] AS list UNWIND list AS one RETURN one.title, one.¦films
MATCH (m:Movie) WITH collect(m) AS list UNWIND list AS one RETURN one.¦name
MATCH (m:Movie) WITH collect(m) AS list RETURN list¦.title
MATCH (m:Movie) RETURN [x IN [1] | x], ¦x
MATCH (m:Movie) RETURN all(x IN [1] WHERE x > 1), ¦x
MATCH (m:Movie) RETURN [(m)--(q) | q], ¦q
MATCH (m:Movie) WHERE EXISTS { (m)--(q) } RETURN ¦q
MATCH (m:Movie) WHERE (m)--(¦q) RETURN m
MATCH (m:Movie) WHERE (m)-[¦zz]-() RETURN m
MATCH (m:Movie:¦Genre) RETURN m
MATCH (m:Movie) RETURN rand(¦1)
MATCH (m:Movie) WITH max(m.released) AS x MATCH (x¦)--() RETURN x
MATCH (m:Movie) RETURN m.title UNION MATCH (p:Person) RETURN m¦
MATCH p = (m:Movie)--() RETURN p¦.title
MATCH (m:Movie) RETURN m¦edian(m.released)
MATCH (m:Movie) RETURN count(¦) AS n
MATCH (m:Movie) RETURN apoc¦
MATCH (m:Movie) ¦GROUP BY m
MATCH (m:Movie) RETURN m ORDER ¦m.title
MATCH (m:Movie) RETURN m LIMIT 3 OR¦DER BY m
MATCH (m:Movie) RETURN m ¦WHERE m.released > 1
¦SELECT 1
MATCH (m:Movie)¦) RETURN m
MATCH (m:Movie¦]
MATCH (m:Movie) RETURN (m.title¦]
MATCH (m:Movie) RETURN [m.title¦)
MATCH (m:Movie) RETURN m.released > 1¦x
MATCH (m:Movie) RETURN 1.5¦.5
MATCH (m:Movie) RETURN m LIMIT 3¦SKIP 1
MATCH (g:Genre) MATCH (g)-[:¦FOLLOWS]->() RETURN g
MATCH (m:Movie) RETURN m.title¦:Movie
MATCH (m:Movie) RETURN 1¦[0]
MATCH (m:Movie) RETURN 'a' ¦'b'
MATCH (m:Movie) RETURN m; ¦MATCH
MATCH (m:Movie) RETURN m ¦#
MATCH (a)-[r:FOLLOWS*1.¦5]->() RETURN a
MATCH (m:Movie) RETURN m AS ret, 1 AS return¦ UNION
¦SET n.x = 1
MATCH (:Movie) ¦SET n.x = 1
MATCH (:Movie) RETURN ¦*
CALL d¦elete.everything()
"""

# these may go on, and may not end
UNFINISHED = """
MATCH (m:Movie)
MATCH (m:Movie) WHERE m.released > 1
MATCH (m:Movie) WITH m
MATCH (m:Movie) RETURN
MATCH (m:Movie) RETURN m.
MATCH (m:Movie) RETURN m.tit
MATCH (m:Movie) RETURN 'm
MATCH (m:Movie) RETURN "m'
MATCH (m:Movie) RETURN 'm\\'
MATCH (m:Movie) RETURN m.`title
MATCH (m:Movie) RETURN (m.title
MATCH (m:Movie) RETURN [m.title
MATCH (m:Movie) RETURN {a: 1
MATCH (m:Movie) RETURN m.released +
MATCH (m:Movie) RETURN m.released IS NOT
MATCH (m:Movie) RETURN m.title STARTS
MATCH (m:Movie) RETURN m.title,
MATCH (m:Movie) RETURN m AS
MATCH (m:Movie) RETURN m ORDER BY
MATCH (m:Movie) RETURN m LIMIT
MATCH (m:Movie) RETURN count(
MATCH (m:Movie) RETURN 1.
MATCH (m:Movie) RETURN 1e
MATCH (m:Movie) RETURN $
MATCH (m:Movie) RETURN m /* and
MATCH (m:Movie) // RETURN m
MATCH (m:Movie) RETURN m UNION
MATCH (m:Movie)-[:IN_GENRE]->
MATCH (m:Movie) RETURN CASE WHEN 1 THEN 2
MATCH (m:Movie) CALL { MATCH (n) RETURN n }
"""


def lines(text: str) -> list[str]:
    return text.strip("\n").splitlines()


@pytest.mark.parametrize("query", lines(WHOLE))
def test_these_are_read_to_their_end(query: str) -> None:
    assert read(query) == (query, True)


@pytest.mark.parametrize("query", lines(REFUSED))
def test_these_are_refused_where_they_name_what_is_not_there(query: str) -> None:
    before, after = query.split("¦")
    assert read(before + after)[0] == before
    assert ending(schema(), before) is not None, "what is viable can be completed"


@pytest.mark.parametrize("query", lines(UNFINISHED))
def test_these_are_not_done(query: str) -> None:
    assert read(query) == (query, False)
    assert ending(schema(), query) is not None, "what is viable can be completed"


@pytest.mark.parametrize("file", ["tests/cases.jsonl", "tests/unseen.jsonl"])
def test_no_right_answer_of_the_expert_is_refused(file: str) -> None:
    for line in (EXPERT / file).read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        assert read(case["expected"], case["input"]) == (case["expected"], True), case["id"]


def test_what_was_read_of_another_text_says_nothing_of_this_one() -> None:
    rng = random.Random(7)
    checker = CypherChecker(schema())
    queries = [query.replace("¦", "") for query in (*lines(WHOLE), *lines(REFUSED), "MATCH (a)-[*1.5]->() RETURN 1..2")]
    for _ in range(400):
        query = rng.choice(queries)
        text = query[: rng.randrange(len(query) + 1)]
        fresh = CypherChecker(schema())
        assert (checker.viable(text), checker.complete(text)) == (fresh.viable(text), fresh.complete(text)), text
