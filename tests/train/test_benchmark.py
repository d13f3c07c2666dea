"""The experiment on a tiny real model: four processes, two of this tool, two of the stock libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer

from expert_cli.benchmark.experiment import baseline_main
from expert_cli.benchmark.experiment.baseline import WAYS, TokenizeAndPad
from expert_cli.benchmark.experiment.baseline_rows import documents_of_steps, rows_of_steps
from expert_cli.benchmark.experiment.baseline_trainer import counts_of
from expert_cli.benchmark.experiment.subprocess_run import STOCK_WAYS
from expert_cli.cli import command
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.packing.dataset import IGNORE_INDEX, PackedDataset
from expert_cli.data.store.documents import Documents
from expert_cli.data.templates.segment import Segment
from expert_cli.data.tokenize.encoder import Encoder
from expert_cli.errors import EnvironmentProblem, TrainingFailed
from expert_cli.hardware.machine import inspect
from expert_cli.pipeline.pretokenize import resolve_inputs, store_for
from expert_cli.pipeline.train import train
from expert_cli.pipeline.train_subprocess import QUIET_SETTINGS
from expert_cli.utils.reporter import NullReporter
from tests import manifests, tiny
from tests.measurements import valid
from tests.small_trainer import IMPOSSIBLE

ROOT = Path(__file__).parents[2]
ROWS = [
    {"instruction": f"Add {a} and {b}.", "input": "", "output": str(a + b)} for a in range(1, 9) for b in range(1, 9)
]
CONFIG: dict[str, Any] = {
    "batch_size": 2,
    "gradient_accumulation_steps": 4,
    "learning_rate": 0.02,
    "max_seq_length": 128,
    "bf16": False,
    "fp16": False,
}


def project(folder: Path, **config: Any) -> Path:
    rows = "".join(json.dumps(row) + "\n" for row in ROWS)
    (folder / "train.jsonl").write_text(rows, encoding="utf-8")
    manifest = manifests.small(**CONFIG, **config)
    manifest["base_models"][0]["name"] = str(tiny.tiny_model_folder(folder / "tiny-llama"))
    manifest["training"]["dataset"] = {"path": "train.jsonl"}
    return manifests.write(folder, manifest)


def test_the_stock_libraries_learn_the_same_from_the_same_rows(tmp_path: Path) -> None:
    manifest = project(tmp_path, packing=False)
    words = f"benchmark -m {manifest} --against unoptimized --steps 3 --warmup 1 --repeats 2 --gate 1000 --json"
    command = [sys.executable, "-m", "expert_cli", *words.split()]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8"}
    ran = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=300, check=False)
    assert ran.returncode == 5, ran.stderr
    document = json.loads(ran.stdout)
    valid({key: value for key, value in document.items() if key not in ("schema_version", "command")})
    a, b = document["a"], document["b"]
    assert [run["seed"] for run in a["runs"]] == [run["seed"] for run in b["runs"]] == [42, 43]
    for ours, stock in zip(a["runs"], b["runs"], strict=True):
        assert ours["trained_tokens"] == stock["trained_tokens"]
        # first adapter, order of rows, masks, schedule, clipping, optimizer: all the same
        assert ours["losses"] == pytest.approx(stock["losses"], abs=1e-5)
        assert ours["losses"][3] < ours["losses"][0]
    assert a["runs"][0]["losses"] != a["runs"][1]["losses"]
    assert (a["padding_share"], b["padding_share"]) == (0.0, pytest.approx(1 - 24.2 / 128, abs=0.01))
    assert document["loss_parity"]["holds"]
    assert document["gate"]["reason"].endswith("is below 1000")
    assert a["data"] == b["data"]
    assert len(a["data"]["sha256"]) == 64
    assert document["differences"]["compute.checkpointing"] == ["off", "all"]
    assert "run 4 of 4" in ran.stderr
    assert not list(tmp_path.glob("weights"))


Steps = list[dict[str, Any]]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Steps]:
    """A manifest, and the steps of this tool's own run: 13 packs of 5 documents; the second step has 5 packs in place of 8."""
    manifest = project(tmp_path_factory.mktemp("ours"))
    overrides = Overrides(max_steps=3, settings=QUIET_SETTINGS, output=manifest.parent / "run")
    facts = inspect()
    train(make_plan(manifest, facts, overrides), facts, NullReporter())
    return manifest, steps_in(manifest.parent / "run")


def steps_in(run: Path) -> Steps:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if "loss" in line]


@pytest.mark.filterwarnings("default")  # the other ways' libraries warn of each other
@pytest.mark.parametrize("way", ["padded", "flattening", "trl"])
def test_a_stock_way_trains_the_documents_that_this_tool_trains(
    way: str, ours: tuple[Path, Steps], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "trl":
        pytest.importorskip("trl")
    manifest, own = ours
    asked = {"output": str(tmp_path / "run"), "settings": QUIET_SETTINGS, "max_steps": 3}
    (tmp_path / "job.json").write_text(
        json.dumps({"way": way, "manifest": str(manifest), "overrides": asked}), encoding="utf-8"
    )
    monkeypatch.setattr(sys, "argv", ["baseline_main", str(tmp_path / "job.json")])
    assert baseline_main.main() == 0
    found = steps_in(tmp_path / "run")
    for key in ("step", "tokens_real", "tokens_trained"):
        assert [line[key] for line in found] == [line[key] for line in own], key
    # first adapter, order of documents, masks, schedule, clipping, optimizer: all the same
    for key in ("loss", "grad_norm", "learning_rate"):
        assert [line[key] for line in found] == pytest.approx([line[key] for line in own], abs=1e-5), key
    assert found[2]["loss"] < found[0]["loss"]
    assert (found[-1]["tokens_padded"] > 0) == (way == "padded")
    shares = found[-1]["step_time_shares"]
    assert min(shares[phase] for phase in ("data", "forward", "backward", "optimizer")) > 0
    config = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["config"]
    assert (config["loader"]["packing"], config["compute"]["checkpointing"]) == (
        "off",
        "all" if way == "trl" else "off",
    )


@pytest.mark.filterwarnings("default")  # as above
def test_a_stock_way_whose_memory_runs_out_says_with_how_many_bytes(
    ours: tuple[Path, Steps], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"output": str(tmp_path / "run"), "settings": QUIET_SETTINGS, "max_steps": 3}
    (tmp_path / "job.json").write_text(
        json.dumps({"way": "padded", "manifest": str(ours[0]), "overrides": asked}), encoding="utf-8"
    )
    monkeypatch.setattr(sys, "argv", ["baseline_main", str(tmp_path / "job.json")])
    monkeypatch.setattr(Trainer, "compute_loss", lambda *_, **__: torch.empty(IMPOSSIBLE, dtype=torch.uint8))
    assert baseline_main.main() == TrainingFailed.exit_code
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["message"]
    assert told.startswith("out of memory: ")
    assert f"you tried to allocate {IMPOSSIBLE} bytes" in told


def test_what_the_options_name_is_there() -> None:
    assert tuple(WAYS) == STOCK_WAYS
    (option,) = (option for option in command("benchmark").params if option.name == "against")
    assert option.metavar == "|".join((*STOCK_WAYS, "MANIFEST"))


def test_a_short_step_is_filled_up_with_what_trains_nothing(ours: tuple[Path, Steps]) -> None:
    run = make_plan(ours[0], inspect(), Overrides(max_steps=3)).run
    store = store_for(run, resolve_inputs(run, NullReporter()), NullReporter())
    documents = store.split("train")
    assert documents is not None
    data = documents_of_steps(run, PackedDataset(documents, 128, run.loader.packing, run.loader.overflow, run.seed))
    assert [len(step) for step in data.steps] == [4, 3, 4]
    assert len(data.micro_batches()) == 12
    assert data.micro_batches()[7] == [len(data.rows) - 1]
    assert data.rows[-1]["labels"] == [IGNORE_INDEX]
    epoch = [number for step in data.steps[:2] for batch in step for number in batch]
    ids = sorted(tuple(data.rows[number]["input_ids"]) for number in epoch)
    assert ids == sorted(tuple(documents.document(number)[0].tolist()) for number in range(len(documents)))


@pytest.mark.parametrize(
    ("ids", "labels", "mask", "told"),
    [
        ([5, 6], [IGNORE_INDEX, 6], [1, 1], ""),
        ([5, 6, 0], [IGNORE_INDEX, 6, IGNORE_INDEX], [1, 1, 0], ""),
        ([5, 7], [IGNORE_INDEX, 6], [1, 1], "2 tokens instead of 2, 1 of them trained instead of 1"),
        ([6], [6], [1], "1 tokens instead of 2, 1 of them trained instead of 1"),
        ([5, 6], [5, 6], [1, 1], "2 tokens instead of 2, 2 of them trained instead of 1"),
        ([5, 6, 0], [IGNORE_INDEX, 6, 0], [1, 1, 0], "2 tokens instead of 2, 2 of them trained instead of 1"),
    ],
    ids=["the same", "padded", "other tokens", "fewer", "prompts trained", "padding trained"],
)
def test_batches_are_held_against_their_documents(
    ids: list[int], labels: list[int], mask: list[int], told: str
) -> None:
    batch = {"input_ids": torch.tensor([ids]), "labels": torch.tensor([labels]), "attention_mask": torch.tensor([mask])}
    documents = [{"input_ids": [5, 6], "labels": [IGNORE_INDEX, 6]}]
    if told:
        with pytest.raises(EnvironmentProblem, match=f"than its 1 documents: {told}"):
            counts_of(batch, documents)
    else:
        assert counts_of(batch, documents) == (2, 1, len(ids) - 2)


def test_as_many_rows_a_step_as_the_packs_hold(tmp_path: Path) -> None:
    run = make_plan(project(tmp_path), inspect(), Overrides(max_steps=3)).run
    documents = Documents(store_for(run, resolve_inputs(run, NullReporter()), NullReporter()).home / "train")
    packs = PackedDataset(documents, 128, "best_fit", "truncate")
    rows, batch, accumulation = rows_of_steps(run, packs)
    # 13 packs of 5 documents (one of 4): 8 packs are a step, then 5 that end the epoch, then 8, the one of 4 among
    # them: 34.3 documents a step
    assert (batch, accumulation, len(rows)) == (2, 17, 102)
    assert sorted(rows[:64]) == list(range(64))


def test_a_batch_is_tokenized_and_padded(tmp_path: Path) -> None:
    settings = ("training.config.max_seq_length=12",)
    run = make_plan(project(tmp_path), inspect(), Overrides(settings=settings)).run
    collate = TokenizeAndPad(Encoder(tiny.tiny_backend()), 0, run.data.max_seq_length)
    long = (Segment("Add 1 and 2 and 3 and 4.", False, False), Segment("10", False, True))
    short = (Segment("A", False, False), Segment("B", False, True))
    batch = collate([short, long])
    a, b = (tiny.tiny_backend().encode(text).ids[0] for text in "AB")
    assert batch["input_ids"][0].tolist() == [a, b, *[0] * 10]
    assert batch["attention_mask"][0].tolist() == [1, 1, *[0] * 10]
    assert batch["labels"][0].tolist() == [IGNORE_INDEX, b, *[IGNORE_INDEX] * 10]
    assert batch["attention_mask"][1].sum() == 12
    assert counts_of(batch) == (14, 3, 10)


def test_a_failure_of_the_stock_side_is_told_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = project(tmp_path, lr_scheduler="one_cycle")
    job = tmp_path / "job.json"
    asked = {"output": str(tmp_path / "run"), "settings": [], "max_steps": 3}
    words = {"way": "unoptimized", "manifest": str(manifest), "overrides": asked}
    job.write_text(json.dumps(words), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["unoptimized", str(job)])
    assert baseline_main.main() == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["exit_code"], error["message"]) == (2, "lr_scheduler one_cycle: the stock Trainer has none")
