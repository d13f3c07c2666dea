"""Steps over words for the pipelines."""

from __future__ import annotations

from random import Random

from datagen.typescript.case import a_set
from datagen.typescript.operations import Operation, each, end, keep, whole

w = "string[]"


def _filters(k: int, c: str) -> list[Operation]:
    """Which words stay."""
    return [
        keep(f"longerThan{k}", f"keep the words longer than {k} characters",
             f"@.length > {k}", lambda x: len(x) > k, w),
        keep(f"upTo{k}Long", f"keep the words of at most {k} characters",
             f"@.length <= {k}", lambda x: len(x) <= k, w),
        keep(f"startingWith{c.upper()}",
             f'keep the words that start with "{c}"', f'@.startsWith("{c}")',
             lambda x: x.startswith(c), w),
        keep(f"with{c.upper()}", f'keep the words that contain "{c}"', f'@.includes("{c}")',
             lambda x: c in x, w),
        keep(f"without{c.upper()}", f'drop the words that contain "{c}"',
             f'!@.includes("{c}")', lambda x: c not in x, w),
        keep("nonEmpty", "drop empty strings", '@ !== ""', lambda x: x != "", w),
    ]  # fmt: skip


def _maps(k: int, mark: str) -> list[Operation]:
    """What becomes of each word."""
    return [
        each("upper", "convert each word to upper case", "@.toUpperCase()", str.upper, w),
        each("lower", "convert each word to lower case", "@.toLowerCase()", str.lower, w),
        each("capital", "capitalise the first letter of each word",
             "@.charAt(0).toUpperCase() + @.slice(1)", lambda x: x[:1].upper() + x[1:], w),
        each("mirrored", "reverse the letters of each word", '[...@].reverse().join("")',
             lambda x: x[::-1], w),
        each(f"first{k}Letters", f"cut each word to {k} characters",
             f"@.slice(0, {k})", lambda x: x[:k], w),
        each("marked", f'append "{mark}" to each word', f'@ + "{mark}"',
             lambda x: x + mark, w),
        each("lengths", "replace each word by its length", "@.length", len,
             w, "number[]"),
    ]  # fmt: skip


def _wholes(k: int) -> list[Operation]:
    """Order and choice among all of them."""
    return [
        whole("sorted", "sort alphabetically by code unit", "[...#].sort()", sorted, w),
        whole("byLength", "sort by length, shortest first",
              "[...#].sort((a, b) => a.length - b.length)", lambda v: sorted(v, key=len), w),
        whole("reversed", "reverse the order", "[...#].reverse()", lambda v: v[::-1], w),
        whole("unique", "remove duplicates", "[...new Set(#)]",
              lambda v: list(dict.fromkeys(v)), w),
        whole(f"first{k}", f"take the first {k}", f"#.slice(0, {k})", lambda v: v[:k], w),
        whole("rest", "drop the first one", "#.slice(1)", lambda v: v[1:], w),
    ]  # fmt: skip


def _ends(k: int) -> list[Operation]:
    """The last step."""
    return [
        end("Joined", 'join them with ", "', '#.join(", ")', ", ".join, w,
            "string"),
        end("Count", "return how many are left", "#.length", len, w, "number"),
        end("TotalLength", "return the total number of characters",
            "#.reduce((total, word) => total + word.length, 0)", lambda v: sum(map(len, v)), w, "number"),
        end(f"AnyLongerThan{k}",
            f"tell whether any is longer than {k} characters",
            f"#.some((word) => word.length > {k})", lambda v: any(len(x) > k for x in v), w, "boolean"),
        end("Set", "return them as a Set", "new Set(#)",
            lambda v: a_set(list(dict.fromkeys(v))), w, "Set<string>"),
    ]  # fmt: skip


def word_steps(rng: Random) -> list[Operation]:
    """Operations on string[], their constants drawn."""
    k, c, mark = rng.randint(2, 5), rng.choice("abcdelmnprst"), rng.choice(["!", "?", "...", "_x"])
    return _filters(k, c) + _maps(k, mark) + _wholes(k) + _ends(k)
