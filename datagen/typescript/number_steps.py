"""Steps over numbers for the pipelines."""

from __future__ import annotations

from functools import reduce
from random import Random

from datagen.typescript.operations import Operation, each, end, keep, whole

n = "number[]"


def _filters(k: int, m: int, d: int) -> list[Operation]:
    """Which numbers stay."""
    return [
        keep("even", "keep only the even numbers", "@ % 2 === 0", lambda x: x % 2 == 0, n),
        keep("odd", "keep only the odd numbers", "@ % 2 !== 0", lambda x: x % 2 == 1, n),
        keep("positive", "keep the numbers above zero", "@ > 0", lambda x: x > 0, n),
        keep("negative", "keep the negative numbers", "@ < 0", lambda x: x < 0, n),
        keep(f"above{k}", f"keep the numbers greater than {k}", f"@ > {k}",
             lambda x: x > k, n),
        keep(f"below{m}", f"keep the numbers less than {m}", f"@ < {m}",
             lambda x: x < m, n),
        keep(f"multiplesOf{d}", f"keep the multiples of {d}", f"@ % {d} === 0",
             lambda x: x % d == 0, n),
        keep(f"from{k}To{m}", f"keep the numbers from {k} to {m}",
             f"@ >= {k} && @ <= {m}", lambda x: k <= x <= m, n),
    ]  # fmt: skip


def _maps(k: int) -> list[Operation]:
    """What becomes of each number."""
    return [
        each("doubled", "double each number", "@ * 2", lambda x: x * 2, n),
        each(f"times{k}", f"multiply each number by {k}", f"@ * {k}", lambda x: x * k, n),
        each("squared", "square each number", "@ * @", lambda x: x * x, n),
        each(f"plus{k}", f"add {k} to each number", f"@ + {k}", lambda x: x + k, n),
        each(f"minus{k}", f"subtract {k} from each number", f"@ - {k}", lambda x: x - k, n),
        each("absolute", "take the absolute value of each number", "Math.abs(@)", abs, n),
        each("halved", "halve each number, rounding down",
             "Math.floor(@ / 2)", lambda x: x // 2, n),
        each("text", "turn each number into a string", "String(@)", str, n, "string[]"),
    ]  # fmt: skip


def _wholes(d: int) -> list[Operation]:
    """Order and choice among all of them."""
    return [
        whole("ascending", "sort ascending", "[...#].sort((a, b) => a - b)", sorted, n),
        whole("descending", "sort descending", "[...#].sort((a, b) => b - a)",
              lambda v: sorted(v, reverse=True), n),
        whole("reversed", "reverse the order", "[...#].reverse()", lambda v: v[::-1], n),
        whole("unique", "remove duplicates", "[...new Set(#)]",
              lambda v: list(dict.fromkeys(v)), n),
        whole(f"first{d}", f"take the first {d}", f"#.slice(0, {d})", lambda v: v[:d], n),
        whole("rest", "drop the first one", "#.slice(1)", lambda v: v[1:], n),
    ]  # fmt: skip


def _folds() -> list[Operation]:
    """One number at the end."""
    return [
        end("Sum", "return the sum", "#.reduce((total, n) => total + n, 0)", sum, n, "number"),
        end("Product", "return the product", "#.reduce((total, n) => total * n, 1)",
            lambda v: reduce(lambda a, b: a * b, v, 1), n, "number"),
        end("Count", "return how many are left", "#.length", len, n, "number"),
        end("Largest", "return the largest, but at least 0",
            "Math.max(0, ...#)", lambda v: max([0, *v]), n, "number"),
        end("Smallest", "return the smallest, but at most 100",
            "Math.min(100, ...#)", lambda v: min([100, *v]), n, "number"),
    ]  # fmt: skip


def _questions(m: int) -> list[Operation]:
    """Another type at the end."""
    return [
        end(f"AnyAbove{m}", f"tell whether any is greater than {m}",
            f"#.some((n) => n > {m})", lambda v: any(x > m for x in v), n, "boolean"),
        end(f"AllBelow{m}", f"tell whether all are below {m}",
            f"#.every((n) => n < {m})", lambda v: all(x < m for x in v), n, "boolean"),
        end("Joined", 'join them with "-"', '#.join("-")',
            lambda v: "-".join(map(str, v)), n, "string"),
        end("FirstOrZero", "return the first one or 0", "#[0] ?? 0",
            lambda v: v[0] if v else 0, n, "number"),
    ]  # fmt: skip


def number_steps(rng: Random) -> list[Operation]:
    """Operations on number[], their constants drawn."""
    k, m, d = rng.randint(2, 12), rng.randint(13, 30), rng.randint(3, 7)
    return _filters(k, m, d) + _maps(k) + _wholes(d) + _folds() + _questions(m)
