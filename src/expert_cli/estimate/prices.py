"""What an hour of a machine costs: as --price says it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from expert_cli.errors import InputError

_CURRENCY = r"([$€£]|[A-Z]{3})?"
_WRITTEN = re.compile(rf"\s*{_CURRENCY}\s*(\d+(?:\.\d+)?)\s*{_CURRENCY}\s*(?i:/\s*h(?:our)?)?\s*")


@dataclass(frozen=True)
class Price:
    """A price an hour; `currency` as the user wrote it, a sign or a code, "" for none."""

    per_hour: float
    currency: str

    def cost(self, seconds: float) -> float:
        """Return what so many seconds cost."""
        return self.per_hour * seconds / 3600


def parse_price(text: str) -> Price:
    """Return the price that --price names: "2.50/h", "2.50", "$2.50/h", "2.50 EUR/h". Raises InputError."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise InputError(f"--price {text}: is not a price an hour", "write it like --price 2.50/h")
    return Price(float(match[2]), match[1] or match[3] or "")
