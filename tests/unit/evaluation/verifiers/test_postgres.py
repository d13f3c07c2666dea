"""Cases of PostgreSQL's dialect are judged by a real PostgreSQL, which ends with its run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.cases import read_case
from expert_cli.evaluation.evaluate import held_for
from expert_cli.evaluation.verifiers import query
from expert_cli.evaluation.verifiers.case import Grade
from expert_cli.evaluation.verifiers.sandbox import postgres
from expert_cli.inference.expert_config import Grammar
from expert_cli.inference.sql_correction import corrected
from expert_cli.inference.sql_grammar import Rest
from tests import graders
from tests.unit.evaluation.hostile import runner
from tests.unit.evaluation.hostile.test_queries import IN_PARIS, SHOP

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no PostgreSQL is started on Windows")
SCRIPT = """
CREATE TABLE staff (id INTEGER PRIMARY KEY, name VARCHAR(20), "Dept" TEXT, pay NUMERIC(8,2), hired DATE, active BOOLEAN);
CREATE TABLE rooms (id INT GENERATED ALWAYS AS IDENTITY, size NUMERIC, twice NUMERIC GENERATED ALWAYS AS (size * 2) STORED);
INSERT INTO rooms (size) VALUES (3), (5), (99999999999999999999);
CREATE TABLE trips (id SERIAL PRIMARY KEY, staff_id INTEGER NOT NULL REFERENCES staff, cost REAL, tags JSONB);
INSERT INTO staff VALUES (1, 'Ada', 'Sales', 10.50, '2020-01-31', TRUE), (2, 'bob', 'Sales', 2.67, '2021-05-06', FALSE),
  (3, 'Cid', 'ops', 2.68, '2021-12-31', TRUE), (4, 'it''s ;', NULL, NULL, NULL, NULL);
INSERT INTO trips (staff_id, cost, tags) VALUES (1, 1.5, '["a"]'), (1, 2, NULL), (3, 7.25, '{"k": 1}');
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("postgres")
    (folder / "staff.sql").write_text(SCRIPT, encoding="utf-8")
    graders.database(folder / "shop.sqlite", SHOP)
    return {path.stem: path for path in folder.iterdir()}


def graded(source: Path, answer: str, expected: str, timeout_s: float = 5.0, **keys: object) -> Grade:
    row = {"database": source.name, "dialect": "postgresql", "expected": expected, **keys}
    return graders.graded("sql", answer, source, timeout_s, row)


@pytest.mark.parametrize(
    ("answer", "expected", "kind"),
    [
        ("SELECT id FROM staff WHERE name ILIKE 'A%' OR \"Dept\" = 'ops'", "SELECT 1 UNION SELECT 3", "correct"),
        ("SELECT pay * 2 FROM staff WHERE id = 1", "SELECT 21", "correct"),
        ("SELECT sum(id) + 10000000 FROM staff", "SELECT 10000011", "wrong"),
        ("SELECT hired + INTERVAL '1 day' FROM staff WHERE id = 1", "SELECT '2020-02-01 00:00:00'::timestamp", "correct"),
        ("SELECT tags FROM trips WHERE id = 3", "SELECT '{\"k\": 1.0}'::json", "correct"),
        ("SELECT id FROM staff ORDER BY active, id DESC", "SELECT id FROM staff ORDER BY active", "correct"),
        ("SELECT $$;$$, E'\\';'", "SELECT ';', ''';'", "correct"),
        ("SELECT dept FROM staff", "SELECT id FROM staff", "unknown_name"),
        ("WITH gone AS (DELETE FROM staff RETURNING id) SELECT id FROM gone", "SELECT id FROM staff", "refused"),
        ("SELECT id FROM staff WHERE false", "SELECT id FROM staff", "empty"),
    ],
)  # fmt: skip
def test_results_are_those_of_postgresql(sources: dict[str, Path], answer: str, expected: str, kind: str) -> None:
    verdict = graded(sources["staff"], answer, expected)
    assert verdict.kind == kind, verdict.detail


@pytest.mark.parametrize(
    ("source", "expected", "lucky", "like"),
    [
        (
            "staff",
            "SELECT name FROM staff WHERE pay > 5",
            "SELECT name FROM staff WHERE pay > 9",
            "SELECT name FROM staff WHERE NOT pay <= 5",
        ),
        (
            "staff",
            "SELECT size FROM rooms WHERE id > 1",
            "SELECT size FROM rooms WHERE size > 3",
            "SELECT twice / 2 FROM rooms WHERE id >= 2",
        ),
        (
            "shop",
            IN_PARIS,
            "SELECT name FROM customers WHERE city >= 'Paris'",
            "SELECT Name FROM Customers WHERE City ILIKE 'Paris' AND city = 'Paris'",
        ),
    ],
)
def test_what_is_right_by_luck_is_caught_on_other_contents(
    sources: dict[str, Path], source: str, expected: str, lucky: str, like: str
) -> None:
    assert graded(sources[source], lucky, expected).passed
    assert "right on the first content" in graded(sources[source], lucky, expected, perturb=8).detail
    assert graded(sources[source], like, expected, perturb=8).passed


def test_an_answer_that_postgresql_does_not_compile_is_known_before_it_is_judged(sources: dict[str, Path]) -> None:
    row = {"verifier": "sql", "database": "staff.sql", "dialect": "postgresql", "expected": "SELECT 1"}
    case = read_case("here", row).located(sources["staff"].parent)
    turn = "CREATE TABLE staff (id INTEGER, name TEXT); CREATE TABLE trips (id INTEGER, cost REAL);\n\nWho?"
    held = held_for(turn, case, Grammar("sql-postgres"))
    assert held is not None
    assert held.fault is not None
    assert held.fault("SELECT name FROM staff WHERE hired > now() - INTERVAL '1 day'") == ""
    assert held.fault("SELECT sum(name) FROM staff") == "function sum(character varying) does not exist"
    for answer, kept, ways in (
        ("SELECT name, cost FROM staff LIMIT 1", "SELECT name, cost FROM staff", [" JOIN trips ON"]),
        ("SELECT trips.cost FROM staff", "SELECT trips.cost FROM staff", [" JOIN trips ON"]),
        ("SELECT t.name FROM trips AS t", "SELECT ", ["cost", "id", "t.cost", "t.id"]),
        ("SELECT id FROM staff AS s, trips AS t", "SELECT ", [f"{one}.id FROM staff AS s, trips AS t" for one in "st"]),
        ("SELECT 1 FROM name", "SELECT 1 FROM ", ["staff", "trips"]),
    ):
        assert corrected(answer, held.fault, held.tables) == Rest(kept, tuple(ways), 0)


def test_a_source_that_postgresql_cannot_hold_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.sql").write_text("CREATE TABLE t (a int); INSERT INTO t VALUES ('x');", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.sql: PostgreSQL cannot load it: invalid input syntax for type integer"):
        graded(tmp_path / "bad.sql", "SELECT 1", "SELECT 1")
    graders.database(tmp_path / "odd.sqlite", "CREATE TABLE t (a DATE); INSERT INTO t VALUES ('never');")
    with pytest.raises(InputError, match=r"odd\.sqlite: PostgreSQL cannot load it: .*never"):
        graded(tmp_path / "odd.sqlite", "SELECT 1", "SELECT 1")


def test_without_its_packages_no_case_can_be_judged(sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "expert_cli.evaluation.verifiers.sandbox.child_process.has_package", lambda name: name != "pg8000"
    )
    with pytest.raises(EnvironmentProblem, match="the package pg8000, which runs answers, is not installed") as caught:
        query._server()
    assert caught.value.hint == 'pip install "expert-cli[postgres]"'


@runner.few_and_rest
def test_hostile_answers_are_contained(sources: dict[str, Path], tmp_path: Path, few: bool) -> None:
    case = {"database": "shop.sqlite", "dialect": "postgresql", "expected": IN_PARIS}
    with runner.untouched(tmp_path) as places:
        found = runner.misjudged("sql", case, few=few, file=sources["shop"], rows_of="postgresql", threads=2, **places)
    assert found == []
    assert graded(sources["shop"], IN_PARIS, IN_PARIS).passed


@pytest.mark.slow
def test_a_server_ends_with_a_run_that_is_killed() -> None:
    code = f"from {postgres.__name__} import server; print(server()['socket'], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        socket = Path(run.stdout.readline().strip())
        started = psutil.Process(run.pid).children(recursive=True)
        assert any(one.name() == "postgres" for one in started)
        run.kill()
    assert psutil.wait_procs(started, 30)[1] == []
    while socket.parent.exists():
        time.sleep(0.05)
