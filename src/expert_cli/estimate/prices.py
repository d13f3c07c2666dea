"""What an hour of a machine costs: said on the command line, or from a small dated table of rented GPUs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from expert_cli.errors import InputError

TABLE = Path(__file__).with_name("gpu_prices.json")
_CURRENCY = r"([$€£]|[A-Z]{3})?"
_WRITTEN = re.compile(rf"\s*{_CURRENCY}\s*(\d+(?:\.\d+)?)\s*{_CURRENCY}\s*(?i:/\s*h(?:our)?)?\s*")


@dataclass(frozen=True)
class Price:
    """A price an hour; `currency` as the user wrote it, a sign or a code, "" for none; `source` in words, with its date."""

    per_hour: float
    currency: str
    source: str

    def cost(self, seconds: float) -> float:
        """Return what so many seconds cost."""
        return self.per_hour * seconds / 3600


def parse_price(text: str) -> Price:
    """Return the price that --price names: "2.50/h", "2.50", "$2.50/h", "2.50 EUR/h". Raises InputError."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise InputError(f"--price {text}: is not a price an hour", "write it like --price 2.50/h")
    return Price(float(match[2]), match[1] or match[3] or "", "--price")


def rented(gpu: str) -> Price | None:
    """Return what the table says of a GPU by the driver's name for it, or None."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    found = next((row for row in table["prices"] if gpu in row["names"]), None)
    if found is None:
        return None
    source = f"rented: {found['provider']}, list price of {found['date']} ({found['source']})"
    return Price(float(found["per_hour"]), str(table["currency"]), source)
