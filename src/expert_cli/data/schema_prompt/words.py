"""Words of questions and of names, in a form in which they meet: `Singers` and `singer_id`, `countries` and `Country`."""

from __future__ import annotations

import re
from functools import lru_cache

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")
_WORDS = re.compile(r"[^\W_]+")
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", ""))
_VERBAL = (("ing", ""), ("ed", ""), ("er", ""), ("or", ""), ("e", ""))
_STOP = """a about above after all also am an and any are as at be been before being below between both but by can did do does
    each else every find for from get give had has have having he her him his how i if in into is it its itself least less
    list many me more most much my no nor not number of on one only or order other our out over per please return same she
    show shown so some tell than that the their them then there these they this those through to together two under up
    us use used uses using was we were what when where which while who whom whose why will with you your"""
STOP_WORDS = frozenset(_STOP.split())
"""Words that name nothing by themselves."""


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """Return a word without the endings that words of one meaning differ in: "flies" and "fly", "producing" and "produce"."""
    word = word.casefold()
    for endings in (_ENDINGS, _VERBAL):
        for ending, instead in endings:
            if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
                word = word[: len(word) - len(ending)] + instead
                break
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


@lru_cache(maxsize=100_000)
def name_words(name: str) -> tuple[str, ...]:
    """Return the words that a name is made of, as stems: "Home_Town", "homeTown" and "home town" give the same."""
    return tuple(stem(part) for part in _PARTS.findall(name))


def text_words(text: str) -> list[str]:
    """Return the words of a text, in small letters."""
    return [word.casefold() for word in _WORDS.findall(text)]


def joined(words: list[str]) -> str:
    """Return words as one text by which values are found."""
    return " ".join(map(stem, words))
