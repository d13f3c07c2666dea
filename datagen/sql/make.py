"""Make the small training set of expert-sql: questions, CREATE TABLE contexts and SQL that sqlite has run.

Every answer is run over the rows of its domain. It is refused when it fails or finds nothing, when empty tables or a
wrong query would have given the same result, when LIMIT cuts through rows that are equal,
and when it holds a literal that the question does not give.

Half of the questions are about four databases, the others about many small ones. The tables of each are always shown
the same way, and what a question does not determine is always written the same way, because a small model is to learn
this in minutes. The held-out file, like the test cases, is about the four and has queries whose shape (the query without
its values) the train file lacks: other columns, other conditions or another order of them, not another name or number
alone.
"""

from __future__ import annotations

import argparse
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datagen.common.dataset_files import Row, shape, side_of
from datagen.common.query_rows import make_in_turns, with_small, write_sides
from datagen.common.wording import SMALL
from datagen.sql import group_forms as sql_group_forms
from datagen.sql import hard_forms as sql_hard_forms
from datagen.sql import join_forms as sql_join_forms
from datagen.sql import single_forms as sql_single_forms
from datagen.sql.domain_table import TEXT
from datagen.sql.domains import Domain, domain_data, parse_domains
from datagen.sql.scene import Scene, SkipFormError
from datagen.sql.small_domains import TEXT as SMALL_TEXT

SEED = 20
ROWS_PER_DOMAIN = 700  # of which the first go into the train file and all of their side into the held-out file
TRAIN_ROWS_PER_DOMAIN, TRAIN_ROWS_PER_SMALL_DOMAIN = 325, 32
MAX_CHARACTERS = 1200
FORMS = (*sql_single_forms.FORMS, *sql_group_forms.FORMS, *sql_join_forms.FORMS, *sql_hard_forms.FORMS)
Form = Callable[[Scene], tuple[str, str]]
Result = list[tuple[Any, ...]]

# One wrong reading each: a query whose result survives it would not show the mistake.
MUTATIONS = (
    (r" >= ", " < "),
    (r" <= ", " > "),
    (r" > ", " < "),
    (r" < ", " > "),
    (r" = (?=['\d])", " <> "),
    (r" <> ", " = "),
    (r" DESC\b", ""),
    (r"(ORDER BY .*?)(?= LIMIT|$)(?<! DESC)", r"\1 DESC"),
    (r"\bNOT (?=IN|EXISTS)", ""),
    (r"\bIS NULL", "IS NOT NULL"),
    (r"\bIS NOT NULL", "IS NULL"),
    (r"\bDISTINCT ", ""),
    (r"\bLEFT JOIN", "JOIN"),
    (r"\bMAX\(", "MIN("),
    (r"\bMIN\(", "MAX("),
    (r"\bAVG\(", "MAX("),
    (r"\bSUM\(", "MAX("),
    (r"\bLIKE", "NOT LIKE"),
    (r"\bBETWEEN", "NOT BETWEEN"),
    (r"(?<!BETWEEN) (?<!BETWEEN \d)\bOR\b", " AND"),
    (r"\bINTERSECT", "UNION"),
    (r"\bEXCEPT", "UNION"),
    (r"\bUNION", "INTERSECT"),
    (r"WHERE (?!EXISTS|NOT EXISTS)(?:(?! GROUP| ORDER|\)).)+? AND (?!')(?=[A-Za-z])", "WHERE "),
)


def fill(connection: sqlite3.Connection, domains: Sequence[Domain]) -> str:
    """Fill the tables that the context made with the rows of their domain and return the domain's name."""
    known = {table.name: (domain, table) for domain in domains for table in domain.tables.values()}
    name = ""
    for (made,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        domain, table = known[made]
        name = domain.name
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({made})")]
        values = [[row[column] for column in columns] for row in domain_data(domain)[table.plural]]
        connection.executemany(f"INSERT INTO {made} VALUES ({', '.join('?' * len(columns))})", values)  # noqa: S608
    return name


def context_database(context: str) -> sqlite3.Connection:
    """Empty tables as the context says."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(context)
    return connection


def run(connection: sqlite3.Connection, query: str) -> Result:
    """The rows of the query; float noise is rounded off and rows without ORDER BY are sorted."""
    rows = [
        tuple(round(cell, 6) if isinstance(cell, float) else cell for cell in row) for row in connection.execute(query)
    ]
    return rows if "ORDER BY" in query else sorted(rows, key=repr)


def mutants(query: str) -> list[str]:
    """Wrong queries next to this one."""
    made = [re.sub(pattern, replacement, query, count=1) for pattern, replacement in MUTATIONS]
    return [mutant for mutant in made if mutant != query]


def attempt(connection: sqlite3.Connection, query: str) -> Result | None:
    """The rows of the query, or None where it fails."""
    try:
        return run(connection, query)
    except sqlite3.Error:
        return None


def depends_on_ties(connection: sqlite3.Connection, query: str, width: int) -> bool:
    """Whether LIMIT cuts through rows that ORDER BY does not tell apart."""
    head, limit, count = query.rpartition(" LIMIT ")
    if not limit:
        return False
    broken = [f"{head}, {place}{way}{limit}{count}" for place in range(1, width + 1) for way in ("", " DESC")]
    return len({repr(sorted(run(connection, one), key=repr)) for one in broken}) > 1


def ungrounded(question: str, query: str) -> list[str]:
    """Literals of the query that the question does not give."""
    asked = question.lower()
    words = {str(number): word for number, word in enumerate(SMALL)}
    found = []
    for text in re.findall(r"'([^']*)'", query):
        literal = re.sub(r"-(01-01|12-31)$", "", text.strip("%")).lower()
        if literal not in asked and text not in ("%Y", "%Y-%m"):
            found.append(text)
    bare = re.sub(
        r"'[^']*'|\w*[A-Za-z_]\w*|100\.0|, 2\)|LIMIT 1$|LIMIT 1 OFFSET \d|, 1, 1\)|SELECT 1 |= [01]\b", " ", query
    )
    for number in re.findall(r"\d+(?:\.\d+)?", bare):
        short = number.removesuffix(".0")
        if (
            not re.search(rf"(?<![\d.]){re.escape(short)}(?!\d)|\b{words.get(short, short)}\b", asked)
            and short not in "01"
        ):
            found.append(number)
    return found


def refusal(connection: sqlite3.Connection, query: str, empty: Result) -> str:
    """Say what is wrong with the query's result, given what it gave over empty tables."""
    result = run(connection, query)
    if not any(cell is not None for cells in result for cell in cells):
        return "finds nothing"
    if result == empty:
        return "the same over empty tables"
    if depends_on_ties(connection, query, len(result[0])):
        return "LIMIT cuts through equal rows"
    if any(attempt(connection, mutant) == result for mutant in mutants(query)):
        return "a wrong query gives the same"
    return ""


def verify(row: Mapping[str, Any], domains: Sequence[Domain]) -> str:
    """Say why the row is refused, nothing where it holds."""
    query = row["answer"]
    if len(row["question"]) + len(row["context"]) + len(query) > MAX_CHARACTERS:
        return "too long"
    if ungrounded(row["question"], query):
        return "literal not in the question"
    connection = context_database(row["context"])
    try:
        empty = run(connection, query)
        fill(connection, domains)
        return refusal(connection, query, empty)
    except sqlite3.Error as error:
        return f"fails: {str(error).split(':')[0]}"
    finally:
        connection.close()


def make_rows(
    domains: Sequence[Domain], seed: int, per_domain: int, sides: Sequence[str]
) -> tuple[list[Row], Counter[str]]:
    """Make up to `per_domain` verified rows of these sides for each domain and count what was refused, by reason."""
    drawn = partial(draw, sides=sides)
    return make_in_turns(domains, FORMS, drawn, verify, query="answer", seed=seed, per_domain=per_domain)


def draw(form: Form, domain: Domain, rng: random.Random, sides: Sequence[str]) -> Row | None:
    """One row, None where the form does not fit or the query is of another side."""
    scene = Scene(domain, rng)
    try:
        question, answer = form(scene)
    except SkipFormError:
        return None
    if side_of(shape(answer)) not in sides:
        return None
    return {"question": question, "context": scene.context(), "answer": answer}


def make_all() -> tuple[list[Row], Counter[str]]:
    """The rows of both files and what was refused."""
    known = (make_rows([domain], SEED, ROWS_PER_DOMAIN, ("train", "valid")) for domain in parse_domains(TEXT))
    small = make_rows(parse_domains(SMALL_TEXT), SEED, TRAIN_ROWS_PER_SMALL_DOMAIN, ("train",))
    return with_small(known, small, query="answer", most=TRAIN_ROWS_PER_DOMAIN)


def main() -> None:
    """Write train.jsonl and valid.jsonl."""
    default = Path(__file__).resolve().parents[2] / "experts" / "expert-sql" / "datasets"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=default)
    output: Path = parser.parse_args().output
    rows, refused = make_all()
    write_sides(output, rows, refused, query="answer")


if __name__ == "__main__":
    main()
