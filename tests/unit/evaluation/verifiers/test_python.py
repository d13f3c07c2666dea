"""What tests of a Python answer may do with it, from another process: as in one, where a result is honest."""

from __future__ import annotations

import sys
import types

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_case
from expert_cli.evaluation.verdict import Grade


def grade(answer: str, tests: str, prefix: str = "", timeout_s: float = 10) -> Grade:
    row = {"verifier": "python", "tests": tests, "prefix": prefix}
    return read_case("here", row).grade(answer, None, timeout_s)


ALL = """
import contextlib
import enum
from collections import Counter, OrderedDict, deque, namedtuple
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction


class Stack:
    limit = 3

    def __init__(self, *items):
        self.items = [*items]

    def push(self, item):
        if len(self) == self.limit:
            raise Full('no room', 3)
        self.items.append(item)
        return self

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]

    def __eq__(self, other):
        return isinstance(other, Stack) and self.items == other.items

    def __lt__(self, other):
        return len(self) < len(other)

    def __add__(self, other):
        return Stack(*self.items, *other.items)

    def __contains__(self, item):
        return item in self.items

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.items.clear()

    def __str__(self):
        return f'Stack{self.items}'

    @classmethod
    def of(cls, items):
        return cls(*items)

    @property
    def top(self):
        return self.items[-1]


class Full(ValueError):
    def __init__(self, message, size):
        super().__init__(message)
        self.size = size


class Color(enum.Enum):
    RED = 1
    BLUE = 2


Point = namedtuple('Point', 'x y')


@dataclass(frozen=True)
class Box:
    width: int


def values():
    return [None, True, 2**70, 1e400, 'a\\0\\u2028', b'\\xff', 1j, (1, [2]), {(1,): {2}}, frozenset({3}), range(3),
            Decimal('0.10'), Fraction(1, 3), date(2024, 2, 29), timedelta(1, 2), Counter('aab'), OrderedDict(a=1), deque([1])]


def echo(*args, **named):
    return args, named


def same(item):
    return item


def change(items, more):
    items.append(more)
    more['seen'] = items
    return items


def count(n):
    while n:
        n -= 1
        yield n


def remember(function):
    known = {}

    def remembering(n):
        if n not in known:
            known[n] = function(n)
        return known[n]

    return remembering


def retry(function):
    for _ in range(3):
        with contextlib.suppress(KeyError):
            return function()


def total(box, name='size'):
    box.seen = True
    return getattr(box, name) + box.area(2)


def say(text):
    print('said', text)
"""

TESTS = """
import io
from contextlib import redirect_stdout
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from collections import Counter, OrderedDict, deque

wanted = [None, True, 2**70, float('inf'), 'a\\0\\u2028', b'\\xff', 1j, (1, [2]), {(1,): {2}}, frozenset({3}), range(3),
          Decimal('0.10'), Fraction(1, 3), date(2024, 2, 29), timedelta(1, 2), Counter('aab'), OrderedDict(a=1), deque([1])]
got = values()
assert got == wanted and list(map(type, got)) == list(map(type, wanted))
assert echo(*wanted, key=wanted) == (tuple(wanted), {'key': wanted})

stack = Stack(1)
assert isinstance(stack, Stack) and isinstance(stack.push([2]), Stack) and stack.push(3) is stack
assert len(stack) == 3 and stack[1] == [2] and stack.top == 3 and stack.items == [1, [2], 3] and 3 in stack and 4 not in stack
assert list(stack) == [1, [2], 3] and str(stack) == 'Stack[1, [2], 3]'
assert Stack.of([1]) + Stack(2) == Stack(1, 2) != Stack(2) < Stack(1, 2) and Stack(1) != [1] and Stack.limit == 3
stack.items = []
assert not len(stack) and not stack
with Stack(1) as inner:
    assert len(inner) == 1
assert len(inner) == 0
try:
    Stack(1, 2, 3).push(4)
except Full as error:
    assert isinstance(error, ValueError) and error.size == 3 and str(error) == 'no room'
else:
    raise AssertionError('no error')
try:
    Stack()[0]
except IndexError:
    pass
else:
    raise AssertionError('no error')

assert Color(2) is Color.BLUE is Color['BLUE'] and [one.name for one in Color] == ['RED', 'BLUE'] and len(Color) == 2
assert Point(1, 2) == (1, 2) and Point(1, y=2).y == 2 and sum(Point(1, 2)) == 3
assert Box(2) == Box(2) and len({Box(2), Box(2), Box(3)}) == 2 and Box(width=4).width == 4

items, more = [1], {}
assert change(items, more) is items and items == [1, more] and more['seen'] is items
box = object()
assert same(box) is box and same(same) is same and same(len)([1]) == 1 and same(int) is int
assert list(count(3)) == [2, 1, 0] and next(iter(count(1))) == 0 and callable(count) and not callable(stack)

calls = []
@remember
def square(n):
    calls.append(n)
    return n * n
assert square(3) == square(3) == 9 and calls == [3]

tries = []
def shaky():
    tries.append(1)
    if len(tries) < 3:
        raise KeyError(1)
    return 'done'
assert retry(shaky) == 'done'

class Sized:
    size = 5
    def area(self, by):
        return self.size * by
sized = Sized()
assert total(sized) == 15 and sized.seen

heard = io.StringIO()
with redirect_stdout(heard):
    say('it')
assert heard.getvalue() == 'said it\\n'
"""


def test_tests_do_with_an_answer_what_they_would_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert grade(ALL, TESTS) == Grade("correct")
    both = types.ModuleType("both")
    monkeypatch.setitem(sys.modules, "both", both)
    exec(compile(ALL + TESTS, "both", "exec"), vars(both))  # noqa: S102


@pytest.mark.parametrize(
    "tests",
    [
        "def test_f():\n    assert f(2) == 4",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n        self.assertEqual(f(2), 4)",
    ],
)
@pytest.mark.parametrize("ending", ["", "\nif __name__ == '__main__':\n    import unittest\n    unittest.main()"])
def test_tests_that_only_stand_in_functions_are_run(tests: str, ending: str) -> None:
    assert grade("def f(n): return 4", tests + ending).passed
    assert grade("def f(n): return 5", tests + ending).kind == "wrong"


def test_a_prefix_is_continued_and_its_own_part_is_the_cases() -> None:
    prefix = "import math\nclass Tree:\n    def __init__(self, left=None): self.left = left\n\ndef depth(tree):\n    "
    answer = "return 1 + depth(tree.left) if isinstance(tree, Tree) else 0\ndef grown(tree): return Tree(tree)"
    tests = "tree = Tree(Tree())\nassert depth(tree) == math.floor(2.5)\n"
    tests += "assert type(grown(tree)) is Tree and depth(grown(tree)) == 3"
    assert grade(answer, tests, prefix) == Grade("correct")


def test_a_failure_names_the_line_of_the_tests() -> None:
    assert grade("def f(n): return n", "x = 2\nassert f(x) == 4, 'twice'") == Grade(
        "wrong", "tests, line 2: assert f(x) == 4, 'twice': AssertionError: twice"
    )
    assert grade("def f(n): return n[0]", "assert f(1)").detail == (
        "tests, line 1: assert f(1): TypeError: 'int' object is not subscriptable"
    )
    assert grade("x = 1\ny = (", "assert f(1)") == Grade("invalid", "line 2: SyntaxError: '(' was never closed")
    assert grade("    y = (", "assert f(1)", "def f():\n").detail == "line 1: SyntaxError: '(' was never closed"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups of errors are of Python 3.11")
def test_a_group_of_errors_comes_with_what_is_in_it() -> None:
    answer = "def f(n): raise ExceptionGroup('all', [ValueError(n), TypeError('x')])"
    tests = "try:\n    f(2)\nexcept* ValueError as some:\n    assert some.exceptions[0].args == (2,)\n"
    assert grade(answer, tests + "except* TypeError:\n    pass\nelse:\n    raise AssertionError").passed
    assert grade(answer, tests).detail.endswith("ExceptionGroup: all (1 sub-exception)")


def test_many_calls_fit_into_the_time() -> None:
    assert grade("def f(n): return 2 * n", "for n in range(2000):\n    assert f(n) == 2 * n").passed


@pytest.mark.parametrize(
    ("tests", "fault"),
    [
        ("assert (", "tests: '\\(' was never closed"),
        ("assert len([1]) == 1", "they use nothing"),
        ("import asyncio\nassert asyncio.run(f(2)) == 4", "line 1: .* no event loop"),
        ("async def test():\n    assert await f(2) == 4", "line 2: .* no event loop"),
        ("class B(A): pass\nassert B().f() == 4", "line 1: the class B derives from A, which is the answer's"),
    ],
)
def test_tests_that_judge_nothing_are_told(tests: str, fault: str) -> None:
    with pytest.raises(InputError, match=f"here: tests: .*{fault}" if "nothing" in fault else fault):
        grade("x = 1", tests)
