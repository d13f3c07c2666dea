"""Small functions on objects, Maps, Sets and functions, generic wherever a type does not matter."""

from __future__ import annotations

from functools import reduce

from typescript_case import UNDEFINED, Raw, a_map, a_set
from typescript_utilities import Utility, lines

LENGTH = Raw("(word) => word.length", len)
FIRST = Raw("(word) => word[0]", lambda word: word[0])
TENFOLD = Raw("(n) => n * 10", lambda n: n * 10)
STEPS = Raw("[(n) => n + 1, (n) => n * 2]", [lambda n: n + 1, lambda n: n * 2])

OBJECTS = [
    Utility(
        "countBy|tally",
        "<T>(items: readonly T[], key: (item: T) => string)",
        "Record<string, number>",
        "counts the items for each key|returns how many items have each key",
        [
            lines(
                "const counts: Record<string, number> = {};",
                "for (const item of items) {",
                "  const name = key(item);",
                "  counts[name] = (counts[name] ?? 0) + 1;",
                "}",
                "return counts;",
            )
        ],
        [(["ape", "bee", "ant"], FIRST), ([], FIRST)],
        lambda v, key: {k: sum(key(w) == k for w in v) for k in dict.fromkeys(map(key, v))},
    ),
    Utility(
        "groupBy|groupInMap",
        "<T, K>(items: readonly T[], key: (item: T) => K)",
        "Map<K, T[]>",
        "groups items by key in a Map|returns a Map from each key to the items with that key",
        [
            lines(
                "const groups = new Map<K, T[]>();",
                "for (const item of items) {",
                "  const name = key(item);",
                "  groups.set(name, [...(groups.get(name) ?? []), item]);",
                "}",
                "return groups;",
            )
        ],
        [(["a", "bb", "c"], LENGTH), (["xyz"], LENGTH)],
        lambda v, key: a_map({n: [w for w in v if key(w) == n] for n in dict.fromkeys(map(key, v))}),
    ),
    Utility(
        "mapValues|transformValues",
        "<T, R>(object: Record<string, T>, change: (value: T) => R)",
        "Record<string, R>",
        "applies change to every value of an object and keeps the keys|"
        "returns an object with the same keys and changed values",
        ["Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]))"],
        [({"a": 1, "b": 5}, TENFOLD), ({"z": 0}, TENFOLD)],
        lambda o, change: {k: change(v) for k, v in o.items()},
    ),
    Utility(
        "invert|swapKeys",
        "(object: Record<string, string>)",
        "Record<string, string>",
        "swaps keys and values|returns an object from each value to its key",
        ["Object.fromEntries(Object.entries(object).map(([key, value]) => [value, key]))"],
        [({"a": "x", "b": "y"},), ({},)],
        lambda o: {v: k for k, v in o.items()},
    ),
    Utility(
        "pick|only",
        "<T extends object, K extends keyof T>(object: T, keys: readonly K[])",
        "Pick<T, K>",
        "returns an object with only the given keys|copies the listed keys of an object",
        [
            lines(
                "const result = {} as Pick<T, K>;",
                "for (const key of keys) result[key] = object[key];",
                "return result;",
            )
        ],
        [({"a": 1, "b": 2, "c": 3}, ["a", "c"]), ({"a": 1}, [])],
        lambda o, k: {x: o[x] for x in k},
    ),
    Utility(
        "omit|without",
        "<T extends object, K extends keyof T>(object: T, keys: readonly K[])",
        "Omit<T, K>",
        "returns a copy of an object without the given keys|drops the listed keys from a copy",
        [lines("const result = { ...object };", "for (const key of keys) delete result[key];", "return result;")],
        [({"a": 1, "b": 2, "c": 3}, ["a", "c"]), ({"a": 1}, [])],
        lambda o, k: {x: v for x, v in o.items() if x not in k},
    ),
    Utility(
        "toMap|entriesMap",
        "<T>(object: Record<string, T>)",
        "Map<string, T>",
        "turns an object into a Map|returns a Map with the entries of an object",
        ["new Map(Object.entries(object))"],
        [({"a": 1, "b": 2},), ({},)],
        a_map,
    ),
    Utility(
        "mergeCounts|addCounts",
        "(a: ReadonlyMap<string, number>, b: ReadonlyMap<string, number>)",
        "Map<string, number>",
        "adds the counts of two Maps|merges two Maps, adding the numbers of keys in both",
        [
            lines(
                "const result = new Map(a);",
                "for (const [key, count] of b) result.set(key, (result.get(key) ?? 0) + count);",
                "return result;",
            )
        ],
        [(a_map({"x": 1, "y": 2}), a_map({"y": 3, "z": 4}))],
        lambda a, b: a_map({k: a.get(k, 0) + b.get(k, 0) for k in {**a, **b}}),
    ),
    Utility(
        "intersection|common",
        "<T>(a: ReadonlySet<T>, b: ReadonlySet<T>)",
        "Set<T>",
        "returns the members that are in both sets|builds the set of items common to a and b",
        ["new Set([...a].filter((item) => b.has(item)))"],
        [(a_set([1, 2, 3]), a_set([2, 3, 4])), (a_set([1]), a_set([2]))],
        lambda a, b: a_set([x for x in a if x in b]),
    ),
    Utility(
        "difference|onlyInFirst",
        "<T>(a: ReadonlySet<T>, b: ReadonlySet<T>)",
        "Set<T>",
        "returns the members of a that are not in b|removes the items of b from a copy of a",
        ["new Set([...a].filter((item) => !b.has(item)))"],
        [(a_set([1, 2, 3]), a_set([2, 3, 4])), (a_set([1]), a_set([2]))],
        lambda a, b: a_set([x for x in a if x not in b]),
    ),
    Utility(
        "isSubset|containsAll",
        "<T>(part: ReadonlySet<T>, whole: ReadonlySet<T>)",
        "boolean",
        "tells whether every member of part is in whole|checks that part is a subset of whole",
        ["[...part].every((item) => whole.has(item))"],
        [(a_set([1]), a_set([1, 2])), (a_set([1, 9]), a_set([1, 2]))],
        lambda p, w: all(x in w for x in p),
    ),
    Utility(
        "sortEntries|rankCounts",
        "(counts: Record<string, number>)",
        "[string, number][]",
        "returns the entries sorted by number, largest first|"
        "lists key and number pairs in descending order of the number",
        ["Object.entries(counts).sort((a, b) => b[1] - a[1])"],
        [({"a": 1, "b": 5, "c": 3},), ({},)],
        lambda o: [[k, v] for k, v in sorted(o.items(), key=lambda e: -e[1])],
    ),
    Utility(
        "identityPair|duplicate",
        "<T>(value: T)",
        "[T, T]",
        "returns a tuple that holds value twice|pairs a value with itself",
        ["[value, value]"],
        [(1,), ("a",)],
        lambda x: [x, x],
    ),
    Utility(
        "applyAll|pipeValue",
        "<T>(value: T, steps: readonly ((value: T) => T)[])",
        "T",
        "passes value through all functions in order|applies each function to the result of the one before",
        ["steps.reduce((current, step) => step(current), value)"],
        [(3, STEPS), (10, STEPS), (5, Raw("[]", []))],
        lambda n, steps: reduce(lambda x, step: step(x), steps, n),
    ),
    Utility(
        "firstDefined|coalesce",
        "<T>(...values: (T | undefined)[])",
        "T | undefined",
        "returns the first argument that is not undefined|gives the first defined value, or undefined",
        ["values.find((value) => value !== undefined)"],
        [(UNDEFINED, 4, 5), (UNDEFINED,), (0, 1)],
        lambda *v: next((x for x in v if x is not UNDEFINED), UNDEFINED),
    ),
]
