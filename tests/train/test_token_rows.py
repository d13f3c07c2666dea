"""An expert of a base model that never trained its end token ends its answers: the row is trained, saved, merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PhiConfig, PhiForCausalLM

from expert_cli.artifacts.export import export_expert
from expert_cli.config.adapter_origin import CONFIG, WEIGHTS
from expert_cli.errors import InputError
from expert_cli.inference.expert import open_expert
from expert_cli.inference.expert_config import GenerationConfig
from expert_cli.inference.generate import Request, generate
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.metrics import read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.reporter import NullReporter
from tests import tiny
from tests.train.projects import SEVEN, Told, project, train, trained_in
from tests.train.test_export import PROMPTS, answer

KEY, DELTA = "trainable_token_indices", "token_adapter.trainable_tokens_delta"
LEARNS: dict[str, Any] = {"max_steps": 40, "learning_rate": 0.01}


def untrained(folder: Path, kind: str) -> Path:
    """Write a base model whose rows of <|im_start|> and <|im_end|> are all the same number."""
    shape = {"tie_word_embeddings": kind == "tied", "initializer_range": 0.1, "head_dim": 128}
    return tiny.untrained_tokens(tiny.tiny_model_folder(folder / f"tiny-{kind}", "qwen3", **shape))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("models"), "untied")


@pytest.fixture(scope="module")
def expert(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(project(tmp_path_factory.mktemp("expert"), base, SEVEN, **LEARNS)).output


def config_of(output: Path) -> dict[str, Any]:
    return read_json(RunPaths(output).adapter / CONFIG)  # type: ignore[no-any-return]


def answers(output: Path) -> list[tuple[str, str]]:
    """Return what an expert answers and why each answer ends."""
    trained = trained_in(output)
    opened = open_expert(trained.plan.run, trained.origin, NullReporter())
    requests = [Request(opened.renderer.encode_prompt(*prompt)) for prompt in PROMPTS]
    written = generate(opened.model, requests, GenerationConfig(12, batch_size=8), opened.renderer)
    return [(opened.renderer.decode(one.ids), one.stop) for (one,) in written]


def test_its_answers_end_and_without_the_rows_they_do_not(tmp_path: Path, base: Path, expert: Path) -> None:
    assert config_of(expert)[KEY] == {"model.embed_tokens": [1, 2], "lm_head": [2]}
    assert answers(expert) == [("7", "end")] * len(PROMPTS)
    told = Told()
    never = train(project(tmp_path, base, SEVEN, **LEARNS, **{KEY: "never"}), report=told).output
    assert {stop for _, stop in answers(never)} == {"length"}
    assert config_of(never)[KEY] is None
    assert any(
        line.startswith("answers will not end: the base model never trained <|im_end|>") for line in told.warnings
    )


def test_a_tied_base_model_in_four_bits_and_in_bf16_learns_them(tmp_path: Path) -> None:
    base = untrained(tmp_path, "tied")
    config = {"bf16": True, "adapter_type": "dora", "base": {"quantization": "int4"}}
    output = train(project(tmp_path, base, SEVEN, **LEARNS, **config)).output
    assert answers(output) == [("7", "end")] * len(PROMPTS)
    assert config_of(output)[KEY] == {"model.embed_tokens": [1, 2]}


def test_merged_as_gguf_and_in_plain_peft_it_ends_too(tmp_path: Path, base: Path, expert: Path) -> None:
    trained = trained_in(expert)
    done = export_expert(trained, tmp_path / "out", PROMPTS, NullReporter(), merge=True, gguf="f16")
    assert [one["top1"] for one in done["agreement"].values()] == [1.0, 1.0]
    for folder, words in (
        (RunPaths(expert).adapter, "llama.cpp: refuses trained token rows"),
        (tmp_path / "out", "servers need nothing more"),
    ):
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert '- `model.embed_tokens`: `"<\\|im_start\\|>"`, `"<\\|im_end\\|>"`\n' in card
        assert words in card
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert answer(AutoModelForCausalLM.from_pretrained(tmp_path / "out"), tokenizer) == "7"
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), RunPaths(expert).adapter)
    assert answer(plain, tokenizer, eos_token_id=2) == "7"
    merged = load_file(tmp_path / "out" / "model.safetensors")
    for name, rows in load_file(RunPaths(expert).adapter / WEIGHTS).items():
        if "trainable_tokens" in name:
            matrix = merged[name.removeprefix("base_model.model.").replace(DELTA, "weight")]
            assert torch.equal(matrix[[2] if "lm_head" in name else [1, 2]], rows.bfloat16())


def test_training_on_from_an_adapter_trains_the_rows_that_it_has(tmp_path: Path, base: Path, expert: Path) -> None:
    manifest = project(tmp_path, base, SEVEN, max_steps=1, warmup_steps=1)  # its first step has rate 0
    on = train(manifest, output=tmp_path / "on", init_adapter=expert).output
    old, new = (load_file(RunPaths(output).adapter / WEIGHTS) for output in (expert, on))
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    for wanted in ("never", ["7"]):
        other = project(tmp_path / "o", base, SEVEN, max_steps=1, **{KEY: wanted})
        with pytest.raises(InputError, match=r"has trained rows of <\|im_start\|> <\|im_end\|>"):
            train(other, output=tmp_path / "p", init_adapter=expert, options=RunOptions(resume="auto"))


def test_named_tokens_are_trained_and_others_refused(tmp_path: Path, base: Path) -> None:
    output = train(project(tmp_path / "a", base, SEVEN, max_steps=1, **{KEY: ["7", "<|im_end|>"]})).output
    assert {tuple(rows) for rows in config_of(output)[KEY].values()} == {(2, tiny.tiny_backend().token_to_id("7"))}
    with pytest.raises(InputError, match=r'"<\|eot_id\|>" is no token of the base model'):
        train(project(tmp_path / "b", base, SEVEN, max_steps=1, **{KEY: ["<|eot_id|>"]}))


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_head_with_a_bias_trains_none_and_is_told_so(tmp_path: Path, tied: bool) -> None:
    """As it is in PEFT's issue 3649: beside trained rows PEFT computes the head without its bias."""
    shape = {"vocab_size": 384, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
    model: Any = PhiForCausalLM(PhiConfig(**shape, num_attention_heads=4, tie_word_embeddings=tied))
    torch.nn.init.normal_(model.lm_head.bias, std=2)
    model.save_pretrained(tmp_path / "phi")
    tiny.tiny_tokenizer().save_pretrained(tmp_path / "phi")
    tiny.untrained_tokens(tmp_path / "phi")
    told = Told()
    output = train(project(tmp_path, tmp_path / "phi", SEVEN, max_steps=2), report=told).output
    assert config_of(output)[KEY] == (None if tied else {"model.embed_tokens": [1, 2]})
    assert [line for line in told.warnings if "<|im_end|>, nor will this run" in line]
    trained = trained_in(output)
    done = export_expert(trained, tmp_path / "out", PROMPTS, NullReporter(), merge=True, gguf=None)
    assert done["agreement"]["merged"]["max_kl"] < 1e-3
