"""expert-sql's data: the committed rows hold, the maker repeats itself, the verifier refuses what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from datagen.common.dataset_files import shape
from datagen.sql import make as make_sql_data
from datagen.sql.domain_table import TEXT
from datagen.sql.domains import domain_data, parse_domains
from datagen.sql.make import make_rows, run, verify

DATASETS = Path(__file__).resolve().parents[2] / "experts" / "expert-sql" / "datasets"
DOMAINS = parse_domains(TEXT)
SHOP = next(domain for domain in DOMAINS if domain.name == "shop")
CONTEXT = (
    "CREATE TABLE products (id, name, category, price, stock); "
    "CREATE TABLE orders (id, customer_id, product_id, order_date, quantity, status)"
)


def committed(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATASETS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def reason(question: str, answer: str) -> str:
    return verify({"question": question, "context": CONTEXT, "answer": answer}, DOMAINS)


def test_files_hold_enough_rows_with_the_columns_of_the_manifest() -> None:
    train, valid = committed("train"), committed("valid")
    assert len(train) >= 1500
    assert len(valid) >= 100
    for row in train + valid:
        assert list(row) == ["question", "context", "answer"]
        assert all(value == value.strip() != "" for value in row.values())
        assert not row["answer"].endswith(";")
        assert "\n" not in row["answer"]


def test_rows_are_short() -> None:
    sizes = sorted(sum(map(len, row.values())) for row in committed("train") + committed("valid"))
    assert sizes[len(sizes) * 95 // 100] < 1300
    assert sizes[-1] <= 1800


def test_no_question_and_no_shape_of_valid_stands_in_train() -> None:
    train, valid = committed("train"), committed("valid")
    assert {row["question"] for row in valid}.isdisjoint(row["question"] for row in train)
    assert {shape(row["answer"]) for row in valid}.isdisjoint(shape(row["answer"]) for row in train)


def test_a_table_is_shown_the_same_way_in_every_prompt() -> None:
    shown = {table for row in committed("train") + committed("valid") for table in row["context"].split("; ")}
    assert len(shown) == sum(len(domain.tables) for domain in DOMAINS)
    assert set(CONTEXT.split("; ")) < shown


def test_a_question_has_one_answer() -> None:
    rows = committed("train") + committed("valid")
    assert len({(row["question"].lower(), row["context"]) for row in rows}) == len(rows)


def test_every_committed_row_verifies_again() -> None:
    assert [row for row in committed("train") + committed("valid") if verify(row, DOMAINS)] == []


def test_a_run_repeats_itself_and_another_seed_asks_otherwise() -> None:
    rows, refused = make_rows([SHOP], 7, 15, ("train",))
    assert (rows, refused) == make_rows([SHOP], 7, 15, ("train",))
    assert len(rows) == 15
    other, _ = make_rows([SHOP], 8, 15, ("train",))
    assert rows != other


def test_the_context_is_filled_with_the_rows_of_the_domain() -> None:
    orders = domain_data(SHOP)["orders"]
    connection = make_sql_data.context_database(CONTEXT)
    assert make_sql_data.fill(connection, DOMAINS) == "shop"
    quantities = sorted(((row["id"], row["quantity"]) for row in orders), key=repr)
    assert run(connection, "SELECT id, quantity FROM orders") == quantities
    pending = sum(row["status"] == "pending" for row in orders)
    assert run(connection, "SELECT COUNT(*) FROM orders WHERE status = 'pending'") == [(pending,)]
    connection.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("SELECT COUNT(*) FROM orders WHERE status = 'pending'", ""),
        ("SELECT COUNT(*) FROM orders WHERE state = 'pending'", "fails: no such column"),
        ("SELECT COUNT(*) FROM orders WHERE status = 'pending' AND", "fails: incomplete input"),
        ("SELECT COUNT(*) FROM orders WHERE status = 'shipped'", "literal not in the question"),
        ("SELECT id FROM orders WHERE status = 'Pending'", "finds nothing"),
        ("SELECT COUNT(*) FROM orders WHERE status = 'PENDING'", "the same over empty tables"),
        ("SELECT id FROM orders ORDER BY status LIMIT 5", "LIMIT cuts through equal rows"),
        ("SELECT DISTINCT id FROM orders WHERE status = 'pending'", "a wrong query gives the same"),
    ],
)
def test_the_verifier_says_what_is_wrong(answer: str, expected: str) -> None:
    assert reason("How many orders have the status pending, or the first 5?", answer) == expected


def test_a_broken_committed_row_is_refused() -> None:
    row = next(row for row in committed("train") if " WHERE " in row["answer"])
    assert verify(row, DOMAINS) == ""
    assert verify({**row, "answer": row["answer"].replace(" WHERE ", " WHEN ")}, DOMAINS).startswith("fails")


def test_a_table_name_may_stand_in_one_domain_only() -> None:
    with pytest.raises(ValueError, match="two domains"):
        parse_domains("# a\npeople/person: name person\n# b\npeople/person: name person\n")
