"""Checkpoints: whole or not there, whatever happens to the writer, the disk or the files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from expert_cli.training.checkpointing.serialization import capture_rng
from expert_cli.training.state import Position

from expert_cli.errors import EnvironmentProblem, IntegrityError
from expert_cli.training.checkpointing import checkpoint
from expert_cli.training.checkpointing.checkpoint import (
    CHECKPOINT_RULE,
    CheckpointState,
    latest_valid,
    read,
    rotate,
    write,
)

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks its writers")


def parts(step: int, rows: int = 40) -> CheckpointState:
    """CheckpointState whose every tensor tells the step."""
    tensor = torch.full((rows, 50), float(step))
    return CheckpointState(
        adapter={"lora_A.weight": tensor, "lora_B.weight": tensor.T},
        adapter_config={"peft_type": "LORA", "r": 8},
        optimizer={"state": {0: {"step": step, "exp_avg": tensor * 2}}, "param_groups": [{"betas": (0.9, 0.999)}]},
        scheduler={"last_epoch": step, "_last_lr": [1e-4]},
        rng=capture_rng(),
        position=Position(epoch=1, step=step, micro_step=3),
        trainer={"log_history": [{"loss": float("inf")}], "best": None},
        identity={"config": "ab12", "seed": 7},
        losses=torch.arange(step, dtype=torch.float32),
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_there_and_back(tmp_path: Path) -> None:
    before = parts(5)
    info = write(tmp_path / "checkpoints", 5, before)
    assert (info.path, info.step) == (tmp_path / "checkpoints" / "checkpoint-5", 5)
    assert info.bytes == sum(path.stat().st_size for path in info.path.iterdir())
    back = read(info.path)
    for name in before.adapter:
        assert torch.equal(back.adapter[name], before.adapter[name])
    assert torch.equal(back.optimizer["state"][0]["exp_avg"], before.optimizer["state"][0]["exp_avg"])
    assert back.optimizer["param_groups"] == before.optimizer["param_groups"]
    assert torch.equal(back.losses, before.losses)
    for name in ("python", "numpy", "torch"):
        assert str(back.rng[name]) == str(before.rng[name])
    for name in ("adapter_config", "scheduler", "position", "trainer", "identity"):
        assert getattr(back, name) == getattr(before, name)
    state = json.loads((info.path / "state.json").read_text(encoding="utf-8"))
    assert state["position"] == {"epoch": 1, "step": 5, "micro_step": 3}


def flip(whole: bytes, place: int) -> bytes:
    return whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "deleted": lambda _: None,
    "last byte cut": lambda whole: whole[:-1],
    "one byte more": lambda whole: whole + b"\n",
    "a bit in the middle": lambda whole: flip(whole, len(whole) // 2),
}
FILES = (
    "adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors", "state.json", "state.safetensors",
    "checkpoint.json",
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.parametrize("file", FILES)
def test_damage_is_named_and_the_one_before_is_used(
    tmp_path: Path, file: str, damage: Callable[[bytes], bytes | None]
) -> None:
    good, bad = write(tmp_path, 10, parts(10)).path, write(tmp_path, 20, parts(20)).path
    assert latest_valid(tmp_path).path == bad
    whole = (bad / file).read_bytes()
    changed = damage(whole)
    (bad / file).unlink()
    if changed is not None:
        assert changed != whole
        (bad / file).write_bytes(changed)
    with pytest.raises(IntegrityError, match=f"checkpoint-20 is damaged: {file}"):
        read(bad)
    found = latest_valid(tmp_path)
    assert found.path == good
    assert len(found.damaged) == 1
    assert found.damaged[0].startswith(f"{bad} is damaged: {file} ")
    assert write(tmp_path, 20, parts(20)).path == bad
    assert latest_valid(tmp_path).damaged == ()


def test_a_checkpoint_of_another_rule_is_told_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "CHECKPOINT_RULE", CHECKPOINT_RULE - 1)
        path = write(tmp_path, 1, parts(1)).path
    with pytest.raises(
        IntegrityError, match=f"another version .rule {CHECKPOINT_RULE - 1}, this one reads {CHECKPOINT_RULE}"
    ):
        read(path)
    assert latest_valid(tmp_path).path is None


def test_a_file_or_name_of_another_checkpoint_is_damage(tmp_path: Path) -> None:
    one, two = write(tmp_path, 1, parts(1)).path, write(tmp_path, 2, parts(2)).path
    (one / "optimizer.safetensors").replace(two / "optimizer.safetensors")
    with pytest.raises(IntegrityError, match=r"optimizer\.safetensors does not match its hash"):
        read(two)
    three = write(tmp_path, 3, parts(3)).path.rename(tmp_path / "checkpoint-4")
    with pytest.raises(IntegrityError, match="another checkpoint"):
        read(three)


def test_nothing_there(tmp_path: Path) -> None:
    assert latest_valid(tmp_path / "none").path is None
    (tmp_path / "checkpoint-x").mkdir()
    (tmp_path / "checkpoint-9").mkdir()
    found = latest_valid(tmp_path)
    assert found.path is None
    assert [line.split(":")[0] for line in found.damaged] == [f"{tmp_path / 'checkpoint-9'} is damaged"]


def test_the_newest_is_the_one_written_last(tmp_path: Path) -> None:
    for step in (10, 20, 30, 15):  # 15: gone on from 10 again
        write(tmp_path, step, parts(step))
    assert latest_valid(tmp_path).path == tmp_path / "checkpoint-15"
    write(tmp_path, 20, parts(20))
    assert latest_valid(tmp_path).path == tmp_path / "checkpoint-20"
    rotate(tmp_path, 2, set())
    assert names(tmp_path) == ["checkpoint-15", "checkpoint-20"]


@pytest.mark.parametrize(
    ("keep", "protect", "left"),
    [
        pytest.param(None, set(), [1, 2, 3, 4, 5], id="all"),
        pytest.param(3, set(), [3, 4, 5], id="three"),
        pytest.param(1, set(), [4, 5], id="never below two"),
        pytest.param(2, {1}, [1, 4, 5], id="and the best"),
        pytest.param(2, {5}, [4, 5], id="the best is the newest"),
        pytest.param(9, set(), [1, 2, 3, 4, 5], id="more than there are"),
    ],
)
def test_rotation(tmp_path: Path, keep: int | None, protect: set[int], left: list[int]) -> None:
    for step in range(1, 6):
        write(tmp_path, step, parts(step))
    gone = rotate(tmp_path, keep, protect)
    assert names(tmp_path) == [f"checkpoint-{step}" for step in left]
    assert len(gone) == 5 - len(left)


def test_what_cannot_be_removed_just_now_goes_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 5):
        write(tmp_path, step, parts(step))

    def held(path: Path, ignore_errors: bool = False) -> None:
        if ignore_errors:
            return
        raise OSError(errno.ENOTEMPTY, "a reader of it is left on a network disk", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", held)
        assert len(rotate(tmp_path, 2, set())) == 2
        write(tmp_path, 5, parts(5))
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [
        "checkpoint-3",
        "checkpoint-4",
        "checkpoint-5",
    ]
    assert latest_valid(tmp_path).path == tmp_path / "checkpoint-5"
    assert len([*tmp_path.glob(".removed-*")]) == 2
    write(tmp_path, 6, parts(6))
    assert not [*tmp_path.glob(".removed-*")]


def test_what_is_not_whole_does_not_count_as_kept(tmp_path: Path) -> None:
    for step in range(1, 5):
        write(tmp_path, step, parts(step))
    (tmp_path / "checkpoint-4" / "state.json").unlink()
    (tmp_path / "checkpoint-3" / "checkpoint.json").write_text("{}", encoding="utf-8")
    rotate(tmp_path, 2, set())
    assert names(tmp_path) == ["checkpoint-1", "checkpoint-2"]


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    for name in (
        "checkpoint-1/pytorch_model.bin",
        ".writing-notes/a",
        ".removed-/a",
        ".replaced-by/a",
        "checkpoint-x/a",
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    mine = {path for path in tmp_path.rglob("*") if path.is_file()}
    for step in range(2, 6):
        write(tmp_path, step, parts(step))
    rotate(tmp_path, 2, set())
    assert not (tmp_path / "checkpoint-3").exists()
    assert mine <= set(tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["best", "checkpoint-", "checkpoint-1x", "checkpoint-²"])
def test_a_checkpoint_under_a_name_that_tells_no_step_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(IntegrityError, match="another checkpoint"):
        read(write(tmp_path, 1, parts(1)).path.rename(tmp_path / name))


def test_a_state_without_form_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1, parts(1))
    with pytest.raises(TypeError, match="hook"):
        write(tmp_path, 2, replace(parts(2), trainer={"hook": object()}))
    assert names(tmp_path) == ["checkpoint-1"]


def in_child(work: Callable[[], Any]) -> int:
    """Run `work` in a forked process; return how that ended: 0, 1 for an error, minus the number of a signal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(event: int, work: Callable[[], Any]) -> int:
    """Run `work` and kill it with SIGKILL just before its `event`-th look at the disk."""

    def killed() -> None:
        seen = 0

        def hook(name: str, _: tuple[Any, ...]) -> None:
            nonlocal seen
            seen += name.startswith(("os.", "open", "shutil."))
            if seen == event:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work()

    return in_child(killed)


@pytest.fixture
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power cut loses what was written and not synced; a kill does not, and syncing takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@posix
@pytest.mark.usefixtures("_no_sync")
@pytest.mark.parametrize(
    ("steps", "written"),
    [
        pytest.param((1, 2), 3, id="a new one"),
        pytest.param((2,), 2, id="the only one again"),
    ],
)
def test_killed_at_every_instant(tmp_path: Path, steps: tuple[int, ...], written: int) -> None:
    for step in steps:
        write(tmp_path / "0", step, parts(step))
    for event in range(1, 1000):
        folder = Path(shutil.copytree(tmp_path / "0", tmp_path / str(event)))
        ended = killed_at(event, lambda: write(folder, written, parts(90)))  # noqa: B023
        found = latest_valid(folder)
        assert found.damaged == ()
        assert found.path
        assert int(read(found.path).losses.numel()) in (steps[-1], 90)
        write(folder, 4, parts(4))
        rest = {f"checkpoint-{step}" for step in (*steps, 4)}
        assert rest <= set(names(folder)) <= rest | {f"checkpoint-{written}"}
        assert latest_valid(folder).path == folder / "checkpoint-4"
        if ended == 0:
            assert event > 20
            break
        assert ended == -signal.SIGKILL


@posix
@pytest.mark.usefixtures("_no_sync")
def test_killed_while_removing(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        write(tmp_path / "0", step, parts(step))
    for event in range(1, 1000):
        folder = Path(shutil.copytree(tmp_path / "0", tmp_path / str(event)))
        ended = killed_at(event, lambda: rotate(folder, 2, set()))  # noqa: B023
        for path in folder.glob("checkpoint-*"):
            read(path)
        assert latest_valid(folder).path == folder / "checkpoint-4"
        write(folder, 5, parts(5))
        assert not list(folder.glob(".*"))
        if ended == 0:
            assert event > 10
            break
        assert ended == -signal.SIGKILL


@posix
def test_killed_while_the_tensors_are_written(tmp_path: Path) -> None:
    write(tmp_path, 1, parts(1))
    large = parts(2, rows=40_000)
    started = time.monotonic()
    write(tmp_path / "timed", 2, large)
    took = time.monotonic() - started
    for share in (0.2, 0.4, 0.6, 0.8):

        def timed(instant: float = took * share) -> None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # whose default is the end, at any instruction
            signal.setitimer(signal.ITIMER_REAL, instant)
            write(tmp_path, 2, large)

        assert in_child(timed) in (0, -signal.SIGALRM)
        found = latest_valid(tmp_path)
        assert (found.path, found.damaged) in [(tmp_path / f"checkpoint-{step}", ()) for step in (1, 2)]
    write(tmp_path, 3, parts(3))
    assert not list(tmp_path.glob(".*"))


@posix
@pytest.mark.parametrize("limit", [100, 3_000, 9_000], ids=["JSON", "state.json", "tensors"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, limit: int) -> None:
    import resource

    write(tmp_path, 1, parts(1))

    def write_little() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(EnvironmentProblem, match=f"cannot write a checkpoint in {tmp_path}: File too large"):
            write(tmp_path, 2, parts(2))

    assert in_child(write_little) == 0
    assert names(tmp_path) == ["checkpoint-1"]
    assert latest_valid(tmp_path).path == tmp_path / "checkpoint-1"


def test_secrets_are_not_written(tmp_path: Path) -> None:
    token = "hf_" + "a" * 34
    home = write(tmp_path, 1, replace(parts(1), identity={"hub": token})).path
    assert token not in (home / "state.json").read_text(encoding="utf-8")
    assert json.loads((home / "state.json").read_text(encoding="utf-8"))["identity"] == {"hub": "***"}
    assert read(home).position.step == 1
