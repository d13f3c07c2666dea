"""Rows that ask for a class, a discriminated union, an async function or a small state machine, with names that vary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from json_domains import Domain, key_of
from typescript_case import UNDEFINED, Case, Checks, Throws, a_map, literal, pascal, plural, test_of


def _code(*lines: str) -> str:
    return "\n".join(lines)


def _case(domain: Domain, family: str, instruction: str, output: str, setup: Sequence[str], checks: Checks, asynchronous: bool = False) -> Case:
    return Case(family, domain.noun, instruction, output, test_of(checks, setup, asynchronous))


def store(domain: Domain, rng: Random) -> Case:
    """A generic store of records with an id, over a Map."""
    name, item = pascal(domain), key_of(domain.noun, "camel")
    kind, sample = rng.choice([("string", '"a"'), ("number", "1")])
    other = '"b"' if kind == "string" else "2"
    cls = name + rng.choice(["Store", "Repository", "Registry"])
    add, find = rng.choice([("add", "get"), ("save", "find"), ("put", "read")])
    methods = [f"  {add}({item}: {name}): void {{", f"    this.items.set({item}.id, {item});", "  }", "", f"  {find}(id: {kind}): {name} | undefined {{", "    return this.items.get(id);", "  }"]
    told = [f"`{add}({item})`", f"`{find}(id)`, which returns undefined for an unknown id"]
    checks: Checks = [(f"store.{find}({sample})", {"id": Sample(sample), "label": "x"}), (f"store.{find}({other})", UNDEFINED)]
    if rng.random() < 0.5:
        methods += ["", f"  remove(id: {kind}): boolean {{", "    return this.items.delete(id);", "  }"]
        told.append("`remove(id)`, which tells whether there was one")
        checks += [(f"store.remove({other})", False), (f"store.remove({sample})", True)]
    if rng.random() < 0.5:
        methods += ["", "  get size(): number {", "    return this.items.size;", "  }"]
        told.append("a getter `size`")
        checks.append(("store.size", 0 if "`remove(id)`" in " ".join(told) else 1))
    output = _code(f"interface {name} {{", f"  id: {kind};", "  label: string;", "}", "", f"class {cls} {{", f"  private readonly items = new Map<{kind}, {name}>();", "", *methods, "}")
    instruction = f"Declare an interface `{name}` with `id: {kind}` and `label: string`, and " + rng.choice(["write a class", "a class", "implement the class"])
    instruction += f" `{cls}` that keeps {plural(domain.noun)} in a private Map: {', '.join(told)}."
    setup = [f"const store = new {cls}();", f'store.{add}({{ id: {sample}, label: "x" }});']
    return _case(domain, "classes", instruction, output, setup, [(a, _plain(b)) for a, b in checks])


class Sample(str):
    """A literal that already is TypeScript."""

    __slots__ = ()


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: (item.strip('"') if '"' in item else int(item)) if isinstance(item, Sample) else item for key, item in value.items()}
    return value


def counter(domain: Domain, rng: Random) -> Case:
    """A number that goes up and down between bounds."""
    word = rng.choice([field.words for field in domain.of("int", "num")])
    key = key_of(word, "camel")
    up, down = rng.choice([("add", "remove"), ("increase", "decrease"), ("deposit", "withdraw"), ("fill", "drain")])
    start, top = rng.randint(0, 20), rng.randint(60, 100)
    cls, strict = pascal(domain) + rng.choice(["Counter", "Level", "Account", "Tank"]), rng.random() < 0.5
    if strict:
        low = f'    if (amount > this.{key}) throw new RangeError("too little left");'
        high = f'    if (this.{key} + amount > {top}) throw new RangeError("too much");'
        rule = f"both throw a RangeError where the value would leave 0 to {top}"
        lines = [high, f"    this.{key} += amount;"], [low, f"    this.{key} -= amount;"]
    else:
        lines = [f"    this.{key} = Math.min({top}, this.{key} + amount);"], [f"    this.{key} = Math.max(0, this.{key} - amount);"]
        rule = f"the value stays within 0 and {top}"
    output = _code(f"class {cls} {{", f"  private {key} = {start};", "", f"  {up}(amount: number): void {{", *lines[0], "  }", "", f"  {down}(amount: number): void {{",
                   *lines[1], "  }", "", "  get value(): number {", f"    return this.{key};", "  }", "}")
    words = rng.choice(["Write a TypeScript class", "Implement a class", "Create the class"]) + f" `{cls}` with a private `{key}` that starts at {start}. "
    words += f"`{up}(amount)` and `{down}(amount)` change it, the getter `value` returns it; {rule}."
    setup = [f"const it = new {cls}();", f"it.{up}(30);", f"it.{down}(7);"]
    if strict:
        checks: Checks = [("it.value", start + 23), (f"it.{up}(500)", Throws()), (f"it.{down}(500)", Throws()), ("it.value", start + 23)]
    else:
        checks = [("it.value", start + 23), (f"(it.{up}(500), it.value)", top), (f"(it.{down}(500), it.value)", 0)]
    return _case(domain, "classes", words, output, setup, checks)


def sequence(domain: Domain, rng: Random) -> Case:
    """A stack or a queue, generic or for one type, with or without a capacity."""
    generic, stack = rng.random() < 0.5, rng.random() < 0.5
    limit = rng.choice([0, 0, 2, 3])
    base = "Stack" if stack else "Queue"
    item = "T" if generic else rng.choice(["string", "number"])
    cls = f"{pascal(domain)}{base}"
    put, take = ("push", "pop") if stack else ("enqueue", "dequeue")
    code = "this.items.pop()" if stack else "this.items.shift()"
    guard = [f'    if (this.items.length === {limit}) throw new Error("full");'] if limit else []
    peek = "this.items[this.items.length - 1]" if stack else "this.items[0]"
    output = _code(f"class {cls}{'<T>' if generic else ''} {{", f"  private readonly items: {item}[] = [];", "", f"  {put}(item: {item}): void {{", *guard, "    this.items.push(item);", "  }", "",
                   f"  {take}(): {item} | undefined {{", f"    return {code};", "  }", "", f"  peek(): {item} | undefined {{", f"    return {peek};", "  }", "",
                   "  get size(): number {", "    return this.items.length;", "  }", "}")
    of = "a generic class" if generic else f"a class for {item} values"
    words = rng.choice([f"Write {of} `{cls}{'<T>' if generic else ''}`", f"In TypeScript, implement {of} `{cls}{'<T>' if generic else ''}`"])
    words += f" that works as a {base.lower()}: `{put}`, `{take}`, `peek` (both undefined when empty) and a `size` getter."
    words += f' `{put}` throws an Error when {limit} items are in it.' if limit else ""
    values = [5, 8] if item == "number" or generic else ["a", "b"]
    made = f"{cls}<number>" if generic else cls
    setup = [f"const it = new {made}();", *(f"it.{put}({literal(v)});" for v in values)]
    first = values[-1] if stack else values[0]
    checks: Checks = [("it.size", 2), ("it.peek()", first), (f"it.{take}()", first), ("it.size", 1), (f"it.{take}()", values[0] if stack else values[1]), (f"it.{take}()", UNDEFINED)]
    if limit:
        fill = f"for (let i = 0; i < {limit}; i++) full.{put}({literal(values[0])});"
        setup += [f"const full = new {made}();", fill]
        checks.append((f"full.{put}({literal(values[0])})", Throws()))
    return _case(domain, "classes", words, output, setup, checks)


def events(domain: Domain, rng: Random) -> Case:
    """A discriminated union and the function that switches over it."""
    noun, key = pascal(domain), key_of(rng.choice(domain.of("int", "num")).words, "camel")
    tag = rng.choice(["kind", "type"])
    tags = rng.sample(["added", "removed", "reset", "doubled"], 3)
    parts = {"added": (f"{{ {tag}: \"added\"; {key}: number }}", f"state + event.{key}"), "removed": (f"{{ {tag}: \"removed\"; {key}: number }}", f"state - event.{key}"),
             "reset": (f"{{ {tag}: \"reset\" }}", "0"), "doubled": (f"{{ {tag}: \"doubled\" }}", "state * 2")}
    meaning: dict[str, Callable[[int, int], int]] = {"added": lambda s, n: s + n, "removed": lambda s, n: s - n, "reset": lambda _s, _n: 0, "doubled": lambda s, _n: s * 2}
    told = {"added": f"adds `{key}` to the state", "removed": f"subtracts `{key}`", "reset": "makes it 0", "doubled": "doubles it"}
    options = "\n".join(f"  | {parts[t][0]}" for t in tags)
    cases = "\n".join(f'    case "{t}":\n      return {parts[t][1]};' for t in tags)
    name = f"apply{noun}Event"
    output = f"type {noun}Event =\n{options};\n\nfunction {name}(state: number, event: {noun}Event): number {{\n  switch (event.{tag}) {{\n{cases}\n  }}\n}}"
    words = f"Define a discriminated union `{noun}Event` by `{tag}`: {', '.join(f'`{parts[t][0]}`' for t in tags)}. "
    words += rng.choice(["Then write", "Write", "Add"]) + f" `{name}(state: number, event: {noun}Event): number`: {', '.join(f'{t} {told[t]}' for t in tags)}."
    checks: Checks = []
    for state, amount in ((10, 4), (3, 9)):
        for t in tags:
            event = {tag: t, key: amount} if key in parts[t][0] else {tag: t}
            checks.append((f"{name}({state}, {literal(event)})", meaning[t](state, amount)))
    return _case(domain, "unions", words, output, [], checks)


def outcome(domain: Domain, rng: Random) -> Case:
    """A result union with success and failure."""
    noun, key = pascal(domain), key_of(rng.choice(domain.of("int", "num")).words, "camel")
    low, high = rng.randint(0, 5), rng.randint(50, 99)
    ok, value, error = rng.choice([("ok", "value", "error"), ("success", "data", "message")])
    alias, name = f"{noun}Result", f"parse{key[0].upper()}{key[1:]}"
    output = _code(f"type {alias} = {{ {ok}: true; {value}: number }} | {{ {ok}: false; {error}: string }};", "", f"function {name}(text: string): {alias} {{",
                   "  const number = Number(text);", f'  if (text.trim() === "" || Number.isNaN(number)) return {{ {ok}: false, {error}: "not a number" }};',
                   f'  if (number < {low} || number > {high}) return {{ {ok}: false, {error}: "out of range" }};', f"  return {{ {ok}: true, {value}: number }};", "}")
    words = f"Declare `type {alias} = {{ {ok}: true; {value}: number }} | {{ {ok}: false; {error}: string }}` and write `{name}(text: string): {alias}`. "
    words += rng.choice([f'Blank or non-numeric text fails with "not a number", a number outside {low} to {high} with "out of range".',
                         f'It fails with "not a number" for text that is blank or no number and with "out of range" below {low} or above {high}.'])
    checks: Checks = [(f'{name}("{high - 1}")', {ok: True, value: high - 1}), (f'{name}("x")', {ok: False, error: "not a number"}), (f'{name}(" ")', {ok: False, error: "not a number"}),
                      (f'{name}("{high + 1}")', {ok: False, error: "out of range"}), (f'{name}("{low - 1}")', {ok: False, error: "out of range"})]
    return _case(domain, "unions", words, output, [], checks)


def asynchronous(domain: Domain, rng: Random) -> Case:
    """An async function over a loader that is passed in."""
    noun, many = pascal(domain), key_of(plural(domain.noun), "camel")
    typed = "(id: number) => Promise<string>"
    setup = ["const load = async (id: number): Promise<string> => {", '  if (id < 0) throw new Error("missing");', "  return `item ${id}`;", "};"]
    forms: list[tuple[str, str, str, str, list[str], Checks]] = [
        (f"load{noun}s", f"(ids: number[], load: {typed})", "Promise<string[]>", "loads all ids at once with Promise.all and resolves to the results in order", ["return Promise.all(ids.map((id) => load(id)));"],
         [("await load_([3, 1, 2], load)", ["item 3", "item 1", "item 2"]), ("await load_([], load)", [])]),
        (f"load{noun}OrNull", f"(id: number, load: {typed})", "Promise<string | null>", "resolves to the loaded value, or to null when loading fails", ["try {", "  return await load(id);", "} catch {", "  return null;", "}"],
         [("await load_(4, load)", "item 4"), ("await load_(-1, load)", None)]),
        (f"load{noun}sInOrder", f"(ids: number[], load: {typed})", "Promise<string[]>", "loads one id after the other and resolves to the results", ["const results: string[] = [];", "for (const id of ids) results.push(await load(id));", "return results;"],
         [("await load_([2, 5], load)", ["item 2", "item 5"]), ("await load_([], load)", [])]),
        (f"load{noun}Map", f"(ids: number[], load: {typed})", "Promise<Map<number, string>>", "resolves to a Map from each id to its loaded value", ["const entries = await Promise.all(ids.map(async (id): Promise<[number, string]> => [id, await load(id)]));", "return new Map(entries);"],
         [("await load_([1, 2], load)", a_map({1: "item 1", 2: "item 2"})), ("await load_([], load)", a_map({}))]),
        (f"count{noun}Failures", f"(ids: number[], load: {typed})", "Promise<number>", "loads all ids with Promise.allSettled and resolves to the number of failures", ["const settled = await Promise.allSettled(ids.map((id) => load(id)));", 'return settled.filter((result) => result.status === "rejected").length;'],
         [("await load_([1, -1, -2], load)", 2), ("await load_([1], load)", 0)]),
        (f"first{noun}", f"(ids: number[], load: {typed})", "Promise<string | undefined>", "tries the ids in order and resolves to the first value that loads, undefined when none does", ["for (const id of ids) {", "  try {", "    return await load(id);", "  } catch {", "    continue;", "  }", "}", "return undefined;"],
         [("await load_([-1, 7, 8], load)", "item 7"), ("await load_([-1], load)", UNDEFINED)]),
        (f"load{noun}WithRetry", f"(id: number, load: {typed}, attempts: number)", "Promise<string>", "calls `load` up to `attempts` times and throws the last error when all fail",
         ["let last: unknown;", "for (let i = 0; i < attempts; i++) {", "  try {", "    return await load(id);", "  } catch (error) {", "    last = error;", "  }", "}", "throw last;"],
         [("await load_(2, load, 3)", "item 2"), ("await load_(9, async (id) => { if (++calls < 3) throw new Error(); return `try ${calls}`; }, 5)", "try 3"),
          ("await load_(-1, load, 2).catch(() => null)", None)]),
    ]  # fmt: skip
    name, head, result, words, body, checks = rng.choice(forms)
    parameter = rng.choice(["load", "fetchItem", "read"])
    lines = [line.replace("load(", f"{parameter}(") for line in body]
    head = head.replace("load:", f"{parameter}:")
    output = _code(f"async function {name}{head}: {result} {{", *(f"  {line}" for line in lines), "}")
    setup = [*(["let calls = 0;"] if "attempts" in head else []), *setup]
    ask_ = rng.choice([f"Write an async TypeScript function `{name}{head}: {result}` that {words}.", f"For {many}: implement `async {name}{head}: {result}`. It {words}.",
                       f"Implement `{name}` with async/await; it {words}. Signature: `{name}{head}: {result}`."])
    words_ = ask_.replace("`load`", f"`{parameter}`")
    return _case(domain, "async", words_, output, setup, [(a.replace("load_(", f"{name}("), b) for a, b in checks], asynchronous=True)


FORMS: list[Callable[[Domain, Random], Case]] = [store, counter, sequence, events, outcome, asynchronous, asynchronous]


def structured(domain: Domain, rng: Random) -> Case:
    """One row of the families."""
    return rng.choice(FORMS)(domain, rng)
