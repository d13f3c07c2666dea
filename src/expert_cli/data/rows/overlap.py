"""Which texts of an evaluation stand in training rows, too: the same but for letter case and blanks, or nearly the same.

The evaluation's side is held; of the training rows one block at a time is looked at, as hashes of words. A row is compared
closely where half of a text's sets of three words in a row stand in it; nearly the same is what `similarity` says, so that
nothing is named that is not. A text is compared with at most 20 rows, which keeps the time linear and can miss a few.
Memory: about 40 bytes a word of the evaluation, and its texts.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expert_cli.data.rows.asked import Asked, asked_by
from expert_cli.data.rows.columnar import Rows
from expert_cli.data.rows.similarity import NEAR, normalize, similarity
from expert_cli.data.rows.word_hashes import Hashed, Hashes, Numbers, combined, hashed
from expert_cli.utils.text import excerpt, short_place

MOST_HELD_OUT = 20_000
"""So many texts of an evaluation are looked for: the first ones."""
MOST_CHARACTERS = 4000
"""Longer questions and inputs are compared as a whole alone."""
MOST_EXAMPLES = 3
SHARE = 0.5
_MOST_OWNERS = 8
_TABLE_SHIFT = np.uint64(44)
_MOST_LOOKS = 20
_BLOCK_BYTES = 1 << 20


class Match(NamedTuple):
    """A text of an evaluation and a row that asks the same, by their numbers; is_near: nearly the same."""

    held: int
    row: int
    is_near: bool


def _keys(questions: Hashed, inputs: Sequence[str]) -> Hashes:
    """One hash of question and input of each row."""
    below = hashed(inputs).texts if any(inputs) else np.zeros(len(inputs), np.uint64)
    return combined(questions.texts, below)


class HeldOut:
    """The texts of an evaluation, to be looked for in training rows. finds_near: also what is nearly the same."""

    def __init__(self, asked: Asked, *, finds_near: bool = True) -> None:
        """Take the texts; those that say nothing are in no row."""
        self.asked = asked
        self.finds_near = finds_near
        self.begin()

    @cached_property
    def _normalized(self) -> list[tuple[str, str]]:
        return list(zip(map(normalize, self.asked.questions), map(normalize, self.asked.inputs), strict=True))

    @cached_property
    def _hashed(self) -> Hashed:
        return hashed(self.asked.questions)

    @cached_property
    def _by_key(self) -> dict[int, list[int]]:
        keys = _keys(self._hashed, self.asked.inputs).tolist()
        found: defaultdict[int, list[int]] = defaultdict(list)
        for number in np.flatnonzero(self._open).tolist():
            found[keys[number]].append(number)
        return found

    @cached_property
    def _sorted_keys(self) -> Hashes:
        return np.sort(np.fromiter(self._by_key, np.uint64, len(self._by_key)))

    @cached_property
    def _index(self) -> _Index:
        return _Index.of(self._hashed, len(self.asked))

    def begin(self) -> None:
        """Look for all texts again."""
        self._open = np.array([bool(text.strip()) for text in self.asked.questions], np.bool_)
        self._looks = np.zeros(len(self.asked), np.int64)

    def find(self, rows: Asked) -> Iterator[Match]:
        """Yield the texts that stand in some rows: with every row that is the same, and with one that is nearly so."""
        if not len(self.asked) or not len(rows):
            return
        ends = np.cumsum(
            [len(question) + len(below) for question, below in zip(rows.questions, rows.inputs, strict=True)]
        )
        borders = np.flatnonzero(np.diff(ends // _BLOCK_BYTES)) + 1
        for start, stop in pairwise([0, *borders.tolist(), len(rows)]):
            for match in self._find(rows.part(start, stop)):
                yield match._replace(row=start + match.row)

    def _find(self, rows: Asked) -> Iterator[Match]:
        questions = hashed(rows.questions)
        keys = _keys(questions, rows.inputs)
        for row in np.flatnonzero(_is_in(keys, self._sorted_keys)).tolist():
            for held in self._by_key[int(keys[row])]:
                self._open[held] = False
                yield Match(held, row, is_near=False)
        if self.finds_near and self._open.any():
            for row, held in self._index.pairs(questions, len(rows), self._open):
                if self._open[held] and self._is_near(rows.questions[row], rows.inputs[row], held):
                    self._open[held] = False
                    yield Match(held, row, is_near=True)

    def _is_near(self, question: str, below: str, held: int) -> bool:
        self._looks[held] += 1
        self._open[held] = self._looks[held] < _MOST_LOOKS
        both = zip(self._normalized[held], (normalize(question), normalize(below)), strict=True)
        return all(
            own == other or (max(len(own), len(other)) <= MOST_CHARACTERS and similarity((own,), (other,)) >= NEAR)
            for own, other in both
        )


def _is_in(asked: Hashes, known: Hashes) -> NDArray[np.bool_]:
    """Whether each hash is one of those known, which are sorted."""
    if not len(known):
        return np.zeros(len(asked), np.bool_)
    return np.asarray(known[np.searchsorted(known, asked) % len(known)] == asked, np.bool_)


@dataclass(frozen=True)
class _Index:
    """Which texts each three words in a row stand in. grams: sorted; starts: where the owners of each begin.

    owners: numbers of texts, at most 8 of a gram. of_text: how many grams each text has.
    """

    grams: Hashes
    starts: Numbers
    owners: Numbers
    of_text: Numbers

    @classmethod
    def of(cls, texts_of: Hashed, texts: int) -> _Index:
        order = np.lexsort((texts_of.of, texts_of.grams))
        ordered, owners = texts_of.grams[order], texts_of.of[order]
        grams, starts = np.unique(ordered, return_index=True)
        rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
        kept = rank < _MOST_OWNERS
        counts = np.bincount(np.searchsorted(grams, ordered[kept]), minlength=len(grams))
        begins = np.concatenate(([0], np.cumsum(counts)))
        return cls(grams, begins, owners[kept], np.bincount(texts_of.of, minlength=texts))

    @cached_property
    def _may_be(self) -> NDArray[np.bool_]:
        """Whether a gram of these first bits is there: most that are not are told without a search."""
        table = np.zeros(1 << 20, np.bool_)
        table[self.grams >> _TABLE_SHIFT] = True
        return table

    def pairs(self, rows: Hashed, count: int, is_open: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
        """Yield (row, text) where the row has `SHARE` of the text's grams and is at most twice as long; of open texts."""
        if not len(self.grams):
            return
        of_row = np.bincount(rows.of, minlength=count)
        hit = self._may_be[rows.grams >> _TABLE_SHIFT]
        likely = np.bincount(rows.of[hit], minlength=count) >= SHARE / 2 * np.maximum(of_row, 1)
        hit &= likely[rows.of]
        asked, row = rows.grams[hit], rows.of[hit]
        at = np.searchsorted(self.grams, asked) % len(self.grams)
        hit = self.grams[at] == asked
        at, row = at[hit], row[hit]
        owning = self.starts[at + 1] - self.starts[at]
        row = np.repeat(row, owning)
        within = np.arange(len(row)) - np.repeat(np.cumsum(owning) - owning, owning)
        owner = self.owners[np.repeat(self.starts[at], owning) + within]
        texts = len(self.of_text)
        codes, shared = np.unique((row * texts + owner)[is_open[owner]], return_counts=True)
        row, owner = codes // texts, codes % texts
        alike = (shared >= SHARE * self.of_text[owner]) & (of_row[row] <= 2 * self.of_text[owner])
        yield from zip(row[alike].tolist(), owner[alike].tolist(), strict=True)


@dataclass
class Overlap:
    """The texts of one evaluation that were found in training rows, as a store's statistics keep them.

    added: how many texts there are, also those beyond the first `MOST_HELD_OUT`, which are not looked for. examples: with the
    number of the text.
    """

    asked: Asked = field(default_factory=Asked)
    added: int = 0
    same: set[int] = field(default_factory=set)
    near: set[int] = field(default_factory=set)
    examples: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    @classmethod
    def of(cls, asked: Asked) -> Overlap:
        """Begin with all texts of an evaluation."""
        return cls(asked.part(0, MOST_HELD_OUT), len(asked))

    @cached_property
    def _held(self) -> HeldOut:
        return HeldOut(self.asked)

    def add(self, rows: Rows) -> None:
        """Take rows that evaluate, before any that trains is looked at."""
        self.added += len(rows)
        if len(self.asked) < MOST_HELD_OUT:
            self.asked.extend(asked_by(rows).part(0, MOST_HELD_OUT - len(self.asked)))

    def begin(self) -> Overlap:
        """Return the same texts, none of them found, for the next piece of the rows that train: each is looked at by itself.

        What an earlier one was returned must not look any more.
        """
        self._held.begin()
        found = Overlap(self.asked, self.added)
        found._held = self._held
        return found

    def extend(self, found: Overlap) -> None:
        """Add what the next piece was found to hold."""
        known = self.same | self.near
        new = [(held, example) for held, example in found.examples if held not in known]
        self.examples = [*self.examples, *new][:MOST_EXAMPLES]
        self.same |= found.same
        self.near |= found.near

    def found(self) -> dict[str, Any]:
        """Return which texts were found, as JSON."""
        return {"same": sorted(self.same), "near": sorted(self.near), "examples": self.examples}

    def with_found(self, told: Mapping[str, Any]) -> Overlap:
        """Return the same texts, of which those were found that `found` told."""
        examples = [(held, example) for held, example in told["examples"]]
        return Overlap(self.asked, self.added, set(told["same"]), set(told["near"]), examples)

    def look(self, rows: Asked) -> None:
        """Look at rows that train."""
        for held, row, is_near in self._held.find(rows):
            if held not in self.same | self.near and len(self.examples) < MOST_EXAMPLES:
                text = excerpt(self.asked.questions[held])
                there = {"held_out": short_place(self.asked.places[held]), "train": short_place(rows.places[row])}
                self.examples.append((held, {**there, "near": is_near, "text": text}))
            (self.near if is_near else self.same).add(held)

    def as_json(self) -> dict[str, Any]:
        """Return how many texts were looked for, how many stand in training rows as they are, and nearly."""
        near = len(self.near - self.same)
        examples = [example for _, example in self.examples]
        told = {"rows": self.added, "same": len(self.same), "near": near, "examples": examples}
        return told | {"digest": digest_of(self.asked)}


def digest_of(asked: Asked) -> str:
    """Return a hash of what is asked, wherever it stands."""
    told = json.dumps([asked.questions[:MOST_HELD_OUT], asked.inputs[:MOST_HELD_OUT]])
    return hashlib.sha256(told.encode()).hexdigest()[:16]
