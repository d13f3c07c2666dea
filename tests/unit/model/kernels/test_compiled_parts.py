"""Compiled norms, rotary embeddings and activations: transformers' own numbers, and no graph more for another length."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from expert_cli.model.activation_checkpointing import enable_activation_checkpointing
from expert_cli.model.kernels import compiled_parts
from expert_cli.model.kernels.compiled_parts import cannot_compile, compile_parts, find_parts, plain_rotary
from tests import tiny

LENGTHS = range(10, 210, 10)


def gemma(**overrides: Any) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Gemma3ForCausalLM(Gemma3TextConfig(**tiny.SHAPE, max_position_embeddings=2048, **overrides))


MODELS: dict[str, tuple[Callable[..., Any], int]] = {  # norms of a layer
    "llama": (tiny.tiny_model, 2),
    "qwen3": (lambda **overrides: tiny.tiny_model("qwen3", **overrides), 4),
    "gemma3": (gemma, 6),
}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Compile with autograd's graphs but no code: every graph that Dynamo makes is noted by its operations."""
    made: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        made.append(sum(node.op != "placeholder" for node in graph.graph.nodes))
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def compiled(function: Callable[..., Any], *, dynamic: bool | None) -> Any:
        return torch.compile(function, dynamic=dynamic, backend=backend)

    monkeypatch.setattr(compiled_parts, "compiled", compiled)
    yield made
    plain_rotary()
    torch.compiler.reset()


def passed(model: Any, tokens: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return the last hidden states of some tokens and the gradient of their embeddings."""
    ids = torch.arange(3, 3 + tokens)[None]
    entry = model.get_input_embeddings()(ids).detach().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        hidden = model.get_decoder()(inputs_embeds=entry, use_cache=False).last_hidden_state
    (hidden.float() * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    return [hidden.detach().float(), entry.grad.float()]


@pytest.mark.parametrize(("make", "norms"), MODELS.values(), ids=MODELS.keys())
def test_numbers_are_the_same_and_graphs_as_many_at_every_length(
    graphs: list[int], make: Callable[..., Any], norms: int
) -> None:
    plain, fused = make().requires_grad_(requires_grad=False), make().requires_grad_(requires_grad=False)
    expected = [passed(plain, tokens) for tokens in LENGTHS]
    parts = find_parts(fused)
    assert (len(parts.norms), len(parts.rotary), len(parts.activations)) == (2 * norms + 1, 1, 2)
    compile_parts(parts)
    counts = []
    for tokens, known in zip(LENGTHS, expected, strict=True):
        for found, right in zip(passed(fused, tokens), known, strict=True):
            torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5 * float(right.abs().max()))
        counts.append(len(graphs))
    assert counts[0] >= len(parts.names)
    assert counts[1:] == [counts[1]] * (len(LENGTHS) - 1)


def test_generation_and_evaluation_compile_nothing(graphs: list[int]) -> None:
    """Before and behind training: its graphs are made once, and the answers are those of the plain model."""
    plain, fused = (tiny.tiny_model("qwen3").requires_grad_(requires_grad=False) for _ in range(2))
    compile_parts(find_parts(fused))
    settings: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}

    def answers(model: Any) -> list[list[int]]:
        return [model.generate(torch.arange(3, 3 + length)[None], **settings)[0].tolist() for length in (4, 9, 17)]

    known = answers(plain)
    assert answers(fused) == known
    assert not graphs
    for tokens in LENGTHS[:3]:
        passed(fused, tokens)
    made = len(graphs)
    assert answers(fused) == known
    passed(fused, 333)
    assert len(graphs) == made > 0


def test_recomputed_layers_give_the_same_gradients(graphs: list[int]) -> None:
    kept, recomputed = (tiny.tiny_model("qwen3").requires_grad_(requires_grad=False).train() for _ in range(2))
    enable_activation_checkpointing(recomputed, "all", reentrant=False)
    for model in (kept, recomputed):
        compile_parts(find_parts(model))
    for tokens in LENGTHS[:3]:
        for one, other in zip(passed(kept, tokens), passed(recomputed, tokens), strict=True):
            assert torch.equal(one, other)
    assert graphs


def test_no_more_is_kept_than_the_plan_counts(graphs: list[int]) -> None:
    """A norm keeps its input in the compute dtype and a number a row; an activation gate and up."""
    model = tiny.tiny_model().bfloat16().requires_grad_(requires_grad=False)
    parts = find_parts(model)
    compile_parts(parts)
    rows = torch.randn(1, 50, 64, dtype=torch.bfloat16, requires_grad=True)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        parts.norms[0](rows)
    assert sum(size for place, size in kept.items() if place not in weights) == rows.nbytes + 4 * 50
    kept.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        parts.activations[0](rows)
    assert sum(size for place, size in kept.items() if place not in weights) == 2 * 50 * 2 * 128
    assert parts.keeps_little
    assert graphs


def test_what_computes_something_else_is_left_alone() -> None:
    class Added(type(tiny.tiny_model().model.layers[0].mlp)):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down_proj(self.act_fn(self.gate_proj(x)) + self.up_proj(x))  # type: ignore[no-any-return]

    class Clamped(Added):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gate: torch.Tensor = self.act_fn(self.gate_proj(x)).clamp(max=self.config.intermediate_size)
            return self.down_proj(gate * self.up_proj(x))  # type: ignore[no-any-return]

    class GatedRMSNorm(torch.nn.Module):
        def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
            return x * gate

    model = tiny.tiny_model()
    known = len(find_parts(model).norms)
    model.model.layers[0].mlp.__class__ = Added
    model.model.layers[1].mlp.__class__ = Clamped
    model.gated = GatedRMSNorm()
    found = find_parts(model)
    assert (len(found.norms), found.activations) == (known, ())
    assert found.names == ("norms", "rotary embeddings")
    assert not found.keeps_little
    assert find_parts(torch.nn.Linear(2, 2)).names == ()


def test_the_functions_of_a_file_are_given_back(graphs: list[int]) -> None:
    model = tiny.tiny_model()
    file = sys.modules[type(model).__module__]
    own = file.apply_rotary_pos_emb
    compile_parts(find_parts(model))
    compile_parts(find_parts(tiny.tiny_model()))
    assert file.apply_rotary_pos_emb is not own
    plain_rotary()
    assert file.apply_rotary_pos_emb is own
    assert not graphs


def test_a_compiler_that_fails_is_told(graphs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cannot_compile("cpu") == ""
    assert len(graphs) == 1

    def broken(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no compiler")

    torch.compiler.reset()
    monkeypatch.setattr(compiled_parts, "compiled", lambda function, dynamic: torch.compile(function, backend=broken))
    assert "no compiler" in cannot_compile("cpu")
