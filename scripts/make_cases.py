"""Write experts/<name>/tests: cases.jsonl, unseen.jsonl and, under data/, the files that their answers are run on.

cases.jsonl asks about the worlds of the training rows (tables, graphs, objects), unseen.jsonl about others
(case_worlds.py). Both come from the makers of the training rows and every answer passes the check that those pass.

Held out means: every row belongs to a group, the combination of a form of task with a world, the columns, keys or steps
it names and the kinds of conditions in it; a hash puts the group wholly into train, valid or cases. Values are drawn
again for every row. Then a case goes whose question, or whose answer with its layout aside, stands in train or valid.
So a case combines known parts anew and is no training row with another literal; the least new are TypeScript's classes
and async functions, a known task with another noun or option. Categories are numbered from easy to hard.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import case_worlds
import make_json_data
import make_neo4j_data
import make_sql_data
import make_typescript_data
from dataset_files import Row, side_of, write_jsonl
from json_case import Case as JsonCase
from json_domains import parse_domains as parse_objects
from json_extraction import SCENE_LIST, from_scene
from make_json_data import on_side
from neo4j_domains import graph_script, parse_graphs
from sql_domains import Domain, parse_domains
from typescript_case import Case as TypescriptCase

OUTPUT = Path(__file__).resolve().parents[1] / "experts"
SEED = 4711
PAGE_BYTES = 512
SQLITE_VERSION = slice(92, 100)  # of the header: which version of the library wrote the file, and when

SQL_PER_DOMAIN, CYPHER_PER_DOMAIN = 18, 16
JSON_FAMILIES = ("generation", "repair", "extraction", "transformation", "schema")
JSON_CASES = 30
TYPESCRIPT_CASES = {
    "records": 30,
    "record tools": 30,
    "types": 18,
    "unions": 10,
    "classes": 12,
    "async": 10,
    "pipelines": 40,
}


@dataclass(frozen=True)
class Cases:
    """The rows of one expert's cases.jsonl, the right answer to each, and the files they name by their paths."""

    rows: list[Row] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def without(self, ids: Collection[str], most: Mapping[str, int]) -> Cases:
        """The first cases of each category, as many as `most` says, that have none of these ids; the files stay."""
        kept, count = Cases(files=self.files), Counter[str]()
        for row, answer in zip(self.rows, self.answers, strict=True):
            category = str(row["category"])
            if row["id"] not in ids and count[category] < most[category]:
                count[category] += 1
                kept.add(row, answer)
        return kept

    def add(self, row: Row, answer: str) -> None:
        """Add one case, an empty input left out."""
        self.rows.append({key: value for key, value in row.items() if key != "input" or value})
        self.answers.append(answer)


def database(context: str, domains: Iterable[Domain]) -> bytes:
    """The context's tables with their rows as an SQLite file whose bytes do not tell what wrote it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.sqlite"
        with closing(make_sql_data.context_database(context)) as filled, closing(sqlite3.connect(path)) as connection:
            make_sql_data.fill(filled, list(domains))
            # Some builds of sqlite leave old bytes in free space and some do not; secure_delete clears it in all.
            connection.executescript(f"PRAGMA page_size = {PAGE_BYTES}; PRAGMA secure_delete = ON;")
            connection.executescript("\n".join(filled.iterdump()))
        made = bytearray(path.read_bytes())
    made[SQLITE_VERSION] = bytes(8)
    return bytes(made)


def _plain(*texts: str) -> str:
    return " ".join("\n".join(texts).lower().split())


def _plain_answer(answer: str) -> str:
    """An answer with its layout aside, and where it is JSON also the order of its keys."""
    try:
        return json.dumps(json.loads(answer), sort_keys=True)
    except ValueError:
        return _plain(answer)


def overlaps(cases: Cases, rows: Iterable[Row]) -> dict[str, str]:
    """The cases, by id, whose prompt or whose answer stands in the rows, layout and case of letters aside, and which.

    Every row's columns are instruction, input (none for TypeScript) and answer, in this order.
    """
    prompts, answers = set(), set()
    for row in rows:
        instruction, *between, answer = [str(value) for key, value in row.items() if key != "test"]
        prompts.add(_plain(instruction, *between))
        answers.add(_plain_answer(answer))
    found = {}
    for case, answer in zip(cases.rows, cases.answers, strict=True):
        if _plain_answer(answer) in answers:
            found[str(case["id"])] = "its answer"
        if _plain(str(case["prompt"]), str(case.get("input", ""))) in prompts:
            found[str(case["id"])] = "its prompt"
    return found


def sql_category(query: str) -> str:
    """How hard a query is, by its structure."""
    if re.search(r"\(SELECT|\b(?:UNION|INTERSECT|EXCEPT)\b", query):
        return "4 nested"
    if " JOIN " in query:
        return "3 joins"
    return "2 groups" if " GROUP BY " in query else "1 one table"


def cypher_category(query: str) -> str:
    """How hard a query is, by the relationships it walks."""
    walked = len(re.findall(r"-\[", query))
    if walked > 1 or re.search(r"\[\w*:\w+\*", query):
        return "3 paths"
    return "2 relationships" if walked else "1 nodes"


def sql_cases() -> Cases:
    """A database for each case: it holds the tables of the prompt and nothing else."""
    cases, domains = Cases(), parse_domains(case_worlds.SQL)
    for domain in domains:
        rows, _ = make_sql_data.make_rows([domain], SEED, SQL_PER_DOMAIN)
        for number, row in enumerate(rows, 1):
            name = f"{domain.name}-{number}"
            path = f"data/{name}.sqlite"
            cases.files[path] = database(row["context"], domains)
            head = {"id": name, "category": sql_category(row["answer"]), "verifier": "sql"}
            prompt = {"prompt": row["question"], "input": row["context"]}
            cases.add({**head, **prompt, "database": path, "expected": row["answer"]}, row["answer"])
    return cases


def cypher_cases() -> Cases:
    """A graph for each domain; a prompt shows a part of its schema."""
    cases = Cases()
    for domain in parse_graphs(case_worlds.GRAPHS):
        path = f"data/{domain.name}.cypher"
        cases.files[path] = (graph_script(domain).replace("), (", "),\n(") + ";\n").encode()
        rows, _ = make_neo4j_data.make_rows([domain], SEED, CYPHER_PER_DOMAIN)
        for number, row in enumerate(rows, 1):
            head = {"id": f"{domain.name}-{number}", "category": cypher_category(row["cypher"]), "verifier": "cypher"}
            prompt = {"prompt": row["question"], "input": row["schema"]}
            cases.add({**head, **prompt, "script": path, "expected": row["cypher"]}, row["cypher"])
    return cases


def _scene_cases(count: int) -> Iterator[JsonCase]:
    """Extraction from the scenes that training rows lack."""
    rng = Random(SEED)
    scenes = [scene.replace("\n", " ") for scene in case_worlds.SCENES.strip().split("\n\n")]
    made = (from_scene(scenes[number % len(scenes)], rng) for number in range(3 * count))
    return (case for case in made if make_json_data.verify(case) is None)


def _json_cases(made: dict[str, list[JsonCase]]) -> Cases:
    """Some cases of every family that read like no training row; values are compared, not their layout."""
    cases, built = Cases(), make_json_data.build()[0]
    for place, family in enumerate(JSON_FAMILIES, 1):
        for number, case in enumerate(made[family], 1):
            head = {"id": f"{family}-{number}", "category": f"{place} {family}", "verifier": "json"}
            prompt = {"prompt": case.instruction, "input": case.input}
            value = {"schema": case.schema, "expected": make_json_data.parse(case.output), "rule": "exact"}
            cases.add({**head, **prompt, **value}, case.output)
    rows = [case.row() for known in built.values() for side in ("train", "valid") for case in on_side(known, side)]
    most = {f"{place} {family}": JSON_CASES for place, family in enumerate(JSON_FAMILIES, 1)}
    return cases.without(overlaps(cases, rows), most)


def json_cases() -> Cases:
    """Known worlds: the groups that no training row comes from."""
    return _json_cases({family: on_side(made, "cases") for family, made in make_json_data.build()[0].items()})


def unseen_json_cases() -> Cases:
    """The same forms over objects and scenes that no training row speaks of."""
    domains = parse_objects(case_worlds.OBJECTS)
    made = {family: make_json_data.make(family, domains, 4 * JSON_CASES, SEED, Counter()) for family in JSON_FAMILIES}
    known = {scene[:20] for scene in SCENE_LIST}
    own = [case for case in made["extraction"] if case.group.partition(" | ")[0] not in known]
    scenes = list(_scene_cases(JSON_CASES))[: JSON_CASES // 2]
    made["extraction"] = [*own[: JSON_CASES - len(scenes)], *scenes]
    return _json_cases(made)


def _typescript_cases(made: dict[str, list[TypescriptCase]]) -> Cases:
    """Some cases of every family that read like no training row; the right answers stay here, the tests judge."""
    cases, built = Cases(), make_typescript_data.build()[0]
    for place, family in enumerate(made, 1):
        for number, case in enumerate(made[family], 1):
            name = f"{family.replace(' ', '-')}-{number}"
            head = {"id": name, "category": f"{place} {family}", "verifier": "typescript"}
            cases.add({**head, "prompt": case.instruction, "tests": case.test}, case.output)
    rows = [case.row() for side in ("train", "valid") for case in make_typescript_data.on_side(built, side)]
    most = {f"{place} {family}": TYPESCRIPT_CASES[family] for place, family in enumerate(made, 1)}
    return cases.without(overlaps(cases, rows), most)


def typescript_cases() -> Cases:
    """Known worlds: the groups that no training row comes from."""
    built = make_typescript_data.build()[0]
    return _typescript_cases(
        {family: [case for case in built[family] if side_of(case.group) == "cases"] for family in TYPESCRIPT_CASES}
    )


def unseen_typescript_cases() -> Cases:
    """The same forms over objects that no training row speaks of; pipelines speak of none."""
    domains, families = parse_objects(case_worlds.OBJECTS), [name for name in TYPESCRIPT_CASES if name != "pipelines"]
    made = {
        name: make_typescript_data.make(name, domains, 6 * TYPESCRIPT_CASES[name], SEED, Counter()) for name in families
    }
    return _typescript_cases(made)


EXPERTS: dict[str, dict[str, Callable[[], Cases]]] = {
    "expert-sql": {"cases": sql_cases},
    "expert-neo4j": {"cases": cypher_cases},
    "expert-json": {"cases": json_cases, "unseen": unseen_json_cases},
    "expert-typescript": {"cases": typescript_cases, "unseen": unseen_typescript_cases},
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
