"""What `train --plan` found, on a terminal."""

from __future__ import annotations

from typing import Any

from expert_cli.console import Console
from expert_cli.typesetting import duration

WORDS = {
    "base_weights": "base weights, as stored",
    "dequantised_copy": "unpacked copy of 4-bit weights",
    "adapter": "adapter, fp32",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activations",
    "head_chunk": "head and loss",
    "backward": "backward pass, beyond the head's",
    "heap": "holes in the heap (glibc)",
    "process": "Python process",
}


def show_outlook(console: Console, found: dict[str, Any], *, device: str) -> None:
    """Write three tables: what the run needs, its memory by component, other cards. `found`: `Outlook.as_json()`."""
    memory = found["vram_mb"]
    console.table("what this run will need", ["", "estimate", "how far off", "from"], _needs(found, device))
    rows = [[_named(name, device), f"{memory[name]:,.0f} MB"] for name in WORDS if memory[name] > 0]
    console.table("memory by component (formula)", ["component", "size"], rows)
    console.table("on other cards", ["card", "", "needs", "setting"], [_card(card) for card in found["cards"]])
    for line in found["advice"]:
        console.text(line)


def _needs(found: dict[str, Any], device: str) -> list[list[str]]:
    exact, error = "exact", f"± {found['seconds_error_pct']:.0f} %"
    store = f"the token store ({found['store']['status']})"
    price = found["price"]
    rows = [
        ["steps", f"{found['steps']:,}", exact, store],
        ["epochs", f"{found['epochs']:.2f}", exact, store],
        ["tokens", f"{found['tokens_total']:,} ({found['tokens_per_step']:,.0f} a step)", exact, store],
        [
            "GPU memory" if device == "cuda" else "memory",
            f"{found['vram_mb']['total'] / 1024:.1f} GB",
            f"± {found['vram_mb']['error_pct']:.0f} %",
            found["memory_source"],
        ],
        [
            "time",
            f"{duration(found['seconds'])} ({found['tokens_per_s']:,.0f} tokens/s)",
            error,
            found["seconds_source"],
        ],
    ]
    if price is None:
        return [*rows, ["cost", "not known", "", "no price for this machine: --price 2.50/h"]]
    a_price, cost = (_money(amount, price["currency"]) for amount in (price["per_hour"], found["cost"]))
    return [*rows, ["cost", cost, error, f"{a_price} an hour ({price['source']}) x time"]]


def _money(amount: float, currency: str) -> str:
    """Return an amount with the sign before it, or the code behind it."""
    return f"{amount:.2f} {currency}".strip() if currency.isalpha() else f"{currency}{amount:.2f}"


def _named(name: str, device: str) -> str:
    return "CUDA context (assumed)" if name == "process" and device == "cuda" else WORDS[name]


def _card(card: dict[str, Any]) -> list[str]:
    settings = card["settings"]
    how = "as it is" if card["fits"] else "fits with " + ", ".join(settings) if settings else "no setting here helps"
    return [f"{card['gb']} GB", "fits" if card["fits"] else "too small", f"{card['needs_mb'] / 1024:.1f} GB", how]
