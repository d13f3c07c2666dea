"""Prices an hour and what a run costs by them."""

from __future__ import annotations

import pytest

from expert_cli.errors import InputError
from expert_cli.estimate.run_estimate import Price, parse_price


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
    assert parse_price(text) == Price(per_hour, currency)


@pytest.mark.parametrize("text", ["", "cheap", "2,50/h", "-1/h", "2.50/min", "nan", "1e3/h", "2.50 min", "2.50 eur/h"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a price an hour"):
        parse_price(text)


def test_cost_is_price_times_time() -> None:
    assert parse_price("2.50/h").cost(5400) == 3.75
