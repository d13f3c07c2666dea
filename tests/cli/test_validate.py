"""validate: what it prints and what it returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.manifest.key import declared
from expert_cli.manifest.training_config import TrainingConfig
from tests import manifests

Cli = Callable[..., Any]


def document(done: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(done.out)
    assert done.out.count("\n") == 1
    return value


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
    assert head.split() == ["key", "value", "status", "effect", "and", "reason"]
    assert unused.split()[:4] == ["training.config.use_unsloth", "true", "not", "used"]
    assert valid == "manifest.json: valid"
    lines = cli("validate", "manifest.json", "--verbose").out.splitlines()
    defaults = [line for line in lines if " default " in line]
    counts = "9 applied, 0 adjusted, 0 informational, 1 not used"
    assert lines[0] == f"effects of the manifest: {counts}; {len(defaults)} defaults of keys that are not written"
    epochs = next(line for line in defaults if line.startswith("training.config.epochs "))
    assert epochs.split()[1:3] == ["1.0", "default"]
    assert unused.split() in [line.split() for line in lines]
    assert lines[-1] == "manifest.json: valid"
    assert cli("validate", "manifest.json", "--quiet").out == "manifest.json: valid\n"


def test_json_lists_every_key_once(cli: Cli, tmp_path: Path, rows: Path) -> None:
    manifests.write(tmp_path, manifests.small(_note="a comment"))
    done = cli("validate", "manifest.json", "--json")
    assert (done.code, done.err) == (0, "")
    value = document(done)
    assert (value["schema_version"], value["command"], value["valid"]) == (1, "validate", True)
    (entry,) = value["manifests"]
    assert (entry["path"], entry["errors"], entry["warnings"]) == ("manifest.json", [], [])
    assert [effect["key"] for effect in entry["effects"]] == [
        *("name", "schema_version", "base_models[0].name", "base_models[0].quantization", "training.dataset.path"),
        *(f"training.config.{key}" for key in ("adapter_type", "rank", "alpha", "learning_rate")),
    ]
    assert "fixes" not in entry
    defaults = {row["key"]: row for row in entry["defaults"]}
    assert defaults.keys().isdisjoint(effect["key"] for effect in entry["effects"])
    assert defaults["training.config.max_seq_length"] == {
        "key": "training.config.max_seq_length",
        "value": 2048,
        "status": "applied",
        "effect": "a row holds 2048 tokens; longer documents lose the middle of their prompt",
        "reason": declared(TrainingConfig, "max_seq_length").why,
    }


def test_data_that_is_not_here_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    manifests.write(tmp_path, manifests.small())
    done = cli("validate", "manifest.json")
    assert done.code == 0
    assert done.err.startswith("warning: datasets/train.jsonl: no such file or folder; looked for at: ")
    assert len(done.err.splitlines()) == 1


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
        f"{bad}: 1 fault(s)",
        "manifest.json: valid",
    ]
    value = document(cli("validate", bad, "manifest.json", "--json"))
    assert [entry["valid"] for entry in value["manifests"]] == [False, True]
    assert value["manifests"][0]["errors"][0] == {
        "file": str(bad),
        "line": 19,
        "column": 7,
        "key": "training.config.learning_rte",
        "message": "unknown key, nearest known: learning_rate",
        "suggestion": "did you mean learning_rate?",
    }


def test_secrets_do_not_reach_the_table(cli: Cli, tmp_path: Path, rows: Path) -> None:
    manifest = {**manifests.small(), "runtime": {"login": "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"}}
    manifests.write(tmp_path, manifest)
    for args in (["--json"], ["--verbose"]):
        done = cli("validate", "manifest.json", *args)
        assert "***" in done.out
        assert "hf_abc" not in done.out + done.err
