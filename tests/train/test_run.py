"""The whole path on a tiny model: a manifest goes in, an adapter comes out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from expert_cli.errors import InputError, IntegrityError, RunLocked, TrainingFailed
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.paths import RunPaths
from expert_cli.utils.files import sha256_of
from tests import manifests, tiny
from tests.train.projects import ROWS, project, sick_project, train


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


def test_the_run_directory_holds_what_it_should(tmp_path: Path, model: Path) -> None:
    result = train(project(tmp_path, model))
    paths = RunPaths(result.output)
    assert result.output == tmp_path / "weights" / "tiny-llama"
    assert result.document["steps"] == 6
    assert result.document["loss"]["last"] < result.document["loss"]["first"]
    assert result.document["adapter_sha256"] == sha256_of(paths.adapter / "adapter_model.safetensors")
    assert paths.complete.read_text(encoding="utf-8").startswith(result.document["adapter_sha256"])
    assert json.loads(paths.report_json.read_text(encoding="utf-8")) == json.loads(json.dumps(result.document))
    recorded = json.loads(paths.run_json.read_text(encoding="utf-8"))
    assert recorded["data"]["files"] == {str(tmp_path / "train.jsonl"): sha256_of(tmp_path / "train.jsonl")}
    assert recorded["store"]["key"] == result.document["store"]["key"]
    assert recorded["config"]["optim"]["batch_size"] == 8
    steps = [json.loads(line) for line in paths.metrics.read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in steps] == [1, 2, 4, 6]
    assert steps[0]["loss"] == pytest.approx(result.document["loss"]["first"], abs=1e-4)
    assert (paths.adapter / "README.md").read_text(encoding="utf-8").startswith("---\nlibrary_name")


def test_an_adapter_is_written_through_no_link(tmp_path: Path, model: Path) -> None:
    output = tmp_path / "weights" / "tiny-llama"
    (tmp_path / "elsewhere").mkdir()
    output.mkdir(parents=True)
    for name in ("adapter", ".adapter.tmp"):
        (output / name).symlink_to(tmp_path / "elsewhere")
    train(project(tmp_path, model, max_steps=1), options=RunOptions(resume="auto"))
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (output / "adapter").is_symlink()
    assert (output / "adapter" / "adapter_model.safetensors").is_file()


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path: Path, model: Path) -> None:
    hashes = [
        train(project(tmp_path / name, model, dropout=0.1, dataloader_num_workers=workers), seed=seed).document[
            "adapter_sha256"
        ]
        for name, seed, workers in (("a", 1, 0), ("b", 1, 2), ("c", 2, 0))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_four_bit_on_a_cpu_with_evaluations_in_between(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, bf16=True, eval_steps=1)
    written = json.loads(manifest.read_text(encoding="utf-8"))
    written["base_models"][0]["quantization"] = "int4"
    result = train(manifests.write(tmp_path, written))
    assert result.document["eval_loss"] is not None
    assert result.document["loss"]["last"] < result.document["loss"]["first"] - 0.1


def test_batches_and_accumulation_give_the_same_first_loss(tmp_path: Path, model: Path) -> None:
    uneven = [{"instruction": "x" * n, "input": "", "output": "y" * (1 + n % 7)} for n in range(1, 17)]
    wide = train(project(tmp_path / "a", model, uneven, batch_size=4, max_steps=2, learning_rate=1e-6))
    narrow = train(
        project(
            tmp_path / "b", model, uneven, batch_size=1, gradient_accumulation_steps=4, max_steps=2, learning_rate=1e-6
        )
    )
    assert narrow.document["loss"]["first"] == pytest.approx(wide.document["loss"]["first"], abs=1e-6)
    assert narrow.document["loss"]["last"] == pytest.approx(wide.document["loss"]["last"], abs=1e-6)


SCHEDULES = {
    "warm-up as a share": (
        {"lr_scheduler": "linear", "warmup_steps": 0, "warmup_ratio": 0.5},
        [0, 1 / 3, 2 / 3, 1, 2 / 3, 1 / 3],
    ),
    "constant keeps its warm-up": ({"lr_scheduler": "constant", "warmup_steps": 2}, [0, 0.5, 1, 1, 1, 1]),
}


@pytest.mark.parametrize(("config", "shares"), SCHEDULES.values(), ids=SCHEDULES.keys())
def test_the_learning_rate_runs_as_written(
    tmp_path: Path, model: Path, config: dict[str, Any], shares: list[float]
) -> None:
    result = train(project(tmp_path, model, logging_steps=1, learning_rate=0.01, **config))
    lines = RunPaths(result.output).metrics.read_text(encoding="utf-8").splitlines()
    rates = [json.loads(line)["learning_rate"] for line in lines]
    assert rates == pytest.approx([0.01 * share for share in shares])


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path, model: Path) -> None:
    manifest = sick_project(tmp_path, model, max_steps=9)
    with pytest.raises(TrainingFailed, match=r"the loss of step \d+ is (nan|inf)"):
        train(manifest)
    assert not RunPaths(tmp_path / "weights" / "tiny-llama").complete.exists()


def test_an_output_that_holds_a_run_is_refused_and_overwrite_moves_it_aside(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, max_steps=1)
    first = train(manifest)
    with pytest.raises(RunLocked, match="holds a run already") as caught:
        train(manifest)
    assert "--overwrite" in caught.value.hint
    train(manifest, options=RunOptions(overwrite=True))
    kept = [path for path in first.output.parent.iterdir() if path.is_dir() and path != first.output]
    assert len(kept) == 1
    assert (kept[0] / "COMPLETE").exists()


def test_tensorboard_and_metrics_are_written_where_report_to_says(tmp_path: Path, model: Path) -> None:
    result = train(project(tmp_path, model, report_to="tensorboard", use_tf32=True, dataloader_pin_memory=True))
    events = EventAccumulator(str(RunPaths(result.output).tensorboard)).Reload()
    tags = set(events.Tags()["scalars"])
    assert {"train/loss", "train/tokens_per_s", "train/step_time_shares/data", "train/memory_mb"} <= tags
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 4, 6]
    assert not (tmp_path / "runs").exists()


def test_secrets_of_a_manifest_reach_no_file(tmp_path: Path, model: Path) -> None:
    manifest = json.loads(project(tmp_path, model, max_steps=1).read_text(encoding="utf-8"))
    secret = "hf_" + "A1b2" * 8 + "Cd"
    manifest |= {"author": secret, "runtime": {"note": f"use {secret}"}}
    result = train(manifests.write(tmp_path, manifest))
    written = [path for path in result.output.rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if secret.encode() in path.read_bytes()]


def test_locked_accepts_the_same_and_refuses_what_differs(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, max_steps=2)
    first = train(manifest, output=tmp_path / "a")
    recorded = tmp_path / "a" / "run.json"
    same = train(manifest, output=tmp_path / "b", options=RunOptions(locked=recorded))
    assert same.document["adapter_sha256"] == first.document["adapter_sha256"]
    with pytest.raises(IntegrityError, match=r"optim.learning_rate: 0.02 -> 0.5"):
        train(
            project(tmp_path, model, max_steps=2, learning_rate=0.5),
            output=tmp_path / "c",
            options=RunOptions(locked=recorded),
        )
    with pytest.raises(IntegrityError, match="data: "):
        train(
            project(tmp_path, model, ROWS[1:], max_steps=2),
            output=tmp_path / "c",
            options=RunOptions(locked=recorded),
        )
    assert not (tmp_path / "c").exists()


ID_ROWS, MASKS = [[5, 6, 7, 8]] * 40, [[False, True, True, True]] * 40


def test_a_foreign_store_is_used_only_if_trusted_and_only_if_its_ids_fit(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, max_steps=1, pretokenized_cache="tokenized")
    rows = {"input_ids": [[5, 6, 7, 8]] * 64, "completion_mask": [[False, True, True, True]] * 64}
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows)}).save_to_disk(tmp_path / "tokenized")
    assert train(manifest).document["store"]["status"] == "built"
    trusted = train(manifest, options=RunOptions(overwrite=True, trust_store=True))
    assert trusted.document["store"]["path"] == str(tmp_path / "tokenized")
    assert trusted.document["store"]["tokens"] == 256
    recorded = json.loads((trusted.output / "run.json").read_text(encoding="utf-8"))["identity"]["store"]
    assert recorded["trained turns"] == "answers"
    assert len(recorded["trusted"]) == 64
    with pytest.raises(IntegrityError, match=r"store.trusted: [0-9a-f]{12} -> none"):
        train(manifest, output=tmp_path / "b", options=RunOptions(locked=trusted.output / "run.json"))
    shutil.rmtree(tmp_path / "tokenized")
    rows["input_ids"] = [[5, 6, 7, 100_000]] * 64
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows)}).save_to_disk(tmp_path / "tokenized")
    with pytest.raises(IntegrityError, match="100000"):
        train(manifest, options=RunOptions(overwrite=True, trust_store=True))


FOREIGN: dict[str, dict[str, Any]] = {
    "no splits": {},
    "an empty document": {"input_ids": [[], *ID_ROWS, []], "completion_mask": [[], *MASKS, []]},
}
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "mask in other rows": ({"input_ids": [[5], [6, 7]], "completion_mask": [[True, True], [True]]}, "differ in length"),
    "a gap": ({"input_ids": [[5, None]] * 2, "completion_mask": [[True, True]] * 2}, r"input_ids has gaps \(null\)"),
    "nothing trained": ({"input_ids": [[5]], "completion_mask": [[False]]}, "no document has a trained token"),
}


@pytest.mark.parametrize(("rows", "message"), UNFIT.values(), ids=UNFIT.keys())
def test_rows_that_cannot_be_trusted_are_named(tmp_path: Path, model: Path, rows: dict[str, Any], message: str) -> None:
    manifest = project(tmp_path, model, max_steps=1, pretokenized_cache="tokenized")
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "tokenized")
    with pytest.raises((IntegrityError, InputError), match=message):
        train(manifest, options=RunOptions(trust_store=True))


def test_a_staged_store_trains_the_same_adapter(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, max_steps=1)
    plain = train(manifest, output=tmp_path / "a")
    staged = train(manifest, output=tmp_path / "b", options=RunOptions(stage=tmp_path / "fast"))
    assert staged.document["adapter_sha256"] == plain.document["adapter_sha256"]
    assert Path(staged.document["store"]["path"]).is_relative_to(tmp_path / "fast")


def test_many_tokens_train_with_recomputation_and_memory_grows_with_the_tokens(tmp_path: Path) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "long", max_position_embeddings=4096)
    rows = [{"instruction": "abcdefgh " * n, "input": "", "output": "yes"} for n in (150, 450)]
    asked = {"instruction": "a", "input": "", "output": "yes"}  # answered before and after, being the shortest
    config = {
        "max_seq_length": 4096,
        "batch_size": 1,
        "gradient_accumulation_steps": 2,
        "gradient_checkpointing": True,
        "max_steps": 1,
        "packing": False,
    }
    saved: list[int] = []
    for n, row in enumerate(rows):
        kept = 0

        def count(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal kept
            kept += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            result = train(project(tmp_path / str(n), folder, [row, asked], **config))
        saved.append(kept // result.document["tokens"]["real"])
    assert result.document["tokens"]["real"] > 1_800
    assert saved[1] == pytest.approx(saved[0], rel=0.05)


def test_documents_beyond_the_positions_of_the_base_model_are_refused(tmp_path: Path) -> None:
    folder = tiny.tiny_model_folder(tmp_path / "short", max_position_embeddings=32)
    rows = [{"instruction": "abc " * 9, "input": "", "output": "yes"}] * 8
    assert train(project(tmp_path / "packs", folder, max_steps=1)).document["steps"] == 1, "packs may be longer"
    with pytest.raises(
        InputError, match=r"a document of \d\d tokens fits max_seq_length 64, .* knows 32 positions"
    ) as caught:
        train(project(tmp_path / "documents", folder, rows, max_steps=1))
    assert "max_seq_length to 32" in caught.value.hint
    scaled = json.loads(project(tmp_path / "scaled", folder, rows, max_steps=1).read_text(encoding="utf-8"))
    scaled["base_models"][0]["rope_scaling"] = {"rope_type": "linear", "factor": 2.0}
    assert train(manifests.write(tmp_path / "scaled", scaled)).document["steps"] == 1


def test_the_best_evaluation_is_kept_whenever_checkpoints_are_written_and_nothing_is_pickled(
    tmp_path: Path, model: Path
) -> None:
    config = {"load_best_model_at_end": True, "learning_rate": 5.0, "max_steps": 8, "seed": 12}
    config |= {"eval_steps": 2, "save_steps": 3, "save_total_limit": 2}
    result = train(project(tmp_path, model, logging_steps=1, **config))
    lines = [json.loads(line) for line in RunPaths(result.output).metrics.read_text(encoding="utf-8").splitlines()]
    evaluated = {line["step"]: line["eval_loss"] for line in lines if "eval_loss" in line}
    best = min(evaluated, key=lambda step: evaluated[step])
    assert best in (2, 4, 6), "the last step would be saved anyway: another seed"
    kept = result.output / "checkpoints" / f"checkpoint-{best}" / "adapter_model.safetensors"
    steps = {int(path.name.partition("-")[2]) for path in (result.output / "checkpoints").iterdir()}
    assert steps >= {best, 4, 8}, "the best and the newest; save_steps is a multiple of eval_steps"
    assert len(steps) == 3
    written = [path for path in result.output.rglob("*") if path.is_file()]
    assert not [path for path in written if path.suffix in (".bin", ".pt", ".pth", ".pkl", ".pickle")]
    assert not [path for path in written if path.read_bytes()[:2] in (b"PK", b"\x80\x02", b"\x80\x04", b"\x80\x05")]
    mine, best_tensors = load_file(result.output / "adapter" / "adapter_model.safetensors"), load_file(kept)
    assert all(torch.equal(mine[name], best_tensors[name]) for name in best_tensors)
