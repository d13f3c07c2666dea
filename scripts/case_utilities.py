"""The small TypeScript functions of the test cases; none of them stands among those that training rows are made of."""

from __future__ import annotations

from typescript_utilities import Utility, lines

UTILITIES = [
    Utility(
        "isEven|hasEvenValue", "(n: number)", "boolean", "tells whether n is even|returns true if n is divisible by 2",
        ["n % 2 === 0"], [(0,), (7,), (-4,)], lambda n: n % 2 == 0,
    ),
    Utility(
        "average|meanOf", "(numbers: number[])", "number",
        "returns the average of the numbers, 0 if there are none|computes the mean of an array (0 for an empty one)",
        ["numbers.length === 0 ? 0 : numbers.reduce((sum, n) => sum + n, 0) / numbers.length"],
        [([2, 4],), ([],), ([5, 5, 8],)], lambda v: sum(v) / len(v) if v else 0,
    ),
    Utility(
        "sumTo|triangular", "(n: number)", "number",
        "adds up the integers from 1 to n|returns the sum of all integers from 1 up to n",
        [lines("let sum = 0;", "for (let i = 1; i <= n; i++) sum += i;", "return sum;")],
        [(0,), (1,), (10,)], lambda n: n * (n + 1) // 2,
    ),
    Utility(
        "countDown|downToOne", "(n: number)", "number[]",
        "returns the numbers from n down to 1 in an array|lists the integers n, n - 1, ..., 1",
        [lines("const result: number[] = [];", "for (let i = n; i >= 1; i--) result.push(i);", "return result;")],
        [(0,), (1,), (4,)], lambda n: list(range(n, 0, -1)),
    ),
    Utility(
        "toFahrenheit|celsiusToFahrenheit", "(celsius: number)", "number",
        "converts degrees Celsius to Fahrenheit (multiply by 9, divide by 5, add 32)",
        ["celsius * 9 / 5 + 32"], [(0,), (100,), (-40,)], lambda c: c * 9 / 5 + 32,
    ),
    Utility(
        "repeatText|textTimes", "(text: string, times: number)", "string",
        "repeats a text the given number of times|returns the text repeated times times",
        ["text.repeat(times)"], [("ab", 3), ("x", 0), ("", 5)], lambda s, n: s * n,
    ),
    Utility(
        "isBlank|onlySpaces", "(text: string)", "boolean",
        "tells whether a text is empty or holds only spaces|returns true if nothing is left of the text after trimming",
        ['text.trim() === ""', "text.trim().length === 0"], [("",), ("   ",), (" a ",)], lambda s: not s.strip(),
    ),
    Utility(
        "lastWord|finalWord", "(sentence: string)", "string",
        "returns the last word of a sentence whose words are parted by single spaces",
        ['sentence.split(" ").slice(-1)[0]'], [("one two three",), ("alone",)], lambda s: s.split(" ")[-1],
    ),
    Utility(
        "countOf|occurrences", "<T>(items: readonly T[], wanted: T)", "number",
        "counts how often an item occurs in an array|returns the number of items equal to wanted",
        ["items.filter((item) => item === wanted).length"],
        [([1, 2, 1], 1), (["a", "b"], "c"), ([], 4)], lambda v, w: v.count(w),
    ),
    Utility(
        "hasDuplicates|repeats", "<T>(items: readonly T[])", "boolean",
        "tells whether an array holds an item twice|returns true if not all items are different",
        ["new Set(items).size !== items.length"],
        [([1, 2, 1],), (["a", "b"],), ([],)], lambda v: len(set(v)) != len(v),
    ),
    Utility(
        "removeItem|exclude", "<T>(items: readonly T[], unwanted: T)", "T[]",
        "returns the items that are not equal to unwanted|copies an array, leaving out every item equal to unwanted",
        ["items.filter((item) => item !== unwanted)"],
        [([1, 2, 1], 1), (["a", "b"], "c")], lambda v, u: [item for item in v if item != u],
    ),
    Utility(
        "swapPair|reversePair", "<A, B>(pair: [A, B])", "[B, A]",
        "swaps the two values of a pair|returns the pair in opposite order",
        ["[pair[1], pair[0]]"], [([1, "a"],), ([True, 0],)], lambda p: [p[1], p[0]],
    ),
]  # fmt: skip
