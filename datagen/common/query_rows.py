"""Rows of a question and a query: drawn form by form, each verified before it is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar

from datagen.common.dataset_files import Row, shape, side_of, write_jsonl

TRIES = 12  # for one row of one form
WORDINGS = 4  # how often a query may be asked for
TURNS = 3  # how many turns may fail, as a multiple of the rows wanted


class _Named(Protocol):
    @property
    def name(self) -> str: ...


FormT = TypeVar("FormT")
DomainT = TypeVar("DomainT", bound=_Named)


def make_in_turns(
    domains: Sequence[DomainT],
    forms: Sequence[FormT],
    draw: Callable[[FormT, DomainT, Random], Row | None],
    verify: Callable[[Row, Sequence[DomainT]], str],
    *,
    query: str,
    seed: int,
    per_domain: int,
) -> tuple[list[Row], Counter[str]]:
    """Make up to `per_domain` verified rows for each domain and count what was refused, by reason.

    The forms take turns, so that one whose rows are often refused is not rarer than another. query: the rows' key of it.
    draw: one row, None where the form does not fit; verify: why a row is refused, nothing where it holds.
    """
    rows: list[Row] = []
    refused: Counter[str] = Counter()
    for domain in domains:
        rng = Random(f"{seed} {domain.name}")
        seen: Counter[str] = Counter()
        made: list[Row] = []
        for form in islice(cycle(rng.sample(forms, len(forms))), per_domain * TURNS):
            if len(made) == per_domain:
                break
            for _ in range(TRIES):
                row = draw(form, domain, rng)
                if row is None:
                    continue
                asked, answered = row["question"].lower(), row[query]
                again = asked in seen or seen[answered] == WORDINGS
                reason = "asked before" if again else verify(row, domains)
                if not reason:
                    seen.update((asked, answered))
                    made.append(row)
                    break
                refused[reason] += 1
        rows += made
    return rows, refused


def with_small(
    known: Iterable[tuple[list[Row], Counter[str]]],
    small: tuple[list[Row], Counter[str]],
    *,
    query: str,
    most: int,
) -> tuple[list[Row], Counter[str]]:
    """Join what was made and refused of each known domain and of all small ones, as `make_in_turns` returns it.

    most: so many rows of a known domain's train side are kept, the first; and all of its others.
    """
    rows: list[Row] = []
    refused: Counter[str] = Counter()
    for made, why in known:
        train = [row for row in made if side_of(shape(row[query])) == "train"]
        rows += [*train[:most], *(row for row in made if row not in train)]
        refused += why
    return rows + small[0], refused + small[1]


def write_sides(output: Path, rows: Sequence[Row], refused: Counter[str], *, query: str) -> None:
    """Write train.jsonl and valid.jsonl, each query's shape on its side, and say what was made and refused."""
    for name in ("train", "valid"):
        part = [row for row in rows if side_of(shape(row[query])) == name]
        print(f"{name}: {write_jsonl(output / f'{name}.jsonl', part)} rows, all verified")
    for reason, count in refused.most_common():
        print(f"refused {count}: {reason}")
