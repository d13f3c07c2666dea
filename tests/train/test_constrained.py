"""What an expert's grammar does to its answers: they are held to it, and the same cases are answered without it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import measure_answers, same_answers
from expert_cli.cli import app
from expert_cli.config.plan import trained_adapter
from tests.train.projects import SEVEN, case, logged, project, train, valid, write_rows

CASES = [case(n, 7, schema={"type": "integer"}) for n in range(6)] + [
    case(n, 78, schema={"enum": [78]}) for n in (6, 7)
]


def held(expert: Path, folder: Path, grammar: str, cases: Sequence[Mapping[str, Any]] = CASES) -> Path:
    """Copy an expert's run and its manifest, with these cases, and answers that are held to a grammar; return the manifest."""
    manifest = trained_adapter(expert, None, None, offline=True).plan.run.manifest
    written = json.loads(manifest.read_text(encoding="utf-8"))
    written["training"]["decoding"] = {"use_grammar": True, "grammar_type": grammar}
    shutil.copytree(expert, folder / "run")
    write_rows(folder / "tests" / "cases.jsonl", cases)
    (folder / "manifest.json").write_text(json.dumps(written), encoding="utf-8")
    return folder / "manifest.json"


def evaluated(manifest: Path, *more: str, max_new_tokens: int = 8) -> tuple[dict[str, Any], str, str]:
    """Return the document, and what is shown."""
    run = manifest.parent / "run"
    args = ["--manifest", str(manifest), "--adapter", str(run), "--max-new-tokens", str(max_new_tokens), *more]
    done = CliRunner().invoke(app, ["evaluate", *args])
    assert done.exit_code == 0, done.stderr
    return json.loads((run / "evaluation.json").read_text(encoding="utf-8")), done.stdout, done.stderr


def test_answers_with_the_grammar_and_without(expert: Path, tmp_path: Path) -> None:
    manifest = held(expert, tmp_path, "json-schema")
    document, shown, _ = evaluated(manifest, "--baseline")
    valid(document, "evaluate")
    assert [row["answer"] for row in document["answers"]] == ["7"] * 6 + ["78"] * 2
    assert (document["correct"], document["failures"]) == (8, {})
    free = document["without_grammar"]
    assert [row["answer"] for row in free["answers"]] == ["7"] * 8
    assert (free["correct"], free["failures"]) == (6, {"invalid": 2})
    assert (free["difference"]["difference"], free["difference"]["gained"], free["difference"]["lost"]) == (0.25, 2, 0)
    names = {"with": 0, "without": 0}
    assert document["grammar"] == {"type": "json-schema", "held": 8, "free": 0, "unknown_names": names}
    told = "Held to the grammar json-schema: 8 answers, 0 are free text; 0 name what is not there."
    card = (tmp_path / "run" / "adapter" / "README.md").read_text(encoding="utf-8")
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert all(told in text for text in (shown, card, report))
    assert "Against the expert without its grammar: +25.0%" in card
    again = CliRunner().invoke(app, ["evaluate", "--answers", str(tmp_path / "run" / "evaluation.json"), "--json"])
    assert json.loads(again.stdout) == document


def test_a_training_asks_with_the_grammar(tmp_path: Path) -> None:
    manifest = project(
        tmp_path,
        rows=SEVEN,
        max_steps=20,
        learning_rate=0.01,
        decoding={"use_grammar": True, "grammar_type": "json"},
        evaluation={"every_steps": 20},
        cases=CASES[-1:],
    )
    done = train(manifest)
    assert [sample["after"] for sample in done.document["samples"]] == ["78"]
    assert list(logged(done.output, "execution_accuracy").values()) == [1.0]


def test_measured_answers(expert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = held(expert, tmp_path, "sql")
    out, sets = tmp_path / "out", [f"own worlds={tmp_path / 'tests' / 'cases.jsonl'}"]
    args = [str(out), *sets, "--run", str(tmp_path / "run"), "--manifest", str(manifest), "--max-new-tokens", "8"]
    measure_answers.main([*args, "--samples", "4"])
    told = "| run | own worlds | 6 of 8 | 8 of 8 | 2, 0 | +25.0 % (-17.2 to +57.2) | 0, 0 | 0, 0 | 0 |"
    assert told in capsys.readouterr().out
    files = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert {path.name for path in files} == {f"run-own_worlds-{part}.json" for part in ("greedy", "with", "without")}
    measure_answers.main([*args, "--samples", "4"])
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == files


def test_same_answers(expert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--adapter", str(expert), "--max-new-tokens", "8", "--output", str(tmp_path / "before.json")]
    assert CliRunner().invoke(app, ["evaluate", *args]).exit_code == 0
    before = json.loads((tmp_path / "before.json").read_text(encoding="utf-8"))
    now = deepcopy(before)
    changes = {1: {"answer": "8"}, 2: {"answer": "", "stop": "length"}, 3: {"answer": "", "stop": "looping"}}
    for number, change in changes.items():
        now["answers"][number].update(change)
    (tmp_path / "now.json").write_text(json.dumps(now), encoding="utf-8")
    assert same_answers.main([*args[:2], str(tmp_path / "before.json"), str(tmp_path / "now.json")]) == 1
    shown = capsys.readouterr().out.splitlines()
    (differing,) = [line for line in shown if "NO TIE" in line]
    assert differing.startswith("now.json n1, token 1: '7' then, '8' now")
    assert f"{5:6,}  the same" in shown


PETS = "CREATE TABLE pets (id INTEGER, name TEXT)"


def test_names_that_are_not_there_are_counted_and_do_not_come_with_the_grammar(tmp_path: Path) -> None:
    rows = [
        {"instruction": f"Which pets, {n}?", "input": PETS, "output": "SELECT name FROM animals"} for n in range(16)
    ]
    manifest = project(tmp_path, rows=rows, max_steps=60, learning_rate=0.01, max_seq_length=128)
    run = train(manifest).output
    with closing(sqlite3.connect(tmp_path / "pets.sqlite")) as database:
        database.executescript(PETS)
    shared = {"verifier": "sql", "database": "../../pets.sqlite", "expected": "SELECT name FROM pets"}
    asked = [{"prompt": f"Which pets, {n}?", "input": PETS, "id": f"n{n}", **shared} for n in range(3)]
    asked.append({**asked[0], "id": "no schema", "input": ""})
    manifest = held(run, tmp_path / "held", "sql", asked)
    document, _, told = evaluated(manifest, "--baseline", max_new_tokens=24)
    assert [row["kind"] for row in document["without_grammar"]["answers"][:3]] == ["unknown_name"] * 3
    assert not any("animals" in row["answer"].split() for row in document["answers"][:3])
    free = [rows[3]["kind"] == "unknown_name" for rows in (document["answers"], document["without_grammar"]["answers"])]
    names = {"with": free[0], "without": 3 + free[1]}  # what is held names nothing that is not there
    assert document["grammar"] == {"type": "sql", "held": 3, "free": 1, "unknown_names": names}
    assert "1 of 4 questions name no schema that can be read: nothing holds their answers" in " ".join(told.split())
