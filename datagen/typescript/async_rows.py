"""Rows that ask for an async function over a loader that is passed in."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from datagen.json.domains import Domain, key_of
from datagen.typescript.case import UNDEFINED, Case, Checks, a_map, assertions, pascal, plural
from datagen.typescript.classes import fill


@dataclass(frozen=True)
class Task:
    """An async function: $One and $Many in its name stand for the noun, @ in the checks for its name."""

    name: str
    parameters: str
    result: str
    words: str
    body: str
    checks: Checks


TASKS = [
    Task("load$Many", "ids: number[], load: LOAD", "Promise<string[]>",
         "loads all ids at once with Promise.all and resolves to the results in order",
         "  return Promise.all(ids.map((id) => load(id)));",
         [("await @([3, 1, 2], load)", ["item 3", "item 1", "item 2"]), ("most", 3), ("await @([], load)", [])]),
    Task("load${One}OrNull", "id: number, load: LOAD", "Promise<string | null>",
         "resolves to the loaded value, or to null when loading fails",
         "  try {\n    return await load(id);\n  } catch {\n    return null;\n  }",
         [("await @(4, load)", "item 4"), ("await @(-1, load)", None), ("await @(0, load)", "item 0")]),
    Task("load${One}Or", "id: number, load: LOAD, fallback: string", "Promise<string>",
         "resolves to the loaded value, or to `fallback` when loading fails",
         "  return load(id).catch(() => fallback);",
         [('await @(4, load, "none")', "item 4"), ('await @(-1, load, "none")', "none"), ('await @(-2, load, "")', "")]),
    Task("load${Many}InOrder", "ids: number[], load: LOAD", "Promise<string[]>",
         "loads one id after the other and resolves to the results",
         "  const results: string[] = [];\n  for (const id of ids) results.push(await load(id));\n  return results;",
         [("await @([5, 2, 7], load)", ["item 5", "item 2", "item 7"]), ("most", 1), ("calls", [5, 2, 7]),
          ("await @([], load)", [])]),
    Task("load${One}Map", "ids: number[], load: LOAD", "Promise<Map<number, string>>",
         "resolves to a Map from each id to its loaded value",
         "  const result = new Map<number, string>();\n  for (const id of ids) result.set(id, await load(id));\n"
         "  return result;",
         [("await @([2, 1], load)", a_map({2: "item 2", 1: "item 1"})), ("await @([], load)", a_map({}))]),
    Task("count${One}Failures", "ids: number[], load: LOAD", "Promise<number>",
         "loads all ids with Promise.allSettled and resolves to the number of failures",
         "  const settled = await Promise.allSettled(ids.map((id) => load(id)));\n"
         '  return settled.filter((result) => result.status === "rejected").length;',
         [("await @([1, -1, -2], load)", 2), ("await @([1], load)", 0), ("await @([-1], load)", 1), ("await @([], load)", 0)]),
    Task("loaded$Many", "ids: number[], load: LOAD", "Promise<string[]>",
         "loads all ids with Promise.allSettled and resolves to the values of those that succeed",
         "  const settled = await Promise.allSettled(ids.map((id) => load(id)));\n"
         '  return settled.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));',
         [("await @([3, -1, 2], load)", ["item 3", "item 2"]), ("await @([-1], load)", []), ("await @([], load)", [])]),
    Task("first$One", "ids: number[], load: LOAD", "Promise<string | undefined>",
         "tries the ids in order and resolves to the first value that loads, undefined when none does",
         "  for (const id of ids) {\n    try {\n      return await load(id);\n    } catch {\n      continue;\n    }\n  }\n"
         "  return undefined;",
         [("await @([-1, 7, 8], load)", "item 7"), ("await @([8, 7], load)", "item 8"), ("await @([-1], load)", UNDEFINED),
          ("await @([], load)", UNDEFINED)]),
    Task("total${One}Length", "ids: number[], load: LOAD", "Promise<number>",
         "loads all ids and resolves to the total length of the loaded strings",
         "  const texts = await Promise.all(ids.map((id) => load(id)));\n"
         "  return texts.reduce((sum, text) => sum + text.length, 0);",
         [("await @([1, 22, 333], load)", 21), ("await @([5], load)", 6), ("await @([], load)", 0)]),
    Task("load${One}WithRetry", "id: number, load: LOAD, attempts: number", "Promise<string>",
         "calls `load` up to `attempts` times and throws the last error when all fail",
         "  let last: unknown;\n  for (let i = 0; i < attempts; i++) {\n    try {\n      return await load(id);\n"
         "    } catch (error) {\n      last = error;\n    }\n  }\n  throw last;",
         [("await @(2, load, 3)", "item 2"), ("calls", [2]), ("await @(9, flaky, 5)", "try 3"), ("tries", 3),
          ("await @(-1, load, 2).catch(() => null)", None), ("calls", [2, -1, -1]),
          ("await @(9, failing, 3).catch((error) => error.message)", "busy 6"), ("tries", 6),
          ("await @(9, flaky, 1)", "try 7"), ("tries", 7)]),
]  # fmt: skip
LOADER = [
    "const calls: number[] = [];",
    "let running = 0;",
    "let most = 0;",
    "const load = async (id: number): Promise<string> => {",
    "  calls.push(id);",
    "  most = Math.max(most, ++running);",
    "  await Promise.resolve();",
    "  running -= 1;",
    '  if (id < 0) throw new Error("missing");',
    "  return `item ${id}`;",
    "};",
]
FLAKY = [
    "let tries = 0;",
    "const flaky = async (): Promise<string> => {",
    '  if (++tries < 3) throw new Error("busy");',
    "  return `try ${tries}`;",
    "};",
    "const failing = async (): Promise<string> => {",
    "  throw new Error(`busy ${++tries}`);",
    "};",
]


def asynchronous(domain: Domain, rng: Random) -> Case:
    """One row; the loader's name varies."""
    task, loader = rng.choice(TASKS), rng.choice(["load", "fetchItem"])
    name = fill(task.name, One=pascal(domain), Many=key_of(plural(domain.noun), "pascal"))
    parameters = task.parameters.replace("load: LOAD", f"{loader}: (id: number) => Promise<string>")
    body, words = task.body.replace("load(", f"{loader}("), task.words.replace("`load`", f"`{loader}`")
    head = f"{name}({parameters}): {task.result}"
    text = rng.choice([
        f"Write an async TypeScript function `{head}` that {words}.",
        f"Implement `async {head}`. It {words}.",
    ])  # fmt: skip
    setup = [*LOADER, *(FLAKY if "attempts" in parameters else [])]
    checks: Checks = [(code.replace("@", name), value) for code, value in task.checks]
    output = f"async function {head} {{\n{body}\n}}"
    return Case("async", name, text, output, assertions(checks, setup))
