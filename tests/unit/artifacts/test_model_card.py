"""The model card says what the effects table promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from expert_cli.artifacts.model_card import model_card
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.hardware.machine import inspect
from expert_cli.utils.files import write_text
from tests import manifests


def test_every_key_that_is_carried_to_the_card_stands_there(tmp_path: Path) -> None:
    manifest = manifests.small() | {
        "description": "Says yes.",
        "license": "MIT",
        "version": "1.2.0",
        "capabilities": ["say:yes"],
        "repository": {"url": "https://example.org/yes"},
        "color": "green",
        "limits": ['says "yes"\nor no', 'not "/help"'],
    }
    manifest["training"] |= {"trained_on": "/home/ada/laptop"}
    manifest["training"]["dataset"]["sources"] = [{"name": "rows", "rows": 40}]
    plan = make_plan(manifests.write(tmp_path, manifest), inspect(), Overrides())
    card = model_card(plan, None, "tiny")
    carried = json.loads(card.split("```json\n")[1].split("```")[0])
    assert carried["version"] == "1.2.0"
    assert carried["capabilities"] == ["say:yes"]
    assert carried["repository.url"] == "https://example.org/yes"
    assert carried["color"] == "green"
    assert carried["limits"] == manifest["limits"]
    assert carried["training.trained_on"] == "ada/laptop"
    assert carried["training.dataset.sources"] == [{"name": "rows", "rows": 40}]
    assert "Says yes." in card
    assert "description" not in carried


@pytest.mark.parametrize(("written", "front"), [("Apache-2.0", {"license": "apache-2.0"}), ("", {})])
def test_the_license_is_spelled_as_the_hub_takes_it(tmp_path: Path, written: str, front: dict[str, str]) -> None:
    manifest = manifests.write(tmp_path, manifests.small() | {"license": written})
    card = model_card(make_plan(manifest, inspect(), Overrides()), None, "tiny")
    data = yaml.safe_load(card.split("---\n")[1])
    assert {key: value for key, value in data.items() if key.startswith("license")} == front


def test_a_card_without_its_secrets_is_still_json_and_yaml(tmp_path: Path) -> None:
    noted = {"author": '"hf_' + "b" * 34 + '"', "tags": ["hf_" + "a" * 34]}
    plan = make_plan(manifests.write(tmp_path, manifests.small() | noted), inspect(), Overrides())
    write_text(tmp_path / "README.md", model_card(plan, None, "tiny"))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert json.loads(card.split("```json\n")[1].split("```")[0])["author"] == '"***"'
    assert yaml.safe_load(card.split("---\n")[1])["tags"] == ["***"]
