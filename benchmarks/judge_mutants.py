"""Count how many wrong queries next to a right one the judge catches: on one content, as ever, and on several.

python -m benchmarks.judge_mutants spider --data FOLDER [--half tune|report] [--mutants 1000] [--missed FILE]
python -m benchmarks.judge_mutants cases [--experts experts] [--missed FILE]

spider: FOLDER holds train.jsonl (db_id, answer) and databases/<db_id>.sqlite. Gold queries that fail or find nothing are
left out; of the others mutants are drawn, as many of each kind, one of a kind and query. cases: every mutant of the shipped
SQL and Cypher cases. Mutants that fail on the first content are left out of all counts: any judge catches them. Those not
caught are written to FILE as JSON lines; which of them mean the same as their query is for people to say.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from sqlglot.errors import SqlglotError

from benchmarks.lib.mutants import Columns, Mutant, cypher_mutants, sql_mutants
from expert_cli.errors import InputError
from expert_cli.evaluation.cases import EvalCase, read_cases
from expert_cli.evaluation.verifiers.case import Case
from expert_cli.evaluation.verifiers.query import SqlCase

SEED = 1
TIMEOUT_S = 5.0
CONTENTS = 8
OF_A_KIND_IN_CASES = 3


@dataclass(frozen=True)
class Asked:
    """A gold query with what it runs on, and a mutant of it."""

    case: Case
    file: Path
    mutant: Mutant


def columns_of(database: Path) -> Columns:
    """Return the columns of each table."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name.lower(): [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')] for name in names}


def spider(folder: Path, half: str, count: int) -> list[Asked]:
    """Draw mutants of the gold queries over every other database."""
    names = sorted(path.stem for path in (folder / "databases").glob("*.sqlite"))[half == "report" :: 2]
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    golds = sorted({(row["db_id"], row["answer"].rstrip("; ")) for row in rows if row["db_id"] in names})
    random.Random(SEED).shuffle(golds)
    columns = {name: columns_of(folder / "databases" / f"{name}.sqlite") for name in names}
    by_kind: dict[str, Iterator[Asked]] = defaultdict(lambda: iter(()))
    found: dict[str, list[Asked]] = defaultdict(list)
    for name, gold in golds:
        file = folder / "databases" / f"{name}.sqlite"
        case = SqlCase(verifier="sql", database=[str(file)], expected=gold)
        for mutant in one_of_a_kind(gold, columns[name]):
            found[mutant.kind].append(Asked(case, file, mutant))
    by_kind = {kind: filter(is_fair, asked) for kind, asked in sorted(found.items())}
    turns = (one for turn in zip_longest(*by_kind.values()) for one in turn if one)
    return [one for one, _ in zip(turns, range(count), strict=False)]


def one_of_a_kind(gold: str, columns: Columns) -> list[Mutant]:
    """Return the first mutant of each kind."""
    try:
        made = sql_mutants(gold, columns, SEED)
    except SqlglotError:
        return []
    return list({mutant.kind: mutant for mutant in reversed(made)}.values())


def is_fair(asked: Asked) -> bool:
    """Whether gold and mutant run, and gold finds something."""
    with closing(sqlite3.connect(f"file:{asked.file}?mode=ro", uri=True)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")
        steps = iter(range(2_000))
        connection.set_progress_handler(lambda: next(steps, None) is None, 10_000)
        try:
            rows = connection.execute(asked.case.expected_text).fetchall()
            connection.execute(asked.mutant.query).fetchall()
        except (sqlite3.Error, Warning):
            return False
        return any(cell is not None for row in rows for cell in row)


def shipped(experts: Path) -> Iterator[tuple[str, list[Asked]]]:
    """Yield the mutants of the shipped cases of SQL and of Cypher."""
    for name in ("expert-sql", "expert-neo4j"):
        cases = [one for kind in ("cases", "unseen") for one in read_cases(experts / name / "tests" / f"{kind}.jsonl")]
        yield name, [asked for one in cases for asked in of_case(one)]


def of_case(one: EvalCase) -> Iterator[Asked]:
    """Yield up to three mutants of each kind."""
    if one.file is None:
        return
    gold = one.case.expected_text
    if isinstance(one.case, SqlCase):
        made = sql_mutants(gold, columns_of(one.file), SEED)
    else:
        names = sorted({name.strip() for part in one.input.split("{")[1:] for name in part.split("}")[0].split(",")})
        made = cypher_mutants(gold, names, SEED)
    counts = Counter[str]()
    for mutant in made:
        counts[mutant.kind] += 1
        if counts[mutant.kind] <= OF_A_KIND_IN_CASES:
            yield Asked(one.case, one.file, mutant)


def judged(asked: Sequence[Asked], contents: int) -> tuple[list[Asked], list[bool], list[bool]]:
    """Return the mutants that run, and whether each is right on the first content, and on all."""
    ran, lucky, missed = list[Asked](), list[bool](), list[bool]()
    for one in asked:
        try:
            alone = one.case.model_copy(update={"perturb": None}).verdict(one.mutant.query, one.file, TIMEOUT_S)
            if alone.kind not in ("correct", "wrong", "empty"):
                continue
            several = one.case.model_copy(update={"perturb": contents})
            right = alone.passed and several.verdict(one.mutant.query, one.file, TIMEOUT_S).passed
        except InputError as error:
            print(f"left out: {error.message}")
            continue
        ran.append(one)
        lucky.append(alone.passed)
        missed.append(right)
    return ran, lucky, missed


def report(title: str, asked: Sequence[Asked], contents: int, file: Path | None) -> None:
    """Judge, and print a line a kind; those not caught go to `file`."""
    ran, lucky, missed = judged(asked, contents)
    print(f"{title}: {len(ran)} mutants of {len({one.case.expected_text for one in ran})} queries")
    print(f"  {'kind':10} {'mutants':>8} {'caught on one content':>22} {f'on {contents} more':>12}")
    for kind in (*sorted({one.mutant.kind for one in ran}), ""):
        chosen = [place for place, one in enumerate(ran) if not kind or one.mutant.kind == kind]
        shares = [1 - sum(found[place] for place in chosen) / len(chosen) for found in (lucky, missed)]
        print(f"  {kind or 'all':10} {len(chosen):8} {shares[0]:21.1%} {shares[1]:12.1%}")
    queries = [
        len({ran[place].case.expected_text for place, hit in enumerate(found) if hit}) for found in (lucky, missed)
    ]
    print(f"  not caught: {sum(lucky)} in {queries[0]} queries before, {sum(missed)} in {queries[1]} now")
    if file:
        with file.open("a", encoding="utf-8") as lines:
            for one in (one for one, hit in zip(ran, missed, strict=True) if hit):
                row = {"set": title, "kind": one.mutant.kind, "file": one.file.stem}
                lines.write(json.dumps(row | {"gold": one.case.expected_text, "mutant": one.mutant.query}) + "\n")


def main() -> None:
    """Print a table a set of mutants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("spider", "cases"))
    parser.add_argument("--data", type=Path, help="the folder of Spider's queries and databases")
    parser.add_argument("--half", choices=("tune", "report"), default="tune")
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--contents", type=int, default=CONTENTS)
    parser.add_argument("--experts", type=Path, default=Path("experts"))
    parser.add_argument("--missed", type=Path)
    options = parser.parse_args()
    if options.what == "cases":
        for name, asked in shipped(options.experts):
            report(name, asked, options.contents, options.missed)
    elif options.data is None:
        parser.error("spider needs --data FOLDER")
    else:
        title = f"spider, {options.half}"
        report(title, spider(options.data, options.half, options.mutants), options.contents, options.missed)


if __name__ == "__main__":
    main()
