"""`expert-cli doctor` as a user and a program see it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs

from expert_cli.doctor.probes import PROBES

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "schemas" / "doctor.schema.json"
Cli = Callable[..., Any]


def test_a_sound_machine_without_a_compiler_is_ready(cli: Cli, tmp_path: Path) -> None:
    done = cli("doctor", "--deep", "--json", CXX="no-such-compiler")
    document = json.loads(done.out)
    jsonschema_rs.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)
    lines = {line["name"]: line for line in document["lines"]}
    assert {"Python", "system", "driver", "torch build", "packages", "disk, output", "torch"} <= lines.keys()
    assert {name: line for name, line in lines.items() if line["state"] == "fail"} == {}
    assert (done.code, document["state"]) == (0, "warn")
    assert lines["bitsandbytes"]["found"].startswith("NF4 on cpu")
    assert lines["torch.compile"]["found"] == "no C++ compiler (looked for no-such-compiler)"
    assert lines["attention, documents"]["found"].startswith("runs on cpu")
    assert "checking" in done.err
    assert list(tmp_path.iterdir()) == []


def test_what_is_slow_waits_for_deep(cli: Cli) -> None:
    done = cli("doctor", "--json")
    document = json.loads(done.out)
    jsonschema_rs.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)
    waiting = {line["name"] for line in document["lines"] if "doctor --deep" in line["fix"]}
    assert waiting == {"torch.compile"}
    assert {line["name"] for line in document["lines"]} >= {probe.name for probe in PROBES}
    assert done.code == 0


def test_a_broken_library_fails_with_3_and_hides_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "bitsandbytes.py").write_text("import os\nprint('noise')\nos.abort()\n", encoding="utf-8")
    path = os.pathsep.join((str(tmp_path / "broken"), str(ROOT / "src")))
    done = cli("doctor", "--quiet", PYTHONPATH=path, CXX="no-such-compiler")
    assert (done.code, done.err) == (3, "")
    lines = done.out.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("fail ")]
    assert " bitsandbytes " in lines[at]
    assert " ended with " in lines[at]
    assert "-> pip install --force-reinstall --no-deps bitsandbytes" in lines[at + 1]
    assert any(line.startswith("ok ") and " attention, documents " in line for line in lines[at:])
    assert lines[-1].startswith("not ready: 1 to mend (fail), ")
