"""`expert-cli doctor` as a user and a program see it."""

from __future__ import annotations

import json
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
    assert {"system", "driver", "torch build", "packages", "disk, output", "torch"} <= lines.keys()
    assert lines.keys() >= {probe.name for probe in PROBES}
    assert {name: line for name, line in lines.items() if line["state"] == "fail"} == {}
    assert (done.code, document["state"]) == (0, "warn")
    assert lines["bitsandbytes"]["found"].startswith("NF4 on cpu")
    assert lines["torch.compile"]["state"] == "warn"
    assert "C++ compiler" in lines["torch.compile"]["fix"]
    assert lines["attention, documents"]["found"].startswith("runs on cpu")
    assert "checking" in done.err
    assert list(tmp_path.iterdir()) == []
