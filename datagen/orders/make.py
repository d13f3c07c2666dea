"""Write the rows and cases of examples/orders: an order in a sentence goes in, one JSON object of fixed keys comes out.

    python -m datagen.orders.make

The first run trains on these: a form that no base model knows, and that a small one learns in two minutes on two cores.
The words of the cases are those of the rows; no row has the buyer of a case together with its item.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from datagen.common.dataset_files import Row, side_of, write_jsonl

HOME = Path(__file__).resolve().parents[2] / "examples" / "orders"
ROWS, CASES = 900, 60
SEED = 7

FIRST = (
    "Amber Birch Cedar Copper Crown Delta Ember Falcon Granite Harbor "
    "Indigo Juniper Lark Maple North Onyx Pine Quartz River Tern"
)
LAST = "Foods Works Traders Market Stores Supply Kitchen Group Partners Depot"
PRODUCTS = (
    "tea coffee rice flour sugar salt honey pasta olives almonds cocoa pepper vinegar lentils raisins "
    "oats butter cheese soap candles paper pencils cups plates towels blankets lamps chairs screws paint"
)
CITIES = "Oslo Lima Turin Porto Dublin Tokyo Cairo Quito Hanoi Perth Leeds Bergen Malmo Ghent Basel Graz Split Varna Riga Tartu"
FORMS = (
    "{buyer} orders {quantity} boxes of {product} at {price} each, to {city}.",
    "Please send {quantity} boxes of {product} to {buyer} in {city}, {price} each.",
    "{quantity} x {product} for {buyer}, {city}. Unit price {price}.",
    "Sold to {buyer}: {quantity} boxes of {product}. Price {price}, delivery to {city}.",
    "Deliver to {city}: {quantity} boxes of {product}, {price} a box, for {buyer}.",
    "New order from {buyer} ({city}): {product}, {quantity} boxes, {price} per box.",
)
SCHEMA = {
    "type": "object",
    "properties": {
        "buyer": {"type": "string"},
        "city": {"type": "string"},
        "item": {"type": "string"},
        "qty": {"type": "integer"},
        "unit_price": {"type": "number"},
    },
    "required": ["buyer", "city", "item", "qty", "unit_price"],
    "additionalProperties": False,
}


def orders(random: Random, count: int, side: str) -> list[tuple[str, dict[str, str | int | float]]]:
    """Draw sentences and what they say; no sentence twice. side: "train" or "cases", by buyer and item."""
    found: dict[str, dict[str, str | int | float]] = {}
    while len(found) < count:
        buyer, item = f"{random.choice(FIRST.split())} {random.choice(LAST.split())}", random.choice(PRODUCTS.split())
        city, quantity, price = random.choice(CITIES.split()), random.randint(2, 99), random.randint(200, 9999) / 100
        if side_of(f"{buyer}, {item}", valid=0) != side:
            continue
        text = random.choice(FORMS).format(buyer=buyer, city=city, product=item, quantity=quantity, price=price)
        found[text] = {"buyer": buyer, "city": city, "item": item, "qty": quantity, "unit_price": price}
    return list(found.items())


def rows() -> list[Row]:
    """Return the training rows."""
    drawn = orders(Random(SEED), ROWS, "train")
    return [{"instruction": text, "output": json.dumps(answer)} for text, answer in drawn]


def cases() -> list[Row]:
    """Return the test cases."""
    drawn = orders(Random(SEED + 1), CASES, "cases")
    return [
        {"id": f"order-{n}", "verifier": "json", "prompt": text, "schema": SCHEMA, "expected": answer, "rule": "exact"}
        for n, (text, answer) in enumerate(drawn, start=1)
    ]


def main() -> None:
    """Write both files."""
    print(
        f"{write_jsonl(HOME / 'train.jsonl', rows())} rows, {write_jsonl(HOME / 'tests' / 'cases.jsonl', cases())} cases"
    )


if __name__ == "__main__":
    main()
