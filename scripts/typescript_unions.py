"""Rows that ask for a discriminated union and a function over it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from json_domains import Domain, key_of
from typescript_case import Case, Checks, assertions, literal, pascal
from typescript_classes import fill

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
    tag, names = rng.choice(["kind", "type"]), rng.sample(list(EVENTS), 3)
    shapes = [f'{{ {tag}: "{n}"; {key}: number }}' if EVENTS[n][0] else f'{{ {tag}: "{n}" }}' for n in names]
    cases = "\n".join(f'    case "{n}":\n      return {fill(EVENTS[n][1], key=key)};' for n in names)
    name = f"apply{noun}Event"
    options = "\n".join(f"  | {shape}" for shape in shapes)
    head = f"{name}(state: number, event: {noun}Event): number"
    output = f"type {noun}Event =\n{options};\n\nfunction {head} {{\n  switch (event.{tag}) {{\n{cases}\n  }}\n}}"
    told = ", ".join(f"{n} {fill(EVENTS[n][2], key=key)}" for n in names)
    text = f"Define a discriminated union `{noun}Event` by `{tag}`: {', '.join(f'`{shape}`' for shape in shapes)}. "
    text += f"{rng.choice(['Then write', 'Write', 'Add'])} `{head}`: {told}."
    checks: Checks = []
    for state, amount in ((10, 4), (3, 9)):
        for n in names:
            event = {tag: n, key: amount} if EVENTS[n][0] else {tag: n}
            checks.append((f"{name}({state}, {literal(event)})", EVENTS[n][3](state, amount)))
    return Case("unions", domain.noun, text, output, assertions(checks))


def shapes(domain: Domain, rng: Random) -> Case:
    """Plane figures and their area."""
    del domain
    tag, names = rng.choice(["kind", "type", "shape"]), rng.sample(list(SHAPES), rng.choice([2, 3]))
    typed, it = rng.choice([("Shape", "shape"), ("Figure", "figure"), ("Tile", "tile")])
    it = "item" if it == tag else it
    members = [f'{{ {tag}: "{n}"; {"; ".join(f"{p}: number" for p in SHAPES[n][0])} }}' for n in names]
    cases = "\n".join(f'    case "{n}":\n      return {fill(SHAPES[n][1], it=it)};' for n in names)
    name = rng.choice(["area", f"areaOf{typed}", f"get{typed}Area"])
    output = f"type {typed} =\n" + "\n".join(f"  | {member}" for member in members) + ";\n\n"
    output += f"function {name}({it}: {typed}): number {{\n  switch ({it}.{tag}) {{\n{cases}\n  }}\n}}"
    text = f"Declare the union type `{typed}` of {', '.join(f'`{member}`' for member in members)}. "
    text += rng.choice(["Write", "Add", "Then implement"]) + f" `{name}({it}: {typed}): number`, "
    text += rng.choice(
        ["which returns the area.", "the area of each, in a switch.", f"a switch over `{tag}` that returns the area."]
    )
    checks: Checks = []
    for n in names:
        sizes = [rng.randint(2, 9) for _ in SHAPES[n][0]]
        value = {tag: n, **dict(zip(SHAPES[n][0], sizes, strict=True))}
        checks.append((f"{name}({literal(value)})", SHAPES[n][2](*sizes)))
    return Case("unions", f"shapes {'+'.join(sorted(names))}", text, output, assertions(checks))


PARSED = """
type $alias = { $ok: true; $value: number } | { $ok: false; $error: string };

function $name(text: string): $alias {
  const number = Number(text);
  if (text.trim() === "" || Number.isNaN(number)) return { $ok: false, $error: "not a number" };
  if (number < $low || number > $high) return { $ok: false, $error: "out of range" };
  return { $ok: true, $value: number };
}
"""


def outcome(domain: Domain, rng: Random) -> Case:
    """A result that is a success or a failure."""
    key, alias = key_of(rng.choice(domain.of("int", "num")).words, "pascal"), f"{pascal(domain)}Result"
    low, high = rng.randint(0, 5), rng.randint(50, 99)
    ok, value, error = rng.choice([("ok", "value", "error"), ("success", "data", "message")])
    name = f"parse{key}"
    output = fill(PARSED, alias=alias, name=name, ok=ok, value=value, error=error, low=low, high=high)
    text = f"Declare `{output.splitlines()[0].rstrip(';')}` and write `{name}(text: string): {alias}`. "
    text += rng.choice([
        f'Blank or non-numeric text fails with "not a number", a number outside {low} to {high} with "out of range".',
        f'It fails with "not a number" for blank or non-numeric text and with "out of range" below {low} or above {high}.',
    ])  # fmt: skip
    bad = {"x": "not a number", " ": "not a number", str(high + 1): "out of range", str(low - 1): "out of range"}
    checks: Checks = [(f'{name}("{high - 1}")', {ok: True, value: high - 1})]
    checks += [(f"{name}({literal(argument)})", {ok: False, error: reason}) for argument, reason in bad.items()]
    return Case("unions", domain.noun, text, output, assertions(checks))


UNIONS: list[Callable[[Domain, Random], Case]] = [events, outcome, shapes]
