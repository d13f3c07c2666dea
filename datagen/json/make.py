"""Write the training rows of expert-json: five families of tasks, each answer verified when it is made."""

from __future__ import annotations

import argparse
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import NoReturn

import jsonschema_rs

from datagen.common.dataset_files import Row, side_of, write_jsonl
from datagen.json.case import Case, leaves
from datagen.json.domain_table import DOMAINS
from datagen.json.domains import Domain, Json, long_date, parse_domains
from datagen.json.extraction import extraction
from datagen.json.generation import generation
from datagen.json.repair import repair
from datagen.json.schema_rows import from_pattern, schema_row
from datagen.json.table_rows import of_table
from datagen.json.transformation import edit, of_object

Maker = Callable[[Domain, Random], Case]

OUTPUT = Path(__file__).resolve().parents[2] / "experts" / "expert-json" / "datasets"
SEED = 20
LONGEST = 900
TRAIN = {"generation": 480, "repair": 490, "extraction": 680, "schema": 920, "transformation": 1200}  # rows of a family
VALID = 30
WORLDS = 4  # of the domains: with fewer kinds of objects ten minutes of training see more rows of each
DRAWS = 1700
# Drawn for training alone, of what a small model learns last: to copy an object but for one key, and schemas of rare forms.
MORE: dict[str, tuple[Maker, int]] = {"transformation": (edit, 700), "schema": (from_pattern, 900)}


def transformation(domain: Domain, rng: Random) -> Case:
    """One row of the family, over an object or over an array of objects."""
    return rng.choice([of_object, of_object, of_table])(domain, rng)


FAMILIES: dict[str, Maker] = {
    "generation": generation,
    "repair": repair,
    "extraction": extraction,
    "schema": schema_row,
    "transformation": transformation,
}


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def parse(text: str) -> Json:
    """Parse JSON as the standard has it: no NaN, no Infinity."""
    return json.loads(text, parse_constant=_no_constant)


def parses(text: str) -> bool:
    """Whether the text is JSON."""
    try:
        parse(text)
    except ValueError:
        return False
    return True


def states(text: str, value: Json) -> bool:
    """Whether the text states the value; booleans and null have too many wordings to look for."""
    if value is None or isinstance(value, bool) or value == "":
        return True
    if isinstance(value, str):
        dated = re.fullmatch(r"\d{4}-\d\d-\d\d", value)
        return (
            value in text or json.dumps(value, ensure_ascii=False) in text or bool(dated and long_date(value) in text)
        )
    return re.search(rf"(?<![\d.]){re.escape(json.dumps(value))}(?!\d|\.\d)", text) is not None


def verify_schema_answer(case: Case, schema: Json) -> str | None:
    """Why the schema that is itself the answer does not do, or None."""
    if not jsonschema_rs.meta.is_valid(schema):
        return "the answer is no valid schema"
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    if not all(validator.is_valid(value) for value in case.accepts):
        return "the schema refuses an example"
    if any(validator.is_valid(value) for value in case.refuses):
        return "the schema accepts a counter-example"
    return None if case.accepts and case.refuses else "nothing to try the schema on"


def verify(case: Case) -> str | None:
    """Why the case is refused, or None: the one check that every row passes before it is written."""
    if not parses(case.output):
        return "the answer does not parse"
    value, text = parse(case.output), case.instruction + "\n" + case.input
    told = [leaf for item in case.told for leaf in leaves(item)]
    fits = jsonschema_rs.Draft202012Validator(case.schema, validate_formats=True).is_valid(value)
    broken = case.family == "repair" and (parses(case.input) or case.output != case.original)
    checks = [
        (fits, "the answer does not fit its schema"),
        (not broken, "the broken text parses or the answer is not the original"),
        (all(states(text, leaf) for leaf in told), "a value of the answer is not stated"),
        (case.holds, "the second look disagrees or the task has no clear answer"),
        (len(text) + len(case.output) <= LONGEST, "too long"),
    ]
    reason = next((reason for holds, reason in checks if not holds), None)
    return verify_schema_answer(case, value) if reason is None and case.family == "schema" else reason


def make(
    family: str,
    domains: Sequence[Domain],
    count: int,
    seed: int,
    refused: Counter[str],
    maker: Maker | None = None,
) -> list[Case]:
    """Draw cases over the domains in turn and keep those that verify; the family's name seeds them."""
    rng = Random(seed * 100_003 + zlib.crc32(family.encode()))
    cases: list[Case] = []
    for number in range(count):
        case = (maker or FAMILIES[family])(domains[number % len(domains)], rng)
        reason = verify(case)
        if reason:
            refused[f"{family}: {reason}"] += 1
        else:
            cases.append(case)
    return cases


def on_side(cases: Sequence[Case], side: str) -> list[Case]:
    """The cases whose group is on this side, each prompt once."""
    there = {(case.instruction, case.input): case for case in cases if side_of(case.group) == side}
    return list(there.values())


def build(seed: int = SEED, draws: int = DRAWS) -> tuple[dict[str, list[Case]], Counter[str]]:
    """Every family's verified cases, of all sides, and what was refused and why."""
    domains, refused = parse_domains(DOMAINS)[:WORLDS], Counter[str]()
    built = {family: make(family, domains, draws, seed, refused) for family in FAMILIES}
    for family, (maker, count) in MORE.items():
        more = make(f"more {family}", domains, count, seed, refused, maker)
        built[family] = [case for case in more if side_of(case.group) == "train"] + built[family]
    return built, refused


def family_rows(family: str, cases: Sequence[Case], side: str) -> list[Row]:
    """The rows of one family's file."""
    return [case.row() for case in on_side(cases, side)[: TRAIN[family] if side == "train" else VALID]]


def mixed(parts: Iterable[list[Row]], seed: int) -> list[Row]:
    """The rows of all families, shuffled."""
    rows = [row for part in parts for row in part]
    Random(seed).shuffle(rows)
    return rows


def main() -> None:
    """Write the files and say what was made and refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output: Path = parser.parse_args().output
    built, refused = build()
    for side in ("train", "valid"):
        parts = {family: family_rows(family, cases, side) for family, cases in built.items()}
        for family, rows in parts.items():
            print(f"{family}: {write_jsonl(output / family / f'{side}.jsonl', rows)} {side} rows")
        print(f"{side}.jsonl: {write_jsonl(output / f'{side}.jsonl', mixed(parts.values(), SEED))} rows")
    verified = sum(map(len, built.values()))
    print(f"{verified + sum(refused.values())} made, {verified} verified, {sum(refused.values())} refused")
    for reason, count in sorted(refused.items()):
        print(f"  {count} refused: {reason}")


if __name__ == "__main__":
    main()
