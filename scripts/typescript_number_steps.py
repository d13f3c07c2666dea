"""Steps over numbers for the pipelines."""

from __future__ import annotations

from functools import reduce
from itertools import accumulate, pairwise
from random import Random

from typescript_case import a_set
from typescript_operations import Operation, counts, each, end, keep, whole

n = "number[]"


def _filters(k: int, m: int, d: int) -> list[Operation]:
    """Which numbers stay."""
    return [
        keep("even", "keep only the even numbers|drop the odd numbers", "@ % 2 === 0", lambda x: x % 2 == 0, n),
        keep("odd", "keep only the odd numbers|throw out the even numbers", "@ % 2 !== 0", lambda x: x % 2 == 1, n),
        keep("positive", "keep the numbers above zero|drop zero and negative numbers", "@ > 0", lambda x: x > 0, n),
        keep("negative", "keep the negative numbers|keep the numbers below zero", "@ < 0", lambda x: x < 0, n),
        keep(f"above{k}", f"keep the numbers greater than {k}|drop everything up to and including {k}", f"@ > {k}",
             lambda x: x > k, n),
        keep(f"below{m}", f"keep the numbers less than {m}|drop everything from {m} upwards", f"@ < {m}",
             lambda x: x < m, n),
        keep(f"multiplesOf{d}", f"keep the multiples of {d}|keep the numbers divisible by {d}", f"@ % {d} === 0",
             lambda x: x % d == 0, n),
        keep(f"not{d}s", f"drop the multiples of {d}|keep the numbers not divisible by {d}", f"@ % {d} !== 0",
             lambda x: x % d != 0, n),
        keep(f"from{k}To{m}", f"keep the numbers from {k} to {m}|keep what lies between {k} and {m}, ends included",
             f"@ >= {k} && @ <= {m}", lambda x: k <= x <= m, n),
    ]  # fmt: skip


def _maps(k: int, m: int) -> list[Operation]:
    """What becomes of each number."""
    return [
        each("doubled", "double each number|multiply every number by 2", "@ * 2", lambda x: x * 2, n),
        each(f"times{k}", f"multiply each number by {k}|scale every number by {k}", f"@ * {k}", lambda x: x * k, n),
        each("squared", "square each number|replace every number by its square", "@ * @", lambda x: x * x, n),
        each(f"plus{k}", f"add {k} to each number|increase every number by {k}", f"@ + {k}", lambda x: x + k, n),
        each(f"minus{k}", f"subtract {k} from each number|lower every number by {k}", f"@ - {k}", lambda x: x - k, n),
        each("absolute", "take the absolute value of each number|drop the sign of every number", "Math.abs(@)", abs,
             n),
        each(f"capped{m}", f"cap every number at {m}|replace numbers above {m} by {m}", f"Math.min(@, {m})",
             lambda x: min(x, m), n),
        each(f"atLeast{k}", f"raise every number to at least {k}|replace numbers below {k} by {k}",
             f"Math.max(@, {k})", lambda x: max(x, k), n),
        each("halved", "halve each number, rounding down|divide every number by 2 and round down",
             "Math.floor(@ / 2)", lambda x: x // 2, n),
        each("text", "turn each number into a string|write every number as a string", "String(@)", str, n,
             "string[]"),
        each("tagged", "write each number as a string with a leading #|turn each n into the string #n", "`#${@}`",
             lambda x: f"#{x}", n, "string[]"),
    ]  # fmt: skip


def _wholes(d: int) -> list[Operation]:
    """Order and choice among all of them."""
    return [
        whole("ascending", "sort ascending|sort from smallest to largest", "[...#].sort((a, b) => a - b)", sorted, n),
        whole("descending", "sort descending|sort from largest to smallest", "[...#].sort((a, b) => b - a)",
              lambda v: sorted(v, reverse=True), n),
        whole("reversed", "reverse the order|put them in reverse order", "[...#].reverse()", lambda v: v[::-1], n),
        whole("unique", "remove duplicates|keep the first of equal numbers", "[...new Set(#)]",
              lambda v: list(dict.fromkeys(v)), n),
        whole(f"first{d}", f"take the first {d}|keep at most the first {d}", f"#.slice(0, {d})", lambda v: v[:d], n),
        whole("last2", "take the last two|keep only the last two", "#.slice(-2)", lambda v: v[-2:], n),
        whole("rest", "drop the first one|skip the first element", "#.slice(1)", lambda v: v[1:], n),
        whole("everySecond", "keep every second element, starting with the first|keep the elements at even indexes",
              "#.filter((_, i) => i % 2 === 0)", lambda v: v[::2], n),
        whole("runningTotals", "turn them into running totals|replace each by the sum up to it",
              "#.map((_, i, all) => all.slice(0, i + 1).reduce((sum, n) => sum + n, 0))",
              lambda v: list(accumulate(v)), n),
        whole("differences",
              "take the differences of neighbours|subtract from each element the one before it, dropping the first",
              "#.map((n, i, all) => n - all[i - 1]).slice(1)", lambda v: [b - a for a, b in pairwise(v)], n),
    ]  # fmt: skip


def _folds() -> list[Operation]:
    """One number at the end."""
    return [
        end("Sum", "return the sum|add them up", "#.reduce((total, n) => total + n, 0)", sum, n, "number",
            ("0", "+= @")),
        end("Product", "return the product|multiply them all (1 for none)", "#.reduce((total, n) => total * n, 1)",
            lambda v: reduce(lambda a, b: a * b, v, 1), n, "number", ("1", "*= @")),
        end("Count", "return how many are left|count what is left", "#.length", len, n, "number", ("0", "+= 1")),
        end("Largest", "return the largest, but at least 0|return the maximum or 0 if that is greater",
            "Math.max(0, ...#)", lambda v: max([0, *v]), n, "number"),
        end("Smallest", "return the smallest, but at most 100|return the minimum or 100 if that is smaller",
            "Math.min(100, ...#)", lambda v: min([100, *v]), n, "number"),
        end("Mean", "return the mean, 0 for none|return the average (0 for none)",
            "#.length === 0 ? 0 : #.reduce((sum, n) => sum + n, 0) / #.length",
            lambda v: sum(v) / len(v) if v else 0, n, "number"),
    ]  # fmt: skip


def _questions(k: int, m: int) -> list[Operation]:
    """Another type at the end."""
    return [
        end(f"AnyAbove{m}", f"tell whether any is greater than {m}|return true if at least one exceeds {m}",
            f"#.some((n) => n > {m})", lambda v: any(x > m for x in v), n, "boolean"),
        end(f"AllBelow{m}", f"tell whether all are below {m}|return true if every one is less than {m}",
            f"#.every((n) => n < {m})", lambda v: all(x < m for x in v), n, "boolean"),
        end(f"Has{k}", f"tell whether {k} is among them|return true if {k} occurs", f"#.includes({k})",
            lambda v: k in v, n, "boolean"),
        end("Joined", 'join them with "-"|return them as one string with "-" between', '#.join("-")',
            lambda v: "-".join(map(str, v)), n, "string"),
        end("FirstOrZero", "return the first one or 0|return the first element, 0 when there is none", "#[0] ?? 0",
            lambda v: v[0] if v else 0, n, "number"),
        end("Counts", "count how often each occurs in a Map|return a Map from each number to its count",
            "#.reduce((counts, n) => counts.set(n, (counts.get(n) ?? 0) + 1), new Map<number, number>())", counts, n,
            "Map<number, number>"),
        end("Set", "return them as a Set|collect them in a Set", "new Set(#)",
            lambda v: a_set(list(dict.fromkeys(v))), n, "Set<number>"),
    ]  # fmt: skip


def number_steps(rng: Random) -> list[Operation]:
    """Operations on number[], their constants drawn."""
    k, m, d = rng.randint(2, 12), rng.randint(13, 30), rng.randint(3, 7)
    return _filters(k, m, d) + _maps(k, m) + _wholes(d) + _folds() + _questions(k, m)
