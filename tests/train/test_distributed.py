"""Two processes (gloo, CPU) train what one does at the same effective batch, share out the base model, and go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.errors import InputError
from expert_cli.model.fsdp import require_processes
from expert_cli.runs.metrics import read_json
from tests import run_blocks
from tests.forked_cli import Forked, variables_of
from tests.train.projects import project, train
from tests.train.test_status import wait_for_steps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Forked")
ROOT = Path(__file__).parents[2]


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


CONFIG: dict[str, Any] = {"max_steps": None, "epochs": 2, "batch_size": 3, "logging_steps": 1, "save_steps": 2}
CONFIG |= {"learning_rate": 0.01}


def broken_off(run: Path) -> None:
    """Leave of a complete run what it was after step 2."""
    (run / "COMPLETE").unlink()
    for checkpoint in (run / "checkpoints").iterdir():
        if checkpoint.name != "checkpoint-2":
            shutil.rmtree(checkpoint)


def test_two_processes_train_what_one_does_and_resume(tmp_path: Path) -> None:
    one = project(tmp_path / "one", gradient_accumulation_steps=2, **CONFIG)
    project(tmp_path / "two", gradient_accumulation_steps=1, **CONFIG)
    alone = train(one, output=tmp_path / "a").document
    (trained, _) = together(tmp_path, TWO_NODES)
    assert trained["steps"] == alone["steps"]
    for kind in ("real", "trained"):
        assert trained["tokens"][kind] == alone["tokens"][kind]
    assert losses(tmp_path / "b") == pytest.approx(losses(tmp_path / "a"), rel=1e-5)
    broken_off(tmp_path / "b")
    found = together(tmp_path, TWO_NODES)
    assert found[0]["resumed_from"].endswith("checkpoint-2")
    assert found == [{**found[0], "adapter_sha256": trained["adapter_sha256"]}, {}]
    # Complete by now, which the second node cannot see.
    assert together(tmp_path, TWO_NODES) == [found[0], found[0]]
    assert not (tmp_path / "elsewhere").exists()


def test_two_processes_that_share_out_the_base_model_train_what_one_does_which_goes_on_alone(tmp_path: Path) -> None:
    config = {"adapter_type": "dora", "gradient_checkpointing": True, "gradient_accumulation_steps": 2, "epochs": 1}
    manifest = project(tmp_path, base={"quantization": "int4"}, **CONFIG | config)

    def trained(name: str, processes: int, *settings: str) -> list[float]:
        words = [word for key in settings for word in ("--set", f"training.config.{key}")]
        jobs = started(manifest, tmp_path / name, processes, "--resume", "auto", *words)
        told = [job.communicate(timeout=240)[1] for job in jobs]
        assert [job.returncode for job in jobs] == [0] * processes, ends(told)
        return losses(tmp_path / name)

    one = trained("one", 1)
    assert len(one) > 4
    assert trained("two", 2, "fsdp=true", "gradient_accumulation_steps=1") == pytest.approx(one, rel=1e-4)
    for kept in ("checkpoints/checkpoint-2", "adapter"):
        mine, theirs = (
            {path.name: path.stat().st_size for path in (tmp_path / name / kept).glob("*.safetensors")}
            for name in ("one", "two")
        )
        assert mine == theirs, kept
    broken_off(tmp_path / "two")
    assert trained("two", 1, "fsdp=false", "gradient_accumulation_steps=1") == pytest.approx(one, rel=1e-4)
    assert "checkpoint-2: step 2, epoch" in (tmp_path / "two" / "log.txt").read_text(encoding="utf-8")


# With MULTI_CPU and with --cpu accelerate 1.15 starts one process alone, whatever num_processes says, but for mpirun's.
ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
use_cpu: true
num_machines: 1
num_processes: 2
main_process_port: 0
mixed_precision: bf16
"""


@pytest.mark.slow
def test_accelerate_launches_two_in_the_precision_of_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(ACCELERATE, encoding="utf-8")
    alone = train(project(tmp_path / "one", gradient_accumulation_steps=2, **CONFIG)).output
    manifest = project(tmp_path / "two", gradient_accumulation_steps=1, **CONFIG)
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(tmp_path / "accelerate.yaml")]
    words = ["-m", "expert_cli", "train", "--manifest", str(manifest), "--output", str(tmp_path / "run"), "--offline"]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*launch, *words], capture_output=True, text=True, check=False, timeout=240, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert read_json(tmp_path / "run" / "status.json")["world_size"] == 2
    assert losses(tmp_path / "run") == pytest.approx(losses(alone), rel=1e-5)


def ends(told: list[str]) -> str:
    """Return how each process's output ended: the one that broke first is rarely the one that told last."""
    return "\n".join(text[-3000:] for text in told)


def together(folder: Path, program: str) -> list[Any]:
    """Run a program in two processes, each of which writes what it finds as JSON to argv[1]/RANK; return both."""
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    processes = [Forked([str(folder)], folder, program=script, env=env | its) for its in variables_of(2)]
    told = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends(told)
    return [json.loads((folder / rank).read_text(encoding="utf-8")) for rank in "01"]


def started(manifest: Path, output: Path, processes: int, *options: str) -> list[Forked]:
    """Start processes that train together."""
    words = ["train", "--manifest", str(manifest), "--output", str(output), "--offline", *options]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return [Forked(words, output.parent, env=env | its) for its in variables_of(processes)]


def test_a_signal_to_one_process_interrupts_the_job(tmp_path: Path) -> None:
    """The first one, which says how the run ended, was asked nothing itself."""
    manifest = project(tmp_path / "p", max_steps=2000, logging_steps=1, batch_size=1)
    first, second = started(manifest, tmp_path / "run", 2)
    wait_for_steps(first, tmp_path / "run", 3)
    second.send_signal(signal.SIGTERM)
    told = [process.communicate(timeout=240)[1] for process in (first, second)]
    assert [first.returncode, second.returncode] == [143, 143], ends(told)
    status = read_json(tmp_path / "run" / "status.json")
    assert (status["state"], status["exit_code"]) == ("interrupted", 143)
    assert status["reason"].startswith(f"stopped by SIGTERM after step {status['step']} of 2000; checkpoint-")
    assert not (tmp_path / "run" / "COMPLETE").exists()


def test_who_is_left_behind_says_so(tmp_path: Path) -> None:
    """The first process ends with 3, with which schedulers try again."""
    manifest = project(tmp_path / "p", max_steps=2000, logging_steps=1, batch_size=1)
    processes = started(manifest, tmp_path / "run", 2)
    wait_for_steps(processes[0], tmp_path / "run", 3)
    processes[1].kill()
    told = [process.communicate(timeout=240)[1] for process in processes]
    assert processes[0].returncode == 3, ends(told)
    assert "lost the connection to another process of this job, which has probably ended: " in told[0]
    assert "please report it" not in told[0]
    status = read_json(tmp_path / "run" / "status.json")
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


SHARED_OUT = """
import json, sys
from pathlib import Path
import torch
from accelerate import PartialState
from torch.distributed.tensor import DTensor
from expert_cli.data.packing.batches import Collator
from expert_cli.model.fsdp import shard_base
from expert_cli.model.kernels.chunked_loss import CausalLoss
from expert_cli.model.kernels.lora import fuse
from expert_cli.model.vocabulary_rows import spare_copies
from expert_cli.utils.distributed import leave
from tests import tiny
from tests.adapted import adapted
from tests.packs import model_inputs, pack

batch = model_inputs(Collator(0, "padded"), pack(8), pack(7))
batch["input_ids"][0, :2] = torch.tensor([3, 5])  # whose rows are trained
case = json.loads(Path(sys.argv[1], "case").read_text())


def loss_and_gradients(share):
    base = tiny.tiny_model(tie_word_embeddings=case["tied"]).requires_grad_(False)
    names = ["model.embed_tokens"] if case["tied"] else ["model.embed_tokens", "lm_head"]
    model = adapted("lora", base, token_rows=dict.fromkeys(names, [3, 5]) if case["rows"] else None)
    spare_copies(model)
    fuse(model)
    whole = sum(one.nbytes for one in base.parameters() if not one.requires_grad)
    if share:
        shard_base(model, "cpu", full_logits=case["full"])
    loss = CausalLoss(model, full_logits=case["full"])
    for _ in range(2):  # what a pass leaves behind must not be in the way of the next
        model.zero_grad()
        value = loss(**batch)
        with torch.no_grad():
            assert torch.equal(loss(**batch), value)
        value.backward()
    frozen = {id(one): (name, one) for name, one in base.named_parameters() if not one.requires_grad}.values()
    held = sum((one.to_local() if isinstance(one, DTensor) else one).nbytes for _, one in frozen)
    kept = [name for name, one in frozen if not isinstance(one, DTensor)]
    gradients = {name: one.grad.clone() for name, one in model.named_parameters() if one.requires_grad}
    return value, gradients, held / whole, kept


PartialState(cpu=True)
value, gradients, *_ = loss_and_gradients(False)
shared, of_shared, held, kept = loss_and_gradients(True)
off = max(float((gradients[name] - of_shared[name]).abs().max()) for name in gradients)
found = [float(value), float(shared), off, min(float(one.norm()) for one in gradients.values()) > 0, held, kept]
Path(sys.argv[1], str(PartialState().process_index)).write_text(json.dumps(found))
leave()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks processes")
@pytest.mark.parametrize("tied", [False, True], ids=["own head", "tied head"])
@pytest.mark.parametrize(("full", "rows"), [(True, False), (False, True)], ids=["full logits", "chunked, token rows"])
def test_loss_and_gradients_are_those_of_the_whole_model(tmp_path: Path, tied: bool, full: bool, rows: bool) -> None:
    (tmp_path / "case").write_text(json.dumps({"tied": tied, "full": full, "rows": rows}))
    for value, shared, off, has_gradients, held, kept in together(tmp_path, SHARED_OUT):
        assert shared == pytest.approx(value, rel=1e-6)
        assert off < 1e-6
        assert has_gradients
        if tied and full:  # its backward pass reads the head, which is no module of its own
            assert kept == ["model.embed_tokens.weight"]
        else:
            assert (held, kept) == (0.5, [])


def test_a_single_process_has_nobody_to_share_with() -> None:
    compute = replace(run_blocks.COMPUTE, fsdp=True)
    with pytest.raises(InputError, match="needs several processes") as refused:
        require_processes(compute, 1)
    assert "torchrun" in refused.value.hint
    require_processes(compute, 2)
    require_processes(run_blocks.COMPUTE, 1)


@pytest.mark.parametrize("variable", ["ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"])
def test_what_accelerate_would_share_out_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "true")
    with pytest.raises(InputError, match=r"accelerate's .* does not work with expert-cli"):
        require_processes(run_blocks.COMPUTE, 2)
