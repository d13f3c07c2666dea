"""The split of a data source and the slice of it, as users write them ("train[10%:20%]"), and the names that splits go by."""

from __future__ import annotations

import re
from dataclasses import dataclass

from expert_cli.errors import InputError

_SPLIT = re.compile(r"(?P<name>[\w.-]*)(?:\[(?P<start>-?\d{1,18}%?)?:(?P<stop>-?\d{1,18}%?)?\])?")
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SPLIT_OF = {word: split for split, words in _WORDS.items() for word in words}


@dataclass(frozen=True)
class Split:
    """A split's name and the slice of it, as written: "", "100", "-50" or "10%" at each end."""

    name: str
    start: str = ""
    stop: str = ""

    @property
    def rows_needed(self) -> int | None:
        """Return how many rows from the front decide the slice; None = all must be counted."""
        ends = (self.start or "0", self.stop)
        return int(self.stop) if all(end.isdecimal() for end in ends) else None

    def rows(self, total: int) -> range:
        """Return the numbers of the rows out of `total`; ends beyond it are cut, as in Python and `datasets`."""
        start, stop = (_row_number(end, total) for end in (self.start, self.stop))
        return range(*slice(start, stop).indices(total))


def parse_split(written: str) -> Split:
    """Return the split that "train", "train[:1000]", "train[10%:20%]" or "train[-50:]" names. Raises InputError."""
    match = _SPLIT.fullmatch(written.strip())
    if match is None:
        raise InputError(
            f'"{written}" is not a split with a slice', "Write train, train[:1000], train[10%:20%] or train[-50:]."
        )
    shares = [end for end in (match["start"], match["stop"]) if end and end.endswith("%")]
    if above := next((end for end in shares if abs(int(end[:-1])) > 100), ""):
        raise InputError(f'"{written}": {above} is more than all rows', "Write a share from 0% to 100%.")
    return Split(match["name"] or "train", match["start"] or "", match["stop"] or "")


def split_of(word: str) -> str:
    """Return the split that a word stands for ("dev" is validation), the word itself where it is none of the known ones."""
    return _SPLIT_OF.get(word, word)


def named_split(part: str) -> str:
    """Return the split that a file's or folder's name has as a word of its own ("sql-train-00000-of-00002"), the first of two.

    "" where it has none.
    """
    return next((_SPLIT_OF[word] for word in re.split(r"[-._ 0-9]+", part.lower()) if word in _SPLIT_OF), "")


def _row_number(end: str, total: int) -> int | None:
    if not end:
        return None
    if end.endswith("%"):
        return round(int(end[:-1]) * total / 100)  # rounded to the closest row, as `datasets` does
    return int(end)
