"""`pretokenize` on a tiny model: what it prints, and that a second call finds what the first one made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from expert_cli.cli import app
from expert_cli.data.store import build
from tests import manifests, tiny

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
ROWS = [{"instruction": f"Say {n}.", "input": "", "output": "yes " * (1 + n % 9)} for n in range(40)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


def project(folder: Path, model: Path, rows: list[dict[str, Any]] = ROWS, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    manifest = manifests.small(**{"max_seq_length": 64, **config})
    manifest["base_models"][0]["name"] = str(model)
    manifest["training"]["dataset"] = {"path": "train.jsonl"}
    return manifests.write(folder, manifest)


def pretokenize(*args: str | Path) -> Any:
    """Run the command in this process (the training libraries are loaded) and return its JSON document."""
    done = CliRunner().invoke(app, ["pretokenize", *map(str, args), "--json", "--quiet"], catch_exceptions=False)
    document = json.loads(done.stdout)
    jsonschema_rs.validator_for(json.loads((SCHEMAS / "pretokenize.schema.json").read_text(encoding="utf-8"))).validate(
        document
    )
    return document["stores"]


def test_built_then_hit_then_built_by_force(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model)
    (first,) = pretokenize("-m", manifest)
    (second,) = pretokenize("-m", manifest)
    (third,) = pretokenize("-m", manifest, "--force")
    assert [row["status"] for row in (first, second, third)] == ["built", "hit", "rebuilt"]
    assert first["key"] == second["key"] == third["key"]
    assert (first["rows"], first["packing"]["max_seq_length"]) == (40, 64)
    uncut = [row["max_seq_length"] for row in first["right_size"] if not row["truncated_tokens"]]
    assert first["recommended_max_seq_length"] == uncut[0] == 64
    assert Path(first["path"]).name == first["key"][:12]
    assert Path(first["path"]).parent == tmp_path / "datasets_optimized" / "expert-small" / "tokenized"


CHANGES: dict[str, tuple[Callable[[Path, Path], Any], str, str]] = {
    "nothing": (project, "hit", ""),
    "length and packing": (lambda folder, model: project(folder, model, packing=False, epochs=3), "hit", ""),
    "a row": (lambda folder, model: project(folder, model, ROWS[1:]), "stale", "train data"),
    "masking": (lambda folder, model: project(folder, model, completion_only_loss=False), "stale", "trained turns"),
}


@pytest.mark.parametrize(("change", "state", "part"), CHANGES.values(), ids=CHANGES.keys())
def test_explain_says_what_changed(tmp_path: Path, model: Path, change: Any, state: str, part: str) -> None:
    manifest = project(tmp_path, model)
    pretokenize("-m", manifest)
    change(tmp_path, model)
    (row,) = pretokenize("-m", manifest, "--explain")
    assert row["status"] == state
    assert [line.split(":")[0] for line in row["changes"]] == ([part] if part else [])


ODD_NAMES = ("../../x", "..", "专家一", "专家二", "Expert SQL", "e" * 300)


def test_no_name_leads_out_of_the_output_folder(tmp_path: Path, model: Path) -> None:
    for number, name in enumerate(ODD_NAMES):
        manifest = project(tmp_path / "experts" / str(number), model)
        manifests.write(manifest.parent, json.loads(manifest.read_text(encoding="utf-8")) | {"name": name})
    done = CliRunner().invoke(
        app, ["pretokenize", "--all", str(tmp_path / "experts"), "--output", str(tmp_path / "out"), "--json", "--quiet"]
    )
    document = json.loads(done.stdout)
    built = {row["expert"]: Path(row["path"]) for row in document["stores"]}
    refused = {ODD_NAMES[int(Path(row["manifest"]).parent.name)] for row in document.get("failed", ())}
    assert set(built) | refused == set(ODD_NAMES)
    assert {"专家一", "专家二", "Expert SQL"} <= set(built)
    assert all(path.parent.parent == tmp_path / "out" for path in built.values())
    assert len({path.parent for path in built.values()}) == len(built)
    assert {path.name for path in tmp_path.iterdir()} == {"experts", "out"}


def broken_between(tmp_path: Path, model: Path) -> Path:
    """Make experts a (no such model), b (sound) and c (a manifest with a fault); return their folder."""
    for name in ("a", "b", "c"):
        manifest = project(tmp_path / "experts" / name, model)
        written = json.loads(manifest.read_text(encoding="utf-8")) | {"name": f"expert-{name}"}
        if name == "a":
            written["base_models"][0]["name"] = str(tmp_path / "nowhere")
        if name == "c":
            written["training"]["config"]["max_seq_length"] = "long"
        manifests.write(manifest.parent, written)
    return tmp_path / "experts"


def test_what_failed_is_said_at_the_end(tmp_path: Path, model: Path) -> None:
    experts = broken_between(tmp_path, model)
    done = CliRunner().invoke(app, ["pretokenize", "--all", str(experts), "--quiet"], catch_exceptions=False)
    said = [line for line in done.stderr.splitlines() if line.startswith(("warning: 2", "error: "))]
    assert said[0] == "warning: 2 of 3 experts failed"
    assert said[1].startswith(f"error: {experts / 'a' / 'manifest.json'}: ")
    assert str(tmp_path / "nowhere") in said[1]
    assert said[2].startswith(f"error: {experts / 'c' / 'manifest.json'}:")
    assert said[2].count("manifest.json") == 1
    assert "expert-b: built" in done.stdout


def test_prune_deletes_this_experts_stores_and_nothing_else(tmp_path: Path, model: Path) -> None:
    out = tmp_path / "out"
    pretokenize("-m", project(tmp_path, model, ROWS[1:]), "--output", out)
    manifest = project(tmp_path, model, ROWS[2:])
    (tmp_path / "other").mkdir()
    other = manifests.write(tmp_path / "other", json.loads(manifest.read_text(encoding="utf-8")) | {"name": "other"})
    (kept,) = pretokenize("-m", other, "--dataset", tmp_path / "train.jsonl", "--output", out)
    for name in ("applications", "202411220230", "deadbeef0123", ".building-0123456789ab", ".building-site"):
        (out / name).mkdir(parents=True)
    (out / "deadbeef0123" / "fingerprint.json").write_text('{"key": "deadbeef0123", "mine": true}', encoding="utf-8")
    (tmp_path / "other" / "progress.json").write_text('{"shards": []}', encoding="utf-8")
    (out / ".building-bbbbbbbbbbbb").symlink_to(tmp_path / "other")
    CliRunner().invoke(
        app,
        ["pretokenize", "-m", str(project(tmp_path, model)), "--output", str(out), "--prune"],
        catch_exceptions=False,
    )
    (row,) = pretokenize("-m", tmp_path / "manifest.json", "--output", out)
    assert {path.name for path in out.iterdir() if path.is_dir()} == {
        "applications",
        "202411220230",
        "deadbeef0123",
        ".building-site",
        ".building-bbbbbbbbbbbb",
        Path(kept["path"]).name,
        Path(row["path"]).name,
    }
    assert (tmp_path / "other" / "manifest.json").is_file()


def test_prune_leaves_a_store_that_is_being_built(tmp_path: Path, model: Path) -> None:
    out = tmp_path / "out"
    (old,) = pretokenize("-m", project(tmp_path, model, ROWS[1:]), "--output", out)
    with FileLock(out / f".lock-{Path(old['path']).name}"):
        pretokenize("-m", project(tmp_path, model), "--output", out, "--prune")
    assert Path(old["path"]).is_dir()
    pretokenize("-m", tmp_path / "manifest.json", "--output", out, "--prune")
    assert not Path(old["path"]).exists()


def test_several_experts_in_one_folder_keep_their_stores_apart(tmp_path: Path, model: Path) -> None:
    paths = []
    for name in ("a", "b"):
        manifest = project(tmp_path / name, model)
        written = json.loads(manifest.read_text(encoding="utf-8")) | {"name": f"expert-{name}"}
        paths += ["-m", manifests.write(manifest.parent, written)]
    rows = pretokenize(*paths, "--output", tmp_path / "out", "--prune")
    assert [Path(row["path"]).parent for row in rows] == [tmp_path / "out" / "expert-a", tmp_path / "out" / "expert-b"]
    assert all(Path(row["path"]).is_dir() for row in rows)


def test_staged_data_gives_the_same_key_and_store(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model)
    (plain,) = pretokenize("-m", manifest)
    (staged,) = pretokenize("-m", manifest, "--stage", tmp_path / "fast", "--output", tmp_path / "out")
    assert staged["key"] == plain["key"]
    assert [path.name for path in (tmp_path / "fast").rglob("*.jsonl")] == ["train.jsonl"]


def test_what_evaluates_and_stands_in_the_training_rows_is_told_again_from_the_store(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second call looks at no row; cases that changed meanwhile are told as not looked for."""
    manifest = project(tmp_path / "one", model, [*ROWS, ROWS[5]])
    said = {"instruction": "say  9.", "input": "", "output": "no"}
    (tmp_path / "one" / "valid.jsonl").write_text(
        json.dumps(ROWS[0] | said) + "\n" + json.dumps(said | {"instruction": "?"})
    )
    written = json.loads(manifest.read_text(encoding="utf-8"))
    written["training"]["dataset"] |= {
        "validation_path": "valid.jsonl",
        "filters": {"deduplicate": True, "max_length": 40},
    }
    manifests.write(tmp_path / "one", written)
    cases = tmp_path / "one" / "tests" / "cases.jsonl"
    cases.parent.mkdir()
    row = {"id": "a", "verifier": "exact", "expected": "yes", "prompt": "Say 2."}
    cases.write_text(json.dumps(row) + "\n", encoding="utf-8")
    built = pretokenize("--manifest", manifest)[0]
    monkeypatch.setattr(build, "select", None)
    again = pretokenize("--manifest", manifest)[0]
    assert (built["status"], again["status"]) == ("built", "hit")
    assert built["overlap"] == again["overlap"]
    validation = built["overlap"]["validation"]
    assert (validation["rows"], validation["same"]) == (2, 1)
    assert validation["examples"] == ["one/valid.jsonl:row 1 as one/train.jsonl:row 10"]
    assert built["overlap"]["cases"]["examples"] == ["tests/cases.jsonl:1 as one/train.jsonl:row 3"]
    longer = [row for row in ROWS if len(row["instruction"] + row["output"]) > 40]
    assert built["dropped"] == {"longer than 40 characters": len(longer), "repeated": 1}
    shown = CliRunner().invoke(app, ["pretokenize", "--manifest", str(manifest)], catch_exceptions=False).output
    shown = " ".join(shown.split())
    assert "1 of 2 validation rows stand in the training rows, too: " in shown
    assert "1 of 1 cases stand in the training rows, too" in shown
    cases.write_text(json.dumps(row | {"prompt": "Say 3."}) + "\n", encoding="utf-8")
    changed = CliRunner().invoke(app, ["pretokenize", "--manifest", str(manifest)], catch_exceptions=False).output
    assert "cases stand" not in " ".join(changed.split())
    for line, fault in (("{", "not JSON"), ('{"prompt": 3}', '"prompt" is a number, not text')):
        cases.write_text(json.dumps(row) + "\n" + line, encoding="utf-8")
        told = CliRunner().invoke(app, ["pretokenize", "--manifest", str(manifest)], catch_exceptions=False).output
        assert f"cases.jsonl:2: {fault}".replace(" ", "") in "".join(told.split())
