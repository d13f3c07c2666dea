"""A run that trains on from an adapter starts with its very tensors, is refused where it does not fit, and names it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

import expert_cli
from expert_cli.config.adapter_origin import WEIGHTS
from expert_cli.errors import InputError, IntegrityError
from expert_cli.model.adapter import add_adapter
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.metrics import read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import sha256_of
from tests import run_blocks, tiny
from tests.train.projects import ROWS, project, train

ONE_BATCH = {"max_seq_length": 256, "batch_size": 64, "logging_steps": 1, "max_steps": 3}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    return train(project(folder, rows=ROWS[:8], **ONE_BATCH), output=folder / "run").output


def told(output: Path) -> dict[str, Any]:
    return read_json(RunPaths(output).run_json)["init_adapter"]  # type: ignore[no-any-return]


def test_a_step_without_a_learning_rate_gives_its_tensors_back(tmp_path: Path) -> None:
    settings = {**ONE_BATCH, "adapter_type": "dora", "max_steps": 1}
    before = train(project(tmp_path, rows=ROWS[:8], **settings), output=tmp_path / "a").output
    manifest = project(tmp_path, rows=ROWS[8:16], **settings, warmup_steps=1)  # its first step has rate 0
    after = train(manifest, output=tmp_path / "b", init_adapter=before).output
    old, new = (load_file(RunPaths(output).adapter / WEIGHTS) for output in (before, after))
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)


def test_its_hash_belongs_to_the_run(tmp_path: Path, first: Path) -> None:
    mine, manifest = shutil.copytree(first, tmp_path / "first"), project(tmp_path, max_steps=1)
    run = train(manifest, output=tmp_path / "run", init_adapter=mine).output
    weights = RunPaths(mine).adapter / WEIGHTS
    RunPaths(mine).complete.unlink()
    save_file({name: tensor + 1 for name, tensor in load_file(weights).items()}, weights, metadata={"format": "pt"})
    for adapter, words in ((None, "none"), (mine, "[0-9a-f]{12}")):
        with pytest.raises(IntegrityError, match=f"adapter.init_adapter: [0-9a-f]{{12}} -> {words}"):
            train(manifest, RunOptions(locked=RunPaths(run).run_json), output=tmp_path / "no", init_adapter=adapter)


def test_run_json_and_report_name_what_a_run_trained_on_from(tmp_path: Path, first: Path) -> None:
    by_key = project(tmp_path / "key", rows=ROWS[:8], max_steps=1, init_adapter=str(first))
    second = train(by_key, output=tmp_path / "second").output
    sha256 = sha256_of(RunPaths(first).adapter / WEIGHTS)
    assert (told(second)["path"], told(second)["sha256"]) == (str(first / "adapter"), sha256)
    assert Path(told(second)["manifest"]).is_file()
    assert sha256 in RunPaths(second).report_html.read_text(encoding="utf-8")


def rejected(manifest: Path, adapter: Path, output: Path | None = None) -> str:
    """What is said of an adapter that a run is not to train on from, before it has a folder."""
    place = output or manifest.parent / "refused"
    with pytest.raises(InputError) as caught:
        expert_cli.train(manifest, init_adapter=adapter, output=place, overwrite=True, device="cpu", offline=True)
    assert not place.exists() or output
    return caught.value.message


def test_another_form_is_refused_with_both_values(tmp_path: Path, first: Path) -> None:
    other = project(tmp_path / "a", adapter_type="dora")
    assert "its adapter_type is lora, the manifest's dora" in rejected(other, first)
    assert rejected(project(tmp_path / "b", rank=7), first).endswith("its rank is 4, the manifest's 7")


def test_another_base_template_or_place_is_refused(tmp_path: Path, first: Path) -> None:
    other = tiny.tiny_model_folder(tmp_path / "models" / "tiny-llama")
    weights = load_file(other / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in weights.items()}, other / "model.safetensors", {"format": "pt"})
    assert "was trained on" in rejected(project(tmp_path / "a", other), first)
    manifest = project(tmp_path / "b")
    assert rejected(manifest, tmp_path / "nowhere").endswith(f"looked for in {tmp_path / 'b'}")
    assert "no adapter there" in rejected(manifest, tmp_path / "b")
    assert "which this run writes" in rejected(manifest, first, output=first)
    assert (first / "COMPLETE").is_file()
    other = project(tmp_path / "c", base={"prompt_template": "alpaca"})
    assert "was trained with the prompt template" in rejected(other, first)


def test_an_adapter_of_another_program_is_taken_in_fp32(tmp_path: Path) -> None:
    theirs = get_peft_model(
        tiny.tiny_model(),  # type: ignore[arg-type]
        LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"], init_lora_weights=False),
    ).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path / "theirs", save_embedding_layers=False)
    manifest = project(tmp_path, rows=ROWS[:8], rank=4, alpha=8, target_modules=["q_proj"], max_steps=1)
    on = train(manifest, output=tmp_path / "on", init_adapter=tmp_path / "theirs").output
    assert told(on)["manifest"] == ""
    config = run_blocks.ADAPTER.__class__("lora", 4, 8.0, 0.0, ("q_proj",), tmp_path / "theirs")
    mine = add_adapter(tiny.tiny_model(), config)  # type: ignore[arg-type]
    tensors = load_file(tmp_path / "theirs" / WEIGHTS)
    trained = {name: one for name, one in mine.named_parameters() if one.requires_grad}
    assert len(trained) == len(tensors) > 0
    for name, parameter in trained.items():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, tensors[name.replace(".default", "")].float())
    removed = sorted(tensors)[0]
    save_file({name: one for name, one in tensors.items() if name != removed}, tmp_path / "theirs" / WEIGHTS)
    with pytest.raises(InputError, match=rf"1 tensors differ, the first is {removed} \(not there -> "):
        add_adapter(tiny.tiny_model(), config)  # type: ignore[arg-type]
