"""The probes find what is broken, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from expert_cli._compat import nothing_compiled
from expert_cli.doctor import probes
from expert_cli.doctor.checks import CheckResult
from expert_cli.doctor.checks import attempt as attempted
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import BACKENDS, attention_backend


def attempt(name: str) -> CheckResult:
    return attempted(next(probe for probe in probes.PROBES if probe.name == name))


def test_a_layer_without_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import bitsandbytes

    class Cut(bitsandbytes.nn.Linear4bit):
        def forward(self, x: Any) -> Any:
            return super().forward(x.detach()) + 0 * x

    monkeypatch.setattr("bitsandbytes.nn.Linear4bit", Cut)
    line = attempt("bitsandbytes")
    assert (line.state, line.found) == ("fail", "the gradient through a 4-bit layer is zero")


def test_the_attention_of_training_keeps_documents_apart_here() -> None:
    assert attempt("attention, documents").state == "ok"
    tried = {probe.name.removeprefix("attention, ") for probe in probes.PROBES if "attention" in probe.name}
    assert tried == {backend.title or backend.name for backend in BACKENDS if backend.layout == "packed"}


def test_attention_that_leaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaky(module: Any, query: Any, *rest: Any, **settings: Any) -> Any:
        settings["cu_seq_lens_q"] = torch.tensor([0, query.shape[2]], dtype=torch.int32)
        return attention.per_document_sdpa(module, query, *rest, **settings)

    registered = attention_backend("documents").registered
    monkeypatch.setitem(attention.AttentionInterface._global_mapping, registered, leaky)
    line = attempt("attention, documents")
    assert (line.state, "differ from each alone" in line.found) == ("fail", True)


def test_a_gradient_that_is_no_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: Any, query: Any, *rest: Any, **settings: Any) -> Any:
        out, _ = attention.per_document_sdpa(module, query, *rest, **settings)
        if out.requires_grad:
            out.register_hook(lambda gradient: gradient * float("nan"))
        return out, None

    registered = attention_backend("documents").registered
    monkeypatch.setitem(attention.AttentionInterface._global_mapping, registered, broken)
    assert attempt("attention, documents").found == "its gradient is not finite"


def test_the_quick_probes_load_no_code_generator() -> None:
    """It is half of what bitsandbytes loads; in a process of its own, for other tests load it."""
    entry = (
        "import sys; from expert_cli.doctor.probes import PROBES, attempt; states = [attempt(one).state for one in PROBES]; "
        "print(states, 'torch._inductor.lowering' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", entry], capture_output=True, text=True, check=True)
    assert done.stdout == f"{['ok'] * len(probes.PROBES)} False\n"


def test_an_import_leaves_the_compiler_as_it_was() -> None:
    compiling = torch.compile
    with nothing_compiled():
        assert torch.compile(len) is torch.compile(dynamic=False)(len) is len
    assert torch.compile is compiling
