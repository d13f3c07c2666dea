"""Make the small training set of expert-neo4j: questions, graph schemas and Cypher that graphqlite has run.

Every answer is run over the graph of its domain. It is refused when it fails or finds nothing, when a wrong query would
have given the same result, when the result follows from the order in which the graph was written, when LIMIT cuts
through equal rows, when it uses a name that the schema lacks, and when it holds a literal that the question does not
give.

Half of the questions are about four graphs, the others about many small ones. The schemas of each are always shown the
same way, and what a question does not determine is always written the same way, because a small model is to learn this in
minutes. The held-out file, like the test cases, is about the four and has queries whose shape (the query without its
values) the train file lacks: other properties, other conditions or other relationships, not another name or number alone.

graphqlite 0.12 gives wrong results for some constructs, so none of them is written here: property maps in a pattern
inside WHERE or `EXISTS { pattern }` are ignored (they hold in `EXISTS { MATCH pattern }`), min() and max() turn text
and dates into numbers, and the parts of a date (`d.year`) are null.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import apsw
import graphqlite

from datagen.common.dataset_files import Row, shape, side_of
from datagen.common.query_rows import make_in_turns, with_small, write_sides
from datagen.common.wording import SMALL
from datagen.neo4j import link_forms as neo4j_link_forms
from datagen.neo4j import node_forms as neo4j_node_forms
from datagen.neo4j import path_forms as neo4j_path_forms
from datagen.neo4j.domain_table import TEXT
from datagen.neo4j.domains import GraphDomain, graph_script, parse_graphs
from datagen.neo4j.scene import GraphScene, SkipFormError
from datagen.neo4j.small_domains import TEXT as SMALL_TEXT

SEED = 30
ROWS_PER_DOMAIN = 640  # of which the first go into the train file and all of their side into the held-out file
TRAIN_ROWS_PER_DOMAIN, TRAIN_ROWS_PER_SMALL_DOMAIN = 280, 25
MAX_CHARACTERS = 1200
FORMS = (*neo4j_node_forms.FORMS, *neo4j_link_forms.FORMS, *neo4j_path_forms.FORMS)
Form = Callable[[GraphScene], tuple[str, str]]
Result = list[tuple[Any, ...]]

# One wrong reading each: a query whose result survives it would not show the mistake.
MUTATIONS = (
    (r" >= ", " < "),
    (r" <= ", " > "),
    (r" > ", " < "),
    (r" < ", " > "),
    (r" = (?=['\d]|true|false|extreme)", " <> "),
    (r" <> ", " = "),
    (r" DESC\b", ""),
    (r"(ORDER BY [\w.]+)(?! DESC)(?=$| LIMIT)", r"\1 DESC"),
    (r"NOT (?=\(|EXISTS)", ""),
    (r"IS NULL", "IS NOT NULL"),
    (r"IS NOT NULL", "IS NULL"),
    (r"DISTINCT ", ""),
    (r"OPTIONAL MATCH", "MATCH"),
    (r"\bmax\(", "min("),
    (r"\bmin\(", "max("),
    (r"\bavg\(", "max("),
    (r"\bsum\((?!CASE)", "max("),
    (r"STARTS WITH", "ENDS WITH"),
    (r"ENDS WITH", "STARTS WITH"),
    (r"CONTAINS", "STARTS WITH"),
    (r" OR ", " AND "),
    (r" AND (?=\w+\.\w+ (?![<>]=))", " OR "),
    (r" UNION MATCH .*", ""),
    (r"^(?!.*shortestPath)(.*?) \{\w+: '[^']*'\}", r"\1"),
    (r"-(\[\w*:\w+\])->", r"<-\1-"),
    (r"<-(\[\w*:\w+\])-", r"-\1->"),
    (r"\*1\.\.\d", ""),
    (r"\*2", ""),
)


def connect() -> apsw.Connection:
    """An empty graph in memory."""
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(graphqlite.loadable_path())
    return connection


@cache
def graph_connection(domain: GraphDomain, backwards: bool) -> apsw.Connection:
    """The domain's graph, at will written in the opposite order."""
    connection = connect()
    connection.execute("SELECT cypher(?)", (graph_script(domain, backwards),)).fetchall()
    return connection


def plain(value: Any) -> Any:
    """A result value without float noise and without an order inside lists."""
    if isinstance(value, float):
        return round(value, 6)
    return sorted(map(plain, value), key=repr) if isinstance(value, list) else value


def run(connection: apsw.Connection, query: str) -> Result:
    """The rows of the query; without ORDER BY they are sorted."""
    ((answer,),) = connection.execute("SELECT cypher(?)", (query,)).fetchall()
    rows = [tuple(plain(value) for value in row.values()) for row in json.loads(str(answer))]
    return rows if "ORDER BY" in query else sorted(rows, key=repr)


def attempt(connection: apsw.Connection, query: str) -> Result | None:
    """The rows of the query, or None where it fails."""
    try:
        return run(connection, query)
    except apsw.Error:
        return None


def mutants(query: str) -> list[str]:
    """Wrong queries next to this one."""
    made = [re.sub(pattern, replacement, query, count=1) for pattern, replacement in MUTATIONS]
    return [mutant for mutant in made if mutant != query]


def domain_of(schema: str, domains: Sequence[GraphDomain]) -> GraphDomain:
    """The domain that has the schema's labels."""
    shown = set(re.findall(r"^(\w+)", schema, re.M))
    return next(domain for domain in domains if shown <= {label.name for label in domain.labels})


def unknown_names(schema: str, query: str) -> list[str]:
    """Labels, relationship types and properties of the query that the schema does not show."""
    bare = re.sub(r"'[^']*'", "''", query)
    used = {name for part in re.findall(r"[(\[]\w*:([\w|]+)", bare) for name in part.split("|")}
    used |= set(re.findall(r"(?<![\d.])\b[a-z]\w*\.([a-z]\w*)", bare)) | set(re.findall(r"\{(\w+): ", bare))
    return sorted(used - set(re.findall(r"\w+", schema)))


def ungrounded(question: str, query: str) -> list[str]:
    """Literals of the query that the question does not give."""
    asked = question.lower()
    texts = [re.sub(r"-(01-01|12-31)$", "", text) for text in re.findall(r"'([^']*)'", query)]
    found = [text for text in texts if text.lower() not in asked]
    bare = re.sub(r"'[^']*'|\b[A-Za-z_]\w*|100\.0|LIMIT 1\b|\*1\.\.", " ", query)
    for number in re.findall(r"\d+(?:\.\d+)?", bare):
        word = SMALL[int(number)] if number.isdigit() and int(number) <= 10 else number
        if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)|\b{word}\b", asked) and number not in ("0", "1"):
            found.append(number)
    return found


def depends_on_order(domain: GraphDomain, query: str, result: Result) -> bool:
    """Whether another order of writing or of equal rows gives another result."""
    connection = graph_connection(domain, False)
    others = [attempt(graph_connection(domain, True), query)]
    head, limit, count = query.rpartition(" LIMIT ")
    if limit and count.isdigit():
        items = [item.split(" AS ")[-1] for item in head.rpartition(" RETURN ")[2].split(" ORDER BY ")[0].split(", ")]
        ways = [f"{head}, {item}{way} LIMIT {count}" for item in items for way in ("", " DESC")]
        others += [attempt(connection, way) for way in ways]
    return any(other is None or sorted(other, key=repr) != sorted(result, key=repr) for other in others)


def refusal(domain: GraphDomain, query: str) -> str:
    """Say what is wrong with the query's result."""
    connection = graph_connection(domain, False)
    result = run(connection, query)
    if not any(value not in (None, 0, []) for row in result for value in row):
        return "finds nothing"
    if depends_on_order(domain, query, result):
        return "the order decides the result"
    if any(attempt(connection, mutant) == result for mutant in mutants(query)):
        return "a wrong query gives the same"
    return ""


def verify(row: Mapping[str, Any], domains: Sequence[GraphDomain]) -> str:
    """Say why the row is refused, nothing where it holds."""
    question, schema, query = row["question"], row["schema"], row["cypher"]
    if len(question) + len(schema) + len(query) > MAX_CHARACTERS:
        return "too long"
    if unknown_names(schema, query):
        return "name not in the schema"
    if ungrounded(question, query):
        return "literal not in the question"
    try:
        return refusal(domain_of(schema, domains), query)
    except apsw.Error as error:
        return f"fails: {json.loads(str(error))['error'].partition(': Line')[0]}"


def make_rows(
    domains: Sequence[GraphDomain], seed: int, per_domain: int, sides: Sequence[str]
) -> tuple[list[Row], Counter[str]]:
    """Make up to `per_domain` verified rows of these sides for each domain and count what was refused, by reason."""
    drawn = partial(draw, sides=sides)
    return make_in_turns(domains, FORMS, drawn, verify, query="cypher", seed=seed, per_domain=per_domain)


def draw(form: Form, domain: GraphDomain, rng: random.Random, sides: Sequence[str]) -> Row | None:
    """One row, None where the form does not fit or the query is of another side."""
    scene = GraphScene(domain, rng)
    try:
        question, cypher = form(scene)
    except SkipFormError:
        return None
    if side_of(shape(cypher)) not in sides:
        return None
    return {"question": question, "schema": scene.schema(), "cypher": cypher}


def make_all() -> tuple[list[Row], Counter[str]]:
    """The rows of both files and what was refused."""
    known = (make_rows([domain], SEED, ROWS_PER_DOMAIN, ("train", "valid")) for domain in parse_graphs(TEXT))
    small = make_rows(parse_graphs(SMALL_TEXT), SEED, TRAIN_ROWS_PER_SMALL_DOMAIN, ("train",))
    return with_small(known, small, query="cypher", most=TRAIN_ROWS_PER_DOMAIN)


def main() -> None:
    """Write train.jsonl and valid.jsonl."""
    default = Path(__file__).resolve().parents[2] / "experts" / "expert-neo4j" / "datasets"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=default)
    output: Path = parser.parse_args().output
    rows, refused = make_all()
    write_sides(output, rows, refused, query="cypher")


if __name__ == "__main__":
    main()
