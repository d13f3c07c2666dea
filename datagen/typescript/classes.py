"""Rows that ask for a class: a store of records, a bounded number, a stack or a queue."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from string import Template

from datagen.json.domains import Domain, key_of
from datagen.typescript.case import DONE, UNDEFINED, Case, Checks, Raw, Throws, assertions, literal, pascal, plural


def fill(template: str, **names: object) -> str:
    """A template with its $names filled in, without the line breaks around it."""
    return Template(template).substitute(names).strip("\n")


STORE = """
interface $name {
  id: $kind;
  label: string;
}

class $cls {
  private readonly items = new Map<$kind, $name>();

  $add($item: $name): void {
    this.items.set($item.id, $item);
  }

  $find(id: $kind): $name | undefined {
    return this.items.get(id);
  }
$more}
"""
REMOVE = """
  remove(id: $kind): boolean {
    return this.items.delete(id);
  }
"""
SIZE = """
  get size(): number {
    return this.items.size;
  }
"""


def store(domain: Domain, rng: Random) -> Case:
    """A store of records with an id, over a Map."""
    name, item = pascal(domain), key_of(domain.noun, "camel")
    kind, first, second = rng.choice([("string", "a", "b"), ("number", 1, 2)])
    cls = name + rng.choice(["Store", "Registry"])
    add, find = rng.choice([("add", "get"), ("save", "find")])
    told = [f"`{add}({item})`", f"`{find}(id)`, which returns undefined for an unknown id"]
    checks: Checks = [(f"store.{find}({literal(first)})", {"id": first, "label": "x"})]
    checks.append((f"store.{find}({literal(second)})", UNDEFINED))
    more, left = "", 1
    if rng.random() < 0.5:
        more, left = more + Template(REMOVE).substitute(kind=kind), 0
        told.append("`remove(id)`, which tells whether there was one")
        checks += [(f"store.remove({literal(second)})", False), (f"store.remove({literal(first)})", True)]
    if rng.random() < 0.5:
        more += SIZE
        told.append("a getter `size`")
        checks.append(("store.size", left))
    output = fill(STORE, name=name, cls=cls, kind=kind, item=item, add=add, find=find, more=more)
    text = f"Declare an interface `{name}` with `id: {kind}` and `label: string`, and a class `{cls}` "
    text += f"that keeps {plural(domain.noun)} in a private Map: {', '.join(told)}."
    setup = [f"const store = new {cls}();", f'store.{add}({{ id: {literal(first)}, label: "x" }});']
    for kept in ({"id": second, "label": "y"}, {"id": first, "label": "z"}, {"id": second, "label": "v"}):
        checks.append((f"store.{add}({literal(kept)})", DONE))
        checks.append((f"store.{find}({literal(kept['id'])})", kept))
    if "getter `size`" in " ".join(told):
        checks += [("store.size", 2), (f"new {cls}().size", 0)]
    if "`remove(id)`" in " ".join(told):
        gone = [(f"store.remove({literal(second)})", answer) for answer in (True, False)]
        checks += [*gone, (f"store.{find}({literal(second)})", UNDEFINED)]
    return Case("classes", " | ".join([cls, kind, *told]), text, output, assertions(checks, setup))


COUNTER = """
class $cls {
  private $key = $start;

  $up(amount: number): void {
    $grow
  }

  $down(amount: number): void {
    $shrink
  }

  get value(): number {
    return this.$key;
  }
}
"""
STRICT = (
    'if (this.$key + amount > $top) throw new RangeError("too much");\n    this.$key += amount;',
    'if (amount > this.$key) throw new RangeError("too little left");\n    this.$key -= amount;',
)
BOUND = ("this.$key = Math.min($top, this.$key + amount);", "this.$key = Math.max(0, this.$key - amount);")


def counter(domain: Domain, rng: Random) -> Case:
    """A number that goes up and down between bounds, which stop it or throw."""
    key = key_of(rng.choice(domain.of("int", "num")).words, "camel")
    up, down = rng.choice([("add", "remove"), ("increase", "decrease"), ("fill", "drain")])
    start, top, strict = rng.randint(0, 20), rng.randint(60, 100), rng.random() < 0.5
    cls = pascal(domain) + rng.choice(["Counter", "Level"])
    grow, shrink = (fill(line, key=key, top=top) for line in (STRICT if strict else BOUND))
    output = fill(COUNTER, cls=cls, key=key, start=start, up=up, down=down, grow=grow, shrink=shrink)
    rule = f"the value stays within 0 and {top}"
    value = start + 23
    checks: Checks = [("it.value", value), (f"it.{up}(500)", DONE), ("it.value", top)]
    checks += [(f"it.{down}(500)", DONE), ("it.value", 0), (f"it.{up}({top - 1})", DONE), ("it.value", top - 1)]
    checks += [(f"it.{up}(2)", DONE), ("it.value", top), (f"it.{down}({top - 1})", DONE), ("it.value", 1)]
    if strict:
        rule = f"both throw a RangeError where the value would leave 0 to {top}"
        refused = Throws("RangeError")
        checks = [("it.value", value), (f"it.{up}(500)", refused), (f"it.{down}(500)", refused), ("it.value", value)]
        checks += [(f"it.{up}({top - value + 1})", refused), (f"it.{down}({value + 1})", refused), ("it.value", value)]
        checks += [(f"it.{up}({top - value})", DONE), ("it.value", top), (f"it.{up}(1)", refused), ("it.value", top)]
        checks += [(f"it.{down}({top})", DONE), ("it.value", 0), (f"it.{down}(1)", refused), ("it.value", 0)]
    checks.append((f"new {cls}().value", start))
    text = f"Write a TypeScript class `{cls}` with a private `{key}` that starts at {start}. "
    text += f"`{up}(amount)` and `{down}(amount)` change it, the getter `value` returns it; {rule}."
    setup = [f"const it = new {cls}();", f"it.{up}(30);", f"it.{down}(7);"]
    return Case("classes", " | ".join([cls, key, up, str(strict)]), text, output, assertions(checks, setup))


SEQUENCE = """
class $cls$generic {
  private readonly items: $item[] = [];

  $put(item: $item): void {
$guard    this.items.push(item);
  }

  $take(): $item | undefined {
    return this.items.$code();
  }

  peek(): $item | undefined {
    return this.items[$first];
  }

  get size(): number {
    return this.items.length;
  }
}
"""


def sequence(domain: Domain, rng: Random) -> Case:
    """A stack or a queue, generic or for one type, with or without a capacity."""
    generic, stack, limit = rng.random() < 0.5, rng.random() < 0.5, rng.choice([0, 0, 2, 3])
    base, put, take = ("Stack", "push", "pop") if stack else ("Queue", "enqueue", "dequeue")
    item = "T" if generic else rng.choice(["string", "number"])
    cls, angle = f"{pascal(domain)}{base}", "<T>" if generic else ""
    guard = f'    if (this.items.length === {limit}) throw new Error("full");\n' if limit else ""
    first = "this.items.length - 1" if stack else "0"
    code = "pop" if stack else "shift"
    output = fill(SEQUENCE, cls=cls, generic=angle, item=item, put=put, take=take, guard=guard, code=code, first=first)
    of = "a generic class" if generic else f"a class for {item} values"
    text = f"Write {of} `{cls}{angle}`"
    text += (
        f" that works as a {base.lower()}: `{put}`, `{take}`, `peek` (both undefined when empty) and a `size` getter."
    )
    text += f" `{put}` throws an Error when {limit} items are in it." if limit else ""
    values = [5, 8] if item == "number" or generic else ["a", "b"]
    made = f"{cls}<number>" if generic else cls
    setup = [f"const it = new {made}();", *(f"it.{put}({literal(value)});" for value in values)]
    out = values[::-1] if stack else values
    checks: Checks = [("it.size", 2), ("it.peek()", out[0]), (f"it.{take}()", out[0]), ("it.size", 1)]
    checks += [("it.peek()", out[1]), (f"it.{take}()", out[1]), (f"it.{take}()", UNDEFINED), ("it.peek()", UNDEFINED)]
    again = [literal(values[number % 2]) for number in range(limit or 5)]
    checks += [("it.size", 0), *((f"it.{put}({item})", DONE) for item in again), ("it.size", len(again))]
    if limit:
        checks += [(f"it.{put}({literal(values[0])})", Throws("Error")), ("it.size", limit)]
    left = again[::-1] if stack else again
    checks += [check for item in left for check in (("it.peek()", Raw(item)), (f"it.{take}()", Raw(item)))]
    return Case("classes", " | ".join([cls, item, str(limit)]), text, output, assertions(checks, setup))


CLASSES: list[Callable[[Domain, Random], Case]] = [store, counter, sequence]
