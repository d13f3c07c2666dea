"""Rows that ask for a function made of one to three steps over numbers or words, as one chain of calls."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from datagen.typescript.case import Case, Checks, assertions, declare, literal
from datagen.typescript.number_steps import number_steps
from datagen.typescript.operations import Operation
from datagen.typescript.word_steps import word_steps

STEPS: dict[str, Callable[[Random], list[Operation]]] = {
    "number[]": number_steps,
    "string[]": word_steps,
}
PARAMETERS = {"number[]": ["numbers", "values"], "string[]": ["words", "names"]}
ELEMENTS = {"number[]": "n", "string[]": "word"}
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
OPENINGS = [
    "Write a TypeScript function `{s}`. With `{p}` do the following: {w}.",
    "Write `{s}` in TypeScript: {w}.",
    "Implement `{s}`. Steps: {w}.",
]


def inputs(kind: str, rng: Random) -> list[Any]:
    """Two arguments of a type, and the empty one."""
    if kind == "number[]":
        return [[rng.randint(-20, 60) for _ in range(5)] + [4] * rng.randint(0, 2) for _ in range(2)] + [[]]
    return [rng.choices([*POOL, ""], k=5) for _ in range(2)] + [[]]


LARGEST = 2**53  # beyond it the two languages part: a number of TypeScript holds no larger integer exactly


def sharp_inputs(kind: str, steps: Sequence[Operation]) -> tuple[list[Any], list[Any]]:
    """Arguments that show a step that is slightly wrong: lists of one item, and a long one with twins, out of order.

    The items lie around the constants of the steps and where the outcome of an item turns from nothing to something.
    """
    code = " ".join(step.code for step in steps)
    numbers = sorted({int(text) for text in re.findall(r"\d+", code)})
    if kind == "number[]":
        span = [x for x in range(-40, 130) if _something(steps, x) != _something(steps, x + 1)]
        turns = dict.fromkeys([*span[:4], *span[-4:]])
        near = {x + step for x in numbers for step in (-1, 0, 1)} | {x + step for x in turns for step in (0, 1)}
        items: list[Any] = sorted(near | {-3, -2, 0, 1, 10, 101})
    else:
        letters = re.findall(r'"([a-z])"', code)
        near_words = {"abcdefgh"[: max(0, size + step)] for size in numbers for step in (-1, 0, 1)}
        with_letter = {
            form.format(c, c.upper()) for c in letters for form in ("{0}xy", "xy{0}", "{1}xy", "x{0}y{0}", "xyz")
        }
        items = sorted({"", "a", "Level", "Zoo", "noon"} | near_words | with_letter)
    rng = Random(zlib.crc32(f"{kind}{code}".encode()))
    long = rng.sample(items, len(items)) + rng.choices(items, k=3)
    while long and not _exact(steps, long):
        long.pop()
    return [[item] for item in items if _exact(steps, [item])], long


def _something(steps: Sequence[Operation], item: int) -> bool:
    return literal(apply(steps, [item])) != literal(apply(steps, []))


def _exact(steps: Sequence[Operation], value: Any) -> bool:
    outcome = apply(steps, value)
    return not isinstance(outcome, int) or abs(outcome) <= LARGEST


def apply(steps: Sequence[Operation], value: Any) -> Any:
    """What the steps mean, in Python."""
    for step in steps:
        value = step.meaning(value)
    return value


def plan(rng: Random) -> list[Operation]:
    """One to three steps that fit together, none of them twice."""
    kind, steps = rng.choice(["number[]", "string[]"]), list[Operation]()
    length = rng.choice([1, 2, 2, 2, 3])
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
    if not all(_exact(steps, value) for value in arguments):
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


def pipeline(rng: Random) -> Case | None:
    """One row, or None where a drawn step has no effect on the drawn arguments."""
    steps = plan(rng)
    takes, gives = steps[0].takes, steps[-1].gives
    arguments = inputs(takes, rng)
    if not matters(steps, arguments):
        return None
    parameter = rng.choice(PARAMETERS[takes])
    name = steps[0].name[0].lower() + steps[0].name[1:] + "".join(s.name[0].upper() + s.name[1:] for s in steps[1:])
    name = name if name not in ("set", "first") else f"{name}Of"
    words = [step.words for step in steps]
    told = words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, then {words[-1]}"
    head = f"({parameter}: {takes})"
    instruction = rng.choice(OPENINGS).format(s=f"{name}{head}: {gives}", p=parameter, w=told)
    single, long = sharp_inputs(takes, steps)
    checks: Checks = [(f"{name}({literal(value)})", apply(steps, value)) for value in [*arguments, long, long[::-1]]]
    checks.append((f"{literal(single)}.map((one) => {name}(one))", [apply(steps, value) for value in single]))
    group = re.sub(r"\d+|\"[^\"]*\"", "_", "+".join(sorted(step.words for step in steps)))
    output = declare(name, head, gives, as_chain(steps, parameter))
    return Case("pipeline", group, instruction, output, assertions(checks))
