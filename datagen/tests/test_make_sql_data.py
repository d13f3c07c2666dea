"""expert-sql's data: the committed rows hold, the maker repeats itself, the verifier refuses what is wrong."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from datagen.cases import case_worlds
from datagen.common.dataset_files import shape
from datagen.sql import make as make_sql_data
from datagen.sql.domain_table import TEXT
from datagen.sql.domains import Domain, domain_data, parse_domains
from datagen.sql.make import main, make_rows, run, verify
from datagen.sql.scene import create
from datagen.sql.small_domains import TEXT as SMALL_TEXT
from datagen.tests.committed import require_committed

DATASETS = Path(__file__).resolve().parents[2] / "experts" / "expert-sql" / "datasets"
KNOWN, SMALL = parse_domains(TEXT), parse_domains(SMALL_TEXT)
DOMAINS = [*KNOWN, *SMALL]
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


def test_the_committed_files_are_those_the_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_committed(main, DATASETS, tmp_path, monkeypatch)


def test_almost_half_of_the_rows_are_about_the_databases_of_the_cases_and_every_small_one_has_some() -> None:
    names = {table.name: domain.name for domain in DOMAINS for table in domain.tables.values()}
    rows = Counter(names[re.findall(r"TABLE (\w+)", row["context"])[0]] for row in committed("train"))
    assert rows.keys() == {domain.name for domain in DOMAINS}
    assert sum(rows[domain.name] for domain in KNOWN) >= 0.45 * rows.total()
    assert len(SMALL) >= 40
    assert min(rows.values()) >= 20


def words(domains: list[Domain]) -> tuple[set[str], set[str]]:
    """What tables are called, and what columns are called and hold, without the way they are written."""
    tables, columns = set[str](), set[str]()
    for table in (table for domain in domains for table in domain.tables.values()):
        tables |= {table.name, table.plural, table.singular}
        columns |= {reference.column.label for reference in table.references}
        columns |= {word for column in table.columns for word in (column.name, column.label, *column.options)}
    tables, columns = ({re.sub("[ _]", "", name).lower() for name in names} for names in (tables, columns))
    return tables, columns


def test_no_small_database_has_a_table_or_a_rare_column_of_the_unseen_cases() -> None:
    tables, columns = words(SMALL)
    unseen_tables, unseen_columns = words(parse_domains(case_worlds.SQL))
    assert tables.isdisjoint(unseen_tables | unseen_columns)
    assert columns & (unseen_tables | unseen_columns) <= words(KNOWN)[1]  # name, city, price and the like


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


STYLED = """\
# a{style}
book_clubs/book_club: name title; has_garden bool
members/member/mbr: joined_on date 2020-2023 as joining date by registered; book_club_id ref book_clubs of; fee real 1-9
"""


@pytest.mark.parametrize(
    ("style", "parent", "child"),
    [
        ("", "book_clubs (id, name, has_garden)", "mbr (id, book_club_id, joined_on, fee)"),
        (": singular own", "book_club (book_club_id, name, has_garden)", "mbr (mbr_id, book_club_id, joined_on, fee)"),
        (": camel own", "BookClubs (bookClubId, name, hasGarden)", "Mbr (mbrId, bookClubId, joinedOn, fee)"),
        (": pascal", "BookClubs (Id, Name, HasGarden)", "Mbr (Id, BookClubId, JoinedOn, Fee)"),
        (": typed", "book_clubs (id INTEGER, name TEXT, has_garden BOOLEAN)",
         "mbr (id INTEGER, book_club_id INTEGER, joined_on DATE, fee REAL)"),
        (": keys", "book_clubs (id INTEGER PRIMARY KEY, name TEXT, has_garden BOOLEAN)",
         "mbr (id INTEGER PRIMARY KEY, book_club_id INTEGER REFERENCES book_clubs(id), joined_on DATE, fee REAL)"),
    ],
)  # fmt: skip
def test_a_style_is_how_tables_are_written_and_not_what_is_asked(style: str, parent: str, child: str) -> None:
    (domain,) = parse_domains(STYLED.format(style=style))
    assert [create(table, domain) for table in domain.tables.values()] == [f"CREATE TABLE {t}" for t in (parent, child)]
    rows, _ = make_rows([domain], 7, 40, ("train", "valid", "cases"))
    assert len(rows) > 20
    asked = " ".join(row["question"] for row in rows).lower()
    assert "book clubs" in asked
    assert "joining date" in asked
    assert "garden" in asked
    assert not re.search("mbr|bookclub|joined_?on|has_?garden", asked)


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match="no style of a domain: kebab"):
        parse_domains("# a: own kebab\npeople/person: name person\n")


def test_a_table_name_may_stand_in_one_domain_only() -> None:
    with pytest.raises(ValueError, match="two domains"):
        parse_domains("# a\npeople/person: name person\n# b\npeople/person: name person\n")
