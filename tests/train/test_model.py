"""Base models and adapters on tiny real models: quantization, dtypes, gradients, recomputation."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, Gemma3Config

from expert_cli.errors import InputError
from expert_cli.manifest.key import AdapterType, Quantization
from expert_cli.model.adapter import add_adapter, magnitudes
from expert_cli.model.layers import decoder_layers, enable_activation_checkpointing
from expert_cli.model.loading.quantize import load_base
from tests import run_blocks, tiny

LINEARS = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("model") / "llama")


def base(folder: Path, quantization: Quantization = "none", dtype: torch.dtype = torch.float32) -> Any:
    return load_base(folder, quantization=quantization, dtype=dtype, device="cpu", attention="sdpa", rope_scaling={})


def adapted(folder: Path, kind: AdapterType = "lora", quantization: Quantization = "none", **changes: Any) -> PeftModel:
    dtype = changes.pop("dtype", torch.float32)
    settings: dict[str, Any] = {"rank": 4, "alpha": 8.0, "dropout": 0.0, "target_modules": ("all-linear",)}
    settings |= changes
    torch.manual_seed(0)
    return add_adapter(base(folder, quantization, dtype), replace(run_blocks.ADAPTER, type=kind, **settings))


def loss_of(model: Any) -> torch.Tensor:
    ids = torch.arange(3, 35).reshape(2, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=model.dtype == torch.bfloat16):
        loss: torch.Tensor = model(input_ids=ids, labels=ids).loss
    return loss


def gradients(model: PeftModel) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss_of(model).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad and p.grad is not None}


def test_no_adapter_is_on_the_part_that_sees_pictures() -> None:
    size = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    text = {**size, "vocab_size": 384, "num_hidden_layers": 2, "num_key_value_heads": 1, "head_dim": 16}
    vision = {**size, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
    model = AutoModelForCausalLM.from_config(
        Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    )
    for wanted in (("all-linear",), ("q_proj", "v_proj")):
        adapted = add_adapter(copy.deepcopy(model), replace(run_blocks.ADAPTER, target_modules=wanted))
        names = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
        assert names
        assert not [name for name in names if "vision" in name or "projector" in name]


def test_weights_of_16_bits_are_rounded_and_held_in_fp32_where_that_is_computed(tmp_path: Path) -> None:
    dtype = torch.bfloat16
    folder = tiny.tiny_model_folder(tmp_path, dtype=torch.float32)
    exact, rounded = base(folder).state_dict(), base(folder, "bf16").state_dict()
    assert any(not torch.equal(exact[name], exact[name].to(dtype).float()) for name in exact)
    for name, tensor in rounded.items():
        assert tensor.dtype == torch.float32, name
        assert torch.equal(tensor, exact[name].to(dtype).float()), name


def test_four_bit_is_nf4_with_double_quantization_and_leaves_the_rest_in_its_dtype(folder: Path) -> None:
    model = base(folder, "int4", torch.bfloat16)
    layer = decoder_layers(model)[0]
    weight = layer.self_attn.q_proj.weight
    assert weight.quant_state.quant_type == "nf4"
    assert weight.quant_state.nested
    assert layer.self_attn.q_proj.compute_dtype == torch.bfloat16
    # peft's prepare_model_for_kbit_training would have made these fp32 and switched checkpointing on
    others = (layer.input_layernorm.weight, model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    assert {tensor.dtype for tensor in others} == {torch.bfloat16}
    assert not any(layer.gradient_checkpointing for layer in decoder_layers(model))
    assert not any(p.requires_grad for p in model.parameters())


def test_an_evaluation_pass_leaves_the_gradients_as_they_were(folder: Path) -> None:
    model = adapted(folder, quantization="int4", dtype=torch.bfloat16)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    model.train()
    before = gradients(model)
    model.eval()
    with torch.no_grad():
        loss_of(model)
    model.train()
    after = gradients(model)
    assert before.keys() == after.keys()
    for name, gradient in before.items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(after[name], gradient)


def test_dora_magnitudes_are_fp32_and_move_in_one_usual_step(folder: Path) -> None:
    model = adapted(folder, "dora", "bf16", dtype=torch.bfloat16)
    before = magnitudes(model)
    assert before
    assert {tensor.dtype for tensor in before.values()} == {torch.float32}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    after = magnitudes(model)
    assert all(not torch.equal(before[name], after[name]) for name in before)
    in_bf16 = [torch.equal(before[name].bfloat16(), after[name].bfloat16()) for name in before]
    assert any(in_bf16), "the step is large enough to be seen in bf16 too: this test would not notice the trap"


def test_a_missing_target_module_lists_what_there_is(folder: Path) -> None:
    with pytest.raises(InputError, match=r"takes an adapter is called query_proj") as caught:
        adapted(folder, target_modules=("q_proj", "query_proj"))
    assert ", ".join(LINEARS) in caught.value.hint


@pytest.mark.parametrize("name", ["lm_head", "embed_tokens"])
def test_an_adapter_on_one_of_two_tied_layers_is_refused(name: str) -> None:
    """Merged, it would change the other one, too; where they are two weights, it is added to its own alone."""
    wanted = replace(run_blocks.ADAPTER, target_modules=("q_proj", name))
    with pytest.raises(InputError, match=f"embed_tokens and lm_head are one weight in llama: .* {name} would"):
        add_adapter(tiny.tiny_model(), wanted)
    model = tiny.tiny_model(tie_word_embeddings=False)
    other = {"lm_head": model.get_input_embeddings, "embed_tokens": model.get_output_embeddings}[name]().weight
    before = other.clone()
    add_adapter(model, wanted).merge_and_unload()
    assert torch.equal(other, before)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_recomputation_changes_no_gradient(folder: Path, monkeypatch: pytest.MonkeyPatch, dropout: float) -> None:
    """With dropout it draws the same again; without, nobody asks for the random state, which ends a capture."""
    plain, model = (adapted(folder, dropout=dropout).train() for _ in range(2))
    torch.manual_seed(1)
    expected = gradients(plain)
    enable_activation_checkpointing(model.get_base_model(), "all", reentrant=False)
    calls: list[None] = []
    for layer in decoder_layers(model):
        layer.self_attn.q_proj.register_forward_pre_hook(lambda *_: calls.append(None))
    asked, get_rng_state = [], torch.get_rng_state
    monkeypatch.setattr(torch, "get_rng_state", lambda: asked.append(True) or get_rng_state())
    torch.manual_seed(1)
    got = gradients(model)
    assert bool(asked) == (dropout > 0)
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient)
    assert len(calls) == 4, "each of two layers runs twice"


@pytest.mark.parametrize("setting", ["attention_dropout", "router_jitter_noise"])
def test_what_the_layers_draw_by_their_configuration_is_drawn_again(setting: str) -> None:
    model = tiny.tiny_model(**{setting: 0.5})
    enable_activation_checkpointing(model, "all", reentrant=False)
    assert {layer._gradient_checkpointing_func.keywords["preserve_rng_state"] for layer in decoder_layers(model)} == {
        True
    }
