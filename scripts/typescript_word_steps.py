"""Steps over words and over one string for the pipelines."""

from __future__ import annotations

import re
from random import Random

from typescript_case import a_map, a_set
from typescript_operations import Operation, counts, each, end, keep, whole

w, t = "string[]", "string"
VOWEL = re.compile("[aeiou]", re.IGNORECASE)


def without_vowels(text: str) -> str:
    """The text without its vowels."""
    return VOWEL.sub("", text)


def _filters(k: int, c: str) -> list[Operation]:
    """Which words stay."""
    return [
        keep(f"longerThan{k}", f"keep the words longer than {k} characters|drop words of {k} characters or fewer",
             f"@.length > {k}", lambda x: len(x) > k, w),
        keep(f"upTo{k}Long", f"keep the words of at most {k} characters|drop words longer than {k} characters",
             f"@.length <= {k}", lambda x: len(x) <= k, w),
        keep(f"startingWith{c.upper()}",
             f'keep the words that start with "{c}"|drop words that do not begin with "{c}"', f'@.startsWith("{c}")',
             lambda x: x.startswith(c), w),
        keep(f"with{c.upper()}", f'keep the words that contain "{c}"|drop words without "{c}"', f'@.includes("{c}")',
             lambda x: c in x, w),
        keep(f"without{c.upper()}", f'drop the words that contain "{c}"|keep words without "{c}"',
             f'!@.includes("{c}")', lambda x: c not in x, w),
        keep("nonEmpty", "drop empty strings|keep the non-empty strings", '@ !== ""', lambda x: x != "", w),
        keep("capitalised",
             "keep the words that start with a capital letter|drop words without a leading capital A-Z",
             "/^[A-Z]/.test(@)", lambda x: bool(re.match("[A-Z]", x)), w),
    ]  # fmt: skip


def _maps(k: int, mark: str) -> list[Operation]:
    """What becomes of each word."""
    return [
        each("upper", "convert each word to upper case|write every word in capitals", "@.toUpperCase()", str.upper,
             w),
        each("lower", "convert each word to lower case|lowercase every word", "@.toLowerCase()", str.lower, w),
        each("trimmed", "trim each word|strip spaces around every word", "@.trim()", str.strip, w),
        each("capital", "capitalise the first letter of each word|make each first letter upper case",
             "@.charAt(0).toUpperCase() + @.slice(1)", lambda x: x[:1].upper() + x[1:], w),
        each("mirrored", "reverse the letters of each word|write every word backwards", '[...@].reverse().join("")',
             lambda x: x[::-1], w),
        each("initials", "take the first letter of each word|replace each word by its first character", "@.charAt(0)",
             lambda x: x[:1], w),
        each(f"first{k}Letters", f"cut each word to {k} characters|keep the first {k} letters of every word",
             f"@.slice(0, {k})", lambda x: x[:k], w),
        each("marked", f'append "{mark}" to each word|put "{mark}" after every word', f'@ + "{mark}"',
             lambda x: x + mark, w),
        each("noVowels", "remove the vowels from each word|delete a, e, i, o and u in every word",
             '@.replace(/[aeiou]/gi, "")', lambda x: VOWEL.sub("", x), w),
        each("lengths", "replace each word by its length|map every word to its number of characters", "@.length", len,
             w, "number[]"),
        each("vowelCounts", "count the vowels of each word|map every word to its number of vowels",
             "(@.match(/[aeiou]/gi) ?? []).length", lambda x: len(VOWEL.findall(x)), w, "number[]"),
    ]  # fmt: skip


def _wholes(k: int) -> list[Operation]:
    """Order and choice among all of them."""
    return [
        whole("sorted", "sort alphabetically by code unit|sort with the default order", "[...#].sort()", sorted, w),
        whole("byLength", "sort by length, shortest first|order by ascending length",
              "[...#].sort((a, b) => a.length - b.length)", lambda v: sorted(v, key=len), w),
        whole("reversed", "reverse the order|put them in reverse order", "[...#].reverse()", lambda v: v[::-1], w),
        whole("unique", "remove duplicates|keep the first of equal words", "[...new Set(#)]",
              lambda v: list(dict.fromkeys(v)), w),
        whole(f"first{k}", f"take the first {k}|keep at most {k} of them", f"#.slice(0, {k})", lambda v: v[:k], w),
        whole("rest", "drop the first one|skip the first element", "#.slice(1)", lambda v: v[1:], w),
        whole("numbered", "number them from 1 as 1:word|put the position from 1 and a colon before each word",
              "#.map((word, i) => `${i + 1}:${word}`)", lambda v: [f"{i}:{x}" for i, x in enumerate(v, 1)], w),
    ]  # fmt: skip


def _ends(k: int) -> list[Operation]:
    """The last step."""
    return [
        end("Joined", 'join them with ", "|return one string with ", " between them', '#.join(", ")', ", ".join, w,
            "string"),
        end("Glued", "join them without a separator|concatenate them", '#.join("")', "".join, w, "string",
            ('""', "+= @")),
        end("Count", "return how many are left|count them", "#.length", len, w, "number", ("0", "+= 1")),
        end("TotalLength", "return the total number of characters|add up their lengths",
            "#.reduce((total, word) => total + word.length, 0)", lambda v: sum(map(len, v)), w, "number",
            ("0", "+= @.length")),
        end("Longest",
            'return the longest, the first one in a tie, "" for none|return the first longest word ("" for none)',
            '#.reduce((best, word) => (word.length > best.length ? word : best), "")',
            lambda v: max(v, key=len, default=""), w, "string"),
        end("Counts", "count how often each occurs in a Map|return a Map from word to count",
            "#.reduce((counts, word) => counts.set(word, (counts.get(word) ?? 0) + 1), new Map<string, number>())",
            counts, w, "Map<string, number>"),
        end("Lengths", "return a Map from each word to its length|build a Map of word lengths",
            "new Map(#.map((word): [string, number] => [word, word.length]))",
            lambda v: a_map({x: len(x) for x in v}), w, "Map<string, number>"),
        end(f"AnyLongerThan{k}",
            f"tell whether any is longer than {k} characters|return true if one has more than {k} characters",
            f"#.some((word) => word.length > {k})", lambda v: any(len(x) > k for x in v), w, "boolean"),
        end("Set", "return them as a Set|collect them in a Set", "new Set(#)",
            lambda v: a_set(list(dict.fromkeys(v))), w, "Set<string>"),
    ]  # fmt: skip


def word_steps(rng: Random) -> list[Operation]:
    """Operations on string[], their constants drawn."""
    k, c, mark = rng.randint(2, 5), rng.choice("abcdelmnprst"), rng.choice(["!", "?", "...", "_x"])
    return _filters(k, c) + _maps(k, mark) + _wholes(k) + _ends(k)


def _text_wholes(k: int) -> list[Operation]:
    """Changes of one string, and ways to take it apart."""
    return [
        whole("trimmed", "trim it|strip the spaces around it", "#.trim()", str.strip, t),
        whole("lower", "convert it to lower case|lowercase it", "#.toLowerCase()", str.lower, t),
        whole("upper", "convert it to upper case|write it in capitals", "#.toUpperCase()", str.upper, t),
        whole("mirrored", "reverse its characters|turn it back to front", '[...#].reverse().join("")',
              lambda s: s[::-1], t),
        whole("collapsed", "collapse runs of white space to one space|replace each run of white space by one space",
              '#.replace(/\\s+/g, " ")', lambda s: re.sub(r"\s+", " ", s), t),
        whole("dashed", "replace every space by a dash|turn the spaces into dashes", '#.replaceAll(" ", "-")',
              lambda s: s.replace(" ", "-"), t),
        whole("noVowels", "remove the vowels|delete the letters a, e, i, o and u in either case",
              '#.replace(/[aeiou]/gi, "")', without_vowels, t),
        whole("noDigits", "remove the digits|delete all digits", '#.replace(/\\d/g, "")',
              lambda s: re.sub("[0-9]", "", s), t),
        whole("lettersOnly",
              "remove everything that is not a letter a-z in either case|keep only the letters A-Z and a-z",
              '#.replace(/[^a-z]/gi, "")', lambda s: re.sub("[^a-zA-Z]", "", s), t),
        whole(f"first{k}Chars", f"cut it to {k} characters|keep its first {k} characters", f"#.slice(0, {k})",
              lambda s: s[:k], t),
        whole("words", "split it into words at white space|split it at runs of white space", "#.split(/\\s+/)",
              lambda s: re.split(r"\s+", s), t, "string[]"),
        whole("letters", "split it into characters|spread it into its characters", "[...#]", list, t, "string[]"),
        whole("parts", "split it at commas|cut it apart at every comma", '#.split(",")', lambda s: s.split(","), t,
              "string[]"),
        whole("digits", "read each digit in it as a number|collect its digits as numbers",
              "(#.match(/\\d/g) ?? []).map(Number)", lambda s: [int(x) for x in re.findall("[0-9]", s)], t,
              "number[]"),
        whole("codes", "take the char code of every character|map it to its char codes",
              "[...#].map((char) => char.charCodeAt(0))", lambda s: [ord(x) for x in s], t, "number[]"),
    ]  # fmt: skip


def _text_ends(c: str) -> list[Operation]:
    """What can be told of one string."""
    return [
        end("Length", "return its length|return the number of characters", "#.length", len, t, "number"),
        end("VowelCount", "count the vowels|return how many vowels it has", "(#.match(/[aeiou]/gi) ?? []).length",
            lambda s: len(VOWEL.findall(s)), t, "number"),
        end(f"{c.upper()}Count", f'count the "{c}" characters|return how often "{c}" occurs',
            f'#.split("{c}").length - 1', lambda s: s.count(c), t, "number"),
        end(f"Has{c.upper()}", f'tell whether it contains "{c}"|return true if "{c}" occurs', f'#.includes("{c}")',
            lambda s: c in s, t, "boolean"),
        end("IsEmpty", "tell whether nothing is left|return true if the result is empty", '# === ""',
            lambda s: s == "", t, "boolean"),
        end("Padded", "pad it on the left with zeros to 12 characters|fill it with leading zeros up to 12 characters",
            '#.padStart(12, "0")', lambda s: s.rjust(12, "0"), t, "string"),
    ]  # fmt: skip


def text_steps(rng: Random) -> list[Operation]:
    """Operations on one string, their constants drawn."""
    return _text_wholes(rng.randint(3, 9)) + _text_ends(rng.choice("aeinorst"))
