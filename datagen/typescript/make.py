"""Write the training rows of expert-typescript: typed functions, classes and types, each with tests from Python."""

from __future__ import annotations

import argparse
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from datagen.common.dataset_files import Row, side_of, write_jsonl
from datagen.json.domain_table import DOMAINS
from datagen.json.domains import Domain, parse_domains
from datagen.typescript.async_rows import asynchronous
from datagen.typescript.case import Case
from datagen.typescript.check import failures
from datagen.typescript.classes import CLASSES
from datagen.typescript.pipelines import pipeline
from datagen.typescript.record_changes import CHANGES
from datagen.typescript.record_tools import LOOKS
from datagen.typescript.records import selected
from datagen.typescript.small_domains import DOMAINS as SMALL_DOMAINS
from datagen.typescript.types import TYPES
from datagen.typescript.unions import UNIONS
from datagen.typescript.world import tool_row

OUTPUT = Path(__file__).resolve().parents[2] / "experts" / "expert-typescript" / "datasets"
SEED = 20
LONGEST = 1300
KNOWN_SHARE, SMALL_SHARE = 0.55, 0.5  # of a family's rows in train.jsonl that are about domains, and as many small ones

# What makes a row of a family, over a domain where it speaks of one, and how many rows train and valid hold of it.
FAMILIES: dict[str, tuple[Callable[[Domain, Random], Case | None], int, int]] = {
    "records": (selected, 320, 40),
    "record tools": (lambda domain, rng: tool_row(LOOKS if rng.random() < 0.4 else CHANGES, domain, rng), 330, 25),
    "types": (lambda domain, rng: rng.choice(TYPES)(domain, rng), 240, 20),
    "unions": (lambda domain, rng: rng.choice(UNIONS)(domain, rng), 120, 10),
    "classes": (lambda domain, rng: rng.choice(CLASSES)(domain, rng), 125, 10),
    "async": (asynchronous, 80, 4),
    "pipelines": (lambda _domain, rng: pipeline(rng), 520, 40),
}


def verify(case: Case) -> str | None:
    """Why the case is refused without being run, or None."""
    if not case.test.strip():
        return "nothing is tested"
    return "too long" if len(case.instruction) + len(case.output) > LONGEST else None


def make(family: str, domains: Sequence[Domain], count: int, seed: int, refused: Counter[str]) -> list[Case]:
    """Draw cases of one family over the domains in turn; keep those that verify and whose answer is new."""
    rng = Random(seed * 100_003 + zlib.crc32(family.encode()))
    cases: dict[str, Case] = {}
    for number in range(count):
        case = FAMILIES[family][0](domains[number % len(domains)], rng)
        reason = "the test values would not show a missing step" if case is None else verify(case)
        if case is not None and reason is None and case.output in cases:
            reason = "the answer is there already"
        if case is None or reason is not None:
            refused[f"{family}: {reason}"] += 1
        else:
            cases[case.output] = case
    return list(cases.values())


def build(seed: int = SEED) -> tuple[dict[str, list[Case]], Counter[str]]:
    """Every family's cases, of all sides, and what was refused and why."""
    domains, refused = parse_domains(DOMAINS), Counter[str]()
    return {family: make(family, domains, 4 * FAMILIES[family][1], seed, refused) for family in FAMILIES}, refused


def on_side(cases: Sequence[Case], side: str) -> list[Case]:
    """The cases whose group is on this side."""
    return [case for case in cases if side_of(case.group) == side]


def sides(built: Mapping[str, Sequence[Case]], refused: Counter[str], seed: int = SEED) -> dict[str, list[Case]]:
    """The cases of train.jsonl and valid.jsonl, shuffled; in train.jsonl a part speaks of many small domains."""
    train, valid = list[Case](), list[Case]()
    for family, (_, most, few) in FAMILIES.items():
        train += _train_cases(family, built[family], most, refused, seed)
        valid += on_side(built[family], "valid")[:few]
    for cases in (train, valid):
        Random(seed).shuffle(cases)
    return {"train": train, "valid": valid}


def _train_cases(family: str, built: Sequence[Case], most: int, refused: Counter[str], seed: int) -> list[Case]:
    known = on_side(built, "train")[:most]
    if family == "pipelines":  # speak of no domain
        return known
    made = make(family, parse_domains(SMALL_DOMAINS), 2 * most, seed, refused)
    there = {case.output for case in built}
    small = [case for case in on_side(made, "train") if case.output not in there]
    return [*known[: round(KNOWN_SHARE * most)], *small[: round(SMALL_SHARE * most)]]


def rows_of(cases: Sequence[Case], side: str) -> list[Row]:
    """The rows of a file; train.jsonl, which nobody runs again, goes without the tests."""
    return [{key: cell for key, cell in case.row().items() if key != "test" or side == "valid"} for case in cases]


def run_all(cases: Sequence[Case]) -> int:
    """Type-check and run every answer with its test; say so, and return how many failed."""
    wrong = [(case, why) for case, why in zip(cases, failures([c.row() for c in cases]), strict=True) if why]
    print(f"{len(cases) - len(wrong)} of {len(cases)} answers pass the type check and their own tests")
    for case, why in wrong:
        print(f"  {why}\n{case.output}\n{case.test}", file=sys.stderr)
    return len(wrong)


def main() -> None:
    """Write the files and say what was made and refused; a failing answer is an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output: Path = parser.parse_args().output
    built, refused = build()
    made = sides(built, refused)
    for reason, count in sorted(refused.items()):
        print(f"  {count} refused: {reason}")
    if run_all([case for cases in made.values() for case in cases]):
        sys.exit("nothing was written: an answer fails its own test")
    for side, cases in made.items():
        print(f"{side}.jsonl: {write_jsonl(output / f'{side}.jsonl', rows_of(cases, side))} rows")


if __name__ == "__main__":
    main()
