"""Checkpoints: whole or not there, whatever happens to the writer, the disk or the files; and what goes on from one takes the
very steps it would have taken, with every optimizer the tool offers.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError
from expert_cli.manifest.keys.optim import OPTIMIZERS
from expert_cli.model.adapter import adapter_parts
from expert_cli.model.flat_parameters import optimizer_bytes
from expert_cli.training import checkpoint
from expert_cli.training.checkpoint import (
    CHECKPOINT_RULE,
    CheckpointState,
    latest_valid,
    load_optimizer,
    optimizer_parts,
    read,
    rotate,
    write,
)
from expert_cli.training.trainer import ExpertTrainer
from tests.recorders import Recorder
from tests.small_trainer import WATCH, small_trainer
from tests.tiny import tiny_model

# bitsandbytes says so for every parameter; on a CPU a paged optimizer is an ordinary one.
pytestmark = pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")
EVERY_OTHER = replace(WATCH, save_strategy="steps", save_steps=2, save_total_limit=None)


posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks its writers")


def parts(step: int, rows: int = 40) -> CheckpointState:
    """A state whose every part tells the step."""
    tensor = torch.full((rows, 50), float(step))
    return CheckpointState(
        adapter={"lora_A.weight": tensor, "lora_B.weight": tensor.T},
        adapter_config={"peft_type": "LORA", "r": 8},
        tensors={"0.exp_avg": tensor * 2, "losses": torch.tensor([step], dtype=torch.float64)},
        state={"identity": {"seed": 7}, "learning_rates": [1e-4], "loss": float("inf")},
        trainer_state={"global_step": step, "best_metric": None},
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def written(folder: Path, *steps: int) -> list[Path]:
    for step in steps:
        write(folder, step, parts(step))
    return [folder / f"checkpoint-{step}" for step in steps]


def test_there_and_back(tmp_path: Path) -> None:
    before, (home,) = parts(5), written(tmp_path / "checkpoints", 5)
    back = read(home)
    for wanted, found in ((before.adapter, back.adapter), (before.tensors, back.tensors)):
        assert {name: tensor.dtype for name, tensor in wanted.items()} == {n: t.dtype for n, t in found.items()}
        assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    for name in ("adapter_config", "state", "trainer_state"):
        assert getattr(back, name) == getattr(before, name)
    assert names(home) == sorted(FILES)
    assert not [path for path in home.iterdir() if b"pickle" in path.read_bytes() or path.suffix in (".pt", ".pth")]


def flip(whole: bytes, place: int) -> bytes:
    return whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "deleted": lambda _: None,
    "last byte cut": lambda whole: whole[:-1],
    "one byte more": lambda whole: whole + b"\n",
    "a bit in the middle": lambda whole: flip(whole, len(whole) // 2),
}
FILES = (
    "adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors", "state.json", "trainer_state.json",
    "checkpoint.json",
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.parametrize("file", FILES)
def test_damage_is_named_and_the_one_before_is_used(
    tmp_path: Path, file: str, damage: Callable[[bytes], bytes | None]
) -> None:
    good, bad = written(tmp_path, 10, 20)
    assert latest_valid(tmp_path)[0] == bad
    whole = (bad / file).read_bytes()
    changed = damage(whole)
    (bad / file).unlink()
    if changed is not None:
        assert changed != whole
        (bad / file).write_bytes(changed)
    with pytest.raises(IntegrityError, match=f"checkpoint-20 is damaged: {file}"):
        read(bad)
    found, (damaged,) = latest_valid(tmp_path)
    assert found == good
    assert damaged.startswith(f"{bad} is damaged: {file} ")
    written(tmp_path, 20)
    assert latest_valid(tmp_path)[1] == []


def test_a_checkpoint_of_another_rule_is_told_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "CHECKPOINT_RULE", CHECKPOINT_RULE - 1)
        (path,) = written(tmp_path, 1)
    with pytest.raises(IntegrityError, match=f"another version .rule {CHECKPOINT_RULE - 1}, this one reads"):
        read(path)
    assert latest_valid(tmp_path)[0] is None


def test_a_file_or_name_of_another_checkpoint_is_damage(tmp_path: Path) -> None:
    one, two = written(tmp_path, 1, 2)
    (one / "optimizer.safetensors").replace(two / "optimizer.safetensors")
    with pytest.raises(IntegrityError, match=r"optimizer\.safetensors does not match its hash"):
        read(two)
    for name in ("checkpoint-4", "best", "checkpoint-", "checkpoint-1x", "checkpoint-²"):
        with pytest.raises(IntegrityError, match="another checkpoint"):
            read(written(tmp_path, 3)[0].rename(tmp_path / name))


def test_the_newest_is_the_one_written_last(tmp_path: Path) -> None:
    written(tmp_path, 10, 20, 30, 15)  # 15: gone on from 10 again
    assert latest_valid(tmp_path)[0] == tmp_path / "checkpoint-15"
    written(tmp_path, 20)
    assert latest_valid(tmp_path)[0] == tmp_path / "checkpoint-20"
    rotate(tmp_path, 2, set())
    assert names(tmp_path) == ["checkpoint-15", "checkpoint-20"]


ROTATED: dict[str, tuple[int | None, set[int], list[int]]] = {
    "all": (None, set(), [1, 2, 3, 4, 5]),
    "three": (3, set(), [3, 4, 5]),
    "never below two": (1, set(), [4, 5]),
    "and the best": (2, {1}, [1, 4, 5]),
    "the best is the newest": (2, {5}, [4, 5]),
    "more than there are": (9, set(), [1, 2, 3, 4, 5]),
}


@pytest.mark.parametrize(("keep", "protect", "left"), ROTATED.values(), ids=ROTATED.keys())
def test_rotation(tmp_path: Path, keep: int | None, protect: set[int], left: list[int]) -> None:
    written(tmp_path, *range(1, 6))
    rotate(tmp_path, keep, protect)
    assert names(tmp_path) == [f"checkpoint-{step}" for step in left]


def test_what_is_not_whole_does_not_count_as_kept(tmp_path: Path) -> None:
    written(tmp_path, *range(1, 5))
    (tmp_path / "checkpoint-4" / "state.json").unlink()
    (tmp_path / "checkpoint-3" / "checkpoint.json").write_text("{}", encoding="utf-8")
    rotate(tmp_path, 2, set())
    assert names(tmp_path) == ["checkpoint-1", "checkpoint-2"]


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    for name in ("checkpoint-1/pytorch_model.bin", ".writing-notes/a", ".removed-/a", "checkpoint-x/a"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    mine = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert latest_valid(tmp_path / "none")[0] is latest_valid(tmp_path)[0] is None
    assert [line.split(":")[0] for line in latest_valid(tmp_path)[1]] == [f"{tmp_path / 'checkpoint-1'} is damaged"]
    written(tmp_path, *range(2, 6))
    rotate(tmp_path, 2, set())
    assert not (tmp_path / "checkpoint-3").exists()
    assert mine <= set(tmp_path.rglob("*"))


@pytest.fixture
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power cut loses what was written and not synced; a kill does not, and syncing takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@posix
def test_all_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut behind the renaming finds the whole checkpoint."""
    done: list[str] = []
    sync, rename = os.fsync, Path.rename

    def synced(handle: int) -> None:
        done.append(re.sub(r"^\.(.+)\.[\w-]+\.tmp$", r"\1", Path(f"/proc/self/fd/{handle}").readlink().name))
        sync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", lambda path, to: done.append("renamed") or rename(path, to))
    written(tmp_path, 5)
    at = done.index("renamed")
    assert {*FILES, ".writing-5"} <= {*done[:at]}
    assert done[at:] == ["renamed", tmp_path.name]


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


KILLED: dict[str, Callable[[Path], Any]] = {
    "a new one": lambda folder: write(folder, 5, parts(90)),
    "the newest again": lambda folder: write(folder, 4, parts(90)),
    "rotation": lambda folder: rotate(folder, 2, set()),
}


@posix
@pytest.mark.usefixtures("_no_sync")
@pytest.mark.parametrize("work", KILLED.values(), ids=KILLED.keys())
def test_killed_at_every_instant(tmp_path: Path, work: Callable[[Path], Any]) -> None:
    written(tmp_path / "0", 1, 2, 3, 4)
    for event in range(1, 1000):
        folder = Path(shutil.copytree(tmp_path / "0", tmp_path / str(event)))
        ended = killed_at(event, lambda: work(folder))  # noqa: B023
        assert latest_valid(folder)[1] == []
        told = {path.name: read(path).tensors["losses"].item() for path in folder.glob("checkpoint-*")}
        assert "checkpoint-3" in told
        assert all(step == float(name[11:]) or step == 90 for name, step in told.items())
        written(folder, 6)
        assert latest_valid(folder)[0] == folder / "checkpoint-6"
        assert not list(folder.glob(".*"))
        if ended == 0:
            assert event > 10
            break
        assert ended == -signal.SIGKILL


@posix
@pytest.mark.parametrize("limit", [100, 3_000, 9_000], ids=["JSON", "state.json", "tensors"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, limit: int) -> None:
    import resource

    written(tmp_path, 1)

    def write_little() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(EnvironmentProblem, match=f"checkpoint of .* in {tmp_path}: File too large"):
            write(tmp_path, 2, parts(2))

    assert in_child(write_little) == 0
    assert names(tmp_path) == ["checkpoint-1"]
    assert latest_valid(tmp_path)[0] == tmp_path / "checkpoint-1"


def trainer(folder: Path, optim: str, **settings: Any) -> ExpertTrainer:
    """A trainer of two epochs of four steps, with dropout and more numbers than bitsandbytes keeps in fp32 (4,096)."""
    asked = {"batch": 3, "epochs": 2.0, "watch": EVERY_OTHER, "scheduler": "cosine", "optim": optim}
    return small_trainer(folder, **{"adapter": {"r": 16, "lora_dropout": 0.1}, **asked, **settings})


def gone_on(made: ExpertTrainer, home: Path) -> ExpertTrainer:
    made.checkpoints = replace(made.checkpoints, resumed=read(home))
    made.train(resume_from_checkpoint=str(home))
    return made


def bits(tensors: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {
        name: tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("optim", OPTIMIZERS)
def test_it_goes_on_as_if_nothing_had_happened(tmp_path: Path, optim: str) -> None:
    whole = trainer(tmp_path / "whole", optim)
    whole.train()
    for step in (2, 6):
        again = gone_on(trainer(tmp_path / f"from {step}", optim), tmp_path / f"whole/checkpoints/checkpoint-{step}")
        assert again.progress.losses == whole.progress.losses
        assert (again.progress.real, again.progress.trained) == (whole.progress.real, whole.progress.trained)
        assert torch.equal(again.flat.flat, whole.flat.flat)
        (mine, numbers), (theirs, wanted) = (optimizer_parts(one.optimizer.optimizer) for one in (again, whole))
        assert (bits(mine), numbers) == (bits(theirs), wanted)
        assert again.lr_scheduler.state_dict() == whole.lr_scheduler.state_dict()
        assert again.state.log_history[-2]["learning_rate"] == whole.state.log_history[-2]["learning_rate"]
    tensors, _ = optimizer_parts(whole.optimizer.optimizer)
    if optim != "adafactor":  # which is told of the flat buffer, and keeps rows and columns
        found = sum(tensor.nbytes for tensor in tensors.values())
        assert (
            found - 2100 <= optimizer_bytes(whole.flat.flat, optim) <= found
        )  # bitsandbytes' table of 256 values, twice


def test_a_recorded_run_goes_on_from_an_eager_one_and_back(tmp_path: Path) -> None:
    """Of one AdamW, which the recorded one is with a learning rate in fp32."""
    losses = []
    for name, graphs in (("recorded", (None, Recorder())), ("eager", (Recorder(), None))):
        first, then = (
            trainer(tmp_path / f"{name}{number}", "adamw_torch", graphs=one, fixed=True)
            for number, one in enumerate(graphs)
        )
        (first if first.graphs else then).try_step()
        first.train()
        home = tmp_path / f"{name}0/checkpoints/checkpoint-2"
        losses += [first.progress.losses, gone_on(then, home).progress.losses]
    assert all(one == pytest.approx(losses[0], rel=1e-6) for one in losses)


@pytest.mark.parametrize("optim", [name for name in OPTIMIZERS if name != "sgd"])
def test_state_is_written_into_the_tensors_that_are_there(tmp_path: Path, optim: str) -> None:
    made = trainer(tmp_path, optim, epochs=0.25)
    made.train()
    optimizer = made.optimizer.optimizer
    tensors, numbers = optimizer_parts(optimizer)
    assert tensors
    wanted = {name: tensor.clone() for name, tensor in tensors.items()}
    places = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    for tensor in tensors.values():
        tensor.zero_()
    load_optimizer(optimizer, wanted, numbers)
    found, _ = optimizer_parts(optimizer)
    assert bits(found) == bits(wanted)
    assert {name: tensor.data_ptr() for name, tensor in found.items()} == places


@pytest.mark.parametrize(
    "adapter", [{}, {"use_dora": True}, {"modules_to_save": ["norm"]}], ids=["lora", "dora", "trained norm"]
)
def test_peft_loads_a_checkpoint_as_it_is(tmp_path: Path, adapter: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False, **adapter)
    model = get_peft_model(tiny_model(), config)  # type: ignore[arg-type]
    write(tmp_path, 2, CheckpointState(*adapter_parts(model), {}, {}, {}))
    loaded = PeftModel.from_pretrained(tiny_model(), tmp_path / "checkpoint-2")  # type: ignore[arg-type]
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        assert torch.equal(loaded.eval()(input_ids=ids).logits, model.eval()(input_ids=ids).logits)


def test_a_checkpoint_of_another_adapter_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path / "one", "sgd").train()
    other = trainer(tmp_path / "other", "sgd", adapter={"r": 8})
    with pytest.raises(InputError, match=r"does not fit this adapter: 4 tensors differ, the first is base_"):
        gone_on(other, tmp_path / "one/checkpoints/checkpoint-2")
