"""TRL trains from a token store as it lies on disk: the tokens that count are those that we train."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch

from expert_cli import api
from expert_cli.data.store.store_files import Documents, verify_store
from tests import tiny
from tests.train.projects import project

ROWS = [{"instruction": f"Say {n}.", "input": "", "output": "yes " * (1 + n % 5)} for n in range(8)]


# TRL asks transformers by old names.
@pytest.mark.filterwarnings("ignore")
def test_trl_trains_the_tokens_that_we_train(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")

    home = api.pretokenize(project(tmp_path, rows=ROWS)).store.home
    opened = datasets.load_from_disk(str(home))["train"]
    tokenizer = tiny.tiny_tokenizer()
    tokenizer.pad_token = tiny.CONTROL_TOKENS[0]
    arguments = trl.SFTConfig(
        output_dir=str(tmp_path / "out"),
        max_steps=2,
        per_device_train_batch_size=4,
        max_length=None,
        completion_only_loss=True,  # otherwise TRL trains every token of rows that are ids already
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        bf16=False,
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = trl.SFTTrainer(tiny.tiny_model(), arguments, train_dataset=opened, processing_class=tokenizer)
    documents = Documents(home / "train")
    batch: dict[str, Any] = trainer.data_collator([trainer.train_dataset[n] for n in range(len(ROWS))])
    for number in range(len(ROWS)):
        ids, trained = documents.document(number)
        ours = torch.where(torch.from_numpy(trained), torch.from_numpy(ids.astype("int64")), -100)
        assert batch["labels"][number, : len(ids)].tolist() == ours.tolist()
        assert set(batch["labels"][number, len(ids) :].tolist()) <= {-100}
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    assert trainer.state.global_step == 2
    verify_store(home)
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.named_parameters())


@pytest.mark.filterwarnings("ignore")
def test_the_recipe_trains_by_our_rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of docs/RECIPES.md run as they stand, but for the model's name and their lengths."""
    pytest.importorskip("trl")
    root = Path(__file__).parents[2]
    text = (root / "docs" / "RECIPES.md").read_text(encoding="utf-8").partition("## Rewards in TRL")[2]
    code = text[text.index("    from functools") : text.index("To go on from")]
    for written, here in (
        ("HuggingFaceTB/SmolLM2-135M-Instruct", str(tiny.tiny_model_folder(tmp_path / "tiny"))),
        ("experts/", f"{root}/experts/"),
        ("max_completion_length=128", "max_completion_length=4, use_cpu=True, bf16=False, report_to=[]"),
        ("max_steps=200", "max_steps=1"),
    ):
        assert written in code
        code = code.replace(written, here)
    monkeypatch.chdir(tmp_path)
    values: dict[str, Any] = {}
    exec(compile(textwrap.dedent(code), "RECIPES.md", "exec"), values)  # noqa: S102  our own document
    assert "rewards/dense_reward/mean" in values["trainer"].state.log_history[0]
    assert (tmp_path / "out" / "adapter" / "adapter_model.safetensors").is_file()
