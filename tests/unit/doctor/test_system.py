"""What the doctor says of a machine, from its facts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from expert_cli.doctor import checks, probes
from expert_cli.doctor.checks import CheckResult, Probe, run_probes
from expert_cli.doctor.checks import attempt as attempted
from expert_cli.errors import EnvironmentProblem
from expert_cli.hardware.machine import Gpu, Machine
from expert_cli.hardware.nvml import Driver
from expert_cli.model.kernels.attention_backends import BACKENDS
from tests.machines import MI300X
from tests.packs import let_documents_leak

ABSENT = Driver("", None, "NVML Shared Library Not Found")
HERE = Driver("580.65", (13, 0), "")
CPU = Machine("Linux", 8, 32_000_000_000, (), False, "", (("python", "3.11.7"), ("torch", "2.13.0+cpu")))


def test_a_gpu_with_a_cpu_torch_is_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.machine, "inspect", lambda: replace(CPU, gpus=(Gpu("NVIDIA H200", 1, (9, 0)),)))
    line = next(checks.told())
    assert (line.name, line.state) == ("torch build", "fail")
    assert line.found.startswith("NVIDIA H200 is here, but the installed torch is a CPU build")
    assert line.fix.startswith("pip install torch --index-url https://download.pytorch.org/whl/cu")
    assert checks.torch_build(CPU, ABSENT).state == "ok"


@pytest.mark.parametrize(
    ("found", "state", "says"),
    [
        (HERE, "ok", "NVIDIA 580.65, runs CUDA up to 13.0"),
        (ABSENT, "ok", "no NVIDIA driver answers (NVML Shared Library Not Found)"),
        (Driver("", None, "Driver/library version mismatch"), "fail", "mismatch"),
    ],
    ids=["here", "no card", "updated without restart"],
)
def test_driver(found: Driver, state: str, says: str) -> None:
    line = checks.check_driver(found)
    assert (line.state, bool(line.fix)) == (state, state == "fail")
    assert says in line.found


@pytest.mark.parametrize(
    ("cuda", "driver", "state", "fix"),
    [
        ("", ABSENT, "ok", ""),
        ("13.0", HERE, "ok", ""),
        ("12.8", HERE, "ok", ""),
        ("13.0", Driver("560.1", (12, 6), ""), "fail", "whl/cu126"),
        ("13.0", ABSENT, "ok", ""),
    ],
    ids=["cpu", "fits", "older build", "driver too old", "no driver"],
)
def test_torch_build(cuda: str, driver: Driver, state: str, fix: str) -> None:
    line = checks.torch_build(replace(CPU, torch_cuda=cuda), driver)
    assert line.state == state
    assert fix in line.fix


H200 = Gpu("NVIDIA H200", 150_000_000_000, (9, 0))
GPUS: dict[str, tuple[list[Gpu], list[tuple[str, str, str]]]] = {
    # usable, lines: name, state, what is found
    "none": ([], [("GPU", "warn", "none that training can use")]),
    "H200": ([H200], [("GPU 0", "ok", "NVIDIA H200, 150 GB, compute capability 9.0")]),
    "of another maker": ([MI300X.gpus[0]], [("GPU 0", "ok", MI300X.gpus[0].name)]),
    "two, one too old": (
        [H200, replace(H200, capability=(7, 5))],
        [("GPU 0", "ok", "NVIDIA H200"), ("GPU 1", "warn", "compute capability 7.5")],
    ),
}


@pytest.mark.parametrize(("usable", "lines"), GPUS.values(), ids=GPUS.keys())
def test_gpus(usable: list[Gpu], lines: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    found = list(checks.gpus(usable, has_cards=True))
    assert [(line.name, line.state) for line in found] == [(name, state) for name, state, _ in lines]
    assert all(told in line.found for line, (_, _, told) in zip(found, lines, strict=True))
    assert all(bool(line.fix) == (line.state != "ok") for line in found)


NEEDS = [Requirement(line) for line in ("torch>=2.6", "transformers<6,>=5.23", 'pytest>=8.3; extra == "test"')]


@pytest.mark.parametrize(
    ("version", "state", "found"),
    [
        ("5.23.0", "ok", "torch 2.13.0, transformers 5.23.0"),
        ("5.24.0.dev0", "ok", "torch 2.13.0, transformers 5.24.0.dev0"),
        ("5.22.9", "fail", "5.22.9 is installed; needed: <6,>=5.23"),
        (None, "fail", "none is installed; needed: <6,>=5.23"),
    ],
)
def test_versions(version: str | None, state: str, found: str) -> None:
    versions = {"torch": "2.13.0", "transformers": version}
    line = next(checks.packages(NEEDS, versions.get))
    assert (line.state, line.found) == (state, found)
    assert line.fix == ("" if state == "ok" else 'pip install "transformers<6,>=5.23"')


@pytest.mark.parametrize(("free", "state"), [(5_000_000_000, "ok"), (4_999_999_999, "warn"), (499_999_999, "fail")])
def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    line = checks.disk("disk", tmp_path / "not" / "there", 5_000_000_000)
    assert (line.state, bool(line.fix), list(tmp_path.iterdir())) == (state, state != "ok", [])


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
    assert tried == {backend.name for backend in BACKENDS if backend.layout == "packed"}


def test_attention_that_leaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    let_documents_leak(monkeypatch)
    line = attempt("attention, documents")
    assert (line.state, "differ from each alone" in line.found) == ("fail", True)


TRIALS = """
import json, os, signal, sys, time
for line in sys.stdin:
    name = json.loads(line)["probe"]
    if name == "crash":
        import ctypes; ctypes.string_at(0)
    if name == "hang":
        time.sleep(60)
    if name == "leave":
        print("ImportError: libx.so: no such file", file=sys.stderr); sys.exit(3)
    print(json.dumps({"name": name, "state": "ok", "found": str(os.getpid()), "fix": ""}), flush=True)
"""


def never() -> str:
    raise AssertionError


def probe(name: str) -> Probe:
    return Probe(name, never, "warn", "mend it")


def test_a_crash_a_hang_and_an_end_hide_no_other_probe() -> None:
    probes = [probe(name) for name in ("a", "b", "crash", "c", "hang", "d", "leave", "e")]
    lines = list(run_probes(probes, TRIALS, limit_s=5.0))
    assert [line.name for line in lines] == [one.name for one in probes]
    by_name = {line.name: line for line in lines}
    assert [by_name[name].state for name in "abcde"] == ["ok"] * 5
    assert by_name["a"].found == by_name["b"].found != by_name["c"].found
    assert by_name["hang"] == CheckResult("hang", "warn", "no answer within 5 s", "mend it")
    assert by_name["leave"].found == "ended with exit code 3: ImportError: libx.so: no such file"
    if sys.platform != "win32":
        assert (
            by_name["crash"].found
            == "ended with signal 11 (Segmentation fault): Fatal Python error: Segmentation fault"
        )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("libx.so: cannot open\nmore"), CheckResult("x", "fail", "OSError: libx.so: cannot open", "reinstall")),
        (EnvironmentProblem("computes wrongly", ""), CheckResult("x", "fail", "computes wrongly", "reinstall")),
        (EnvironmentProblem("computes wrongly", "restart"), CheckResult("x", "fail", "computes wrongly", "restart")),
    ],
)
def test_what_a_probe_raises_is_its_answer(error: Exception, line: CheckResult) -> None:
    def broken() -> str:
        raise error

    assert attempted(Probe("x", broken, "fail", "reinstall")) == line
