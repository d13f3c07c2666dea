"""`pretokenize` on a tiny model: what it prints, and that a second call finds what the first one made."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import manifests
import pytest
import tiny
from typer.testing import CliRunner

import expert_cli
from expert_cli.cli import app
from expert_cli.errors import EnvironmentProblem

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
ROWS = [{"instruction": f"Say {n}.", "input": "", "output": "yes " * (1 + n % 9)} for n in range(40)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


def project(folder: Path, model: Path, rows: list[dict[str, str]] = ROWS, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    manifest = manifests.small(max_seq_length=64, **config)
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
    "masking": (lambda folder, model: project(folder, model, completion_only_loss=False), "stale", "masking"),
}


@pytest.mark.parametrize(("change", "state", "part"), CHANGES.values(), ids=CHANGES.keys())
def test_explain_says_what_changed(tmp_path: Path, model: Path, change: Any, state: str, part: str) -> None:
    manifest = project(tmp_path, model)
    pretokenize("-m", manifest)
    change(tmp_path, model)
    (row,) = pretokenize("-m", manifest, "--explain")
    assert row["status"] == state
    assert [line.split(":")[0] for line in row["changes"]] == ([part] if part else [])


def test_all_experts_into_one_folder_and_prune(tmp_path: Path, model: Path) -> None:
    for name in ("a", "b"):
        manifest = project(tmp_path / "experts" / name, model)
        written = json.loads(manifest.read_text(encoding="utf-8")) | {"name": f"expert-{name}"}
        manifests.write(manifest.parent, written)
    rows = pretokenize("--all", tmp_path / "experts", "--output", tmp_path / "out")
    assert [Path(row["path"]).parent for row in rows] == [tmp_path / "out" / "expert-a", tmp_path / "out" / "expert-b"]
    manifest = project(tmp_path / "experts" / "a", model, ROWS[1:])
    (row,) = pretokenize("-m", manifest, "--output", tmp_path / "out" / "expert-a", "--prune")
    stores = [path for path in (tmp_path / "out" / "expert-a").iterdir() if path.is_dir()]
    assert stores == [Path(row["path"])]


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


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, model: Path) -> None:
    experts = broken_between(tmp_path, model)
    done = CliRunner().invoke(app, ["pretokenize", "--all", str(experts), "--json", "--quiet"], catch_exceptions=False)
    document = json.loads(done.stdout)
    jsonschema_rs.validator_for(json.loads((SCHEMAS / "pretokenize.schema.json").read_text(encoding="utf-8"))).validate(
        document
    )
    assert [row["expert"] for row in document["stores"]] == ["expert-b"]
    assert [(Path(row["manifest"]).parent.name, row["exit_code"]) for row in document["failed"]] == [("a", 3), ("c", 2)]
    assert done.exit_code == 3


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


def test_prune_deletes_stores_and_nothing_else(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model)
    for name in ("applications", "0123456789ab", ".building-0123456789ab", ".building-site"):
        (tmp_path / "out" / name).mkdir(parents=True)
    (row,) = pretokenize("-m", manifest, "--output", tmp_path / "out", "--prune")
    left = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert left == {"applications", ".building-site", Path(row["path"]).name}


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


def files_of(home: Path) -> dict[str, bytes]:
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_a_killed_process_loses_nothing_and_the_store_is_that_of_an_unbroken_one(tmp_path: Path, model: Path) -> None:
    rows = [{"instruction": f"Say {n}.", "input": "", "output": f"yes {n * 7919}"} for n in range(90_000)]
    manifest = project(tmp_path, model, rows)
    command = [
        sys.executable,
        "-m",
        "expert_cli",
        "pretokenize",
        "-m",
        str(manifest),
        "--output",
        str(tmp_path / "out"),
    ]
    importable = {**os.environ, "PYTHONPATH": str(Path(expert_cli.__file__).parents[1])}
    killed = subprocess.Popen(command, env=importable, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list((tmp_path / "out").glob(".building-*/progress.json")):
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    killed.kill()
    killed.wait()
    (building,) = (tmp_path / "out").glob(".building-*")
    kept = {path: path.stat().st_ino for path in building.glob("train/data-00000.arrow")}
    (resumed,) = pretokenize("-m", manifest, "--output", tmp_path / "out")
    (unbroken,) = pretokenize("-m", manifest, "--output", tmp_path / "whole")
    assert resumed["rows"] == 90_000
    assert files_of(Path(resumed["path"])) == files_of(Path(unbroken["path"]))
    assert [(Path(resumed["path"]) / "train" / "data-00000.arrow").stat().st_ino] == list(kept.values())


def test_a_store_that_cannot_be_written_is_used(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = project(tmp_path, model)
    (built,) = pretokenize("-m", manifest)
    store = Path(built["path"])
    os.utime(store / "stats.json")  # so that there is a hash to remember

    def read_only(_: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "fsync", read_only)
    (found,) = pretokenize("-m", manifest)
    assert (found["status"], found["path"]) == ("hit", built["path"])
    done = CliRunner().invoke(app, ["pretokenize", "-m", str(manifest), "--force", "--json", "--quiet"])
    assert isinstance(done.exception, EnvironmentProblem)
    assert not list(store.parent.glob(".building-*"))


def test_shown_documents_mark_what_is_trained(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model)
    done = CliRunner().invoke(
        app, ["pretokenize", "-m", str(manifest), "--show", "1", "--quiet"], catch_exceptions=False
    )
    assert "»yes <|im_end|>«" in done.stdout
    assert "right size" in done.stdout
