"""What of an evaluation stands in training rows: what is found is what a comparison of all pairs finds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_cli.data.rows import overlap
from expert_cli.data.rows.asked import Asked, asked_by
from expert_cli.data.rows.columnar import Message
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.overlap import HeldOut, Match, Overlap
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.rows.similarity import NEAR, normalize, similarity

PIECES = [*"aAäßİΣ Bb\n\t\x1c\x1e\u00a0\u2003.x", "letters", "lettersandmoreofthem", "lettersandmoreofthis"]
TEXTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=9).map("".join), max_size=12)


def asked(*texts: str, given: str = "", file: str = "file") -> Asked:
    return Asked([*texts], [given] * len(texts), [f"{file}:{number}" for number in range(len(texts))])


@given(TEXTS, TEXTS)
def test_the_same_is_what_is_equal_once_it_is_normalized(held: list[str], rows: list[str]) -> None:
    found = {(one.held, one.row) for one in HeldOut(asked(*held), finds_near=False).find(asked(*rows))}
    equal = {
        (one, other)
        for one, text in enumerate(held)
        for other, row in enumerate(rows)
        if normalize(text) == normalize(row) and normalize(text)
    }
    assert found == equal


WORDS = [f"{stem}{ending}" for stem in ("ship", "book", "river", "paint", "lamp") for ending in ("", "s", "ing", "ed")]


def changed(text: str, chance: random.Random) -> str:
    """Change one word of a text, or leave it out."""
    words = text.split()
    at = chance.randrange(len(words))
    words[at : at + 1] = [chance.choice(WORDS)] if chance.random() < 0.7 else []
    return " ".join(words)


def test_near_ones_are_found_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 texts of 8 to 30 words and 900 rows, as of all pairs; in blocks of a few rows, too."""
    chance = random.Random(3)
    held = [" ".join(chance.choices(WORDS, k=chance.randint(8, 30))) for _ in range(300)]
    rows = [changed(chance.choice(held), chance) for _ in range(600)]
    rows += [" ".join(chance.choices(WORDS, k=12)) for _ in range(300)]
    chance.shuffle(rows)
    truth = {
        number
        for number, text in enumerate(held)
        if any(similarity((normalize(text),), (normalize(row),)) >= NEAR for row in rows)
    }
    found = {one.held for one in HeldOut(asked(*held)).find(asked(*rows))}
    assert found <= truth
    assert len(found) >= 0.97 * len(truth) > 200
    monkeypatch.setattr(overlap, "_BLOCK_BYTES", 1000)
    assert {one.held for one in HeldOut(asked(*held)).find(asked(*rows))} == found


LONG = "how many ships of the line were lost in the storm of that year"


def test_the_input_belongs_to_what_is_asked() -> None:
    rows = asked(LONG, given="CREATE TABLE ships (name text, year integer, tonnage integer)")
    rows.extend(asked(LONG.upper(), given="create  table ships (name text, year integer, tonnage integer)"))
    held = asked(LONG, given="CREATE TABLE ships (name text, year integer, tonnage integer)")
    assert [*HeldOut(held).find(rows)] == [Match(0, 0, False), Match(0, 1, False)]
    assert [*HeldOut(asked(LONG)).find(rows)] == []
    near = [*HeldOut(asked(LONG + "?", given="CREATE TABLE ships (name text, year integer, tonnage int)")).find(rows)]
    assert near == [Match(0, 0, True)]


def test_long_texts_are_compared_as_a_whole_alone() -> None:
    long = " ".join(f"word{number}" for number in range(overlap.MOST_CHARACTERS // 6))
    assert [*HeldOut(asked(long)).find(asked(long.upper()))] == [Match(0, 0, False)]
    assert [*HeldOut(asked(long)).find(asked(long + " more"))] == []
    shorter = long[: overlap.MOST_CHARACTERS - 100]
    assert [*HeldOut(asked(shorter)).find(asked(shorter + " more"))] == [Match(0, 0, True)]


def test_a_text_is_compared_with_a_few_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty rows that share most words in a row, and are other texts, hide a later one that is nearly the same."""
    other = LONG.replace("storm of that year", "x" * 60)
    rows = asked(*([other] * 20), LONG + "?")
    assert [*HeldOut(asked(LONG)).find(rows)] == []
    monkeypatch.setattr(overlap, "_MOST_LOOKS", 21)
    assert [*HeldOut(asked(LONG)).find(rows)] == [Match(0, 20, True)]


def test_counts_and_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is nearly there and then there counts as there, once; the first two of five are looked for."""
    held = Overlap.of(asked(LONG, "a b c d e"))
    held.look(asked(LONG + "?", "other", file="train"))
    held.look(asked(LONG, LONG, file="train"))
    told = held.as_json()
    assert (told["rows"], told["same"], told["near"]) == (2, 1, 0)
    assert told["examples"] == [{"held_out": "file:0", "train": "train:0", "near": True, "text": LONG}]
    monkeypatch.setattr(overlap, "MOST_HELD_OUT", 2)
    few = Overlap()
    few.add(PairRows(list("abcde"), [""] * 5, ["x"] * 5, origins=list("12345")))
    few.look(asked(*"abcde"))
    assert (few.as_json()["rows"], few.as_json()["same"]) == (5, 2)


def test_what_rows_ask() -> None:
    pairs = PairRows(["q"], ["i"], ["a"], origins=["f:1"])
    talk = (Message("system", "s"), Message("user", "q"), Message("assistant", "a"))
    messages = MessageRows([talk], origins=["f:2"])
    assert asked_by(pairs) == Asked(["q"], ["i"], ["f:1"])
    assert asked_by(messages) == Asked(["q"], ["s"], ["f:2"])
