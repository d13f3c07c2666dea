"""The probes find what is broken, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from expert_cli._compat import nothing_compiled
from expert_cli.doctor import probes
from expert_cli.doctor.check import Check, CheckResult
from expert_cli.doctor.check import attempt as attempted
from expert_cli.errors import EnvironmentProblem
from expert_cli.model.kernels import attention
from expert_cli.model.kernels.attention_backends import BACKENDS, attention_backend


def attempt(name: str) -> CheckResult:
    (line,) = attempted(next(probe for probe in probes.PROBES if probe.name == name))
    return line


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
        "import sys; from expert_cli.doctor.probes import QUICK, attempt; states = [attempt(one)[0].state for one in QUICK]; "
        "print(states, 'torch._inductor.lowering' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", entry], capture_output=True, text=True, check=True)
    assert done.stdout == f"{['ok'] * len(probes.QUICK)} False\n"


def test_an_import_leaves_the_compiler_as_it_was() -> None:
    compiling = torch.compile
    with nothing_compiled():
        assert torch.compile(len) is torch.compile(dynamic=False)(len) is len
    assert torch.compile is compiling


@pytest.mark.parametrize(
    ("device", "compiler", "states"),
    [
        pytest.param("cpu", "", ["ok"], id="nothing lacks"),
        pytest.param("cpu", "no-such-compiler", ["warn"], id="no C++ compiler"),
        pytest.param("cuda", "no-such-compiler", ["ok"], id="no C++ compiler, but a GPU"),
    ],
)
def test_what_is_not_tried(monkeypatch: pytest.MonkeyPatch, device: str, compiler: str, states: list[str]) -> None:
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr("expert_cli.doctor.probes.has_package", lambda _: True)
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/")
    monkeypatch.setattr("pathlib.Path.is_file", lambda _: True)
    monkeypatch.setattr("shutil.which", lambda name: None if name == "no-such-compiler" else name)
    found = attempted(Check("torch.compile", lambda: probes.untried(device)))
    assert [(line.name, line.state) for line in found] == list(zip(["torch.compile"], states, strict=True))
    assert ["--deep" in line.fix for line in found] == [state == "ok" for state in states]


@pytest.mark.parametrize(
    ("there", "system", "lacks", "fix"),
    [
        ((), "Linux", "no C++ compiler (looked for g++, clang++)", "apt-get install g++"),
        (("cl",), "Linux", "no C++ compiler (looked for g++, clang++)", "apt-get install g++"),
        ((), "Windows", "no C++ compiler (looked for cl)", "Visual Studio"),
        ((), "Darwin", "no C++ compiler (looked for clang++)", "xcode-select"),
        (("clang++",), "Linux", "Python.h is missing, which compiled code needs", "-dev"),
    ],
)
def test_what_compilation_lacks(
    monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], system: str, lacks: str, fix: str
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/no/such/folder")
    with pytest.raises(EnvironmentProblem) as found:
        probes.need_compiler(lambda name: name if name in there else None, system, "cpu")
    assert found.value.message == lacks
    assert fix in found.value.hint


def test_nothing_is_lacking_where_all_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    probes.need_compiler(lambda name: name, "Linux", "cpu")
    monkeypatch.setattr("expert_cli.doctor.probes.has_package", lambda _: False)
    with pytest.raises(EnvironmentProblem) as found:
        probes.need_compiler(lambda name: name, "Windows", "cuda")
    assert (found.value.message, found.value.hint) == ("triton is missing", "pip install triton-windows")
