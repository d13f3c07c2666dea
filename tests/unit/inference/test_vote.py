"""Which answers are the same, and who wins."""

from __future__ import annotations

import pytest

from expert_cli.inference.vote import same_as, votes

PAIRS = {
    "json": ('{"a": 1.0, "b": [true, null]}', '{"b":[true,null],"a":1}', True),
    "json's true is not 1": ("[true]", "[1]", False),
    "json's order of a list": ("[1, 2]", "[2, 1]", False),
    "json's key twice": ('{"a": 1, "a": 2}', '{"a": 2}', False),
    "sql": ("SELECT  a FROM t WHERE x=1", "SELECT a\nFROM t WHERE x = 1", True),
    "sql's texts": ("SELECT 'A'", "SELECT 'a'", False),
    "text": ("a  b", "a b\n", True),
    "text in capitals": ("Yes", "yes", False),
}


@pytest.mark.parametrize(("one", "other", "same"), PAIRS.values(), ids=PAIRS.keys())
def test_which_answers_are_the_same(one: str, other: str, same: bool) -> None:
    assert (same_as(one) == same_as(other)) is same


VOTES: dict[str, tuple[list[str], list[tuple[str, int]]]] = {
    "one": (["a"], [("a", 1)]),
    "most": (["a", "[1]", "[ 1 ]", "b", "[1.0]"], [("[1]", 3), ("a", 1), ("b", 1)]),
    "as many": (["b", "a", "a ", "b"], [("b", 2), ("a", 2)]),
    "nothing has no vote": (["", " ", "\n", "a"], [("a", 1), ("", 3)]),
    "nothing at all": (["", ""], [("", 2)]),
}


@pytest.mark.parametrize(("answers", "counts"), VOTES.values(), ids=VOTES.keys())
def test_the_vote(answers: list[str], counts: list[tuple[str, int]]) -> None:
    told = [{"answer": answer, "count": count} for answer, count in counts]
    assert votes(answers, [*map(same_as, answers)]) == {"samples": answers, "votes": told}


def test_a_vote_of_what_was_run_puts_rows_before_no_rows_and_both_before_nothing() -> None:
    given = [None, "", "", "a", None, None, "b", "b"]
    counts = [tuple(one.values()) for one in votes("01234567", given)["votes"]]
    assert counts == [("6", 2), ("3", 1), ("1", 2), ("0", 3)]
