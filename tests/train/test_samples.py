"""Every run ends with held-out cases, drawn by its seed, answered before and after training, and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GenerationConfig

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.evaluation.cases import read_cases
from expert_cli.inference.expert import PromptRenderer
from expert_cli.inference.generate import is_looping
from expert_cli.model.kernels import attention
from expert_cli.model.tokenizer import load_tokenizer
from expert_cli.pipeline.before_after import ask
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.reporter import NullReporter
from tests import manifests, tiny
from tests.machines import CPU
from tests.train.projects import SEVEN, Told, case, project, tiny_llama, train, write_rows

LEARNS: dict[str, Any] = {"rows": SEVEN, "max_steps": 20, "learning_rate": 0.01}


def test_three_cases_drawn_by_the_seed_are_run_before_and_after(tmp_path: Path) -> None:
    manifest = project(tmp_path, cases=[case(n, 7 if n % 2 else 8) for n in range(20)], **LEARNS)
    drawn = []
    for seed in range(2):
        done = train(manifest, output=tmp_path / f"run-{seed}", seed=seed)
        samples = done.document["samples"]
        assert [sample["after"] for sample in samples] == ["7"] * 3
        assert [sample["right_after"] for sample in samples] == [sample["expected"] == "7" for sample in samples]
        assert [sample["right_before"] for sample in samples] == [False] * 3
        drawn.append({sample["prompt"] for sample in samples})
    assert drawn[0] != drawn[1]
    right = sum(sample["right_after"] for sample in samples)
    assert f"to 3 held-out cases, drawn by the seed and run: 0 right before training, {right} after" in done.summary()


def test_a_case_at_fault_ends_no_training(tmp_path: Path) -> None:
    report = Told()
    done = train(project(tmp_path, cases=[case(1, 7), "{}"], max_steps=1), report=report)
    assert any("no case is asked after training: " in line and "cases.jsonl:2" in line for line in report.warnings)
    assert done.document["samples"] == []


@pytest.mark.parametrize(("cases", "asked", "answered"), [(5, 2, 2), (0, 2, 0), (5, 0, 0)])
def test_so_many_prompts_are_answered_as_the_manifest_says(
    tmp_path: Path, cases: int, asked: int, answered: int
) -> None:
    found = [case(n, 7) for n in range(cases)]
    manifest = project(tmp_path, cases=found, evaluation={"sample_answers": asked}, max_steps=1)
    done = train(manifest)
    assert len(done.document["samples"]) == answered
    assert RunPaths(done.output).log.read_text("utf-8").count("answering ") == (2 if answered else 0)


def test_a_batch_answers_as_each_prompt_alone_and_a_model_in_training_stays_as_it_was(
    tmp_path: Path,
) -> None:
    """Neither training's attention and dropout nor what a publisher wrote about sampling has a say."""
    plan = make_plan(manifests.write(tmp_path, manifests.small()), CPU, Overrides())
    tokenizer = load_tokenizer(tiny_llama())
    renderer = PromptRenderer(tokenizer, tiny.template_for(tokenizer.hf, "alpaca"))
    torch.manual_seed(0)
    base: Any = tiny.tiny_model()
    expert = get_peft_model(base, LoraConfig(target_modules="all-linear", init_lora_weights=False, lora_dropout=0.5))
    prompts = ("a", "Which number is 7?", "b c")
    rows = write_rows(tmp_path / "cases.jsonl", [case(n, 7) | {"prompt": asked} for n, asked in enumerate(prompts)])
    cases = read_cases(rows)
    expert.eval()
    alone = [greedily(base, renderer, prompt) for prompt in prompts]
    expert.train()
    attention.use(base, "documents")
    base.generation_config = publishers = GenerationConfig(do_sample=True, temperature=5.0, repetition_penalty=9.0)
    registered = base.config._attn_implementation
    assert [one.row.answer.strip() for one in ask(expert, cases, renderer, plan, NullReporter())] == alone
    assert (expert.training, base.config._attn_implementation) == (True, registered)
    assert base.generation_config is publishers


def greedily(model: Any, renderer: PromptRenderer, prompt: str) -> str:
    """Answer with the likeliest token each time, the whole text read anew for each."""
    ids = start = renderer.encode_prompt(prompt)
    with torch.no_grad():
        for _ in range(64):
            token = int(model(torch.tensor([ids])).logits[0, -1].argmax())
            if token in renderer.stop_token_ids:
                break
            ids = [*ids, token]
            if is_looping(ids[len(start) :]):
                break
    return renderer.decode(ids[len(start) :]).strip()
