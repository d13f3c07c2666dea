"""Small functions on arrays, generic wherever the element type does not matter."""

from __future__ import annotations

from itertools import groupby, takewhile
from typing import Any

from typescript_case import UNDEFINED, Raw
from typescript_utilities import Utility, lines

A: list[Any] = [1, 2, 3, 4, 5, 6, 7]
LENGTH = Raw("(word) => word.length", len)
FIRST = Raw("(word) => word[0]", lambda word: word[0])
TENFOLD = Raw("(n) => n * 10", lambda n: n * 10)
STEPS = Raw("[(n) => n + 1, (n) => n * 2]", [lambda n: n + 1, lambda n: n * 2])
ODD = Raw("(n) => n % 2 === 1", lambda n: n % 2 == 1)


ARRAYS = [
    Utility(
        "chunk|inGroups",
        "<T>(items: readonly T[], size: number)",
        "T[][]",
        "splits items into arrays of size elements, the last one perhaps shorter|"
        "cuts an array into chunks of the given size",
        [
            lines(
                "const chunks: T[][] = [];",
                "for (let i = 0; i < items.length; i += size) chunks.push(items.slice(i, i + size));",
                "return chunks;",
            )
        ],
        [(A, 3), ([1, 2], 5), ([], 2)],
        lambda v, n: [v[i : i + n] for i in range(0, len(v), n)],
    ),
    Utility(
        "unique|distinct",
        "<T>(items: readonly T[])",
        "T[]",
        "returns the items without duplicates, in order of first occurrence|removes repeated items",
        ["[...new Set(items)]", "items.filter((item, i) => items.indexOf(item) === i)"],
        [([1, 2, 1, 3, 2],), (["a", "a"],), ([],)],
        lambda v: list(dict.fromkeys(v)),
    ),
    Utility(
        "zip|pairUp",
        "<A, B>(left: readonly A[], right: readonly B[])",
        "[A, B][]",
        "pairs the elements of two arrays by index up to the shorter length|zips two arrays into an array of tuples",
        ["left.slice(0, right.length).map((item, i): [A, B] => [item, right[i]])"],
        [([1, 2, 3], ["a", "b", "c"]), ([1, 2], ["x"]), ([], [1])],
        lambda a, b: [list(p) for p in zip(a, b, strict=False)],
    ),
    Utility(
        "compact|dropMissing",
        "<T>(items: readonly (T | null | undefined)[])",
        "T[]",
        "removes null and undefined and narrows the element type|keeps the items that are neither null nor undefined",
        ["items.filter((item): item is T => item !== null && item !== undefined)"],
        [([1, None, 2, UNDEFINED, 0],), (["", None],), ([],)],
        lambda v: [x for x in v if x is not None and x is not UNDEFINED],
    ),
    Utility(
        "last|lastOf",
        "<T>(items: readonly T[])",
        "T | undefined",
        "returns the last item, undefined for an empty array|gives the final element or undefined",
        ["items[items.length - 1]", "items.at(-1)"],
        [([1, 2, 3],), (["a"],), ([],)],
        lambda v: v[-1] if v else UNDEFINED,
    ),
    Utility(
        "range|numbersFrom",
        "(start: number, end: number)",
        "number[]",
        "returns the integers from start up to but not including end|lists start, start + 1, ... below end",
        [
            "Array.from({ length: Math.max(0, end - start) }, (_, i) => start + i)",
            lines(
                "const result: number[] = [];", "for (let n = start; n < end; n++) result.push(n);", "return result;"
            ),
        ],
        [(0, 4), (3, 5), (5, 5), (7, 2)],
        lambda a, b: list(range(a, b)),
    ),
    Utility(
        "rotateLeft|rotate",
        "<T>(items: readonly T[], count: number)",
        "T[]",
        "moves the first count items to the end, count being at most the length|"
        "rotates an array to the left by count places (0 to its length)",
        ["[...items.slice(count), ...items.slice(0, count)]"],
        [(A, 2), ([1, 2], 0), ([1, 2], 2)],
        lambda v, n: v[n:] + v[:n],
    ),
    Utility(
        "flatten|flattenOnce",
        "<T>(groups: readonly (readonly T[])[])",
        "T[]",
        "joins an array of arrays into one array|flattens one level",
        [
            "groups.flatMap((group) => [...group])",
            lines("const result: T[] = [];", "for (const group of groups) result.push(...group);", "return result;"),
        ],
        [([[1], [2, 3], []],), ([],), ([["a"]],)],
        lambda v: [x for g in v for x in g],
    ),
    Utility(
        "interleave|alternate",
        "<T>(a: readonly T[], b: readonly T[])",
        "T[]",
        "alternates the items of two arrays of equal length, starting with a|"
        "merges a and b item by item; both have the same length",
        ["a.flatMap((item, i) => [item, b[i]])"],
        [([1, 3], [2, 4]), (["a"], ["b"]), ([], [])],
        lambda a, b: [x for p in zip(a, b, strict=True) for x in p],
    ),
    Utility(
        "transpose|flipMatrix",
        "<T>(rows: readonly (readonly T[])[])",
        "T[][]",
        "swaps the rows and columns of a non-empty matrix|transposes a matrix with at least one row",
        ["rows[0].map((_, i) => rows.map((row) => row[i]))"],
        [([[1, 2], [3, 4]],), ([[1, 2, 3]],), ([["a"], ["b"]],)],
        lambda v: [list(r) for r in zip(*v, strict=True)],
    ),
    Utility(
        "mergeSorted|mergeAscending",
        "(a: readonly number[], b: readonly number[])",
        "number[]",
        "merges two ascending arrays into one ascending array|joins two sorted arrays so that the result is sorted",
        [
            lines(
                "const result: number[] = [];",
                "let [i, j] = [0, 0];",
                "while (i < a.length || j < b.length) {",
                "  if (j >= b.length || (i < a.length && a[i] <= b[j])) result.push(a[i++]);",
                "  else result.push(b[j++]);",
                "}",
                "return result;",
            )
        ],
        [([1, 4], [2, 3, 9]), ([], [1]), ([5], [])],
        lambda a, b: sorted(a + b),
    ),
    Utility(
        "binarySearch|findSorted",
        "(sorted: readonly number[], target: number)",
        "number",
        "returns the index of target in an ascending array without duplicates, -1 when it is missing|"
        "searches a sorted array by halving and returns the index or -1",
        [
            lines(
                "let [low, high] = [0, sorted.length - 1];",
                "while (low <= high) {",
                "  const middle = Math.floor((low + high) / 2);",
                "  if (sorted[middle] === target) return middle;",
                "  if (sorted[middle] < target) low = middle + 1;",
                "  else high = middle - 1;",
                "}",
                "return -1;",
            )
        ],
        [([1, 3, 5, 8], 5), ([1, 3, 5, 8], 4), ([], 1), ([2], 2)],
        lambda v, x: v.index(x) if x in v else -1,
    ),
    Utility(
        "mostFrequent|mode",
        "<T>(items: readonly T[])",
        "T | undefined",
        "returns the most frequent item, the first one in a tie, undefined for none|"
        "finds the item that occurs most often; ties go to the one seen first",
        [
            lines(
                "const counts = new Map<T, number>();",
                "for (const item of items) counts.set(item, (counts.get(item) ?? 0) + 1);",
                "let best: T | undefined;",
                "let most = 0;",
                "for (const [item, count] of counts) {",
                "  if (count > most) [best, most] = [item, count];",
                "}",
                "return best;",
            )
        ],
        [(["a", "b", "b"],), ([1, 2],), ([],)],
        lambda v: max(dict.fromkeys(v), key=v.count) if v else UNDEFINED,
    ),
    Utility(
        "median|middleValue",
        "(numbers: readonly number[])",
        "number",
        "returns the median, the mean of the middle two for an even count, 0 for none|"
        "computes the median of an unsorted array (0 when empty)",
        [
            lines(
                "if (numbers.length === 0) return 0;",
                "const sorted = [...numbers].sort((a, b) => a - b);",
                "const middle = Math.floor(sorted.length / 2);",
                "return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;",
            )
        ],
        [([3, 1, 2],), ([4, 1, 3, 2],), ([],)],
        lambda v: 0 if not v else (sorted(v)[(len(v) - 1) // 2] + sorted(v)[len(v) // 2]) / 2,
    ),
    Utility(
        "isSorted|isAscending",
        "(numbers: readonly number[])",
        "boolean",
        "tells whether no number is smaller than the one before it|"
        "checks that an array is in ascending order, equal neighbours allowed",
        ["numbers.every((n, i) => i === 0 || numbers[i - 1] <= n)"],
        [([1, 2, 2, 5],), ([2, 1],), ([],)],
        lambda v: v == sorted(v),
    ),
    Utility(
        "runs|groupRuns",
        "<T>(items: readonly T[])",
        "T[][]",
        "groups neighbouring equal items into arrays|splits an array into runs of equal items",
        [
            lines(
                "const groups: T[][] = [];",
                "for (const item of items) {",
                "  const group = groups[groups.length - 1];",
                "  if (group && group[0] === item) group.push(item);",
                "  else groups.push([item]);",
                "}",
                "return groups;",
            )
        ],
        [([1, 1, 2, 1],), (["a"],), ([],)],
        lambda v: [list(g) for _, g in groupby(v)],
    ),
    Utility(
        "takeWhile|leading",
        "<T>(items: readonly T[], test: (item: T) => boolean)",
        "T[]",
        "returns the items before the first one that fails test|takes items from the start as long as test holds",
        [
            lines(
                "const end = items.findIndex((item) => !test(item));",
                "return end === -1 ? [...items] : items.slice(0, end);",
            )
        ],
        [([1, 3, 4, 5], ODD), ([2], ODD), ([1, 3], ODD)],
        lambda v, test: list(takewhile(test, v)),
    ),
]
