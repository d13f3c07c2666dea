"""Small functions on strings."""

from __future__ import annotations

import re
from itertools import groupby

from typescript_utilities import Utility, lines


def _caesar(text: str, shift: int) -> str:
    return "".join(chr((ord(c) - 97 + shift) % 26 + 97) if c.islower() and c.isascii() else c for c in text)


def _camel(text: str) -> str:
    first, *rest = text.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _balanced(text: str) -> bool:
    smaller = text.replace("()", "").replace("[]", "")
    return text == "" if smaller == text else _balanced(smaller)


STRINGS = [
    Utility(
        "isPalindrome|readsBothWays",
        "(text: string)",
        "boolean",
        "tells whether the text reads the same backwards, letter case ignored|"
        "returns true when text equals its reverse, ignoring case",
        [lines("const lower = text.toLowerCase();", 'return lower === [...lower].reverse().join("");')],
        [("Level",), ("hello",), ("",), ("Anna",)],
        lambda s: s.lower() == s.lower()[::-1],
    ),
    Utility(
        "caesar|shiftLetters",
        "(text: string, shift: number)",
        "string",
        "shifts the letters a to z by shift places (0 to 25), wrapping around, and leaves the rest|"
        "applies a Caesar cipher to lower-case letters only; shift is 0 to 25",
        ["text.replace(/[a-z]/g, (c) => String.fromCharCode(((c.charCodeAt(0) - 97 + shift) % 26) + 97))"],
        [("abc xyz", 3), ("Hello", 1), ("zoo!", 13)],
        _caesar,
    ),
    Utility(
        "runLength|encodeRuns",
        "(text: string)",
        "string",
        "encodes runs of equal characters as character and count|"
        "replaces each run of a character by the character and its length, aab gives a2b1",
        [
            "text.replace(/(.)\\1*/g, (run, char) => `${char}${run.length}`)",
            lines(
                'let result = "";',
                "for (let i = 0; i < text.length; ) {",
                "  let end = i;",
                "  while (text[end] === text[i]) end++;",
                "  result += text[i] + String(end - i);",
                "  i = end;",
                "}",
                "return result;",
            ),
        ],
        [("aab",), ("",), ("zzzz",), ("abc",)],
        lambda s: "".join(f"{c}{len(list(g))}" for c, g in groupby(s)),
    ),
    Utility(
        "areAnagrams|isAnagram",
        "(a: string, b: string)",
        "boolean",
        "tells whether two words have the same letters|returns true when a is an anagram of b",
        [
            lines(
                'const sorted = (word: string): string => [...word].sort().join("");', "return sorted(a) === sorted(b);"
            )
        ],
        [("listen", "silent"), ("abc", "abd"), ("", ""), ("aab", "abb")],
        lambda a, b: sorted(a) == sorted(b),
    ),
    Utility(
        "snakeToCamel|toCamelCase",
        "(text: string)",
        "string",
        "converts snake_case to camelCase|turns each underscore and the letter after it into a capital",
        ["text.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())"],
        [("user_name",), ("a_b_c",), ("plain",)],
        _camel,
    ),
    Utility(
        "camelToSnake|toSnakeCase",
        "(text: string)",
        "string",
        "converts camelCase to snake_case|puts an underscore before each capital and lowercases it",
        ["text.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)"],
        [("userName",), ("aBC",), ("plain",)],
        lambda s: re.sub("[A-Z]", lambda m: "_" + m[0].lower(), s),
    ),
    Utility(
        "titleCase|capitalizeWords",
        "(text: string)",
        "string",
        "capitalises the first letter of every word|makes each word of a text parted by spaces start with a capital",
        ['text.split(" ").map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join(" ")'],
        [("the quick fox",), ("Hi there",), ("",)],
        lambda s: " ".join(w[:1].upper() + w[1:] for w in s.split(" ")),
    ),
    Utility(
        "truncate|shorten",
        "(text: string, max: number)",
        "string",
        'cuts text longer than max characters and appends "..."|'
        'returns text, or its first max characters and "..." when it is longer',
        ["text.length > max ? `${text.slice(0, max)}...` : text"],
        [("hello world", 5), ("short", 10), ("exact", 5)],
        lambda s, m: s[:m] + "..." if len(s) > m else s,
    ),
    Utility(
        "slugify|toSlug",
        "(title: string)",
        "string",
        "lowercases a title and joins its runs of letters a-z and digits with dashes|"
        "makes a slug: lower case, letters and digits only, dashes between",
        ['(title.toLowerCase().match(/[a-z0-9]+/g) ?? []).join("-")'],
        [("Hello, World!",), ("  A  b 9 ",), ("--",)],
        lambda s: "-".join(re.findall("[a-z0-9]+", s.lower())),
    ),
    Utility(
        "initials|getInitials",
        "(name: string)",
        "string",
        "returns the capital initials of a name, one for each word|joins the upper-case first letters of the words",
        ['name.split(" ").map((part) => part.charAt(0).toUpperCase()).join("")'],
        [("Ada Lovelace",), ("grace brewster hopper",), ("x",)],
        lambda s: "".join(w[0].upper() for w in s.split(" ")),
    ),
    Utility(
        "isBalanced|bracketsMatch",
        "(text: string)",
        "boolean",
        "tells whether round and square brackets are balanced and properly nested|"
        "checks that every ( and [ is closed by its partner in the right order",
        [
            lines(
                "const stack: string[] = [];",
                "for (const char of text) {",
                '  if (char === "(") stack.push(")");',
                '  else if (char === "[") stack.push("]");',
                '  else if ((char === ")" || char === "]") && stack.pop() !== char) return false;',
                "}",
                "return stack.length === 0;",
            )
        ],
        [("(a[b])",), ("([)]",), ("((",), ("",), (")",)],
        lambda s: _balanced(re.sub(r"[^()\[\]]", "", s)),
    ),
    Utility(
        "maskStart|maskCode",
        "(code: string)",
        "string",
        "replaces all but the last four characters by *|hides a code behind asterisks except its last four characters",
        ['code.slice(-4).padStart(code.length, "*")'],
        [("1234567890",), ("abcd",), ("xy",)],
        lambda s: "*" * max(0, len(s) - 4) + s[-4:],
    ),
    Utility(
        "countWords|wordCount",
        "(text: string)",
        "number",
        "counts the words of a text parted by any white space|returns the number of words, 0 for blank text",
        [lines("const trimmed = text.trim();", 'return trimmed === "" ? 0 : trimmed.split(/\\s+/).length;')],
        [("one two",), ("  a  b c ",), ("",), (" ",)],
        lambda s: len(s.split()),
    ),
    Utility(
        "hamming|hammingDistance",
        "(a: string, b: string)",
        "number",
        "counts the positions where two strings of equal length differ|returns the Hamming distance of a and b",
        ["[...a].filter((char, i) => char !== b[i]).length"],
        [("karolin", "kathrin"), ("abc", "abc"), ("", "")],
        lambda a, b: sum(x != y for x, y in zip(a, b, strict=True)),
    ),
    Utility(
        "parseQuery|readQuery",
        "(query: string)",
        "Record<string, string>",
        "parses a query string like a=1&b=2 into an object|turns name=value pairs joined with & into an object",
        ['Object.fromEntries(query.split("&").map((pair) => pair.split("=")))'],
        [("a=1&b=2",), ("page=3",), ("x=&y=z",)],
        lambda q: dict(p.split("=") for p in q.split("&")),
    ),
]
