"""A program of the user's own judges: what it is given, what it may say, and whose fault it is when it fails."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.evaluation.cases import read_case
from expert_cli.evaluation.verifiers.case import Grade


def grade(folder: Path, program: str, answer: str = "x", *, timeout_s: float = 10, **row: Any) -> Grade:
    (folder / "judge.py").write_text(program, encoding="utf-8")
    case = read_case("here", {"verifier": "command", "command": "judge.py", **row})
    return case.verdict(answer, folder / "judge.py", timeout_s)


def says(reply: Any) -> str:
    return f"print({json.dumps(reply)!r})"


def test_it_is_given_the_case_and_the_answer(tmp_path: Path) -> None:
    program = "import json, sys\ntold = [sys.argv[1:], json.load(sys.stdin)]\n"
    program += "print(json.dumps({'correct': False, 'detail': repr(told)}))"
    case = {"verifier": "command", "id": "", "category": "uncategorised", "command": "judge.py", "arguments": ["-v"]}
    asked = {"case": {**case, "expected": [1]}, "answer": "é"}
    found = grade(tmp_path, program + "\nopen('here', 'w')", "é", arguments=["-v"], expected=[1])
    assert found == Grade("wrong", repr([["-v"], asked]))
    assert (tmp_path / "here").is_file()


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ({"correct": True}, Grade("correct")),
        ({"correct": False}, Grade("wrong")),
        ({"correct": False, "detail": "one\ntwo"}, Grade("wrong", "one two")),
    ],
)
def test_what_it_says_is_the_verdict(tmp_path: Path, reply: Any, verdict: Grade) -> None:
    assert grade(tmp_path, says(reply)) == verdict


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("", "printed b''"),
        (says({"correct": 1}), "printed"),
        (says({"detail": "x"}), "printed"),
        (says([1]), "printed"),
        (says({"correct": True}) + "\n" + says({"correct": True}), "printed"),
        (says({"correct": True}) + "\nraise ValueError('no such rhyme')", "exit code 1: .*ValueError: no such rhyme"),
    ],
)
def test_a_program_that_fails_is_the_cases_fault(tmp_path: Path, program: str, fault: str) -> None:
    with pytest.raises(InputError, match=f"command: judge.py .*{fault}"):
        grade(tmp_path, program)


def test_a_program_has_its_time(tmp_path: Path) -> None:
    found = grade(tmp_path, "import time\ntime.sleep(600)", timeout_s=1)
    assert found == Grade("timeout", "judge.py took more than 1 s to judge it")


@pytest.mark.parametrize("answer", ["x", "x" * 900_000])
def test_a_process_that_it_leaves_behind_keeps_no_verdict(tmp_path: Path, answer: str) -> None:
    left = "import subprocess, sys\nleft = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    program = f"{left}import json\nprint(json.dumps({{'correct': True, 'detail': left.pid}}))"
    found = grade(tmp_path, program, answer, timeout_s=60)
    os.kill(int(found.detail), signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    assert found.passed


@pytest.mark.skipif(os.name != "posix", reason="scripts start by their first line")
def test_what_is_no_python_is_started_as_it_is(tmp_path: Path) -> None:
    program = tmp_path / "judge.sh"
    program.write_text("#!/bin/sh\ncat > /dev/null\necho '{\"correct\": true}'\n", encoding="utf-8")
    case = read_case("here", {"verifier": "command", "command": "judge.sh"})
    with pytest.raises(InputError, match=r"judge\.sh cannot be started: Permission denied"):
        case.verdict("x", program, 10)
    program.chmod(0o755)
    assert case.verdict("x", program, 10).passed
