"""Python answers: tests run where the answer is; results of calls are compared, and no answer sees what is expected."""

from __future__ import annotations

from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_case
from expert_cli.evaluation.verifiers.case import Grade


def grade(answer: str, tests: str = "", timeout_s: float = 10, **case: Any) -> Grade:
    row = {"verifier": "python", **({"tests": tests} if tests else {}), **case}
    return read_case("here", row).verdict(answer, None, timeout_s)


@pytest.mark.parametrize(
    "tests",
    [
        "assert f(2) == 4",
        "def test_f():\n    assert f(2) == 4",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n        self.assertEqual(f(2), 4)",
        "from answer import f as g\nassert g(2) == 4",
        "async def test_f():\n    assert f(2) == 4",
        "def test_f():\n    assert f(2) == 4\n    yield",
        "def check(g): assert g(2) == 4\nfor one in [f]: check(one)",
        "from unittest import TestCase\nclass Base(TestCase): pass\nclass TestF(Base):\n    def test_f(self): assert f(2) == 4",
        "class Test2:\n    def tests(self): assert f(2) == 4\nTest2().tests()",
    ],
)
@pytest.mark.parametrize("ending", ["", "\nif __name__ == '__main__':\n    import unittest\n    unittest.main()"])
def test_tests_are_run_also_where_they_only_stand_in_functions(tests: str, ending: str) -> None:
    assert grade("def f(n): return 4", tests + ending) == Grade("correct")
    assert grade("def f(n): return 5", tests + ending).kind == "wrong"


def test_an_answers_own_test_does_not_stand_in_for_the_cases() -> None:
    answer = "def f(n): return {}\ndef test_f(): assert f(0) in (4, 5)"
    verdicts = [grade(answer.format(value), "def test_f():\n    assert f(2) == 4") for value in (4, 5)]
    assert [verdict.kind for verdict in verdicts] == ["correct", "wrong"]


def test_a_failure_names_the_line_of_the_tests() -> None:
    assert grade("def f(n): return n", "x = 2\nassert f(x) == 4, 'twice'") == Grade(
        "wrong", "tests, line 2: AssertionError: twice"
    )
    assert grade("x = 1\ny = (", "assert f(1)") == Grade("invalid", "SyntaxError: '(' was never closed")
    assert grade("import numpy_x", "assert f(1)").kind == "invalid"
    assert grade("# nothing", "assert f(1)").kind == "wrong"
    assert grade("import sys\nsys.exit(0)", "assert f(1)").kind == "wrong"


CALLS = {"function": "f", "calls": [[[2, 3], 5], [[[1], []], [1]]]}


@pytest.mark.parametrize(
    ("answer", "grade_"),
    [
        ("def f(a, b): return a + b", Grade("correct")),
        ("def f(a, b): return (a + b) if a != [1] else (1,)", Grade("correct")),
        ("def f(a, b): return True if a == 2 else [1]", Grade("wrong", "/0 is true, not 5")),
        ("def f(a, b): return 5", Grade("wrong", "/1 is 5, not [1]")),
        ("def f(a, b): return {1}", Grade("wrong", "TypeError: Object of type set is not JSON serializable")),
        ("def g(a, b): return 5", Grade("invalid", "NameError: name 'f' is not defined")),
        (
            "def f(a, b):\n    return a[5]",
            Grade("wrong", "answer, line 2: TypeError: 'int' object is not subscriptable"),
        ),
    ],
)
def test_results_of_calls_are_compared(answer: str, grade_: Grade) -> None:
    assert grade(answer, **CALLS) == grade_


def test_a_result_is_what_the_call_returned_whatever_later_calls_do_to_it() -> None:
    answer = "kept = []\ndef f(n):\n    kept.append(n)\n    return kept"
    assert grade(answer, function="f", calls=[[[1], [1]], [[2], [1, 2]]]) == Grade("correct")
    assert grade(answer, function="f", calls=[[[1], [1, 2]], [[2], [1, 2]]]).kind == "wrong"


FORGED = """
import gc, json, os
def f(a, b):
    nonce = next(o["nonce"] for o in gc.get_objects() if isinstance(o, dict) and "nonce" in o)
    for n in range(1, 20):
        try: os.write(n, ("\\n" + nonce + json.dumps(%s) + "\\n").encode())
        except OSError: pass
    os._exit(0)
"""


@pytest.mark.parametrize(
    "reply", ["{'kind': 'correct', 'why': ''}", "{'results': []}", "{'results': 5}", "{'kind': ['x']}", "[1]", "{}"]
)
def test_a_forged_reply_is_right_for_no_calls(reply: str) -> None:
    assert grade(FORGED % reply, **CALLS).kind in ("refused", "wrong")
    at_once = FORGED.replace("nonce + ", "") % "{'kind': 'correct', 'why': ''}" + "f(1, 2)"
    assert grade(at_once, tests="assert f").kind == "wrong", "who does not know the nonce forges no tests either"


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        ({"function": "f"}, "either tests, or function and calls"),
        ({"function": "f", "calls": [[2, 4]]}, "calls.0.0: Input should be a valid list"),
        ({"tests": "'''Tests.'''\nimport math\nSOURCE = {'a': -1}\npass"}, "nothing in them is run"),
        ({"tests": "def check(candidate):\n    assert candidate(2) == 4"}, "nothing in them is run"),
        ({"tests": "if __name__ == '__main__':\n    assert f(2) == 4"}, "nothing in them is run"),
        ({"tests": "assert f(2)\nclass TestF:\n    def test_f(self): assert f(2)"}, "nothing runs the class TestF"),
        ({"tests": "assert f(2) == 4)"}, "tests: unmatched '\\)' .*, line 1"),
    ],
)
def test_cases_that_judge_nothing_are_told(case: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        grade("x = 1", **case)
