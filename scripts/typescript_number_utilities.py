"""Small functions on numbers."""

from __future__ import annotations

import math
from functools import reduce
from math import gcd

from typescript_utilities import Utility, lines


def _roman(n: int) -> str:
    signs = [(10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
    return "" if n == 0 else next(sign + _roman(n - value) for value, sign in signs if value <= n)


def _collatz(n: int) -> int:
    return 0 if n == 1 else 1 + _collatz(n // 2 if n % 2 == 0 else 3 * n + 1)


def _prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, n))


NUMBERS = [
    Utility(
        "gcd|greatestCommonDivisor",
        "(a: number, b: number)",
        "number",
        "returns the greatest common divisor of two positive integers|"
        "computes the gcd of a and b with Euclid's algorithm",
        [
            "return b === 0 ? a : $name(b, a % b);",
            lines("while (b !== 0) {", "  [a, b] = [b, a % b];", "}", "return a;"),
        ],
        [(12, 18), (7, 13), (100, 75), (9, 9)],
        gcd,
    ),
    Utility(
        "lcm|leastCommonMultiple",
        "(a: number, b: number)",
        "number",
        "returns the least common multiple of two positive integers|"
        "computes the smallest positive number that both a and b divide",
        [lines("let multiple = a;", "while (multiple % b !== 0) multiple += a;", "return multiple;")],
        [(4, 6), (5, 7), (12, 8)],
        lambda a, b: a * b // gcd(a, b),
    ),
    Utility(
        "factorial|fact",
        "(n: number)",
        "number",
        "returns the factorial of n (1 for 0)|computes n!",
        [
            "return n <= 1 ? 1 : n * $name(n - 1);",
            lines("let result = 1;", "for (let i = 2; i <= n; i++) result *= i;", "return result;"),
        ],
        [(0,), (1,), (5,), (10,)],
        math.factorial,
    ),
    Utility(
        "isPrime|checkPrime",
        "(n: number)",
        "boolean",
        "tells whether n is a prime number|returns true exactly for primes",
        [
            lines(
                "if (n < 2) return false;",
                "for (let d = 2; d * d <= n; d++) {",
                "  if (n % d === 0) return false;",
                "}",
                "return true;",
            )
        ],
        [(1,), (2,), (9,), (29,), (91,)],
        _prime,
    ),
    Utility(
        "fibonacci|fib",
        "(n: number)",
        "number",
        "returns the nth Fibonacci number, with 0 and 1 at indexes 0 and 1|"
        "computes the Fibonacci number at index n, starting 0, 1, 1, 2",
        [
            lines("let [a, b] = [0, 1];", "for (let i = 0; i < n; i++) [a, b] = [b, a + b];", "return a;"),
            "return n < 2 ? n : $name(n - 1) + $name(n - 2);",
        ],
        [(0,), (1,), (7,), (15,)],
        lambda n: reduce(lambda p, _: (p[1], p[0] + p[1]), range(n), (0, 1))[0],
    ),
    Utility(
        "digitSum|sumOfDigits",
        "(n: number)",
        "number",
        "returns the sum of the decimal digits of a non-negative integer|adds up the digits of n",
        [
            "[...String(n)].reduce((sum, digit) => sum + Number(digit), 0)",
            lines(
                "let sum = 0;", "while (n > 0) {", "  sum += n % 10;", "  n = Math.floor(n / 10);", "}", "return sum;"
            ),
        ],
        [(0,), (7,), (1234,), (90909,)],
        lambda n: sum(map(int, str(n))),
    ),
    Utility(
        "collatzSteps|collatzLength",
        "(n: number)",
        "number",
        "counts the Collatz steps from n to 1 (halve even numbers, 3n + 1 for odd ones)|"
        "returns how many Collatz steps lead from n to 1",
        [
            lines(
                "let steps = 0;",
                "while (n !== 1) {",
                "  n = n % 2 === 0 ? n / 2 : 3 * n + 1;",
                "  steps++;",
                "}",
                "return steps;",
            )
        ],
        [(1,), (6,), (7,), (27,)],
        _collatz,
    ),
    Utility(
        "toBinary|binaryString",
        "(n: number)",
        "string",
        "returns the binary digits of a non-negative integer|writes n in base 2",
        [
            "n.toString(2)",
            lines(
                'let bits = "";',
                "do {",
                "  bits = (n % 2) + bits;",
                "  n = Math.floor(n / 2);",
                "} while (n > 0);",
                "return bits;",
            ),
        ],
        [(0,), (5,), (8,), (255,)],
        lambda n: f"{n:b}",
    ),
    Utility(
        "toRoman|romanNumeral",
        "(n: number)",
        "string",
        "writes an integer from 1 to 39 as a Roman numeral|converts n (1 to 39) to a Roman numeral",
        [
            lines(
                'const signs: [number, string][] = [[10, "X"], [9, "IX"], [5, "V"], [4, "IV"], [1, "I"]];',
                'let result = "";',
                "for (const [value, sign] of signs) {",
                "  while (n >= value) {",
                "    result += sign;",
                "    n -= value;",
                "  }",
                "}",
                "return result;",
            )
        ],
        [(1,), (4,), (9,), (27,), (39,)],
        _roman,
    ),
    Utility(
        "clamp|limit",
        "(value: number, min: number, max: number)",
        "number",
        "keeps value between min and max|returns value, or the bound that it passes",
        [
            "Math.min(max, Math.max(min, value))",
            lines("if (value < min) return min;", "if (value > max) return max;", "return value;"),
        ],
        [(5, 1, 10), (-3, 0, 4), (99, 0, 50)],
        lambda v, a, b: max(a, min(b, v)),
    ),
    Utility(
        "isLeapYear|leapYear",
        "(year: number)",
        "boolean",
        "tells whether a year is a leap year in the Gregorian calendar|returns true for leap years",
        ["year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0)"],
        [(2024,), (2023,), (1900,), (2000,)],
        lambda y: y % 4 == 0 and (y % 100 != 0 or y % 400 == 0),
    ),
    Utility(
        "formatDuration|minutesAndSeconds",
        "(seconds: number)",
        "string",
        "formats a number of seconds as m:ss|writes seconds as minutes and two-digit seconds, parted by a colon",
        ['`${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`'],
        [(0,), (61,), (125,), (600,)],
        lambda s: f"{s // 60}:{s % 60:02}",
    ),
    Utility(
        "parseTime|toMinutes",
        "(text: string)",
        "number",
        "turns a time hh:mm into minutes since midnight|reads hh:mm and returns the minutes since 00:00",
        [lines('const [hours, minutes] = text.split(":").map(Number);', "return hours * 60 + minutes;")],
        [("00:00",), ("01:30",), ("23:59",)],
        lambda t: int(t[:2]) * 60 + int(t[3:]),
    ),
    Utility(
        "power|intPower",
        "(base: number, exponent: number)",
        "number",
        "raises base to a non-negative integer exponent without using ** or Math.pow|"
        "computes base to the exponent by repeated multiplication",
        [
            lines("let result = 1;", "for (let i = 0; i < exponent; i++) result *= base;", "return result;"),
            "return exponent === 0 ? 1 : base * $name(base, exponent - 1);",
        ],
        [(2, 10), (5, 0), (3, 4), (-2, 3)],
        lambda b, e: b**e,
    ),
    Utility(
        "divisors|factorsOf",
        "(n: number)",
        "number[]",
        "returns all positive divisors of n in ascending order|lists the numbers that divide n, smallest first",
        [
            lines(
                "const result: number[] = [];",
                "for (let d = 1; d <= n; d++) {",
                "  if (n % d === 0) result.push(d);",
                "}",
                "return result;",
            )
        ],
        [(1,), (12,), (13,), (28,)],
        lambda n: [d for d in range(1, n + 1) if n % d == 0],
    ),
    Utility(
        "primeFactors|factorize",
        "(n: number)",
        "number[]",
        "returns the prime factors of n in ascending order, repeated ones included|factorises n into primes",
        [
            lines(
                "const factors: number[] = [];",
                "for (let d = 2; n > 1; d++) {",
                "  while (n % d === 0) {",
                "    factors.push(d);",
                "    n /= d;",
                "  }",
                "}",
                "return factors;",
            )
        ],
        [(1,), (12,), (97,), (360,)],
        lambda n: [p for p in range(2, n + 1) if _prime(p) for k in range(1, 10) if n % p**k == 0],
    ),
]
