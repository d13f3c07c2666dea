"""Rows for well-known small functions, on plain values and generic, each with its meaning in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from typescript_case import Case, Checks, Raw, ask, assertions, declare, literal, pick_form


@dataclass(frozen=True)
class Utility:
    """A function: names and wordings parted by |, one or more bodies, arguments to try, the meaning in Python."""

    names: str
    head: str
    result: str
    words: str
    bodies: Sequence[str]
    arguments: Sequence[tuple[Any, ...]]
    meaning: Callable[..., Any]


def lines(*text: str) -> str:
    """Lines of a body."""
    return "\n".join(text)


def told(tool: Utility, args: Sequence[Any]) -> Any:
    """What the function means for these arguments."""
    return tool.meaning(*(arg.value if isinstance(arg, Raw) and arg.value is not None else arg for arg in args))


def utility(tools: Sequence[Utility], rng: Random) -> Case:
    """One row for one of the functions; a function is the group, so a held-out one is never seen."""
    tool = rng.choice(tools)
    name = rng.choice(tool.names.split("|"))
    form, wish = pick_form(rng)
    body = rng.choice(tool.bodies).replace("$name", name)
    if "for (" in body or "while (" in body:
        wish = wish or rng.choice(["", "", "Use a loop."])
    elif f"{name}(" in body:
        wish = wish or rng.choice(["", "Make it recursive."])
    checks: Checks = [
        (f"{name}({', '.join(literal(value) for value in args)})", told(tool, args)) for args in tool.arguments
    ]
    instruction = ask(f"{name}{tool.head}: {tool.result}", rng.choice(tool.words.split("|")), rng)
    if form == "arrow" and (("return " in body and tool.head.startswith("<")) or f"{name}(" in body):
        form, wish = "function", ""
    if rng.random() < 0.3:
        shown, value = rng.choice(checks)
        instruction += f" Example: `{shown}` gives `{literal(value)}`."
    instruction = f"{instruction} {wish}".strip()
    return Case(
        "utility",
        tool.names.split("|", maxsplit=1)[0],
        instruction,
        declare(name, tool.head, tool.result, body, form),
        assertions(checks),
    )
