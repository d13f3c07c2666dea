"""The way to torch's varlen kernel, whole but for the kernel: layout, groups, window, scale, gradients, compiler, padding."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention import varlen

from expert_cli.data.packing.batches import Collator
from expert_cli.data.packing.dataset import IGNORE_INDEX
from expert_cli.model import isolation
from expert_cli.model.adapter import add_adapter
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import attention_backend
from expert_cli.model.kernels.chunked_loss import CausalLoss
from tests import run_blocks, tiny
from tests.unit.model.kernels.test_attention_backends import LENGTHS, MODELS, borders
from tests.varlen_kernel import varlen_on_cpu

HEADS, D = 4, 16
on_cpu = pytest.mark.usefixtures("kernel")


@pytest.fixture
def kernel() -> Iterator[None]:
    with varlen_on_cpu():
        yield


def repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch's function be one that is not told of groups, as that of torch 2.11."""
    own = varlen.varlen_attn

    def without_groups(
        query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int, **settings: Any
    ) -> Any:
        return own(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, **settings)

    monkeypatch.setattr(varlen, "varlen_attn", without_groups)


def parts(key_heads: int) -> tuple[torch.Tensor, ...]:
    """Return q, k and v as transformers hands them over: [1, heads, tokens, d], of projections [1, tokens, heads, d]."""
    torch.manual_seed(0)
    forms = [(1, sum(LENGTHS), heads, D) for heads in (HEADS, key_heads, key_heads)]
    return tuple(torch.randn(form, dtype=torch.float64).transpose(1, 2).requires_grad_() for form in forms)


def read(function: Any, inputs: tuple[torch.Tensor, ...], window: int | None, scaling: float | None) -> tuple[Any, ...]:
    starts = attention.varlen_kwargs(borders(len(LENGTHS) + 2), max(LENGTHS))
    out, _ = function(torch.nn.Module(), *inputs, None, scaling=scaling, sliding_window=window, **starts)
    weight = torch.arange(out.numel(), dtype=torch.float64).view_as(out).cos()
    return out, *torch.autograd.grad((out * weight).sum(), inputs)


@on_cpu
@pytest.mark.parametrize("scaling", [None, 0.3])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("key_heads", [1, 2, HEADS])
@pytest.mark.parametrize("change", [lambda _: None, repeats], ids=["groups", "repeated keys"])
def test_values_and_gradients_are_those_of_each_document_by_itself(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch], None],
    key_heads: int,
    window: int | None,
    scaling: float | None,
) -> None:
    change(monkeypatch)
    inputs = parts(key_heads)
    ours = read(attention.varlen_attention, inputs, window, scaling)
    known = read(attention.per_document_sdpa, inputs, window, scaling)
    for mine, other in zip(ours, known, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-13)


@on_cpu
def test_nothing_is_copied_on_the_way_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and values reach it as they lie, in groups; the plan counts them so."""
    seen, own = [], varlen.varlen_attn

    def look(*tensors: Any, **settings: Any) -> Any:
        seen.extend(tensors[:3])
        return own(*tensors, **settings)

    look.__signature__ = inspect.signature(own)  # type: ignore[attr-defined]
    monkeypatch.setattr(varlen, "varlen_attn", look)
    inputs = parts(2)
    read(attention.varlen_attention, inputs, None, None)
    assert [tensor.data_ptr() for tensor in seen] == [tensor.data_ptr() for tensor in inputs]
    assert [tensor.numel() for tensor in seen] == [tensor.numel() for tensor in inputs]
    assert not attention_backend("varlen").repeats_keys()
    repeats(monkeypatch)
    seen.clear()
    read(attention.varlen_attention, inputs, None, None)
    assert [tensor.numel() for tensor in seen] == [inputs[0].numel()] * 3
    assert attention_backend("varlen").repeats_keys()


@on_cpu
def test_gradients_are_not_written_into_zeros() -> None:
    """An indexed tensor's gradient is made in a tensor of zeros; of a view it is a view."""
    seen: set[str] = set()
    out, *_ = read_graph(parts(2))
    pending = [out.grad_fn]
    while pending:
        node = pending.pop()
        seen.add(type(node).__name__)
        pending += [following for following, _ in node.next_functions if following is not None]
    assert "TransposeBackward0" in seen
    assert not seen & {"SelectBackward0", "SliceBackward0", "IndexBackward0", "CloneBackward0"}


def read_graph(inputs: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    starts = attention.varlen_kwargs(borders(), max(LENGTHS))
    return attention.varlen_attention(torch.nn.Module(), *inputs, None, **starts)


@on_cpu
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_documents_are_alone(make: Any) -> None:
    model = make().double()
    attention.use(model, "varlen")
    found = isolation.measure_leakage(model, "packed", isolation.SHORT)
    assert found.seen == 0
    assert found.difference < 1e-6  # the states are compared in fp32
    isolation.prove(model, "packed", "varlen", 600)


@on_cpu
def test_rows_beyond_the_bound_are_not_written() -> None:
    """The contract of the real kernel, which the tests of padding rest on."""
    inputs = parts(2)
    starts = attention.varlen_kwargs(borders(), max(LENGTHS) - 1)
    out, _ = attention.varlen_attention(torch.nn.Module(), *inputs, None, **starts)
    last = sum(LENGTHS[:3]) - 1
    assert out.isnan().flatten(2).any(2)[0].nonzero().flatten().tolist() == [last]


def pack(*lengths: int) -> dict[str, torch.Tensor]:
    """Return a pack whose documents train every token but their first."""
    positions = torch.tensor([place for length in lengths for place in range(length)], dtype=torch.int64)
    ids = torch.randint(384, (sum(lengths),), generator=torch.Generator().manual_seed(sum(lengths)))
    return {"input_ids": ids, "labels": ids.where(positions > 0, IGNORE_INDEX), "position_ids": positions}


def adapted(**shape: Any) -> Any:
    model: Any = tiny.tiny_model("qwen3", **shape).double().requires_grad_(False)
    attention.use(model, "varlen")
    torch.manual_seed(0)
    with_adapter = add_adapter(model, run_blocks.ADAPTER).double()
    for parameter in with_adapter.parameters():
        if parameter.requires_grad:
            parameter.data.normal_(std=0.05)
    return with_adapter


def gradients(collate: Collator, packs: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    model = adapted()
    batch = collate(packs)
    batch.pop("real_tokens")
    loss = CausalLoss(model)(**batch)
    loss.backward()
    trained = [parameter.grad.flatten() for parameter in model.parameters() if parameter.requires_grad]
    return torch.cat([loss.detach().double()[None], *trained])


@on_cpu
@pytest.mark.parametrize("packs", [[pack(5, 9, 2)], [pack(16), pack(7, 8)], [pack(3)]], ids=["one", "two", "short"])
def test_padding_of_a_fixed_shape_changes_no_gradient(packs: list[dict[str, torch.Tensor]]) -> None:
    """The last step of an epoch has fewer packs than a batch, and what is missing is padding."""
    expected = gradients(Collator(0), packs)
    torch.testing.assert_close(gradients(Collator(0, "packed", 8 * 16, 16), packs), expected, rtol=1e-9, atol=1e-12)


@on_cpu
def test_a_batch_of_nothing_but_padding_trains_nothing() -> None:
    found = gradients(Collator(0, "packed", 8 * 16, 16), [pack()])
    assert torch.equal(found, torch.zeros_like(found))


@on_cpu
def test_a_compiled_layer_is_one_graph_whatever_the_documents() -> None:
    """The first shape of the borders is a constant, the second makes them free; the bound is one for all."""
    graphs: list[Any] = []

    def counted(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    model = adapted(num_hidden_layers=1)
    collate, plain = Collator(0, "packed", 64, 32), []
    batches = [collate([pack(*lengths)]) for lengths in [(5, 9, 2), (7, 8), (3, 3, 3, 3), (12, 9, 3, 2, 1), (20, 1)]]
    for batch in batches:
        del batch["real_tokens"]
        plain.append(CausalLoss(model)(**batch))
    torch.compiler.reset()
    for layer in model.get_base_model().model.layers:
        layer.compile(backend=counted, fullgraph=True)
    for batch, expected in zip(batches, plain, strict=True):
        loss = CausalLoss(model)(**batch)
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
        loss.backward()
    assert len(graphs) == 2
    called = [node for graph in graphs for node in graph.graph.nodes if "_varlen_attn" in str(node.target)]
    assert len(called) == 2


def test_the_kernel_of_the_tests_is_gone_when_they_are() -> None:
    with varlen_on_cpu():
        assert read_graph(parts(2))[0].isfinite().all()
    with pytest.raises(NotImplementedError, match="CPU"):
        read_graph(parts(2))
