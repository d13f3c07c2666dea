"""What the doctor says of a machine, from its facts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from expert_cli.doctor import checks
from expert_cli.doctor.checks import CheckResult, worst
from expert_cli.hardware.machine import Gpu, Machine, inspect
from expert_cli.hardware.nvml import Driver, GpuSample
from tests.fake_nvml import FakeNvml
from tests.machines import MI300X

H200 = GpuSample(0, "NVIDIA H200", memory_total_mb=150_000.0, capability=(9, 0))
ABSENT = Driver("", None, "NVML Shared Library Not Found")
HERE = Driver("580.65", (13, 0), "")
CPU = Machine("Linux", 8, 32_000_000_000, (), False, "", (("python", "3.11.7"), ("torch", "2.13.0+cpu")))


def test_a_gpu_with_a_cpu_torch_is_the_first_word() -> None:
    line = checks.torch_build(replace(CPU, gpus=(Gpu("NVIDIA H200", 1, (9, 0)),)), ABSENT)
    assert (line.name, line.state) == ("torch build", "fail")
    assert line.found.startswith("NVIDIA H200 is here, but the installed torch is a CPU build")
    assert line.fix.startswith("pip install torch --index-url https://download.pytorch.org/whl/cu")
    assert checks.torch_build(CPU, ABSENT).state == "ok"


@pytest.mark.parametrize(("version", "state"), [("3.11.7", "ok"), ("3.9.18", "fail"), ("3.14.0rc1", "ok")])
def test_python(version: str, state: str) -> None:
    line = checks.python(version, ">=3.10")
    assert (line.state, bool(line.fix)) == (state, state == "fail")


def test_little_memory_is_worth_a_warning() -> None:
    assert checks.system(CPU).state == "ok"
    assert checks.system(replace(CPU, memory_bytes=4_000_000_000)).state == "warn"


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
    ("cuda", "torch", "driver", "state", "fix"),
    [
        ("", "2.13.0+cpu", ABSENT, "ok", ""),
        ("", "not installed", ABSENT, "fail", "pip install torch"),
        ("13.0", "2.13.0", HERE, "ok", ""),
        ("12.8", "2.13.0", HERE, "ok", ""),
        ("13.0", "2.13.0", Driver("560.1", (12, 6), ""), "fail", "whl/cu126"),
        ("13.0", "2.13.0", ABSENT, "ok", ""),
    ],
    ids=["cpu", "none", "fits", "older build", "driver too old", "no driver"],
)
def test_torch_build(cuda: str, torch: str, driver: Driver, state: str, fix: str) -> None:
    line = checks.torch_build(replace(CPU, torch_cuda=cuda, versions=(("torch", torch),)), driver)
    assert line.state == state
    assert fix in line.fix


@pytest.mark.parametrize(
    ("card", "state", "found"),
    [
        (H200, "ok", "NVIDIA H200, 150 GB, compute capability 9.0, bf16 TF32 FP8"),
        (replace(H200, capability=(8, 6)), "ok", "NVIDIA H200, 150 GB, compute capability 8.6, bf16 TF32, no FP8"),
        (replace(H200, capability=(7, 5)), "warn", "NVIDIA H200, 150 GB, compute capability 7.5, no bf16 TF32 FP8"),
        (replace(H200, capability=None), "ok", "NVIDIA H200, 150 GB"),
        (
            replace(H200, memory_total_mb=None),
            "ok",
            "NVIDIA H200, shares the system's memory, compute capability 9.0, bf16 TF32 FP8",
        ),
        (replace(H200, model="TCC"), "ok", "NVIDIA H200, 150 GB, compute capability 9.0, bf16 TF32 FP8, TCC"),
        (replace(H200, model="WDDM"), "warn", "NVIDIA H200, 150 GB, compute capability 9.0, bf16 TF32 FP8, WDDM"),
        (GpuSample(1, problem="GPU is lost"), "fail", "a card does not answer: GPU is lost"),
    ],
    ids=[
        "H200",
        "Ampere",
        "Turing",
        "capability untold",
        "memory untold",
        "TCC",
        "WDDM",
        "lost",
    ],
)
def test_a_gpu(card: GpuSample, state: str, found: str) -> None:
    (line,) = checks.gpus([card], None)
    assert (line.state, line.found, bool(line.fix)) == (state, found, state != "ok")


def test_a_gpu_of_another_maker() -> None:
    """The driver of NVIDIA knows of none, which is no reason to say that there is none."""
    (line,) = checks.gpus([], None, MI300X.gpus)
    assert (line.name, line.state) == ("GPU 0", "ok")
    assert line.found.startswith(MI300X.gpus[0].name)


def test_several_gpus_and_who_chooses() -> None:
    assert [line.state for line in checks.gpus([], None)] == ["warn"]
    two = [H200, replace(H200, index=1)]
    assert [line.name for line in checks.gpus(two, None)] == ["GPU 0", "GPU 1", "GPU choice"]
    assert [line.state for line in checks.gpus(two, "1")] == ["ok"] * 3
    assert [line.state for line in checks.gpus(two, "")] == ["ok", "ok", "warn"]
    assert [line.state for line in checks.gpus(two, "-1")] == ["ok", "ok", "warn"]


def test_memory_in_use() -> None:
    first, second = checks.gpus([replace(H200, memory_used_mb=40_000.0)], None)
    assert (first.state, second.state) == ("ok", "warn")
    assert second.found == "40,000 MB of 150,000 MB in use"
    assert len(list(checks.gpus([replace(H200, memory_used_mb=10_000.0)], None))) == 1


def test_the_worst_state_counts() -> None:
    fine, warned, failed = (CheckResult("x", state, "") for state in ("ok", "warn", "fail"))
    assert [worst(rows) for rows in ([], [fine], [fine, warned], [warned, failed, fine])] == [
        "ok",
        "ok",
        "warn",
        "fail",
    ]


NEEDS = [Requirement(line) for line in ("torch>=2.6", "transformers<6,>=5.23", 'pytest>=8.3; extra == "test"')]


@pytest.mark.parametrize(
    ("version", "state", "found"),
    [
        ("5.23.0", "ok", "torch 2.13.0, transformers 5.23.0"),
        ("5.24.0.dev0", "ok", "torch 2.13.0, transformers 5.24.0.dev0"),
        ("5.22.9", "fail", "5.22.9 is not <6,>=5.23"),
        (None, "fail", "not installed; needed: <6,>=5.23"),
    ],
)
def test_versions(version: str | None, state: str, found: str) -> None:
    versions = {"torch": "2.13.0", "transformers": version}
    line = next(checks.packages(NEEDS, versions.get))
    assert (line.state, line.found) == (state, found)
    assert line.fix == ("" if state == "ok" else 'pip install "transformers<6,>=5.23"')


@pytest.mark.parametrize(
    ("standing", "lacking"),
    [
        (("namespaces", "limits", "files", "syscalls"), ""),
        (("limits", "syscalls"), "from files:"),
        (("limits", "files"), "from the network:"),
        ((), "from the network and files:"),
    ],
)
def test_which_walls_are_lacking_is_told(standing: tuple[str, ...], lacking: str) -> None:
    line = checks.walls(standing)
    assert (line.state, bool(line.fix)) == ("warn" if lacking else "ok", bool(lacking))
    assert lacking in line.fix
    assert ("--without-walls" in line.fix) == ("network" in lacking)


@pytest.mark.parametrize(("free", "state"), [(5_000_000_000, "ok"), (4_999_999_999, "warn"), (499_999_999, "fail")])
def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    line = checks.disk("disk", tmp_path / "not" / "there", 5_000_000_000)
    assert (line.state, bool(line.fix), list(tmp_path.iterdir())) == (state, state != "ok", [])


def test_a_folder_that_cannot_be_written_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    line = checks.disk("one", tmp_path, 1)
    assert (line.state, line.found) == ("fail", f"{tmp_path}: Permission denied")


def test_a_gpu_that_torch_cannot_use_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if inspect().torch_cuda:
        pytest.skip("this torch can use a GPU")
    first, *others = checks.told()
    assert (first.name, first.state) == ("torch build", "fail")
    assert first.found.startswith("NVIDIA H200 is here")
    assert [line.name for line in others][:4] == ["Python", "system", "driver", "GPU 0"]
