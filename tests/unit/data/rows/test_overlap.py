"""What of an evaluation stands in training rows: what is found is what a comparison of all pairs finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_cli.data.rows import overlap
from expert_cli.data.rows.asked import Asked, asked_by
from expert_cli.data.rows.columnar import Message
from expert_cli.data.rows.messages import MessageRows
from expert_cli.data.rows.overlap import HeldOut, Match, Overlap
from expert_cli.data.rows.pairs import PairRows
from expert_cli.data.rows.similarity import normalize

PIECES = [*"aAäßİΣ Bb\n\t\x1c\x1e\u00a0\u2003.x", "letters", "lettersandmoreofthem", "lettersandmoreofthis"]
TEXTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=9).map("".join), max_size=12)


def asked(*texts: str, given: str = "", file: str = "file") -> Asked:
    return Asked([*texts], [given] * len(texts), [f"{file}:{number}" for number in range(len(texts))])


@given(TEXTS, TEXTS)
def test_the_same_is_what_is_equal_once_it_is_normalized(held: list[str], rows: list[str]) -> None:
    found = {(one.held, one.row) for one in HeldOut(asked(*held)).find(asked(*rows))}
    equal = {
        (one, other)
        for one, text in enumerate(held)
        for other, row in enumerate(rows)
        if normalize(text) == normalize(row) and normalize(text)
    }
    assert found == equal


LONG = "how many ships of the line were lost in the storm of that year"


def test_the_input_belongs_to_what_is_asked() -> None:
    rows = asked(LONG, given="CREATE TABLE ships (name text, year integer, tonnage integer)")
    rows.extend(asked(LONG.upper(), given="create  table ships (name text, year integer, tonnage integer)"))
    held = asked(LONG, given="CREATE TABLE ships (name text, year integer, tonnage integer)")
    assert [*HeldOut(held).find(rows)] == [Match(0, 0), Match(0, 1)]
    assert [*HeldOut(asked(LONG)).find(rows)] == []


def test_counts_and_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text counts once; the first two of five are looked for."""
    held = Overlap.of(asked(LONG, "a b c d e"))
    held.look(asked(LONG + "?", "other", file="train"))
    held.look(asked(LONG, LONG, file="train"))
    told = held.as_json()
    assert (told["rows"], told["same"]) == (2, 1)
    assert told["examples"] == [{"held_out": "file:0", "train": "train:0", "text": LONG}]
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
