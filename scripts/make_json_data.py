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
from dataset_files import Row, split_by_group, write_jsonl
from json_case import Case, leaves
from json_domain_table import DOMAINS
from json_domains import Domain, Json, long_date, parse_domains
from json_extraction import extraction
from json_generation import generation
from json_repair import repair
from json_schema_rows import schema_row
from json_table_rows import of_table
from json_transformation import of_object

OUTPUT = Path(__file__).resolve().parents[1] / "experts" / "expert-json" / "datasets"
SEED = 20
LONGEST = 1300
ROWS = (440, 44)  # train and held-out rows of a family's own files
DRAWS = 760
MIXED = (330, 33)  # what a family gives to the common files


def transformation(domain: Domain, rng: Random) -> Case:
    """One row of the family, over an object or over an array of objects."""
    return rng.choice([of_object, of_table])(domain, rng)


FAMILIES: dict[str, Callable[[Domain, Random], Case]] = {
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


def make(family: str, domains: Sequence[Domain], count: int, seed: int, refused: Counter[str]) -> list[Case]:
    """Draw cases of one family over the domains in turn and keep those that verify."""
    rng = Random(seed * 100_003 + zlib.crc32(family.encode()))
    cases: list[Case] = []
    for number in range(count):
        case = FAMILIES[family](domains[number % len(domains)], rng)
        reason = verify(case)
        if reason:
            refused[f"{family}: {reason}"] += 1
        else:
            cases.append(case)
    return cases


def split_cases(cases: Sequence[Case]) -> tuple[list[Row], list[Row]]:
    """Split the rows of cases so that no group, a domain as a rule, stands on both sides."""
    groups = {(case.instruction, case.input): case.group for case in cases}
    return split_by_group([case.row() for case in cases], lambda row: groups[row["instruction"], row["input"]])


def build(
    seed: int = SEED, draws: int = DRAWS
) -> tuple[dict[str, tuple[list[Row], list[Row]]], list[Case], Counter[str]]:
    """Every family's train and held-out rows, all verified cases, and what was refused and why."""
    domains, refused = parse_domains(DOMAINS), Counter[str]()
    split: dict[str, tuple[list[Row], list[Row]]] = {}
    everything: list[Case] = []
    for family in FAMILIES:
        cases = make(family, domains, draws, seed, refused)
        train, valid = split_cases(cases)
        split[family] = (train[: ROWS[0]], valid[: ROWS[1]])
        everything += cases
    return split, everything, refused


def mixed(parts: Iterable[list[Row]], each: int, seed: int) -> list[Row]:
    """The same number of rows from every family, shuffled."""
    rng = Random(seed)
    rows = [row for part in parts for row in rng.sample(part, min(each, len(part)))]
    rng.shuffle(rows)
    return rows


def main() -> None:
    """Write the files and say what was made and refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output: Path = parser.parse_args().output
    split, cases, refused = build()
    for family, (train, valid) in split.items():
        counts = (
            write_jsonl(output / family / "train.jsonl", train),
            write_jsonl(output / family / "valid.jsonl", valid),
        )
        print(f"{family}: {counts[0]} train rows, {counts[1]} held-out rows")
    for side, name in enumerate(("train", "valid")):
        rows = mixed([parts[side] for parts in split.values()], MIXED[side], SEED)
        print(f"{name}.jsonl: {write_jsonl(output / f'{name}.jsonl', rows)} rows from the five families")
    print(f"{len(cases) + sum(refused.values())} made, {len(cases)} verified, {sum(refused.values())} refused")
    for reason, count in sorted(refused.items()):
        print(f"  {count} refused: {reason}")


if __name__ == "__main__":
    main()
