"""Rows that ask for a discriminated union and a function over it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from datagen.json.domains import Domain, key_of
from datagen.typescript.case import Case, Checks, assertions, literal, pascal
from datagen.typescript.classes import fill

# Members of an event union: whether they carry a number, the new state in TypeScript, in words and in Python.
EVENTS: dict[str, tuple[bool, str, str, Callable[[int, int], int]]] = {
    "added": (True, "state + event.$key", "adds `$key` to the state", lambda state, n: state + n),
    "removed": (True, "state - event.$key", "subtracts `$key`", lambda state, n: state - n),
    "scaled": (True, "state * event.$key", "multiplies the state by `$key`", lambda state, n: state * n),
    "replaced": (True, "event.$key", "makes it `$key`", lambda _, n: n),
    "reset": (False, "0", "makes it 0", lambda *_: 0),
    "doubled": (False, "state * 2", "doubles it", lambda state, _: state * 2),
    "undone": (False, "state - 1", "lowers it by 1", lambda state, _: state - 1),
}
SHAPES: dict[str, tuple[list[str], str, Callable[..., float]]] = {
    "square": (["side"], "$it.side * $it.side", lambda a: a * a),
    "rectangle": (["width", "height"], "$it.width * $it.height", lambda a, b: a * b),
    "triangle": (["base", "height"], "($it.base * $it.height) / 2", lambda a, b: a * b / 2),
    "rhombus": (["p", "q"], "($it.p * $it.q) / 2", lambda a, b: a * b / 2),
    "trapezoid": (["a", "b", "height"], "(($it.a + $it.b) * $it.height) / 2", lambda a, b, h: (a + b) * h / 2),
    "parallelogram": (["base", "height"], "$it.base * $it.height", lambda a, b: a * b),
}


def events(domain: Domain, rng: Random) -> Case:
    """Events that change a number, applied in a switch."""
    noun, key = pascal(domain), key_of(rng.choice(domain.of("int", "num")).words, "camel")
    tag, names = "kind", rng.sample(list(EVENTS), 3)
    shapes = [f'{{ {tag}: "{n}"; {key}: number }}' if EVENTS[n][0] else f'{{ {tag}: "{n}" }}' for n in names]
    cases = "\n".join(f'    case "{n}":\n      return {fill(EVENTS[n][1], key=key)};' for n in names)
    name = f"apply{noun}Event"
    options = "\n".join(f"  | {shape}" for shape in shapes)
    head = f"{name}(state: number, event: {noun}Event): number"
    output = f"type {noun}Event =\n{options};\n\nfunction {head} {{\n  switch (event.{tag}) {{\n{cases}\n  }}\n}}"
    told = ", ".join(f"{n} {fill(EVENTS[n][2], key=key)}" for n in names)
    text = f"Define a discriminated union `{noun}Event` by `{tag}`: {', '.join(f'`{shape}`' for shape in shapes)}. "
    text += f"Write `{head}`: {told}."
    checks: Checks = []
    for state, amount in ((10, 4), (3, 9), (0, 5), (-2, 1)):
        for n in names:
            event = {tag: n, key: amount} if EVENTS[n][0] else {tag: n}
            checks.append((f"{name}({state}, {literal(event)})", EVENTS[n][3](state, amount)))
    return Case("unions", " | ".join([domain.noun, key, *sorted(names)]), text, output, assertions(checks))


def shapes(domain: Domain, rng: Random) -> Case:
    """Plane figures and their area."""
    del domain
    names = rng.sample(list(SHAPES), rng.choice([2, 3]))
    tag, (typed, it) = "kind", rng.choice([("Shape", "shape"), ("Figure", "figure"), ("Tile", "tile")])
    members = [f'{{ {tag}: "{n}"; {"; ".join(f"{p}: number" for p in SHAPES[n][0])} }}' for n in names]
    cases = "\n".join(f'    case "{n}":\n      return {fill(SHAPES[n][1], it=it)};' for n in names)
    name = rng.choice(["area", f"areaOf{typed}"])
    output = f"type {typed} =\n" + "\n".join(f"  | {member}" for member in members) + ";\n\n"
    output += f"function {name}({it}: {typed}): number {{\n  switch ({it}.{tag}) {{\n{cases}\n  }}\n}}"
    text = f"Declare the union type `{typed}` of {', '.join(f'`{member}`' for member in members)}. "
    text += f"Write `{name}({it}: {typed}): number`, which returns the area."
    checks: Checks = []
    for n in names:
        for sizes in ([rng.randint(2, 9) for _ in SHAPES[n][0]], [7, 4, 11][: len(SHAPES[n][0])]):
            value = {tag: n, **dict(zip(SHAPES[n][0], sizes, strict=True))}
            checks.append((f"{name}({literal(value)})", SHAPES[n][2](*sizes)))
    return Case("unions", f"shapes {'+'.join(sorted(names))}", text, output, assertions(checks))


UNIONS: list[Callable[[Domain, Random], Case]] = [events, shapes]
