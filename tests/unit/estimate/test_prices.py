"""Prices an hour."""

from __future__ import annotations

import pytest

from expert_cli.errors import InputError
from expert_cli.estimate.run_estimate import parse_price


@pytest.mark.parametrize(("text", "hourly"), [("2.50/h", 2.5), ("2.50", 2.5), ("4/h", 4.0), ("0", 0.0)])
def test_a_price_is_read(text: str, hourly: float) -> None:
    assert parse_price(text) == hourly


@pytest.mark.parametrize("text", ["", "cheap", "2,50/h", "-1/h", "2.50/min", "nan", "1e3/h", "$2/h"])
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a price an hour"):
        parse_price(text)
