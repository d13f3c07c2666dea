"""What the commands print with --json is what docs/schemas/ promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from expert_cli.cli import COMMANDS
from tests import manifests
from tests.configs import AXOLOTL

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
Cli = Callable[..., Any]


def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")))


def test_every_command_and_the_failure_have_a_schema() -> None:
    assert {path.name.removesuffix(".schema.json") for path in SCHEMAS.glob("*.json")} >= {*COMMANDS, "failure"}


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_a_schema_is_valid(path: Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))
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
    validator(name).validate(json.loads(cli(*args).out))
