"""Two processes (gloo, CPU) train what one process trains at the same effective batch, and go on after a break."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.forked_cli import Forked
from tests.process_groups import variables_of
from tests.train.projects import project, train
from tests.train.test_stop import wait_for_steps

TOGETHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


def losses(output: Path) -> list[float]:
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


TWO_NODES = """
import json, os, sys
from pathlib import Path
import expert_cli

folder, rank = Path(sys.argv[1]), os.environ["RANK"]
output = folder / ("b" if rank == "0" else "elsewhere")  # a disk that only the first node has
found = expert_cli.train(folder / "two" / "manifest.json", output=output, resume="auto", device="cpu", offline=True)
kept = {name: found.document[name] for name in ("steps", "tokens", "resumed_from", "adapter_sha256") if name in found.document}
(folder / rank).write_text(json.dumps(kept))
"""


def test_two_processes_train_what_one_does_and_resume(tmp_path: Path, model: Path) -> None:
    config = {
        "max_steps": None,
        "epochs": 2,
        "batch_size": 3,
        "logging_steps": 1,
        "save_steps": 2,
        "learning_rate": 0.01,
    }
    one = project(tmp_path / "one", model, gradient_accumulation_steps=2, **config)
    project(tmp_path / "two", model, gradient_accumulation_steps=1, **config)
    alone = train(one, output=tmp_path / "a").document
    (trained, _) = together(tmp_path, TWO_NODES)
    assert trained["steps"] == alone["steps"]
    for kind in ("real", "trained"):
        assert trained["tokens"][kind] == alone["tokens"][kind]
    assert losses(tmp_path / "b") == pytest.approx(losses(tmp_path / "a"), rel=1e-5)
    (tmp_path / "b" / "COMPLETE").unlink()
    for checkpoint in (tmp_path / "b" / "checkpoints").iterdir():
        if checkpoint.name != "checkpoint-2":
            for path in checkpoint.iterdir():
                path.unlink()
            checkpoint.rmdir()
    found = together(tmp_path, TWO_NODES)
    assert found[0]["resumed_from"].endswith("checkpoint-2")
    assert found == [{**found[0], "adapter_sha256": trained["adapter_sha256"]}, {}]
    # Complete by now, which the second node cannot see.
    assert together(tmp_path, TWO_NODES) == [found[0], found[0]]
    assert not (tmp_path / "elsewhere").exists()


def ends(told: list[str]) -> str:
    """Return how each process's output ended: the one that broke first is rarely the one that told last."""
    return "\n".join(text[-3000:] for text in told)


def together(folder: Path, program: str) -> list[Any]:
    """Run a program in two processes, each of which writes what it finds as JSON to argv[1]/RANK; return both.

    Where processes can be forked they are, with the variables that torchrun sets: torchrun's own import the libraries anew.
    """
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    if sys.platform == "linux":
        processes = [Forked([str(folder)], folder, program=script, env=env | its) for its in variables_of(2)]
        told = [process.communicate(timeout=240)[1] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], ends(told)
    else:
        command = [*TOGETHER, str(script), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=env)
        assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / rank).read_text(encoding="utf-8")) for rank in "01"]


@pytest.mark.skipif(sys.platform != "linux", reason="Forked")
def test_a_signal_to_one_process_interrupts_the_job(tmp_path: Path, model: Path) -> None:
    """The first one, which says how the run ended, was asked nothing itself."""
    manifest = project(tmp_path / "p", model, max_steps=2000, logging_steps=1, batch_size=1)
    words = ["train", "--manifest", str(manifest), "--output", str(tmp_path / "run"), "--offline"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    first, second = (Forked(words, tmp_path, env=env | its) for its in variables_of(2))
    wait_for_steps(first, tmp_path / "run", 3)
    second.send_signal(signal.SIGTERM)
    told = [process.communicate(timeout=240)[1] for process in (first, second)]
    assert [first.returncode, second.returncode] == [143, 143], ends(told)
    status = json.loads((tmp_path / "run" / "status.json").read_text(encoding="utf-8"))
    assert (status["state"], status["exit_code"]) == ("interrupted", 143)
    assert status["reason"].startswith(f"stopped by SIGTERM after step {status['step']} of 2000; checkpoint-")
    assert not (tmp_path / "run" / "COMPLETE").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="Forked")
def test_who_is_left_behind_says_so(tmp_path: Path, model: Path) -> None:
    """The first process ends with 3, with which schedulers try again."""
    manifest = project(tmp_path / "p", model, max_steps=2000, logging_steps=1, batch_size=1)
    words = ["train", "--manifest", str(manifest), "--output", str(tmp_path / "run"), "--offline"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    processes = [Forked(words, tmp_path, env=env | its) for its in variables_of(2)]
    wait_for_steps(processes[0], tmp_path / "run", 3)
    processes[1].kill()
    told = [process.communicate(timeout=240)[1] for process in processes]
    assert processes[0].returncode == 3, ends(told)
    assert "the connection to another process of this job broke, most likely as that one has ended: " in told[0]
    assert "please report it" not in told[0]
    status = json.loads((tmp_path / "run" / "status.json").read_text(encoding="utf-8"))
    assert (status["state"], status["exit_code"]) == ("failed", 3)


EXCHANGED = """
import json, os, sys
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist
from expert_cli.utils.distributed import _cpu_group, all_reduce_any, all_reduce_sum, broadcast_rank0, leave
from expert_cli.utils.distributed import rank0_first, world_size

dist.init_process_group("cuda:gloo")  # like NCCL, it takes no tensor of a CPU
rank = dist.get_rank()
order = Path(sys.argv[1], "order")
with rank0_first():
    before = order.is_file()
    order.touch()
asked = []
found = broadcast_rank0(lambda: asked.append(rank) or {"mine": (0.3, 0.9)[rank]})
Path(sys.argv[1], str(rank)).write_text(json.dumps(
    [world_size(), all_reduce_sum(rank + 1, 2**40), all_reduce_any(rank == 1, False), found, asked, before,
     _cpu_group()._get_backend(torch.device("cpu")).options._timeout > timedelta(days=1)]
))
leave()
"""


def test_counts_flags_and_decisions_go_over_cpus(tmp_path: Path) -> None:
    """And wait long enough: the first process tokenizes for hours perhaps."""
    same = [2, [3, 2**41], [True, False], {"mine": 0.3}]
    assert together(tmp_path, EXCHANGED) == [[*same, [0], False, True], [*same, [], True, True]]


OUT_OF_MEMORY = """
import hashlib, json, sys
from pathlib import Path
from types import SimpleNamespace
import torch
from accelerate import PartialState
from expert_cli.training.memory import fit_memory
from expert_cli.utils.distributed import leave
from expert_cli.utils.reporter import NullReporter
from tests.small_trainer import IMPOSSIBLE, small_trainer

rank, folder = PartialState(cpu=True).process_index, Path(sys.argv[1])
fails = [rank == 1]

def once(gradient):
    if fails[0]:
        fails[0] = False
        torch.empty(IMPOSSIBLE, dtype=torch.uint8)

def trained(name, batch, accumulation):
    made = small_trainer(folder / f"{name}{rank}", batch=batch, accumulation=accumulation)
    made.flat.parameters[2].register_hook(once)  # in the middle of a backward pass
    fit_memory(made, SimpleNamespace(compute=SimpleNamespace(on_oom="fit", checkpointing="off")), NullReporter())
    made.train()
    return made.adjusted, made.progress.losses, hashlib.sha256(made.flat.flat.detach().numpy().tobytes()).hexdigest()

found = trained("shrunk", 6, 1), trained("asked", 3, 2)
(folder / str(rank)).write_text(json.dumps(found))
leave()
"""


def test_where_one_process_runs_out_of_memory_all_shrink_and_go_on(tmp_path: Path) -> None:
    first, second = together(tmp_path, OUT_OF_MEMORY)
    assert first == second
    (adjusted, *shrunk), (unadjusted, *asked) = first
    assert (adjusted, unadjusted) == (["micro-batch 6 x 1 -> 3 x 2"], [])
    assert shrunk == asked
    assert len(shrunk[0]) == 1
