"""The whole path on real SmolLM2 weights: from the package index to an adapter, a few steps in 4 bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.hardware import machine
from expert_cli.model.loading.base_model import LocalModel
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.pipeline import train
from expert_cli.utils.reporter import NullReporter

EXPERTS = Path(__file__).parents[2] / "experts"


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.usefixtures("smollm2")
def test_smollm2_learns_sql_in_four_bit(tmp_path: Path) -> None:
    facts = machine.inspect()
    manifest = tmp_path / "experts" / "expert-sql" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    shutil.copy(EXPERTS / "expert-sql" / "manifest.json", manifest)
    quiet = ("training.config.warmup_ratio=0.0", "training.config.report_to=none")
    overrides = Overrides(
        base_model="smollm2",
        dataset=str(EXPERTS / "expert-sql" / "datasets" / "train.jsonl"),
        output=tmp_path / "run",
        max_steps=6,
        settings=(*quiet, "training.config.max_seq_length=256"),
    )
    result = train.train(make_plan(manifest, facts, overrides), facts, NullReporter())
    first, last = result.document["loss"]["first"], result.document["loss"]["last"]
    assert last < 0.8 * first
    assert result.document["kernels"]["weights"]["used"] == "int4"
    assert (result.output / "COMPLETE").exists()
    assert result.document["samples"] == [], "there are no cases beside this manifest"


@pytest.mark.slow
@pytest.mark.real
def test_it_answers_and_stops(smollm2: LocalModel) -> None:
    """In fp32: its two likeliest first tokens are 0.1 apart at 25, where numbers of bf16 are 0.125 apart."""
    info = load_tokenizer(smollm2.folder)
    model = AutoModelForCausalLM.from_pretrained(smollm2.folder, dtype=torch.float32)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    text = info.hf.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    prompt = torch.tensor([info.backend.encode(text, add_special_tokens=False).ids])
    answer = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False, eos_token_id=info.eos_id
    )[0, prompt.shape[1] :]
    assert (
        info.backend.decode(answer.tolist(), skip_special_tokens=False) == "The capital of France is Paris.<|im_end|>"
    )
