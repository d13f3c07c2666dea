"""A probe that crashes, hangs or raises costs one line; those after it are still run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from expert_cli.doctor.checks import CheckResult, Probe, attempt, run_probes
from expert_cli.errors import EnvironmentProblem
from expert_cli.utils.subprocesses import how_it_ended

TRIALS = """
import json, os, signal, sys, time
for line in sys.stdin:
    name = json.loads(line)["probe"]
    if name == "crash":
        import ctypes; ctypes.string_at(0)
    if name == "hang":
        time.sleep(60)
    if name == "leave":
        print("ImportError: libx.so: no such file", file=sys.stderr); sys.exit(3)
    print(json.dumps({"name": name, "state": "ok", "found": str(os.getpid()), "fix": ""}), flush=True)
"""


def never() -> str:
    raise AssertionError


def probe(name: str) -> Probe:
    return Probe(name, never, "warn", "mend it")


def test_a_crash_a_hang_and_an_end_hide_no_other_probe() -> None:
    probes = [probe(name) for name in ("a", "b", "crash", "c", "hang", "d", "leave", "e")]
    lines = list(run_probes(probes, TRIALS, limit_s=5.0))
    assert [line.name for line in lines] == [one.name for one in probes]
    by_name = {line.name: line for line in lines}
    assert [by_name[name].state for name in "abcde"] == ["ok"] * 5
    assert by_name["a"].found == by_name["b"].found != by_name["c"].found
    assert by_name["hang"] == CheckResult("hang", "warn", "no answer within 5 s", "mend it")
    assert by_name["leave"].found == "ended with exit code 3: ImportError: libx.so: no such file"
    if sys.platform != "win32":
        assert (
            by_name["crash"].found
            == "ended with signal 11 (Segmentation fault): Fatal Python error: Segmentation fault"
        )


@pytest.mark.skipif(sys.platform == "win32", reason="signals have names on POSIX")
def test_how_a_process_ended() -> None:
    assert [how_it_ended(code) for code in (-9, 1)] == ["ended with signal 9 (Killed)", "ended with exit code 1"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("libx.so: cannot open\nmore"), CheckResult("x", "fail", "OSError: libx.so: cannot open", "reinstall")),
        (EnvironmentProblem("computes wrongly", ""), CheckResult("x", "fail", "computes wrongly", "reinstall")),
        (EnvironmentProblem("computes wrongly", "restart"), CheckResult("x", "fail", "computes wrongly", "restart")),
    ],
)
def test_what_a_probe_raises_is_its_answer(error: Exception, line: CheckResult) -> None:
    def broken() -> str:
        raise error

    assert attempt(Probe("x", broken, "fail", "reinstall")) == line


def test_a_relative_import_path_reaches_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [found.state for found in run_probes([probe("a")], f"import only_here\n{TRIALS}")] == ["ok"]
