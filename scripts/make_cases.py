"""Write experts/<name>/tests: cases.jsonl, unseen.jsonl and, under data/, what their answers are run on.

The makers of the training rows make the cases too, with other seeds: the same kinds of tasks and the same wording of
prompts. Every answer passes the check that training rows pass. Categories are numbered from easy to hard.

cases.jsonl of SQL and Cypher asks new questions about the databases and graphs of the training rows. Held out means: the
hash of a query's shape, the query without its values, gives the query to the training rows, to the validation rows or to
the cases. So every case has columns, conditions or parts that no training row has in this combination; none differs from
a training row in names and numbers alone, and no two cases differ in these alone. unseen.jsonl asks about databases and
graphs that no training row speaks of (case_worlds.py).

Those of JSON and TypeScript are over worlds of case_worlds.py; where a row does not speak of a world, its group (a chain
of steps, a text) must be one that no training row comes from.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from random import Random

import case_worlds
import make_json_data
import make_neo4j_data
import make_sql_data
import make_typescript_data
from case_utilities import UTILITIES
from dataset_files import Row, shape, write_jsonl
from json_case import Case as JsonCase
from json_domains import parse_domains as parse_objects
from json_extraction import from_scene
from neo4j_domain_table import TEXT as GRAPH_TEXT
from neo4j_domains import GraphDomain, graph_script, parse_graphs
from sql_domain_table import TEXT as SQL_TEXT
from sql_domains import Domain, parse_domains
from sql_scene import create
from typescript_case import Case as TypescriptCase
from typescript_utilities import utility

OUTPUT = Path(__file__).resolve().parents[1] / "experts"
SEED = 4711
PAGE_BYTES = 512
SQLITE_VERSION = slice(92, 100)  # of the header: which version of the library wrote the file, and when

QUERIES = 36  # of each category
UNSEEN_SQL, UNSEEN_CYPHER = 18, 16  # of each domain
QUERY_POOL = 150  # rows of each domain that the cases are chosen from
SIDES = ("cases", "valid", "train")
JSON_FAMILIES = ("generation", "repair", "extraction", "transformation", "schema")
JSON_CASES = 30
TYPESCRIPT_FAMILIES = {
    "records": 22,
    "record tools": 28,
    "types": 16,
    "unions": 10,
    "classes": 12,
    "async": 12,
    "pipelines": 30,
    "utilities": 12,
}


@dataclass(frozen=True)
class Cases:
    """The rows of one expert's cases.jsonl, the right answer to each, and the files they name by their paths."""

    rows: list[Row] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def add(self, row: Row, answer: str) -> None:
        """Add one case, an empty input left out."""
        self.rows.append({key: value for key, value in row.items() if key != "input" or value})
        self.answers.append(answer)


def database(domain: Domain) -> bytes:
    """The domain's tables with their rows as an SQLite file whose bytes do not tell what wrote it."""
    context = "; ".join(map(create, domain.tables.values()))
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


def _plain(*texts: str) -> str:
    return " ".join("\n".join(texts).lower().split())


def overlaps(cases: Cases, rows: Iterable[Row]) -> list[str]:
    """Say which cases have a prompt, or an answer for the same input, that stands in the rows, case and spaces aside.

    Every row's columns are instruction, input (none for TypeScript) and answer, in this order.
    """
    prompts, answers = set(), set()
    for row in rows:
        instruction, *between, answer = [str(value) for key, value in row.items() if key != "test"]
        prompts.add(_plain(instruction, *between))
        answers.add(_plain(*between, answer))
    found = []
    for case, answer in zip(cases.rows, cases.answers, strict=True):
        given = str(case.get("input", ""))
        if _plain(str(case["prompt"]), given) in prompts:
            found.append(f"{case['id']}: its prompt")
        if _plain(given, answer) in answers:
            found.append(f"{case['id']}: its answer for this input")
    return found


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
            cases.add({**head, **prompt, "database": f"data/{name}.sqlite", "expected": query}, query)
    return cases


def sql_cases() -> Cases:
    """Known databases: queries of shapes that no training row has."""
    domains = parse_domains(SQL_TEXT)
    parts = {d.name: make_sql_data.make_rows([d], SEED, QUERY_POOL, ("cases",))[0] for d in domains}
    return _sql_cases(held_out(parts, "answer", sql_category), domains)


def unseen_sql_cases() -> Cases:
    """The same forms over databases that no training row speaks of."""
    domains = parse_domains(case_worlds.SQL)
    return _sql_cases({d.name: make_sql_data.make_rows([d], SEED, UNSEEN_SQL, SIDES)[0] for d in domains}, domains)


def _cypher_cases(made: dict[str, list[Row]], domains: list[GraphDomain]) -> Cases:
    cases = Cases()
    for domain in domains:
        path = f"data/{domain.name}.cypher"
        cases.files[path] = (graph_script(domain).replace("), (", "),\n(") + ";\n").encode()
        for number, row in enumerate(made[domain.name], 1):
            query = row["cypher"]
            head = {"id": f"{domain.name}-{number}", "category": cypher_category(query), "verifier": "cypher"}
            prompt = {"prompt": row["question"], "input": row["schema"]}
            cases.add({**head, **prompt, "script": path, "expected": query}, query)
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


def _scene_cases(count: int) -> Iterator[JsonCase]:
    """Extraction from the scenes that training rows lack."""
    rng = Random(SEED)
    scenes = [scene.replace("\n", " ") for scene in case_worlds.SCENES.strip().split("\n\n")]
    made = (from_scene(scenes[number % len(scenes)], rng) for number in range(3 * count))
    return (case for case in made if make_json_data.verify(case) is None)


def _json_family(family: str, known: list[JsonCase]) -> list[JsonCase]:
    """The cases of one family, of the domains and scenes in turn, each prompt once, nothing that is known."""
    groups, answers = {case.group for case in known}, {_plain(case.input, case.output) for case in known}
    domains = parse_objects(case_worlds.OBJECTS)
    made = make_json_data.make(family, domains, 4 * JSON_CASES, SEED, Counter())
    fresh = [case for case in made if case.group not in groups and _plain(case.input, case.output) not in answers]
    if family == "extraction":
        scenes = list(_scene_cases(JSON_CASES))[: JSON_CASES // 2]
        fresh = [*fresh[: JSON_CASES - len(scenes)], *scenes]
    once = {(case.instruction, case.input): case for case in fresh}
    return list(once.values())[:JSON_CASES]


def json_cases() -> Cases:
    """The answer's values are compared, not its layout, which the prompts ask for as training prompts do."""
    cases, known = Cases(), make_json_data.build()[1]
    for place, family in enumerate(JSON_FAMILIES, 1):
        for number, case in enumerate(_json_family(family, known), 1):
            head = {"id": f"{family}-{number}", "category": f"{place} {family}", "verifier": "json"}
            prompt = {"prompt": case.instruction, "input": case.input}
            value = {"schema": case.schema, "expected": make_json_data.parse(case.output), "rule": "exact"}
            cases.add({**head, **prompt, **value}, case.output)
    return cases


def _typescript_family(family: str, count: int, groups: set[str]) -> list[TypescriptCase]:
    """The cases of one family; each small function is asked for once."""
    if family == "utilities":
        rng = Random(SEED)
        return [utility([tool], rng) for tool in UTILITIES][:count]
    made = make_typescript_data.make(family, parse_objects(case_worlds.OBJECTS), 4 * count, SEED, Counter())
    return [case for case in made if case.group not in groups][:count]


def typescript_cases() -> Cases:
    """The right answers stay here: an answer is judged by the case's tests alone."""
    cases, groups = Cases(), {case.group for case in make_typescript_data.build()[0]}
    for place, (family, count) in enumerate(TYPESCRIPT_FAMILIES.items(), 1):
        for number, case in enumerate(_typescript_family(family, count, groups), 1):
            name = f"{family.replace(' ', '-')}-{number}"
            head = {"id": name, "category": f"{place} {family}", "verifier": "typescript"}
            cases.add({**head, "prompt": case.instruction, "tests": case.test}, case.output)
    return cases


EXPERTS: dict[str, dict[str, Callable[[], Cases]]] = {
    "expert-sql": {"cases": sql_cases, "unseen": unseen_sql_cases},
    "expert-neo4j": {"cases": cypher_cases, "unseen": unseen_cypher_cases},
    "expert-json": {"cases": json_cases},
    "expert-typescript": {"cases": typescript_cases},
}


def write_cases(folder: Path, name: str, cases: Cases) -> None:
    """Write a file of cases and the files that they name."""
    write_jsonl(folder / f"{name}.jsonl", sorted(cases.rows, key=lambda row: str(row["category"])))
    for path, content in cases.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


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
