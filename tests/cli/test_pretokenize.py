"""`pretokenize` on a tiny model: what it prints, and that a second call finds what the first one made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk
from filelock import FileLock
from typer.testing import CliRunner

from expert_cli.cli import app
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.store import build
from expert_cli.pipeline.pretokenize import token_texts
from expert_cli.pipeline.staging import staged_inputs
from expert_cli.pipeline.training_data import resolve_inputs
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.schemas import valid
from tests.train import projects

ROWS = [{"instruction": f"Say {n}.", "input": "", "output": "yes " * (1 + n % 9)} for n in range(40)]


def project(folder: Path, rows: Sequence[dict[str, Any]] = ROWS, **config: Any) -> Path:
    return projects.project(folder, rows=rows, **config)


def pretokenize(*args: str | Path) -> Any:
    """Run the command in this process (the training libraries are loaded) and return its JSON document."""
    done = CliRunner().invoke(app, ["pretokenize", *map(str, args), "--json", "--quiet"], catch_exceptions=False)
    document = json.loads(done.stdout)
    valid(document, "pretokenize")
    return document["stores"]


def test_built_then_hit_then_built_by_force(tmp_path: Path) -> None:
    manifest = project(tmp_path)
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


ODD_NAMES = ("../../x", "..", "专家一", "专家二", "Expert SQL", "e" * 300)


def test_no_name_leads_out_of_the_output_folder(tmp_path: Path) -> None:
    for number, name in enumerate(ODD_NAMES):
        project(tmp_path / "experts" / str(number), name=name)
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


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    experts = tmp_path / "experts"
    project(experts / "a", name="expert-a", base={"name": str(tmp_path / "nowhere")})
    project(experts / "b", name="expert-b")
    project(experts / "c", name="expert-c", max_seq_length="long")
    done = CliRunner().invoke(app, ["pretokenize", "--all", str(experts), "--quiet"], catch_exceptions=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert said[0].startswith(f"warning: {experts / 'a' / 'manifest.json'}: ")
    assert str(tmp_path / "nowhere") in said[0]
    assert said[-1].startswith(f"warning: {experts / 'c' / 'manifest.json'}:")
    assert "expert-b: built" in done.stdout


def test_prune_deletes_this_experts_stores_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    pretokenize("-m", project(tmp_path, ROWS[1:]), "--output", out)
    (kept,) = pretokenize("-m", project(tmp_path / "other", ROWS[2:], name="other"), "--output", out)
    for name in ("applications", "202411220230", "deadbeef0123", ".building-0123456789ab", ".building-site"):
        (out / name).mkdir(parents=True)
    (out / "deadbeef0123" / "fingerprint.json").write_text('{"key": "deadbeef0123", "mine": true}', encoding="utf-8")
    (tmp_path / "other" / "progress.json").write_text('{"shards": []}', encoding="utf-8")
    (out / ".building-bbbbbbbbbbbb").symlink_to(tmp_path / "other")
    (row,) = pretokenize("-m", project(tmp_path), "--output", out, "--prune")
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


def test_prune_leaves_a_store_that_is_being_built(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (old,) = pretokenize("-m", project(tmp_path, ROWS[1:]), "--output", out)
    with FileLock(out / f".lock-{Path(old['path']).name}"):
        pretokenize("-m", project(tmp_path), "--output", out, "--prune")
    assert Path(old["path"]).is_dir()
    pretokenize("-m", tmp_path / "manifest.json", "--output", out, "--prune")
    assert not Path(old["path"]).exists()


def test_staged_data_gives_the_same_key_and_store(tmp_path: Path) -> None:
    manifest = project(tmp_path)
    (plain,) = pretokenize("-m", manifest)
    (staged,) = pretokenize("-m", manifest, "--stage", tmp_path / "fast", "--output", tmp_path / "out")
    assert staged["key"] == plain["key"]
    (copy,) = (tmp_path / "fast").rglob("*.jsonl")
    inputs = resolve_inputs(make_plan(manifest, projects.here(), Overrides()).run, NullReporter())
    assert staged_inputs(inputs, tmp_path / "fast", NullReporter()).located.files() == [copy]


def test_a_case_is_found_among_rows_whose_database_is_shown(tmp_path: Path) -> None:
    row = {"verifier": "exact", "expected": "yes"}
    shown = {"instruction": "Who?", "input": "CREATE TABLE a (b);", "output": "no"}
    asked = {"prompt": "who?", "input": shown["input"]}
    manifest = project(tmp_path, [shown], dataset={"schema_prompt": {}}, cases=[row | asked])
    assert pretokenize("--manifest", manifest)[0]["overlap"]["cases"] == {"rows": 1, "same": 1}


def test_what_evaluates_and_stands_in_the_training_rows_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second call looks at no row."""
    row = {"id": "a", "verifier": "exact", "expected": "yes", "prompt": "Say 2."}
    said = {"instruction": "say  9.", "input": "", "output": "no"}
    filters = {"deduplicate": True, "max_length": 40}
    dataset = {"validation_path": "valid.jsonl", "filters": filters}
    manifest = project(tmp_path / "one", [*ROWS, ROWS[5]], dataset=dataset, cases=[row])
    projects.write_rows(tmp_path / "one" / "valid.jsonl", [said, said | {"instruction": "?"}])
    built = pretokenize("--manifest", manifest)[0]
    monkeypatch.setattr(build, "select", None)
    again = pretokenize("--manifest", manifest)[0]
    assert (built["status"], again["status"]) == ("built", "hit")
    assert built["overlap"] == again["overlap"]
    validation = built["overlap"]["validation"]
    assert (validation["rows"], validation["same"]) == (2, 1)
    assert built["overlap"]["cases"] == {"rows": 1, "same": 1}
    longer = [row for row in ROWS if len(row["instruction"] + row["output"]) > 40]
    assert built["dropped"] == {"longer than 40 characters": len(longer), "repeated": 1}
    force = ["pretokenize", "--manifest", str(manifest), "--force"]
    monkeypatch.undo()
    shown = " ".join(CliRunner().invoke(app, force, catch_exceptions=False).output.split())
    assert "1 of 2 validation rows also occur in the training rows; " in shown
    assert "1 of 1 cases also occur in the training rows; " in shown


TALK = {
    "messages": [
        {"role": "user", "content": "Say <|im_end|> <script>alert(1)</script>\n\tnow"},
        {"role": "assistant", "content": "no", "weight": 0},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": "yes yes"},
    ]
}


def test_tokens_and_mask_are_those_of_the_store(tmp_path: Path) -> None:
    (store,) = pretokenize("-m", project(tmp_path, [TALK] * 3, max_seq_length=256), "--show", "2")
    document = store["documents"][1]
    stored = load_from_disk(store["path"])["train"][1]
    assert len(store["documents"]) == 2
    assert document["ids"] == stored["input_ids"]
    assert "".join(document["tokens"]) == tiny.tiny_tokenizer().decode(stored["input_ids"])
    assert document["trained"] == stored["completion_mask"]


def test_marks_tell_trained_from_untrained_without_colors(tmp_path: Path) -> None:
    manifest = project(tmp_path, [TALK] * 2, max_seq_length=256)
    done = CliRunner().invoke(app, ["pretokenize", "-m", str(manifest), "--show", "1", "--quiet"])
    lines = done.stdout[done.stdout.index("document 1") :].splitlines()
    assert "".join(line[2:].replace("¦", "") for line in lines if line.startswith("» ")) == "yes yes<|im_end|>"


@pytest.mark.parametrize("text", ["héllo 😀 wörld", " a\n\n b", "\ufffd?", "漢字かな"])
def test_tokens_together_are_the_text(text: str) -> None:
    tokenizer = tiny.tiny_tokenizer().backend_tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    texts = token_texts(tokenizer, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == tokenizer.decode(ids, skip_special_tokens=False) == text
