"""The names that a split goes by, in what users write and in the names of files and folders."""

from __future__ import annotations

import re

_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SPLIT_OF = {word: split for split, words in _WORDS.items() for word in words}


def split_of(word: str) -> str:
    """Return the split that a word stands for ("dev" is validation), the word itself where it is none of the known ones."""
    return _SPLIT_OF.get(word, word)


def named_split(part: str) -> str:
    """Return the split that a file's or folder's name has as a word of its own ("sql-train-00000-of-00002"), the first of two.

    "" where it has none.
    """
    return next((_SPLIT_OF[word] for word in re.split(r"[-._ 0-9]+", part.lower()) if word in _SPLIT_OF), "")
