"""Several answers to a case: what the majority of them gives, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.evaluation.cases import Answer, EvalCase, read_cases
from expert_cli.evaluation.evaluate import grade_kept
from expert_cli.evaluation.grade import Evaluation, GradedAnswer, Permissions, compare_with, given_by, grade, rows_given
from expert_cli.inference.vote import votes
from expert_cli.utils.reporter import NullReporter
from expert_cli.utils.statistics import wilson
from tests.graders import database
from tests.reporters import Heard
from tests.schemas import valid

SHOP = """
CREATE TABLE items (id INTEGER, name TEXT, price REAL, stock INTEGER);
INSERT INTO items VALUES (1, 'nut', 0.1, 3), (2, 'bolt', 0.2, 1), (3, 'cog', 0.3, 3);
"""
NAMES = "SELECT name FROM items"
ALL = ("SELECT id, stock FROM items", "SELECT stock, id FROM items")
STOCK, COUNT, BY = "SELECT stock FROM items", "SELECT count(*) FROM items", f"{NAMES} ORDER BY"


def asked(folder: Path, drawn: Sequence[str], **case: Any) -> EvalCase:
    """Return a case with its samples; of a query, one about the shop."""
    path = folder / "cases.jsonl"
    row = {"verifier": "sql", "database": "shop.sqlite"} | case
    if row["verifier"] == "sql":
        database(folder / "shop.sqlite", f"DROP TABLE IF EXISTS items; {SHOP}")
    else:
        del row["database"]
    path.write_text(json.dumps({"prompt": "What?", "id": "one"} | row), encoding="utf-8")
    (found,) = read_cases(path)
    return replace(found, answers=tuple(Answer(text, "end") for text in drawn), is_sampled=True)


def voted(folder: Path, drawn: Sequence[str], **case: Any) -> GradedAnswer:
    (found,) = grade([asked(folder, drawn, **case)], NullReporter(), 10).answers
    return found


FEW, FLIPPED = "SELECT id, stock FROM items WHERE id = 1", "SELECT stock, id FROM items WHERE id = 1"
QUERIES: dict[str, tuple[list[str], str, dict[str, Any], int | None]] = {
    "the first of two results with as many votes": (
        [NAMES, "SELECT id FROM items", "SELECT I.name AS n FROM items AS I ORDER BY 1", "SELECT id + 0 FROM items"],
        NAMES, {}, 0,
    ),
    "the most": (["SELECT id FROM items", NAMES, "SELECT name FROM items WHERE id > 0"], NAMES, {}, 1),
    "what gives no rows has no vote": (["SELECT x", "SELECT x", "DROP TABLE items", "", NAMES], NAMES, {}, 4),
    "none votes": (["SELEC", "SELECT x"], NAMES, {}, None),
    "rows before no rows": ([NAMES, "SELECT 1 WHERE 0", "SELECT name FROM items WHERE id = 9"], NAMES, {}, 0),
    "no rows alone": (["SELECT nothing", "SELECT 2 WHERE 0", "SELECT 3 WHERE 0"], "SELECT 3", {}, 1),
    "order counts where the case asks for one": ([f"{BY} {key}" for key in ("name", "id", "price")], f"{BY} id", {}, 1),
    "strict: columns in order": ([FEW, *ALL], ALL[0], {}, 0),
    "spider: columns in any order": (["SELECT 9", "SELECT 9", FEW, FLIPPED, f"{FLIPPED} LIMIT 9"], FEW, {"rule": "spider"}, 2),
    "strict: a row twice is another": (["SELECT id FROM items", STOCK, "SELECT DISTINCT stock FROM items"], STOCK, {}, 0),
    "noise in a float": (["SELECT 1", "SELECT 0.1 + 0.2", "SELECT 0.3"], "SELECT 0.3", {}, 1),
    "large whole numbers count to the last digit": (
        ["SELECT 123456789012", "SELECT 123456789013", "SELECT 123456789013.0"], "SELECT 1", {}, 1,
    ),
    "the same on this content, not on others": (
        ["SELECT 0", "SELECT max(stock) FROM items", COUNT, "SELECT total(1) FROM items"], COUNT, {"perturb": 4}, 2,
    ),
    "without other contents they are one": (["SELECT 0", "SELECT max(stock) FROM items", COUNT], COUNT, {}, 1),
}  # fmt: skip


@pytest.mark.parametrize(("drawn", "expected", "case", "majority"), QUERIES.values(), ids=QUERIES.keys())
def test_a_vote_goes_by_rows(
    tmp_path: Path, drawn: list[str], expected: str, case: dict[str, Any], majority: int | None
) -> None:
    assert voted(tmp_path, drawn, expected=expected, **case).majority == majority


JSON = {"verifier": "json", "schema": None, "expected": 1, "rule": "exact"}
PYTHON = {"verifier": "python", "tests": "assert f() == 1"}
LABELS = {"verifier": "choice", "labels": ["cat", "dog"], "expected": "cat"}
TEXTS: dict[str, tuple[dict[str, Any], list[str], int]] = {
    "json: equal values": (JSON, ["[1]", '{"a": 1, "b": [true]}', '{"b":[true],\n"a":1.0}', '{"b": [1], "a": 1}', "{"], 1),
    "json: true is not 1": (JSON, ["[true]", "[1]", "[1.0]"], 1),
    "json: what breaks the schema has no vote": (JSON | {"schema": {"type": "array"}, "expected": [1]}, ["{}", "{}", "[1]"], 2),
    "choice: labels, and nothing else": (LABELS, ["cow", "cow", "dog", "Cat.", "cat"], 3),
    "number": ({"verifier": "number", "expected": 2, "unit": "km"}, ["2 m", "2 m", "2", "2.0 km", "2.00"], 2),
    "the letter case, where it does not count": (
        {"verifier": "exact", "expected": "Paris", "ignore_case": True}, ["Rome", "Rome", "Paris", "PARIS", "paris"], 2,
    ),
    "text without spacing": ({"verifier": "contains_all", "expected": ["a"]}, ["b", "b c", " b\n c"], 1),
    "python: programs without comments and spacing": (
        PYTHON, ["def f(): return 1", "def f():\n    # two\n    return 2", "def f():  return 2", "def f(", "def f("], 1,
    ),
    "python: what tests find is not read": (PYTHON, ["def f(): return 2", "def g(): return 1", "def g():  return 1"], 1),
}  # fmt: skip


@pytest.mark.parametrize(("case", "drawn", "majority"), TEXTS.values(), ids=TEXTS.keys())
def test_a_vote_goes_by_what_is_taken_out_of_other_answers(
    tmp_path: Path, case: dict[str, Any], drawn: list[str], majority: int
) -> None:
    assert voted(tmp_path, drawn, **case).majority == majority


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("const a = 1; // one\n/* two */ const b = `x // y`", "const a = 1;\nconst b = `x // y`", True),
        ('const a = "x"', 'const a = "y"', False),
        ("const a = (", "const a = (", None),
        ("// nothing", "// nothing", None),
    ],
    ids=["comments and spacing", "in a text", "no program", "only comments"],
)
def test_programs_in_typescript_are_compared_as_code(tmp_path: Path, one: str, other: str, same: bool | None) -> None:
    case = asked(tmp_path, ["x"], verifier="typescript", tests=None).case
    keys = [given_by(text, case, None, 10) for text in (one, other)]
    assert (keys[0] == keys[1]) == (same is not False)
    assert (keys[0] is None) == (same is None)


def test_equal_answers_are_run_once_and_the_vote_does_not_see_which_is_right(tmp_path: Path) -> None:
    drawn = [NAMES, "SELECT id FROM items", NAMES, "SELECT id FROM items", NAMES]
    for expected in (NAMES, "SELECT id FROM items", "SELECT 5"):
        found = voted(tmp_path, drawn, expected=expected)
        assert found.majority == 0
        assert [one.passed for one in found.verdicts] == [text == expected for text in drawn]


def document(folder: Path, *drawn: Sequence[str], **case: Any) -> Evaluation:
    """Return the evaluation of so many cases with their samples."""
    rows = [asked(folder, texts, expected=NAMES, **case) for texts in drawn]
    rows = [replace(row, id=str(number)) for number, row in enumerate(rows)]
    return grade(rows, NullReporter(), 10).telling(cases_file=str(folder / "cases.jsonl"))


def test_shares_of_the_document_and_kept_samples_judged_again(tmp_path: Path) -> None:
    right, wrong = NAMES, "SELECT id FROM items"
    found = document(
        tmp_path, [wrong, right, right], [right, right, wrong], [wrong, wrong, right], [wrong, wrong, wrong]
    )
    told = found.as_json()
    assert told["pass_at"] == {"1": pytest.approx(5 / 12), "2": pytest.approx((1 + 1 + 2 / 3) / 4), "3": 0.75}
    assert (told["majority"], told["majority_ci95"]) == (0.5, list(wilson(2, 4)))
    assert (told["accuracy"], told["correct"]) == (0.25, 1)
    assert told["pass_at_ci95"]["3"] == pytest.approx(wilson(3, 4))
    assert [row["majority"] for row in told["answers"]] == [1, 0, 0, 0]
    assert [one["kind"] for one in told["answers"][0]["samples"]] == ["wrong", "correct", "correct"]
    path, cases = tmp_path / "kept.json", tmp_path / "again.jsonl"
    path.write_text(json.dumps({"schema_version": 1, "command": "evaluate", **told}), encoding="utf-8")
    valid(json.loads(path.read_text(encoding="utf-8")), "evaluate")
    row = json.loads((tmp_path / "cases.jsonl").read_text(encoding="utf-8"))
    cases.write_text("".join(json.dumps(row | {"id": str(n)}) + "\n" for n in range(4)), encoding="utf-8")
    again = grade_kept(path, cases, None, NullReporter(), Permissions(seconds=10))
    drop = {"pass_at", "pass_at_ci95", "majority", "majority_ci95", "accuracy"}
    assert {key: again.as_json()[key] for key in drop} == {key: told[key] for key in drop}
    assert [one["samples"] for one in again.as_json()["answers"]] == [one["samples"] for one in told["answers"]]
    with cases.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row | {"id": "new"}) + "\n")
    report = Heard()
    grade_kept(path, cases, None, report, Permissions(seconds=10))
    assert [one for one in report.warned if "no answer" in one] == ["1 of 5 cases have no answer and are left out: new"]


def test_other_answers_than_then_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document(tmp_path, [NAMES, NAMES, "x"], [NAMES, "y", "z"]).as_json()), encoding="utf-8")
    drop = compare_with(path, document(tmp_path, [NAMES, "w"], [f"{NAMES} ", "y"]), 0, NullReporter())
    assert (drop["answers"], drop["answers_differ"], drop["lost"]) == (4, 2, 0)
    old = json.loads(path.read_text(encoding="utf-8"))
    for row in old["answers"]:
        del row["samples"], row["majority"]
    path.write_text(json.dumps(old), encoding="utf-8")
    drop = compare_with(path, document(tmp_path, ["v", "w"], [NAMES, "y"]), 0, NullReporter())
    assert (drop["answers"], drop["answers_differ"], drop["lost"]) == (2, 1, 1)


def given_of(folder: Path) -> Callable[[str], Hashable]:
    """Return what runs queries about a database of two items."""
    script = (
        "CREATE TABLE IF NOT EXISTS items (id, name); DELETE FROM items; INSERT INTO items VALUES (1, 'a'), (2, 'b')"
    )
    database(folder / "items.sqlite", script)
    return rows_given(folder / "items.sqlite")


def test_answers_with_the_same_rows_are_one_and_what_cannot_be_run_is_none(tmp_path: Path) -> None:
    answers = [
        "SELECT nothing",
        "SELECT name FROM items WHERE id > 5",
        "SELECT name FROM items WHERE 0",
        "SELECT count(*) FROM items",
        "```sql\nSELECT max(id) FROM items;\n```",
        "DELETE FROM items",
        "DELETE  FROM items",
    ]
    told = votes(answers, list(map(given_of(tmp_path), answers)))["votes"]
    assert [one["answer"] for one in told] == [answers[place] for place in (3, 1, 0)]
    assert [one["count"] for one in told] == [2, 2, 3]
    assert given_of(tmp_path)("SELECT count(*) FROM items"), "nothing was deleted"
