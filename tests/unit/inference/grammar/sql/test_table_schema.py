"""Which tables and columns a text creates."""

from __future__ import annotations

from expert_cli.inference.grammar.sql.table_schema import Table, tables_of


def test_tables_stand_anywhere_in_a_text_with_types_and_without() -> None:
    text = """Question: which ones?
    CREATE TABLE patients (id, name, birth_date); create table if not exists Visits (
        id INTEGER PRIMARY KEY, -- a key, of its own
        cost DECIMAL(10, 2) DEFAULT (1 + 2) CHECK (cost > 0), /* a, b */
        kind TEXT CHECK (kind IN ('a,)', 'b')),
        patient_id INT NOT NULL REFERENCES patients (id),
        key TEXT, unique_name TEXT, PRIMARY KEY (id, kind), FOREIGN KEY (patient_id) REFERENCES patients (id),
        UNIQUE (cost), CONSTRAINT c CHECK (cost < 9), INDEX by_cost (cost)
    )
    Answer in SQL."""
    assert tables_of(text) == {
        "patients": Table("patients", ("id", "name", "birth_date")),
        "visits": Table("Visits", ("id", "cost", "kind", "patient_id", "key", "unique_name")),
    }


def test_names_are_read_without_their_quotes_and_schema() -> None:
    text = """CREATE TEMP TABLE "my table" ("a ""b"" c" TEXT, `c d` INT, [e, f] REAL) WITHOUT ROWID;
    CREATE TABLE sales.orders (id int); CREATE TABLE "Sales"."items" ("order" INT, größe INT)"""
    assert tables_of(text) == {
        "my table": Table("my table", ('a "b" c', "c d", "e, f"), has_rowid=False),
        "orders": Table("orders", ("id",), "sales"),
        "items": Table("items", ("order", "größe"), "Sales"),
    }


def test_a_view_has_the_columns_that_it_names() -> None:
    assert tables_of("CREATE VIEW v (a, b) AS SELECT 1, 2; CREATE VIEW w AS SELECT 1 AS c") == {
        "v": Table("v", ("a", "b"), has_rowid=False)
    }


def test_the_first_of_a_name_counts_and_a_text_without_tables_has_none() -> None:
    assert tables_of("CREATE TABLE a (x)", "CREATE TABLE A (y); CREATE TABLE b (z") == {
        "a": Table("a", ("x",)),
        "b": Table("b", ("z",)),
    }
    assert tables_of("How do I create a table?", "") == {}
