"""Prices an hour and what a run costs by them."""

from __future__ import annotations

import json
from datetime import date

import pytest

from expert_cli.commands.tables import _money
from expert_cli.errors import InputError
from expert_cli.estimate.prices import TABLE, Price, parse_price, rented


@pytest.mark.parametrize(
    ("text", "per_hour", "currency"),
    [
        ("2.50/h", 2.5, ""),
        ("2.50", 2.5, ""),
        ("$3/h", 3.0, "$"),
        ("2.50€/h", 2.5, "€"),
        ("2.50 EUR / Hour", 2.5, "EUR"),
        ("USD 4", 4.0, "USD"),
        ("0.4 / hour", 0.4, ""),
        ("0/h", 0.0, ""),
    ],
)
def test_a_price_is_read(text: str, per_hour: float, currency: str) -> None:
    assert parse_price(text) == Price(per_hour, currency, "--price")


@pytest.mark.parametrize("text", ["", "cheap", "2,50/h", "-1/h", "2.50/min", "nan", "1e3/h", "2.50 min", "2.50 eur/h"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a price an hour"):
        parse_price(text)


def test_cost_is_price_times_time() -> None:
    assert parse_price("2.50/h").cost(5400) == 3.75


@pytest.mark.parametrize(("currency", "shown"), [("", "2.50"), ("$", "$2.50"), ("EUR", "2.50 EUR")])
def test_an_amount_is_shown_with_its_unit(currency: str, shown: str) -> None:
    assert _money(2.5, currency) == shown


def test_the_table_names_source_and_date_of_every_price() -> None:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    assert "rented" in table["kind"]
    names = [name for row in table["prices"] for name in row["names"]]
    assert len(names) == len(set(names))
    for row in table["prices"]:
        assert date.fromisoformat(row["date"]) <= date.today()
        price = rented(row["names"][0])
        assert price is not None
        assert price.per_hour == row["per_hour"] > 0
        assert row["date"] in price.source
        assert row["provider"] in price.source


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti", ""])
def test_another_card_has_no_price(name: str) -> None:
    assert rented(name) is None
