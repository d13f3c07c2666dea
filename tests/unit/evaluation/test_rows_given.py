"""What queries give of somebody's database, for a vote."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from expert_cli.evaluation.grade import rows_given
from expert_cli.inference.vote import Given, Vote
from expert_cli.utils.reporter import NullReporter
from tests.words import Words


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE items (id INTEGER, name TEXT); INSERT INTO items VALUES (1, 'a'), (2, 'b')"
        )
    return path


def asked(shop: Path) -> Callable[[str], Given]:
    found = rows_given(shop, NullReporter())
    assert found is not None
    return found


def test_answers_with_the_same_rows_are_one_and_what_cannot_be_run_is_none(shop: Path) -> None:
    answers = [
        "SELECT nothing",
        "SELECT name FROM items WHERE id > 5",
        "SELECT name FROM items WHERE 0",
        "SELECT count(*) FROM items",
        "```sql\nSELECT max(id) FROM items;\n```",
        "DELETE FROM items",
        "DELETE  FROM items",
    ]
    vote = Vote.of(answers, list(map(asked(shop), answers)))
    assert vote.counts == ((answers[3], 2), (answers[1], 2), (answers[5], 2), (answers[0], 1))
    assert asked(shop)("SELECT count(*) FROM items").rank == 0, "nothing was deleted"


def test_rows_count_in_any_order_unless_both_say_one(shop: Path) -> None:
    given = asked(shop)
    assert given("SELECT name FROM items") == given("SELECT name FROM items ORDER BY id DESC")
    assert given("SELECT name FROM items") != given("SELECT id FROM items")


def test_where_nothing_can_run_answers_that_is_told_and_texts_decide(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no database", encoding="utf-8")
    told = Words()
    assert rows_given(other, told) is None
    assert "the vote goes by the texts of answers, which are not run" in told.lines[0]
