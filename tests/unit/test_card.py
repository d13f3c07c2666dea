"""The model card says what the effects table promises."""

from __future__ import annotations

import json
from pathlib import Path

import manifests

from expert_cli.card import model_card
from expert_cli.config import Overrides
from expert_cli.machine import inspect
from expert_cli.plan import make_plan


def test_every_key_that_is_carried_to_the_card_stands_there(tmp_path: Path) -> None:
    manifest = manifests.small() | {
        "description": "Says yes.",
        "license": "MIT",
        "version": "1.2.0",
        "capabilities": ["say:yes"],
        "repository": {"url": "https://example.org/yes"},
        "colour": "green",
    }
    manifest["training"] |= {"trained_on": "a laptop"}
    manifest["training"]["dataset"]["sources"] = [{"name": "rows", "rows": 40}]
    plan = make_plan(manifests.write(tmp_path, manifest), inspect(), Overrides())
    card = model_card(plan, None)
    carried = json.loads(card.split("```json\n")[1].split("```")[0])
    assert carried["version"] == "1.2.0"
    assert carried["capabilities"] == ["say:yes"]
    assert carried["repository.url"] == "https://example.org/yes"
    assert carried["colour"] == "green"
    assert carried["training.trained_on"] == "a laptop"
    assert carried["training.dataset.sources"] == [{"name": "rows", "rows": 40}]
    assert "Says yes." in card
    assert "description" not in carried
