"""Our rules beside the judges of Spider, BIRD and defog, on the same pairs of an expected query and an answer.

python -m benchmarks.judge_rules DATA [--pairs 1000] [--paraphrases 500] [--seed 0] [--examples 1]

DATA holds spider/train.jsonl with spider/databases/*.sqlite, and sql/defog_eval.jsonl with sql/defog_db/*.sqlite. The official
judges are stated anew in `benchmarks/lib/official_judges.py`. Prints who takes what for right, every disagreement by its
cause, and the paraphrases that our default takes for wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sqlglot.errors import SqlglotError

from benchmarks.lib import official_judges as official
from benchmarks.lib.mutants import sql_mutants
from benchmarks.lib.official_judges import Failed, Table
from benchmarks.lib.paraphrases import Schema, left_to_chance, paraphrases, variants
from expert_cli.evaluation.verifiers.query_rows import Result, orders_rows, same, same_by_spider, split, tokens, words
from expert_cli.evaluation.verifiers.registry import VERIFIERS

TIMEOUT_S = 5.0
SHARES = {"gold": 0.1, "mutant": 0.5, "paraphrase": 0.25, "variant": 0.15}
DEFOG_SHARE = 0.3
RULES = ("strict", "spider")
OFFICIAL = ("spider", "defog", "bird")
COMPARED = (("spider", "spider"), ("strict", "spider"), ("strict", "defog"), ("strict", "bird"))


@dataclass(frozen=True)
class Pair:
    """A question's accepted queries, and an answer made of one of them."""

    kind: str
    how: str
    database: Path
    question: str
    gold: str
    answer: str


@dataclass(frozen=True)
class Verdicts:
    """What our rules say, whom of the official judges the answer is right by, and how the results differ."""

    ours: Mapping[str, str]
    official: Mapping[str, bool]
    facts: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge all pairs, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--paraphrases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=1)
    options = parser.parse_args(arguments)
    shown = list(make_pairs(options.data, options.pairs, options.seed))
    _print_rules([(pair, verdicts(pair)) for pair in shown], options.examples)
    _print_paraphrases(
        _spider_pairs(options.data, {"paraphrase": options.paraphrases}, options.seed + 1), options.examples
    )


def make_pairs(data: Path, count: int, seed: int) -> Iterator[Pair]:
    """Yield pairs of Spider's training questions and of defog's, in the shares above."""
    defog = {kind: round(count * share * DEFOG_SHARE) for kind, share in SHARES.items()}
    yield from _spider_pairs(data, {kind: round(count * share) - defog[kind] for kind, share in SHARES.items()}, seed)
    yield from _pairs(data / "sql/defog_eval.jsonl", data / "sql/defog_db", defog, seed)


def _spider_pairs(data: Path, counts: dict[str, int], seed: int) -> Iterator[Pair]:
    return _pairs(data / "spider/train.jsonl", data / "spider/databases", counts, seed)


def _pairs(questions: Path, databases: Path, counts: dict[str, int], seed: int) -> Iterator[Pair]:
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    random.Random(seed).shuffle(rows)
    left = Counter(counts)
    for number, row in enumerate([*rows, *rows, *rows]):
        database = databases / f"{row['db_id']}.sqlite"
        accepted = split(row["answer"], "sqlite")
        chosen = accepted[number % len(accepted)]
        if not any(left.values()):
            return
        for kind, how, answer in _answers(chosen, schema_of(database), f"{seed}{number}", left):
            left[kind] -= 1
            yield Pair(kind, how, database, row["question"], row["answer"], answer)


def _answers(query: str, schema: Schema, seed: str, left: Counter[str]) -> Iterator[tuple[str, str, str]]:
    if left["gold"] > 0:
        yield "gold", "", query
    try:
        if left["mutant"] > 0:
            made = sql_mutants(query, schema.columns, seed=int(seed))
            yield from (("mutant", mutant.kind, mutant.query) for mutant in made[: min(4, left["mutant"])])
        if left["paraphrase"] > 0:
            made_like = paraphrases(query, schema, min(2, left["paraphrase"]), seed=int(seed))
            yield from (("paraphrase", ", ".join(one.rewrites), one.query) for one in made_like)
        if left["variant"] > 0:
            other_forms = variants(query, schema)[: left["variant"]]
            yield from (("variant", ", ".join(one.rewrites), one.query) for one in other_forms)
    except SqlglotError:
        return


@cache
def schema_of(database: Path) -> Schema:
    """Read the columns and keys of a database."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    columns: dict[str, list[str]] = {}
    keys: dict[str, str] = {}
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        rows = connection.execute('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (table,)).fetchall()
        columns[table.lower()] = [row[0] for row in rows]
        key = [name for name, declared, filled, place in rows if place and (filled or declared.upper() == "INTEGER")]
        if len(key) == 1 and sum(row[3] > 0 for row in rows) == 1:
            keys[table.lower()] = key[0]
    connection.close()
    return Schema(columns, keys)


def verdicts(pair: Pair) -> Verdicts:
    """Judge a pair by every rule and every official judge."""
    ours = {}
    asked = any(word in pair.question.lower().replace(".", " ").split() for word in ("order", "sort", "arrange"))
    for rule in RULES:
        row = {"verifier": "sql", "database": pair.database.name, "expected": pair.gold, "rule": rule}
        case = VERIFIERS["sql"].model_validate(row | {"category": "order_by" if asked else "other"})
        ours[rule] = case.verdict(pair.answer, pair.database, TIMEOUT_S).kind
    golds = split(pair.gold, "sqlite")
    tied = ours["strict"] == "correct"
    return Verdicts(ours, {name: _official(name, pair, golds) for name in OFFICIAL}, _facts(pair, golds, tied))


def _official(name: str, pair: Pair, golds: Sequence[str]) -> bool:
    try:
        if name == "spider":
            answer = official.run(pair.database, official.without_distinct(pair.answer))
            plain = [official.without_distinct(gold) for gold in golds]
            return any(official.spider(official.run(pair.database, gold), answer, gold) for gold in plain)
        answer = official.run(pair.database, pair.answer)
        tables = [official.run(pair.database, gold) for gold in golds]
        if name == "bird":
            return any(official.bird(table, answer) for table in tables)
        return official.defog(pair.gold, tables, pair.answer, answer, question=pair.question)
    except Failed:
        return False


def _facts(pair: Pair, golds: Sequence[str], right: bool) -> tuple[str, ...]:
    """Return how the answer's result differs from each accepted one, as far as judges are of two minds on it.

    right: whether our default takes it for right.
    """
    try:
        answer = official.run(pair.database, pair.answer)
    except Failed:
        return ("does not run",)
    facts: dict[str, None] = {}
    for gold in golds:
        facts |= dict.fromkeys(_differences(official.run(pair.database, gold), answer, gold))
    if right and not facts and any(orders_rows(gold, "sqlite") for gold in golds):
        facts["another row of those tied at a LIMIT"] = None
    if "distinct" in f"{pair.gold} {pair.answer}".lower():
        facts["DISTINCT"] = None
    if len(set(answer.names)) < len(answer.names) or any(_has_twins(pair.database, gold) for gold in golds):
        facts["two columns of one name"] = None
    return tuple(facts)


def _has_twins(database: Path, query: str) -> bool:
    names = official.run(database, query).names
    return len(set(names)) < len(names)


def _differences(gold: Table, answer: Table, query: str) -> Iterator[str]:
    rows, wanted = list(answer.rows), Result(gold.rows)
    if rows == list(gold.rows):
        yield "none"
    elif set(rows) == set(gold.rows) and len(rows) != len(gold.rows):
        yield "duplicates"
    if (len(rows) != len(gold.rows) and min(len(rows), len(gold.rows)) <= 1) or not gold.rows:
        yield "one row or none against another number"
        return
    exact, close = Counter(rows) == Counter(gold.rows), same(rows, wanted)
    ordered = orders_rows(query, "sqlite")
    if exact and rows != list(gold.rows) and (ordered or "ORDER BY" in words(tokens(query, "sqlite"))):
        yield "rows in another order" if ordered else "an inner ORDER BY"
    if close and not exact:
        yield "noise in floats"
    if not close and same_by_spider(rows, wanted):
        yield "columns in another order"


CAUSES = {
    ("strict", "spider"): (
        "columns in another order",
        "noise in floats",
        "another row of those tied at a LIMIT",
        "rows in another order",
        "an inner ORDER BY",
        "DISTINCT",
    ),
    ("strict", "defog"): (
        "two columns of one name",
        "columns in another order",
        "another row of those tied at a LIMIT",
        "rows in another order",
        "duplicates",
        "one row or none against another number",
    ),
    ("strict", "bird"): (
        "another row of those tied at a LIMIT",
        "rows in another order",
        "duplicates",
        "noise in floats",
    ),
    ("spider", "spider"): (),
}
"""Which fact stands for a disagreement, the first that holds."""


def cause(judged: Verdicts, rule: str, judge: str) -> str:
    """Name what a rule and an official judge are of two minds on."""
    if judged.ours[rule] not in ("correct", "wrong", "empty"):
        return f"ours: {judged.ours[rule]}"
    return next((fact for fact in CAUSES[rule, judge] if fact in judged.facts), "unexplained")


def _print_rules(judged: Sequence[tuple[Pair, Verdicts]], examples: int) -> None:
    print(
        f"{len(judged):,} pairs: " + ", ".join(f"{n} {kind}" for kind, n in Counter(p.kind for p, _ in judged).items())
    )
    for kind in SHARES:
        of = [one for pair, one in judged if pair.kind == kind]
        right = {f"our {rule}": sum(one.ours[rule] == "correct" for one in of) for rule in RULES}
        right |= {f"official {name}": sum(one.official[name] for one in of) for name in OFFICIAL}
        print(f"  {kind}, {len(of)}: right by " + ", ".join(f"{name} {n}" for name, n in right.items()))
    for rule, judge in COMPARED:
        apart = [(pair, one) for pair, one in judged if (one.ours[rule] == "correct") is not one.official[judge]]
        print(f"\nour {rule} and the official {judge}: {len(apart)} of {len(judged):,} apart")
        by_cause: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for pair, one in apart:
            side = "right by ours alone" if one.ours[rule] == "correct" else "wrong by ours alone"
            by_cause[cause(one, rule, judge), side].append((pair, one))
        for (name, side), found in sorted(by_cause.items(), key=lambda item: -len(item[1])):
            print(f"  {len(found):4} {name}: {side}")
            for pair, _ in found[: examples if name != "unexplained" else None]:
                print(
                    f"         {pair.kind} {pair.how} on {pair.database.stem}\n           {pair.gold}\n           {pair.answer}"
                )


def _print_paraphrases(pairs: Iterator[Pair], examples: int) -> None:
    count, wrong, used = 0, [], Counter[str]()
    for pair in pairs:
        row = {"verifier": "sql", "database": pair.database.name, "expected": pair.gold}
        verdict = VERIFIERS["sql"].model_validate(row).verdict(pair.answer, pair.database, TIMEOUT_S)
        count += 1
        used.update(pair.how.split(", "))
        if not verdict.passed:
            wrong.append((pair, verdict))
    print(f"\n{count} paraphrases by our default: {len(wrong)} wrong; rewrites: {dict(used.most_common())}")
    for pair, verdict in wrong:
        why = left_to_chance(pair.gold) or "unexplained"
        print(
            f"  {why}; {pair.how}; {verdict.kind}: {verdict.detail}\n    {pair.gold}\n    {pair.answer}"
            if examples
            else why
        )


if __name__ == "__main__":
    main()
