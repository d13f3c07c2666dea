"""Near texts: exactly those that a comparison of all pairs finds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from expert_cli.evaluation.audit.similarity import (
    HASHES,
    NEAR,
    Texts,
    near_duplicates,
    near_in,
    normalize,
    signatures,
    similarity,
)

WORDS = (
    "list",
    "the",
    "names",
    "of",
    "all",
    "shops",
    "in",
    "that",
    "city",
    "which",
    "have",
    "more",
    "than",
    "three",
    "boats",
)


def test_similarity_is_that_of_sets_of_five_characters() -> None:
    assert similarity(("abcdef",), ("abcdeg",)) == pytest.approx(1 / 3)
    assert similarity(("abcde", "vwxyz"), ("abcde", "vwxyy")) == pytest.approx(1 / 3)
    assert similarity(("ab",), ("ab",)) == similarity(("",), ("",)) == 1
    assert similarity(("",), ("a",)) == 0
    assert normalize(" A\tb\n C ") == "a b c"


def test_signatures_estimate_it_and_take_any_text() -> None:
    drawn = random.Random(1)
    texts = [" ".join(drawn.choices(WORDS, k=20)) for _ in range(40)]
    texts += [f"{text} {drawn.choice(WORDS)}" for text in texts] + ["", "é", "\ud800", "a" * (1 << 21)]
    signed = signatures(texts)
    assert signed.shape == (84, HASHES)
    for one, other in zip(range(40), range(40, 80), strict=True):
        estimate = float((signed[one] == signed[other]).mean())
        assert abs(estimate - similarity((texts[one],), (texts[other],))) < 0.25
    assert np.array_equal(signatures(texts[3:5]), signed[3:5])


def test_near_duplicates_are_those_of_all_pairs() -> None:
    drawn = random.Random(2)
    base = [drawn.choices(WORDS, k=14) for _ in range(60)]
    asked = [" ".join(words) for words in base]
    for words in base:
        changed = [*words]
        for _ in range(drawn.randrange(4)):
            changed[drawn.randrange(len(changed))] = drawn.choice(WORDS)
        asked.append(" ".join(changed))
    inputs = [drawn.choice(("schema of the shops", "planets and their moons")) for _ in asked]
    answers = ["select name from shops"] * len(asked)
    texts = [Texts.of(column) for column in (asked, inputs, answers)]

    def is_near(a: int, b: int) -> bool:
        of_rows = similarity((texts[0][a], texts[2][a]), (texts[0][b], texts[2][b]))
        return of_rows >= NEAR and similarity((texts[1][a],), (texts[1][b],)) >= NEAR

    wanted = {b for b in range(len(asked)) if any(is_near(a, b) for a in range(b))}
    found = near_duplicates(texts[0], texts[1], texts[2], range(len(asked)))
    assert set(found) == wanted
    assert 10 < len(wanted) < 60
    assert all(earlier < later and is_near(earlier, later) for later, earlier in found.items())
    assert near_duplicates(texts[0], texts[1], texts[2], [0]) == {}


FORMS = [f"{stem}{ending}" for stem in ("ship", "book", "river", "paint", "lamp") for ending in ("", "s", "ing", "ed")]


def test_texts_that_rows_nearly_ask_are_found_and_nothing_else_is() -> None:
    """Of 150 texts of 8 to 30 words and 450 rows, of which 300 are one of these with a word changed, as of all pairs."""
    chance = random.Random(3)
    held = [" ".join(chance.choices(FORMS, k=chance.randint(8, 30))) for _ in range(150)]
    rows = [" ".join(chance.choices(FORMS, k=12)) for _ in range(150)]
    for text in chance.choices(held, k=300):
        words = text.split()
        words[chance.randrange(len(words))] = chance.choice(FORMS)
        rows.append(" ".join(words))
    truth = {
        number
        for number, text in enumerate(held)
        if any(similarity((normalize(text),), (normalize(row),)) >= NEAR for row in rows)
    }
    blank = (Texts.of([""] * len(held)), Texts.of([""] * len(rows)))
    found = near_in(Texts.of(held), blank[0], Texts.of(rows), blank[1])
    assert set(found) <= truth
    assert len(found) >= 0.97 * len(truth) > 100
    other = near_in(Texts.of(held), Texts.of(["CREATE TABLE a (b)"] * len(held)), Texts.of(rows), blank[1])
    assert other == {}, "the input belongs to what is asked"
