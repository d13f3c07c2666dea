"""Rows that ask for a function made of one to three steps over numbers, words or a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from typescript_case import Case, Checks, assertions, declare, literal, pick_form
from typescript_number_steps import number_steps
from typescript_operations import Operation
from typescript_word_steps import text_steps, word_steps

STEPS: dict[str, Callable[[Random], list[Operation]]] = {
    "number[]": number_steps,
    "string[]": word_steps,
    "string": text_steps,
}
PARAMETERS = {
    "number[]": ["numbers", "values", "xs"],
    "string[]": ["words", "names", "items"],
    "string": ["text", "input", "s"],
}
ELEMENTS = {"number[]": "n", "string[]": "word", "string": "char"}
POOL = [
    "apple",
    "Banana",
    "cherry",
    "fig",
    "Grape",
    "date",
    "elderberry",
    "Lemon",
    "mango",
    "nectarine",
    "olive",
    "peach",
    "Quince",
    "plum",
    "tangerine",
    "level",
    "noon",
    "radar",
    "Stats",
    "civic",
    "melon",
    "carrot",
    "bean",
    "Apple",
    "pear",
    "kiwi",
    "banana",
    "spade",
    "cat",
    "letter",
]
TEXTS = [
    "Hello, World 2024",
    "  the quick  brown fox ",
    "a,b,,c",
    "TypeScript is fun",
    "never odd or even",
    "room 101, floor 3",
    "Rain,Snow,Sun 7",
    "one two  three",
    "Anna and Otto",
    "x1y22z333",
    "Tea for two",
    "sense and NONSENSE",
    "42 is the answer",
]
OPENINGS = [
    "Write a TypeScript function `{s}`. With `{p}` do the following: {w}.",
    "Write `{s}` in TypeScript: {w}.",
    "Implement `{s}`. Steps: {w}.",
    "Create a TypeScript function `{n}` that takes `{p}: {t}` and returns `{r}`. It should {w}.",
    "Given `{p}: {t}`, {w}. Put this into a TypeScript function `{n}` with result type `{r}`.",
    "In TypeScript, write a function `{n}({p}: {t}): {r}` to {w}.",
    "`{s}` should {w}. Write it.",
]


def inputs(kind: str, rng: Random) -> list[Any]:
    """Three arguments of a type, and the empty one."""
    if kind == "number[]":
        return [
            [rng.randint(-20, 60) for _ in range(rng.randint(5, 8))] + [4] * rng.randint(0, 2) for _ in range(3)
        ] + [[]]
    if kind == "string[]":
        return [rng.choices([*POOL, ""], k=rng.randint(4, 6)) for _ in range(3)] + [[]]
    return [*rng.sample(TEXTS, 3), ""]


def apply(steps: Sequence[Operation], value: Any) -> Any:
    """What the steps mean, in Python."""
    for step in steps:
        value = step.meaning(value)
    return value


def plan(rng: Random) -> list[Operation]:
    """One to three steps that fit together, none of them twice."""
    kind, steps = rng.choice(["number[]", "number[]", "number[]", "string[]", "string[]", "string"]), list[Operation]()
    length = rng.choice([1, 2, 2, 2, 3, 3])
    while len(steps) < length and kind in STEPS and not (steps and steps[-1].sort == "end"):
        last = len(steps) == length - 1
        options = [step for step in STEPS[kind](rng) if last or step.sort != "end"]
        step = rng.choice([step for step in options if step.sort == "end"] if last and rng.random() < 0.5 else options)
        if step.name in [other.name for other in steps]:
            continue
        steps.append(step)
        kind = step.gives
    return steps


def matters(steps: Sequence[Operation], arguments: Sequence[Any]) -> bool:
    """Whether leaving out any step that can be left out changes the outcome, and arguments that are not empty differ.

    Outcomes beyond the integers that a number holds exactly count as not mattering: the two languages part there.
    """
    outcomes = [apply(steps, value) for value in arguments]
    if any(isinstance(outcome, int) and abs(outcome) > 2**53 for outcome in outcomes):
        return False
    for i, step in enumerate(steps):
        others = [*steps[:i], *steps[i + 1 :]]
        if step.takes != step.gives:
            continue
        if all(literal(apply(others, value)) == literal(apply(steps, value)) for value in arguments):
            return False
    return len({literal(outcome) for outcome in outcomes[:-1]}) > 1


def suffix(step: Operation, source: str) -> str:
    """The code of a step on the value that `source` names."""
    variable = ELEMENTS[step.takes]
    code = (
        step.code.replace("@", variable).replace("#", source)
        if step.sort in ("whole", "end")
        else step.code.replace("@", variable)
    )
    if step.sort in ("keep", "each"):
        return f"{source}.{'filter' if step.sort == 'keep' else 'map'}(({variable}) => {code})"
    return code


def as_chain(steps: Sequence[Operation], parameter: str) -> str:
    """All steps in one expression."""
    value = parameter
    for step in steps:
        value = suffix(step, value)
    return value


def as_constants(steps: Sequence[Operation], parameter: str) -> str:
    """Every step but the last bound to a const of its name."""
    lines, value = [], parameter
    for step in steps[:-1]:
        name = step.name if step.name not in (parameter, "text") else f"{step.name}Values"
        lines.append(f"const {name} = {suffix(step, value)};")
        value = name
    return "\n".join([*lines, f"return {suffix(steps[-1], value)};"])


def as_loop(steps: Sequence[Operation], parameter: str) -> str | None:
    """One pass over the elements; None where the steps need more than that."""
    if (steps[-1].sort == "end" and steps[-1].loop is None) or any(
        step.sort not in ("keep", "each") for step in steps[:-1]
    ):
        return None
    if steps[-1].sort == "whole":
        return None
    current = ELEMENTS[steps[0].takes]
    lines = [f"for (const {current} of {parameter}) {{"]
    for number, step in enumerate(steps):
        if step.sort == "keep":
            lines.append(f"  if (!({step.code.replace('@', current)})) continue;")
        elif step.sort == "each":
            name = "changed" if number == 0 else f"changed{number + 1}"
            lines.append(f"  const {name} = {step.code.replace('@', current)};")
            current = name
    fold = steps[-1].loop
    if fold is None:
        return "\n".join(
            [f"const result: {steps[-1].gives} = [];", *lines, f"  result.push({current});", "}", "return result;"]
        )
    start, update = fold
    return "\n".join(
        [f"let result = {start};", *lines, f"  result {update.replace('@', current)};", "}", "return result;"]
    )


def body_of(steps: Sequence[Operation], parameter: str, rng: Random) -> tuple[str, str]:
    """A body in one of three styles, and the wish that goes with it."""
    chain, loop = as_chain(steps, parameter), as_loop(steps, parameter)
    # A step that reads its input twice must not repeat what came before it.
    if any(step.code.count("#") > 1 for step in steps[1:]):
        return as_constants(steps, parameter), ""
    if loop is not None and rng.random() < 0.35:
        return loop, rng.choice(["Use a for...of loop.", "Do it in one loop.", "Use a plain loop, no array methods."])
    if len(steps) > 1 and (rng.random() < 0.4 or len(chain) > 110):
        return as_constants(steps, parameter), rng.choice(["", "Name the intermediate results."])
    return chain, ""


def pipeline(rng: Random) -> Case | None:
    """One row, or None where a drawn step has no effect on the drawn arguments."""
    steps = plan(rng)
    takes, gives = steps[0].takes, steps[-1].gives
    arguments = inputs(takes, rng)
    if not matters(steps, arguments):
        return None
    parameter = rng.choice(PARAMETERS[takes])
    name = steps[0].name[0].lower() + steps[0].name[1:] + "".join(s.name[0].upper() + s.name[1:] for s in steps[1:])
    name = name if name not in ("with", "set", "text", "first") else f"{name}Of"
    name = rng.choice([name, name, f"get{name[0].upper()}{name[1:]}"])
    read_only = takes.endswith("[]") and gives != takes and rng.random() < 0.3
    typed = f"readonly {takes}" if read_only else takes
    words = [rng.choice(step.words.split("|")) for step in steps]
    told = words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, then {words[-1]}"
    body, style = body_of(steps, parameter, rng)
    form, wish = pick_form(rng)
    head = f"({parameter}: {typed})"
    opening = rng.choice(OPENINGS).format(s=f"{name}{head}: {gives}", n=name, p=parameter, t=typed, r=gives, w=told)
    instruction = " ".join(
        part for part in (opening[0].upper() + opening[1:] if opening[0] != "`" else opening, style, wish) if part
    )
    checks: Checks = [(f"{name}({literal(value)})", apply(steps, value)) for value in arguments]
    group = re.sub(r"\d+|\"[^\"]*\"", "_", "+".join(sorted(step.words for step in steps)))
    return Case("pipeline", group, instruction, declare(name, head, gives, body, form), assertions(checks))
