"""What the commands print with --json is what docs/schemas/ promises; validate, schema, doctor and report in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from expert_cli.cli import COMMANDS
from expert_cli.commands.schema import manifest_schema
from expert_cli.doctor.probes import PROBES
from expert_cli.runs.metrics import read_json
from tests import manifests
from tests.configs import AXOLOTL
from tests.schemas import SCHEMAS, valid

ROOT = Path(__file__).parents[2]
Cli = Callable[..., Any]


def test_every_command_and_the_failure_have_a_schema() -> None:
    assert {path.name.removesuffix(".schema.json") for path in SCHEMAS.glob("*.json")} >= {*COMMANDS, "failure"}


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_a_schema_is_valid(path: Path) -> None:
    schema = read_json(path)
    jsonschema_rs.meta.validate(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["schema_version"] == {"const": 1}
    names = {"schema_version"} if path.name == "expert.schema.json" else {"schema_version", "command"}
    assert names <= set(schema["required"])


REAL: dict[str, tuple[str, tuple[str, ...]]] = {
    "validate, valid": ("validate", ("validate", "manifest.json", "--json")),
    "validate, faults": ("validate", ("validate", "typo.json", "none.json", "manifest.json", "--json")),
    "init": ("init", ("init", "expert-x", "--json")),
    "init, of a configuration": ("init", ("init", "expert-x", "--from-config", "axolotl.yml", "--json")),
    "schema": ("schema", ("schema", "--json")),
    "usage": ("failure", ("validate", "--json")),
    "train, a price without a plan": ("failure", ("train", "-m", "manifest.json", "--price", "2/h", "--json")),
    "train, machine at fault": ("failure", ("train", "-m", "manifest.json", "--device", "cuda", "--json")),
}


@pytest.mark.parametrize(("name", "args"), REAL.values(), ids=REAL.keys())
def test_real_documents(cli: Cli, tmp_path: Path, name: str, args: tuple[str, ...]) -> None:
    manifests.write(tmp_path, manifests.small(packing=True))
    typo = {**manifests.small(learning_rte=1, num_epochs=2), "other": None}
    (tmp_path / "typo.json").write_text(json.dumps(typo), encoding="utf-8")
    (tmp_path / "axolotl.yml").write_text(f"{AXOLOTL}\nwandb_name: one", encoding="utf-8")
    valid(json.loads(cli(*args).out), name)


def test_schema_prints_that_of_manifests(cli: Cli) -> None:
    printed = json.loads(cli("schema").out)
    assert printed == manifest_schema()
    assert json.loads(cli("schema", "--json").out)["schema"] == printed
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(printed)


def test_that_schema_accepts_comments_at_every_depth() -> None:
    def comment(value: Any) -> None:
        if isinstance(value, dict):
            for member in [*value.values()]:
                comment(member)
            value["_note"] = ["free", {"of": "form"}]

    manifest = read_json(ROOT / "experts" / "expert-sql" / "manifest.json")
    manifest["training"]["dataset"]["tasks"] = {"one": {"train": "a.jsonl"}}
    manifest["training"]["config"]["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    comment(manifest)
    assert manifest["training"]["dataset"]["tasks"]["one"]["_note"]
    jsonschema_rs.Draft202012Validator(manifest_schema()).validate(manifest)


def test_doctor_says_of_a_sound_machine_without_a_compiler_that_it_is_ready(cli: Cli, tmp_path: Path) -> None:
    done = cli("doctor", "--deep", "--json", CXX="no-such-compiler")
    document = json.loads(done.out)
    valid(document, "doctor")
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


def test_a_report_of_one_run_and_of_several(cli: Cli, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for folder in (a, b):
        folder.mkdir()
        (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n', encoding="utf-8")
    done = cli("report", a)
    assert (done.code, done.out) == (0, f"{a / 'report.html'}\n")
    assert (a / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert done.err == f"{a}: not finished\n"
    document = json.loads(cli("report", a, b, "--output", "two.html", "--json").out)
    valid(document, "report")
    assert document["endings"] == [{"state": "unknown", "words": "not finished", "go_on": ""}] * 2
    assert document["runs"] == [str(a.resolve()), str(b.resolve())]
    assert Path(document["report"]) == (tmp_path / "two.html").resolve()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """The data file that `manifests.small` names."""
    path = tmp_path / "datasets" / "train.jsonl"
    path.parent.mkdir()
    path.write_text('{"instruction": "a", "output": "b"}\n', encoding="utf-8")
    return path


def test_a_valid_manifest(cli: Cli, tmp_path: Path, rows: Path) -> None:
    manifests.write(tmp_path, manifests.small(use_unsloth=True))
    done = cli("validate", "manifest.json")
    assert (done.code, done.err) == (0, "")
    title, head, unused, valid = done.out.splitlines()
    assert title == "effects of the manifest: 9 applied, 0 adjusted, 0 informational, 1 not used"
    assert head == "status    key = value: effect (reason)"
    assert unused.startswith("not used  training.config.use_unsloth = true: ")
    assert valid == "manifest.json: valid"
    lines = cli("validate", "manifest.json", "--verbose").out.splitlines()
    defaults = [line for line in lines if line.startswith("default ")]
    counts = "9 applied, 0 adjusted, 0 informational, 1 not used"
    assert lines[0] == f"effects of the manifest: {counts}; {len(defaults)} defaults of keys that are not written"
    assert any(line.split()[1:4] == ["training.config.epochs", "=", "1.0:"] for line in defaults)
    assert unused.split() in [line.split() for line in lines]
    assert lines[-1] == "manifest.json: valid"
    assert cli("validate", "manifest.json", "--quiet").out == "manifest.json: valid\n"


def test_data_that_is_not_here_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    manifests.write(tmp_path, manifests.small())
    done = cli("validate", "manifest.json")
    assert done.code == 0
    assert done.err.startswith("warning: datasets/train.jsonl: no such file or folder; looked for at: ")
    assert len(done.err.splitlines()) == 1


def test_a_base_model_that_is_not_here_is_a_warning_and_a_manifest_that_is_not_has_no_line(
    cli: Cli, tmp_path: Path
) -> None:
    manifest = manifests.small()
    manifest["base_models"] += [{"name": "./none"}, {"name": "smolm2"}]
    manifests.write(tmp_path, manifest)
    done = cli("validate", "manifest.json", "no.json", "--quiet")
    told = [f"Base model {name} is not on this machine (looked in {tmp_path})" for name in ("./none", "smolm2")]
    assert done.err.splitlines()[1:] == [f"warning: {line}" for line in told]
    assert done.out.splitlines()[:2] == ["manifest.json: valid", "no.json: No such file or directory"]


def test_one_bad_manifest_of_two(cli: Cli, tmp_path: Path, rows: Path) -> None:
    (tmp_path / "bad").mkdir()
    manifests.write(tmp_path / "bad", manifests.small(learning_rte=1))
    manifests.write(tmp_path, manifests.small())
    bad = Path("bad", "manifest.json")
    done = cli("validate", bad, "manifest.json", "--quiet")
    assert done.code == 2
    assert done.out.splitlines() == [
        f"{bad}:19:7: training.config.learning_rte: unknown key, nearest known: learning_rate",
        "  did you mean learning_rate?",
        f"{bad}: 1 fault",
        "manifest.json: valid",
    ]
