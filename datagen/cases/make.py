"""Write experts/<name>/tests: cases.jsonl, unseen.jsonl, of SQL prompts.jsonl, and under data/ what their answers are run on.

The makers of the training rows make the cases too, with other seeds: the same kinds of tasks and the same wording of
prompts. Every answer passes the check that training rows pass. Categories are numbered from easy to hard.

cases.jsonl of SQL and Cypher asks new questions about the databases and graphs of the training rows. Held out means: the
hash of a query's shape, the query without its values, gives the query to the training rows, to the validation rows or to
the cases. So every case has columns, conditions or parts that no training row has in this combination; none differs from
a training row in names and numbers alone, and no two cases differ in these alone. unseen.jsonl asks about databases and
graphs that no training row speaks of (case_worlds.py).

Those of JSON and TypeScript ask about the objects of the training rows. Every row belongs to a group: a form of task with
a world, the keys or steps it names and the kinds of its conditions; a hash puts the group wholly on one side. So a case
combines known parts anew and is no training row with other values; the least new are TypeScript's classes and async
functions, a known task with another noun or option. Their unseen.jsonl asks about other objects.

Of all experts those cases go whose question, or whose answer with its layout aside, stands in the training or validation
rows.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import zip_longest
from pathlib import Path

from datagen.cases import case_worlds
from datagen.cases.case_files import Cases, write_cases
from datagen.cases.value_cases import json_cases, typescript_cases, unseen_json_cases, unseen_typescript_cases
from datagen.common.dataset_files import Row, shape
from datagen.neo4j import make as make_neo4j_data
from datagen.neo4j.domain_table import TEXT as GRAPH_TEXT
from datagen.neo4j.domains import GraphDomain, graph_script, parse_graphs
from datagen.sql import make as make_sql_data
from datagen.sql.domain_table import TEXT as SQL_TEXT
from datagen.sql.domains import Domain, parse_domains
from datagen.sql.scene import create
from datagen.sql.small_domains import TEXT as SMALL_SQL_TEXT

OUTPUT = Path(__file__).resolve().parents[2] / "experts"
SEED = 4711
PAGE_BYTES = 512
SQLITE_VERSION = slice(92, 100)  # of the header: which version of the library wrote the file, and when

QUERIES = 36  # of each category
UNSEEN_SQL, UNSEEN_CYPHER = 18, 16  # of each domain
SQL_PROMPTS = 12  # of each small domain
CONTENTS = 8  # beside the database or graph itself: a wrong query that is right on one is seldom right on all
QUERY_POOL = 150  # rows of each domain that the cases are chosen from
SIDES = ("cases", "valid", "train")


def database(domain: Domain) -> bytes:
    """The domain's tables with their rows as an SQLite file whose bytes do not tell what wrote it."""
    context = "; ".join(create(table, domain) for table in domain.tables.values())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.sqlite"
        with closing(make_sql_data.context_database(context)) as filled, closing(sqlite3.connect(path)) as connection:
            make_sql_data.fill(filled, [domain])
            # Some builds of sqlite leave old bytes in free space and some do not; secure_delete clears it in all.
            connection.executescript(f"PRAGMA page_size = {PAGE_BYTES}; PRAGMA secure_delete = ON;")
            connection.executescript("\n".join(filled.iterdump()))
        made = bytearray(path.read_bytes())
    made[SQLITE_VERSION] = bytes(8)
    return bytes(made)


def sql_category(query: str) -> str:
    """How hard a query is, by its structure."""
    if re.search(r"\(SELECT|\b(?:UNION|INTERSECT|EXCEPT)\b", query):
        return "4 nested"
    if " JOIN " in query:
        return "3 joins"
    return "2 groups" if " GROUP BY " in query else "1 one table"


def cypher_category(query: str) -> str:
    """How hard a query is, by its parts and the relationships it walks."""
    if re.search(r"(?<!STARTS )(?<!ENDS )\bWITH |\bEXISTS |\bUNION ", query):
        return "4 several parts"
    walked = len(re.findall(r"-\[", query))
    if walked > 1 or re.search(r"\[\w*:\w+\*", query):
        return "3 paths"
    return "2 relationships" if walked else "1 nodes"


def held_out(parts: dict[str, list[Row]], answer: str, category: Callable[[str], str]) -> dict[str, list[Row]]:
    """Of the domains' rows in turn, one of each shape of answer, up to QUERIES of each category."""
    kept: dict[str, list[Row]] = {name: [] for name in parts}
    shapes, counts = set[str](), Counter[str]()
    turns = zip_longest(*([(name, row) for row in rows] for name, rows in parts.items()))
    for name, row in (one for turn in turns for one in turn if one):
        query = str(row[answer])
        if shape(query) not in shapes and counts[category(query)] < QUERIES:
            shapes.add(shape(query))
            counts[category(query)] += 1
            kept[name].append(row)
    return kept


def _sql_cases(made: dict[str, list[Row]], domains: list[Domain]) -> Cases:
    cases = Cases(files={f"data/{domain.name}.sqlite": database(domain) for domain in domains})
    for name, rows in made.items():
        for number, row in enumerate(rows, 1):
            query = row["answer"]
            head = {"id": f"{name}-{number}", "category": sql_category(query), "verifier": "sql"}
            prompt = {"prompt": row["question"], "input": row["context"]}
            cases.add(
                {**head, **prompt, "database": f"data/{name}.sqlite", "perturb": CONTENTS, "expected": query}, query
            )
    return cases


def sql_cases() -> Cases:
    """Known databases: queries of shapes that no training row has."""
    domains = parse_domains(SQL_TEXT)
    parts = {d.name: make_sql_data.make_rows([d], SEED, QUERY_POOL, ("cases",))[0] for d in domains}
    return _sql_cases(held_out(parts, "answer", sql_category), domains)


def unseen_sql_cases() -> Cases:
    """The same forms over databases that no training row speaks of."""
    return _sql_of(case_worlds.SQL, UNSEEN_SQL, SIDES)


def sql_prompts() -> Cases:
    """The many small databases of the training rows: queries of shapes that no training row has, to be learned by trying."""
    return _sql_of(SMALL_SQL_TEXT, SQL_PROMPTS, ("cases", "valid"))


def _sql_of(text: str, count: int, sides: tuple[str, ...]) -> Cases:
    """So many cases of each domain of a text, with queries of these sides."""
    domains = parse_domains(text)
    return _sql_cases({d.name: make_sql_data.make_rows([d], SEED, count, sides)[0] for d in domains}, domains)


def _cypher_cases(made: dict[str, list[Row]], domains: list[GraphDomain]) -> Cases:
    cases = Cases()
    for domain in domains:
        path = f"data/{domain.name}.cypher"
        cases.files[path] = (graph_script(domain).replace("), (", "),\n(") + ";\n").encode()
        for number, row in enumerate(made[domain.name], 1):
            query = row["cypher"]
            head = {"id": f"{domain.name}-{number}", "category": cypher_category(query), "verifier": "cypher"}
            prompt = {"prompt": row["question"], "input": row["schema"]}
            cases.add({**head, **prompt, "script": path, "perturb": CONTENTS, "expected": query}, query)
    return cases


def cypher_cases() -> Cases:
    """Known graphs: queries of shapes that no training row has."""
    domains = parse_graphs(GRAPH_TEXT)
    parts = {d.name: make_neo4j_data.make_rows([d], SEED, QUERY_POOL, ("cases",))[0] for d in domains}
    return _cypher_cases(held_out(parts, "cypher", cypher_category), domains)


def unseen_cypher_cases() -> Cases:
    """The same forms over graphs that no training row speaks of."""
    domains = parse_graphs(case_worlds.GRAPHS)
    made = {d.name: make_neo4j_data.make_rows([d], SEED, UNSEEN_CYPHER, SIDES)[0] for d in domains}
    return _cypher_cases(made, domains)


EXPERTS: dict[str, dict[str, Callable[[], Cases]]] = {
    "expert-sql": {"cases": sql_cases, "unseen": unseen_sql_cases, "prompts": sql_prompts},
    "expert-neo4j": {"cases": cypher_cases, "unseen": unseen_cypher_cases},
    "expert-json": {"cases": json_cases, "unseen": unseen_json_cases},
    "expert-typescript": {"cases": typescript_cases, "unseen": unseen_typescript_cases},
}


def main() -> None:
    """Write the cases of the four experts and say how many there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the folder that holds the experts")
    output: Path = parser.parse_args().output
    for expert, makers in EXPERTS.items():
        shutil.rmtree(output / expert / "tests" / "data", ignore_errors=True)
        for name, make in makers.items():
            cases = make()
            write_cases(output / expert / "tests", name, cases)
            counts = Counter(str(row["category"]) for row in cases.rows)
            kilobytes = sum(map(len, cases.files.values())) / 1000
            print(f"{expert} {name}: {len(cases.rows)}, {len(cases.files)} files of {kilobytes:.0f} kB, {dict(counts)}")


if __name__ == "__main__":
    main()
