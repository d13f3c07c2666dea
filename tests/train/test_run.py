"""The whole path on a tiny model: a manifest goes in, an adapter comes out."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError, TrainingFailed
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.metrics import read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import sha256_of
from tests import manifests, tiny
from tests.packs import let_documents_leak
from tests.train.projects import logged, project, train
from tests.words import Words


def test_the_run_directory_holds_what_it_should(tmp_path: Path) -> None:
    result = train(project(tmp_path))
    paths = RunPaths(result.output)
    assert result.output == tmp_path / "weights" / "tiny-llama"
    assert result.document["steps"] == 6
    assert result.document["loss"]["last"] < result.document["loss"]["first"]
    assert result.document["adapter_sha256"] == sha256_of(paths.adapter / "adapter_model.safetensors")
    assert paths.complete.read_text(encoding="utf-8").startswith(result.document["adapter_sha256"])
    assert read_json(paths.report_json) == json.loads(json.dumps(result.document))
    recorded = read_json(paths.run_json)
    assert recorded["data"]["files"] == {str(tmp_path / "train.jsonl"): sha256_of(tmp_path / "train.jsonl")}
    assert recorded["store"]["key"] == result.document["store"]["key"]
    losses = logged(result.output, "loss")
    assert (list(losses), losses[1]) == ([1, 2, 4, 6], pytest.approx(result.document["loss"]["first"], abs=1e-4))
    assert (paths.adapter / "README.md").read_text(encoding="utf-8").startswith("---\nbase_model: tiny-llama\n")


def test_an_adapter_is_written_through_no_link(tmp_path: Path) -> None:
    output = tmp_path / "weights" / "tiny-llama"
    (tmp_path / "elsewhere").mkdir()
    output.mkdir(parents=True)
    for name in ("adapter", ".adapter.tmp"):
        (output / name).symlink_to(tmp_path / "elsewhere")
    train(project(tmp_path, max_steps=1), options=RunOptions(resume="auto"))
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (output / "adapter").is_symlink()
    assert (output / "adapter" / "adapter_model.safetensors").is_file()


def test_a_model_whose_documents_see_each_other_is_not_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_documents_leak(monkeypatch)
    with pytest.raises(EnvironmentProblem, match="packed documents are not what they are alone"):
        train(project(tmp_path))
    assert not (tmp_path / "weights" / "tiny-llama" / "metrics.jsonl").exists()


def test_doras_magnitudes_that_stand_still_end_a_run(tmp_path: Path) -> None:
    """As they would in bf16: a step is too small to be seen."""
    with pytest.raises(TrainingFailed, match=r"none of the \d+ DoRA magnitude vectors moved"):
        train(project(tmp_path, adapter_type="dora", learning_rate=1e-12, max_steps=2))


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path: Path) -> None:
    hashes = [
        train(project(tmp_path / name, dropout=0.1, dataloader_num_workers=workers), seed=seed).document[
            "adapter_sha256"
        ]
        for name, seed, workers in (("a", 1, 0), ("b", 1, 2), ("c", 2, 0))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_learning_rate_runs_as_written_constant_keeps_its_warm_up(tmp_path: Path) -> None:
    words = Words()
    train(project(tmp_path / "short", max_steps=1, lr_scheduler="linear", warmup_ratio=0.5), report=words)
    told = (
        "warning: the warm-up takes 1 steps and the run has 1: the learning rate begins at 0 and ends at 0, not at 0.02"
    )
    assert told in words.lines
    config = {"lr_scheduler": "constant", "warmup_steps": 0, "warmup_ratio": 0.5}
    rates = logged(train(project(tmp_path, logging_steps=1, **config)).output, "learning_rate")
    assert list(rates.values()) == pytest.approx([0.02 * share for share in (0, 1 / 3, 2 / 3, 1, 1, 1)])


def test_overwrite_moves_the_run_that_is_there_aside(tmp_path: Path) -> None:
    manifest = project(tmp_path, max_steps=1)
    first = train(manifest)
    train(manifest, options=RunOptions(overwrite=True))
    (kept,) = [path for path in first.output.parent.iterdir() if path.is_dir() and path != first.output]
    assert (kept / "COMPLETE").exists()


def test_tensorboard_and_metrics_are_written_where_report_to_says(tmp_path: Path) -> None:
    result = train(project(tmp_path, report_to="tensorboard"))
    events = EventAccumulator(str(RunPaths(result.output).tensorboard)).Reload()
    tags = set(events.Tags()["scalars"])
    assert {"train/loss", "train/tokens_per_s", "train/memory_mb"} <= tags
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 4, 6]
    assert not (tmp_path / "runs").exists()


def test_secrets_of_a_manifest_reach_no_file(tmp_path: Path) -> None:
    manifest = read_json(project(tmp_path, max_steps=1))
    secret = "hf_" + "A1b2" * 8 + "Cd"
    manifest |= {"author": secret, "runtime": {"note": f"use {secret}"}}
    result = train(manifests.write(tmp_path, manifest))
    written = [path for path in result.output.rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if secret.encode() in path.read_bytes()]


def test_a_foreign_store_is_used_only_if_trusted(tmp_path: Path) -> None:
    manifest = project(tmp_path, max_steps=1, pretokenized_cache="tokenized")
    rows = {"input_ids": [[5, 6, 7, 8]] * 64, "completion_mask": [[False, True, True, True]] * 64}
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows)}).save_to_disk(tmp_path / "tokenized")
    assert train(manifest).document["store"]["status"] == "built"
    trusted = train(manifest, options=RunOptions(overwrite=True, trust_store=True))
    assert Path(trusted.document["store"]["path"]).parent == tmp_path / "tokenized"
    assert trusted.document["store"]["tokens"] == 256
    with pytest.raises(IntegrityError, match=r"store.trusted: [0-9a-f]{12} -> none"):
        train(manifest, output=tmp_path / "b", options=RunOptions(locked=trusted.output / "run.json"))


def test_documents_beyond_the_positions_of_the_base_model_are_refused(tmp_path: Path) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "short", max_position_embeddings=32)
    rows = [{"instruction": "abc " * 9, "input": "", "output": "yes"}] * 8
    assert train(project(tmp_path / "packs", folder, max_steps=1)).document["steps"] == 1, "packs may be longer"
    with pytest.raises(
        InputError, match=r"a document of \d\d tokens fits max_seq_length 64, .* has 32 positions"
    ) as caught:
        train(project(tmp_path / "documents", folder, rows, max_steps=1))
    assert "max_seq_length to 32" in caught.value.hint
    scaled = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    assert train(project(tmp_path / "scaled", folder, rows, base=scaled, max_steps=1)).document["steps"] == 1


def test_the_best_evaluation_is_kept_whenever_checkpoints_are_written_and_nothing_is_pickled(tmp_path: Path) -> None:
    config = {"load_best_model_at_end": True, "learning_rate": 5.0, "max_steps": 8, "seed": 12}
    config |= {"eval_steps": 2, "save_steps": 3, "save_total_limit": 2}
    result = train(project(tmp_path, logging_steps=1, **config))
    evaluated = logged(result.output, "eval_loss")
    best = min(evaluated, key=lambda step: evaluated[step])
    assert best in (2, 4, 6), "the last step would be saved anyway: another seed"
    assert result.document["eval_loss"] == evaluated[best]
    kept = result.output / "checkpoints" / f"checkpoint-{best}" / "adapter_model.safetensors"
    steps = {int(path.name.partition("-")[2]) for path in (result.output / "checkpoints").iterdir()}
    assert steps >= {best, 4, 8}, "the best and the newest; save_steps is a multiple of eval_steps"
    assert len(steps) == 3
    written = [path for path in result.output.rglob("*") if path.is_file()]
    assert not [path for path in written if path.suffix in (".bin", ".pt", ".pth", ".pkl", ".pickle")]
    assert not [path for path in written if path.read_bytes()[:2] in (b"PK", b"\x80\x02", b"\x80\x04", b"\x80\x05")]
    mine, best_tensors = load_file(result.output / "adapter" / "adapter_model.safetensors"), load_file(kept)
    assert all(torch.equal(mine[name], best_tensors[name]) for name in best_tensors)
