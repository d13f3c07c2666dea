"""Patterns of file names, as a README writes them -> the names they fit. Whoever wrote them may mean harm.

One regular expression for a whole path ("**/*a*/**/*a*/**") tries every way to cut the path. Here a path is matched part by
part, keeping every place that could be reached, and a part by `fnmatch`, which never goes back over a star.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence

from expert_cli.errors import InputError

MOST_STEPS = 5_000_000
"""Of holding a part of a pattern against a name: takes about 5 s."""
_MAGIC = re.compile(r"[*?\[]")


def is_pattern(written: str) -> bool:
    """Return whether it may fit more names than its own."""
    return _MAGIC.search(written) is not None


def fitting(names: Sequence[str], patterns: Iterable[str], where: str) -> dict[str, list[str]]:
    """Return for each pattern the names ("/" between parts) that it fits, in order.

    "*" stays in a folder, "**" does not and is a part by itself. Raises InputError: more work than any data set needs.
    """
    there = frozenset(names)
    parts_of = [name.split("/") for name in names]
    found: dict[str, list[str]] = {}
    steps = 0
    for pattern in patterns:
        plain = pattern.removeprefix("./")
        if not is_pattern(plain):
            found[pattern] = [plain] if plain in there else []
            continue
        wanted = plain.replace("[^", "[!").split("/")
        if any("**" in part and part != "**" for part in wanted):
            raise InputError(f'{where}: the pattern "{pattern[:80]}" of the README: "**" stands alone between slashes')
        steps += len(wanted) * len(names)
        if steps > MOST_STEPS:
            message = f"{where}: the README's patterns are too many or too long for {len(names)} files"
            raise InputError(message, "Name one file of rows.")
        found[pattern] = [name for name, parts in zip(names, parts_of, strict=True) if fits(parts, wanted)]
    return found


def fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether the parts of a path fit those of a pattern."""
    reached = {0}
    for pattern in wanted:
        if pattern == "**":
            reached = set(range(min(reached), len(parts) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and fnmatch.fnmatchcase(parts[at], pattern)}
        if not reached:
            return False
    return len(parts) in reached
