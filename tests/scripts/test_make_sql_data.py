"""expert-sql's data: the committed rows hold, the maker repeats itself, the verifier refuses what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import make_sql_data
import pytest
from make_sql_data import domain_of, make_rows, run, verify
from sql_domain_table import TEXT
from sql_domains import domain_data, parse_domains

DATASETS = Path(__file__).resolve().parents[2] / "experts" / "expert-sql" / "datasets"
DOMAINS = parse_domains(TEXT)
GYM = next(domain for domain in DOMAINS if domain.name == "gym")
CONTEXT = (
    "CREATE TABLE trainers (id INTEGER, name TEXT, hourly_rate INTEGER); "
    "CREATE TABLE gym_members (id INTEGER, name TEXT, trainer_id INTEGER, age INTEGER, membership TEXT)"
)


def committed(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATASETS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def reason(question: str, answer: str) -> str:
    return verify({"question": question, "context": CONTEXT, "answer": answer}, DOMAINS)


def test_files_hold_enough_rows_with_the_columns_of_the_manifest() -> None:
    train, valid = committed("train"), committed("valid")
    assert len(train) >= 1500
    assert len(valid) >= 150
    for row in train + valid:
        assert list(row) == ["question", "context", "answer"]
        assert all(value == value.strip() != "" for value in row.values())
        assert not row["answer"].endswith(";")
        assert "\n" not in row["answer"]


def test_rows_are_short() -> None:
    sizes = sorted(sum(map(len, row.values())) for row in committed("train") + committed("valid"))
    assert sizes[len(sizes) * 95 // 100] < 1300
    assert sizes[-1] <= 1800


def test_no_domain_context_or_question_of_valid_stands_in_train() -> None:
    train, valid = committed("train"), committed("valid")
    held_out = {domain_of(row["context"], DOMAINS) for row in valid}
    assert held_out == {"elections", "football_matches", "police", "real_estate"}
    assert held_out.isdisjoint(domain_of(row["context"], DOMAINS) for row in train)
    for column in ("question", "context", "answer"):
        assert {row[column] for row in valid}.isdisjoint(row[column] for row in train)


def test_every_committed_row_verifies_again() -> None:
    assert [row for row in committed("train") + committed("valid") if verify(row, DOMAINS)] == []


def test_a_run_repeats_itself_and_another_seed_asks_otherwise() -> None:
    rows, refused = make_rows([GYM], 7, 15)
    assert (rows, refused) == make_rows([GYM], 7, 15)
    assert len(rows) == 15
    other, _ = make_rows([GYM], 8, 15)
    assert rows != other


def test_the_context_is_filled_with_the_rows_of_the_domain() -> None:
    members = domain_data(GYM)["gym_members"]
    connection = make_sql_data.context_database(CONTEXT)
    assert make_sql_data.fill(connection, DOMAINS) == "gym"
    ages = sorted(((row["id"], row["age"]) for row in members), key=repr)
    assert run(connection, "SELECT id, age FROM gym_members") == ages
    basic = sum(row["membership"] == "basic" for row in members)
    assert run(connection, "SELECT COUNT(*) FROM gym_members WHERE membership = 'basic'") == [(basic,)]
    connection.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("SELECT COUNT(*) FROM gym_members WHERE membership = 'basic'", ""),
        ("SELECT COUNT(*) FROM gym_members WHERE member = 'basic'", "fails: no such column"),
        ("SELECT COUNT(*) FROM gym_members WHERE membership = 'basic' AND", "fails: incomplete input"),
        ("SELECT COUNT(*) FROM gym_members WHERE membership = 'premium'", "literal not in the question"),
        ("SELECT name FROM gym_members WHERE membership = 'Basic'", "finds nothing"),
        ("SELECT COUNT(*) FROM gym_members WHERE membership = 'BASIC'", "the same over empty tables"),
        ("SELECT name FROM gym_members ORDER BY membership LIMIT 5", "LIMIT cuts through equal rows"),
        ("SELECT DISTINCT id FROM gym_members WHERE membership = 'basic'", "a wrong query gives the same"),
    ],
)
def test_the_verifier_says_what_is_wrong(answer: str, expected: str) -> None:
    assert reason("How many gym members have the membership basic, or the first 5?", answer) == expected


def test_a_broken_committed_row_is_refused() -> None:
    row = next(row for row in committed("train") if " WHERE " in row["answer"])
    assert verify(row, DOMAINS) == ""
    assert verify({**row, "answer": row["answer"].replace(" WHERE ", " WHEN ")}, DOMAINS).startswith("fails")


def test_a_table_name_may_stand_in_one_domain_only() -> None:
    with pytest.raises(ValueError, match="two domains"):
        parse_domains("# a\npeople/person: name person\n# b\npeople/person: name person\n")
