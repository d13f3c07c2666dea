"""The printed schema: valid itself, right about real manifests, strict about typos."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from expert_cli.commands.schema import manifest_schema

SQL = json.loads((Path(__file__).parents[2] / "experts" / "expert-sql" / "manifest.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def validator() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(manifest_schema())


def test_the_command_prints_it(cli: Callable[..., Any]) -> None:
    printed = json.loads(cli("schema").out)
    assert printed == manifest_schema()
    assert json.loads(cli("schema", "--json").out)["schema"] == printed
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(printed)


def test_it_accepts_comments_at_every_depth(validator: jsonschema_rs.Draft202012Validator) -> None:
    def comment(value: Any) -> None:
        if isinstance(value, dict):
            for member in [*value.values()]:
                comment(member)
            value["_note"] = ["free", {"of": "form"}]

    manifest = copy.deepcopy(SQL)
    manifest["training"]["dataset"]["tasks"] = {"one": {"train": "a.jsonl"}}
    manifest["training"]["config"]["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    comment(manifest)
    assert manifest["training"]["dataset"]["tasks"]["one"]["_note"]
    validator.validate(manifest)
