"""What SQL may say of tables: each text is read character by character, and where it may not go on is marked by ¦.

SQLite says the same of the whole texts: it compiles what is taken, and refuses what is refused, with what is written beside it.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from expert_cli.evaluation.audit.sql_schema import compile_fault, open_schema
from expert_cli.inference.grammar.sql.checker import SqlChecker
from expert_cli.inference.grammar.sql.table_schema import tables_of
from expert_cli.inference.grammar.sql.words import SqlDialect

TABLES = """CREATE TABLE author (aid INTEGER, name TEXT, born INTEGER);
CREATE TABLE writes (aid INTEGER, pid INTEGER);
CREATE TABLE paper (pid INTEGER, title TEXT, year INTEGER);
CREATE TABLE place (name TEXT, "zip code" TEXT, "order" INTEGER, "select" TEXT);
CREATE TABLE cast (aid INTEGER, role TEXT)"""
EXPERT = Path("experts/expert-sql")


def read(query: str, dialect: SqlDialect = "sqlite", tables: str = TABLES) -> tuple[str, bool]:
    """Return how far a query is viable, character by character, and whether it may end there."""
    checker = SqlChecker(tables_of(tables), dialect)
    end = next((n - 1 for n in range(len(query) + 1) if not checker.viable(query[:n])), len(query))
    return query[:end], checker.complete(query[:end])


TAKEN = """
SELECT name, name || born, name FROM author
SELECT born, name, born FROM author UNION SELECT aid, aid, aid FROM writes
SELECT name FROM author
select NAME, Born from AUTHOR where born >= 1900 order by born desc limit 3;
SELECT 1
SELECT * FROM author
SELECT author.*, T2.pid FROM author JOIN writes AS T2 ON author.aid = T2.aid
SELECT COUNT(*), COUNT(DISTINCT born), MAX(born, 3), -born FROM author
SELECT T1.name FROM author AS T1 JOIN writes AS T2 ON T1.aid = T2.aid JOIN paper AS T3 ON T2.pid = T3.pid WHERE T3.year = 2000
SELECT T2.title, T1.name FROM author T1, writes w, paper T2 WHERE T1.aid = w.aid AND w.pid = T2.pid
SELECT name, title FROM author NATURAL JOIN writes NATURAL JOIN paper
SELECT name FROM author JOIN place USING (name)
SELECT name FROM author NATURAL JOIN place
SELECT aid, name FROM author LEFT OUTER JOIN writes USING (aid)
SELECT aid, T2.pid FROM author JOIN writes AS T2 USING (aid)
SELECT a.name FROM author a JOIN author b ON a.aid = b.aid CROSS JOIN paper
SELECT title FROM paper WHERE pid IN (SELECT pid FROM writes WHERE aid = 3) AND NOT EXISTS (SELECT * FROM author)
SELECT name FROM author WHERE (aid, born) IN (SELECT pid, year FROM paper)
SELECT name FROM author WHERE born = (SELECT MAX(born) FROM author)
SELECT name, (SELECT COUNT(*) FROM writes WHERE writes.aid = author.aid) AS n FROM author WHERE n > 2 ORDER BY n
SELECT (SELECT T1.name || title FROM paper) FROM author AS T1
SELECT name FROM author WHERE EXISTS (SELECT 1 FROM writes WHERE writes.aid = born)
SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM writes GROUP BY aid)
SELECT AVG(sub.total), SUM(CASE WHEN paper_count > 1 THEN 1 ELSE 0 END) FROM (SELECT 1 AS total, 2 AS paper_count) AS sub
SELECT title, date(year, n || ' days') FROM paper CROSS JOIN (SELECT 1 AS n)
SELECT y FROM (SELECT year AS y FROM paper) WHERE y > 1
SELECT t.year FROM (SELECT * FROM paper) AS t WHERE t.title IS NOT NULL
WITH old AS (SELECT name, born FROM author), n(c) AS (SELECT COUNT(*) FROM old) SELECT old.name, c FROM old, n
WITH RECURSIVE t(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM t WHERE i < 9) SELECT i FROM t
WITH paper AS (SELECT name FROM author) SELECT name FROM paper
SELECT name FROM author UNION ALL SELECT title FROM paper ORDER BY name DESC
SELECT name FROM author INTERSECT SELECT title FROM paper EXCEPT SELECT 'x'
SELECT born AS b, COUNT(*) FROM author GROUP BY b HAVING COUNT(*) > 1 ORDER BY COUNT(*) DESC, b ASC NULLS LAST
SELECT name AS "the name", born FROM author ORDER BY "the name"
SELECT T1.name AS name FROM author T1 JOIN place T2 ON T1.name = T2.name ORDER BY name
SELECT SUM(born) OVER (PARTITION BY name ORDER BY aid ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM author
SELECT RANK() OVER w, LAG(born, 1) OVER w FROM author WINDOW w AS (ORDER BY born)
SELECT SUM(COUNT(*)) OVER () FROM author GROUP BY born
SELECT COUNT(*) FILTER (WHERE born > 3) FROM author
SELECT CAST(born AS REAL) / NULLIF(COUNT(*), 0), CAST(name AS VARCHAR(10)) FROM author
SELECT CASE born WHEN 1 THEN 'a' ELSE name END FROM author WHERE name LIKE '%it''s' ESCAPE '!' OR born NOT BETWEEN 1 + 1 AND 2
SELECT name FROM author WHERE name = "New York" AND name IN ("a", 'b') AND born ISNULL
SELECT "zip code", `order`, [select], place."select" FROM "place"
SELECT T1.aid, writes.pid FROM writes AS T1 JOIN writes ON T1.aid = writes.aid
SELECT role FROM CAST AS T1 WHERE T1.aid = 1
SELECT title FROM author a JOIN writes b ON a.aid = b.aid AND b.pid > 1 AND born IN (1, 2) JOIN paper p ON p.pid = b.pid OR 1
SELECT author.rowid FROM author WHERE rowid > 1 ORDER BY rowid
SELECT title FROM paper LIMIT 2 - (SELECT COUNT(*) FROM paper) % 2 OFFSET 1
SELECT TRUE, NULL, current_date, strftime('%Y', 'now'), 1.5e3 WHERE 1
SELECT DISTINCT(born) FROM author WHERE name COLLATE NOCASE = 'x' AND ~born << 1 | 2
"""


@pytest.mark.parametrize("query", TAKEN.strip().splitlines())
def test_a_query_that_is_right_is_taken_as_sqlite_takes_it(query: str) -> None:
    assert read(query) == (query, True)
    assert compile_fault(open_schema(TABLES)[0], query) == ""


REFUSED = """
SELECT nam¦s FROM author  -> no such column
SELECT name, pid FROM author W¦HERE aid = 1  -> no such column
SELECT T1.title FROM author AS T¦1 WHERE T1.aid = 1  -> no such column
SELECT T1.title, T1.¦name FROM author AS T1  -> no such column
SELECT T1.name FROM paper AS T¦1 JOIN author AS T2  -> no such column
SELECT paper.title FROM author¦  -> no such column
SELECT paper.title FROM paper ¦AS p  -> no such column
SELECT * FROM author WHERE p¦aper.pid = 1  -> no such column
SELECT * FROM author WHERE author.¦pid = 1  -> no such column
SELECT * FROM author AS T1 WHERE a¦uthor.aid = 1  -> no such column
SELECT * FROM author¦s WHERE 1  -> no such table
SELECT * FROM author JOIN ¦books  -> no such table
SELECT T2.* FROM author AS T1 ¦WHERE 1  -> no such table
SELECT name FROM author, place ¦WHERE 1  -> ambiguous column
SELECT name FROM author JOIN place ¦ON author.aid = 1  -> ambiguous column
SELECT name FROM author JOIN place ¦AS b ON author.name = b.name  -> ambiguous column
SELECT aid FROM writes JOIN ¦writes AS b ON writes.pid = b.pid  -> ambiguous column
SELECT title FROM author, place W¦HERE name = 'x'  -> no such column
SELECT author.aid FROM author, place WHERE n¦ame = 'x'  -> ambiguous column
SELECT T1.aid FROM author T1 JOIN writes T2 USING (aid) JOIN cast USING (¦pid)  -> cannot join
SELECT author.name FROM author JOIN place ON 1 ORDER BY n¦ame  -> ambiguous column
SELECT name FROM author WHERE aid IN (SELECT aid FROM writes WHERE ti¦tle)  -> no such column
SELECT * FROM (SELECT name FROM author) AS T1 WHERE T1.¦born = 1  -> no such column
SELECT * FROM (SELECT name FROM author AS T2) WHERE T¦2.name = 1  -> no such column
WITH old AS (SELECT name FROM author) SELECT old.¦born FROM old  -> no such column
WITH old AS (SELECT name FROM author) SELECT born FROM old¦  -> no such column
WITH old AS (SELECT name FROM ¦old) SELECT name FROM old  -> circular reference
WITH old(n) AS (SELECT name FROM author) SELECT name FROM old¦  -> no such column
SELECT born FROM (SELECT - born FROM author) W¦HERE 1  -> no such column
SELECT AVG(n) FROM ¦writes  -> no such column
SELECT AVG(n) FROM (SELECT COUNT(*) AS m ¦FROM writes)  -> no such column
SELECT born AS b, b + 1 FROM author¦  -> no such column
SELECT name FROM author ORDER BY ti¦tle  -> no such column
SELECT name FROM author UNION SELECT title FROM paper ORDER BY ¦born  -> 1st ORDER BY
SELECT title FROM paper LIMIT ¦year  -> no such column
SELECT name FROM author WHERE [¦order] = 1  -> no such column
SELECT o¦rder FROM place  -> syntax error
SELECT MAX¦I(born) FROM author  -> no such function
SELECT ROUND(born, 1¦, 2) FROM author  -> wrong number
SELECT NULLIF(born¦) FROM author  -> wrong number
SELECT name FROM author WHERE MAX(born¦) > 1  -> misuse of aggregate
SELECT name FROM author WHERE CO¦UNT(*) > 1  -> misuse of aggregate
SELECT SUM(COUNT(*)) F¦ROM author  -> misuse of aggregate
SELECT COUNT(*) AS n FROM author WHERE n¦ > 1  -> misuse of aggregate
SELECT born AS b FROM author H¦AVING b > 1  -> HAVING clause
SELECT RANK() ¦FROM author  -> misuse of window
SELECT name FROM author WHERE born = (SELECT MAX(born) FROM writes¦)  -> misuse of aggregate
SELECT name FROM author WHERE born = (SELECT aid¦, pid FROM writes)  -> row value misused
SELECT name FROM author UNION SELECT aid¦, pid FROM writes  -> do not have the same number
SELECT name author FROM author WH¦RE born = 1  -> syntax error
SELECT name FROM author WHERE born = ¦)  -> syntax error
WITH t1 AS (SELECT 1) SELECT t1¦.x FROM t1  -> no such column
SELECT EXISTS (SELECT * FROM author) AS x ¦T3 FROM author  -> syntax error
SELECT (SELECT COUNT(*) FROM writes JOIN paper ON born = 1) FROM place¦  -> no such column
SELECT (SELECT COUNT(*) FROM writes JOIN paper ON author.born = 1) FROM place¦  -> no such column
SELECT name, F¦ROM author  -> syntax error
SELECT name FROM author¦)   -> syntax error
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_a_query_that_is_wrong_is_refused_where_it_goes_wrong(line: str) -> None:
    query, fault = line.split("  -> ")
    assert read(query.replace("¦", ""))[0] == query[: query.index("¦")]
    assert not SqlChecker(tables_of(TABLES), "sqlite").complete(query.replace("¦", ""))
    assert fault in compile_fault(open_schema(TABLES)[0], query.replace("¦", ""))


# Refused although SQLite compiles them: they do not mean what they say, or are no query.
STRICTER = """
SELECT title FROM paper WHERE pid IN (SELECT title FROM writes¦)
SELECT name, born, name¦, born FROM author
SELECT T1.name, COUNT(DISTINCT  born) AS n, count(distinct born) AS m¦, T1.name FROM author AS T1
SELECT *, *¦, * FROM author
SELECT pap¦1.title FROM paper AS pap1
SELECT "zip code¦2" FROM place
SELECT name FROM place WHERE name = "x" AND "zip¦" = 1
SELECT name FROM author; ¦SELECT 1
¦DELETE FROM author
SELECT 'x' -¦- a comment
SELECT name FROM author WHERE born = ¦:b
SELECT e¦verest.born FROM (SELECT born FROM author) AS everest
SELECT T1.name FROM author AS T1 JOIN writes AS T2 ON T1.aid = T¦3.aid JOIN writes AS T3
SELECT 1 FROM author, author¦
SELECT T1.name FROM writes AS T2 JOIN author AS T¦3 JOIN author AS T1
SELECT T1.name FROM writes AS T2 JOIN ¦writes AS T3 JOIN author AS T1
SELECT T1.name FROM writes AS T2 JOIN author ¦ON T1.aid = T2.aid
SELECT 1 FROM author AS T1¦JOIN
SELECT 1 FROM author AS T11¦1
SELECT title FROM author AS a, author AS b, author AS c, ¦author AS d, paper
SELECT w.pid FROM author AS a, author AS b, author AS c, writes AS ¦d
SELECT aid FROM author JOIN writes ¦AS b USING (aid)
SELECT title FROM author JOIN writes ON author.aid = writes.aid ¦OR 1
SELECT title FROM author JOIN writes ON (author.aid = writes.aid ¦OR 1)
SELECT title FROM author JOIN writes ON 1 AND 1 AND 1 ¦AND 1
SELECT name FROM author auth¦s
SELECT COUNT(som¦e_thing) FROM (SELECT 1 AS some_thing)
SELECT s¦ome_count FROM (SELECT 1 AS some_count)
SELECT row¦id FROM author
"""


@pytest.mark.parametrize("query", STRICTER.strip().splitlines())
def test_what_does_not_mean_what_it_says_is_refused_as_well(query: str) -> None:
    assert read(query.replace("¦", ""))[0] == query[: query.index("¦")]
    assert not SqlChecker(tables_of(TABLES), "sqlite").complete(query.replace("¦", ""))


POSTGRESQL = """
SELECT name, born::text || 'x', "zip code" FROM author NATURAL JOIN place WHERE name ILIKE 'a%' OR name ~* '^b'
SELECT DISTINCT ON (born) born AS year FROM author ORDER BY year LIMIT 3 OFFSET 1
SELECT EXTRACT(YEAR FROM now()), date_trunc('month', DATE '2020-01-01' - INTERVAL '3 months') FROM author
SELECT name FROM author ORDER BY name FETCH FIRST 3 ROWS ONLY
SELECT substring(name FROM 1 FOR 2), trim(both ' ' from name), position('a' IN name), left(name, 2) FROM author
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY born), array_agg(name ORDER BY born), ARRAY[1, 2] FROM author
SELECT name FROM author WHERE born = ANY (SELECT year FROM paper) AND born IS DISTINCT FROM 3
SELECT t.born FROM (SELECT born, COUNT(*) AS n FROM author GROUP BY born) AS t WHERE t.n IS NOT NULL
SELECT d.year FROM (SELECT year, title AS date FROM paper) AS d WHERE date > date '2020-01-01' AND d.date IS NULL
SELECT name FROM author AS T1 JOIN writes AS T2 ON T1.aid = T¦3.aid
SELECT name FROM author JOIN writes W¦HERE 1 = 1
SELECT born AS b FROM author WHERE b¦ = 1
SELECT born AS b FROM author ORDER BY b ¦+ 1
SELECT (SELECT born FROM (SELECT born FROM author) ¦)
SELECT name FROM author WHERE name = "N¦ew York"
SELECT str¦ftime('%Y', born) FROM author
SELECT name FROM author WHERE born =¦= 1
SELECT ¦[name] FROM author
SELECT row¦id FROM author WHERE author.rowid = 1
"""


@pytest.mark.parametrize("query", POSTGRESQL.strip().splitlines())
def test_postgresql_has_its_own_words_and_scopes(query: str) -> None:
    end, whole = read(query.replace("¦", ""), "postgresql")
    assert end == query.partition("¦")[0]
    assert whole or "¦" in query


UNFINISHED = """
SELECT
SELECT name
SELECT name FROM
SELECT name FROM author WHERE
SELECT name FROM author WHERE name = 'x
SELECT name FROM author WHERE name = "x
SELECT name FROM author WHERE (born = 1
SELECT name FROM author WHERE born BETWEEN 1
SELECT name FROM author WHERE born = 1e
SELECT name FROM author ORDER BY
SELECT name FROM author WHERE born = 1 AND
SELECT name, FROM author
SELECT T2.pid FROM author AS T1
SELECT COUNT(
SELECT RANK()
WITH old AS (SELECT name FROM author)
SELECT AVG(n)
"""


@pytest.mark.parametrize("query", UNFINISHED.strip().splitlines())
def test_what_is_not_finished_is_not_complete(query: str) -> None:
    assert not SqlChecker(tables_of(TABLES), "sqlite").complete(query)


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    tables = tables_of(TABLES)
    query = (
        "SELECT T1.name, COUNT(*) AS n FROM author AS T1 JOIN writes AS T2 ON T1.aid = T2.aid WHERE T1.name <= 'it''s';"
    )
    asked = [
        query[:n] + more
        for n in range(0, len(query), 3)
        for more in ("", "x", "1", " ", "' ", ", name", ") FROM author")
    ]
    alone = {
        text: (SqlChecker(tables, "sqlite").complete(text), SqlChecker(tables, "sqlite").viable(text)) for text in asked
    }
    random.Random(1).shuffle(asked)
    one = SqlChecker(tables, "sqlite")
    for text in (*sorted(alone), *asked):
        assert (one.complete(text), one.viable(text)) == alone[text], text


def test_brackets_calls_and_queries_stand_in_one_another_only_so_deep() -> None:
    for piece in ("(", "CASE WHEN ", "(SELECT ", "ABS(", "EXISTS (SELECT 1 WHERE ", "1 IN ("):
        end, _ = read("SELECT " + piece * 300)
        assert len(piece) < len(end) < 9 * len(piece) + 7, piece
    assert read("SELECT " + "- " * 3000 + "1")[1]


def test_the_queries_of_the_expert_are_taken() -> None:
    for name in ("cases", "unseen"):
        for line in (EXPERT / "tests" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[::3]:
            row = json.loads(line)
            assert read(row["expected"], tables=row["input"]) == (row["expected"], True)


WORDS = """
SELECT SELECT FROM FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN NATURAL CROSS ON USING AS AND OR NOT IN BETWEEN LIKE IS NULL CASE
WHEN THEN ELSE END UNION ALL DISTINCT EXISTS WITH OVER FILTER CAST COUNT MAX ROUND RANK author writes paper place aid name born
pid title year wrong T1 T2 n x 1 'x' "x" * , , . . = - || ; rowid AS ASC WINDOW
"""
RARER = """author,writes,paper,place,cast,aid,name,born,pid,title,year,role,"zip code","order",(,),BY,INTEGER,GROUPS,PRECEDING,\
ROW,FOLLOWING,MATERIALIZED"""
# of a number in GROUP BY or ORDER BY, which column it stands for is not read
POSITION = re.compile("term out of range|misuse of window|not allowed in the GROUP BY")


def test_what_words_at_random_make_is_compiled_by_sqlite() -> None:
    draw, tables = random.Random(5), tables_of(TABLES)
    compiled = 0
    for _ in range(120):
        checker, text = SqlChecker(tables, "sqlite"), "SELECT"
        for step in range(60):
            closing = [")", "FROM", "1", "END", "THEN", "WHEN", "SELECT 1"] if step > 6 + draw.random() * 12 else []
            words = (*closing, *draw.sample(WORDS.split(), 72), *RARER.split(","))
            word = next(word for word in words if checker.viable(f"{text} {word} "))  # something always goes on
            text = f"{text} {word}"
            if checker.complete(text):
                fault = compile_fault(open_schema(TABLES)[0], text)
                assert not fault or POSITION.search(fault), f"{fault}: {text}"
                compiled += not fault
                break
    assert compiled > 60
