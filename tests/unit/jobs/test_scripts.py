"""The printed scripts are run: expert-cli and the programs of a cluster are stand-ins, which note how they were called.

`srun` starts as many processes as it is asked for and ends with the highest of their exit codes, as SLURM's does. `expert-cli
train` ends as the test says, process by process; `torchrun` starts one of these a GPU, writes their status.json and ends
with 0 or 1, as torch's does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from expert_cli.jobs.registry import TargetName
from tests.unit.jobs.files import BASH, scripts, written

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="schedulers run these scripts on Linux")

SRUN = """
words, count = sys.argv[1:], int(os.environ["SLURM_NTASKS"])
while words[0].startswith("--"):
    count = int(words[0].removeprefix("--ntasks=")) if words[0].startswith("--ntasks=") else count
    words = words[1:]
numbers = [{"SLURM_PROCID": str(one), "SLURM_LOCALID": str(one % 2)} for one in range(count)]
started = [subprocess.Popen(words, env=os.environ | its) for its in numbers]
sys.exit(max(one.wait() for one in started))
"""
SCONTROL = """
if sys.argv[1] == "show":
    print("head\\nother")
"""
EXPERT_CLI = """
if sys.argv[1] == "train":
    ends = os.environ["ENDS"].split(",")
    sys.exit(int(ends[int(os.environ.get("RANK", "0"))]))
sys.exit(int(os.environ.get("PREPARED", "0")))
"""
WAITING = """
if sys.argv[1] == "train":
    def end(*_):
        time.sleep(1.5)  # the step, and what it saves
        sys.exit(143)
    signal.signal(signal.SIGTERM, end)
    note("waits")
    time.sleep(60)
"""
TORCHRUN = """
words = sys.argv[1:]
output = words[words.index("--output") + 1].removeprefix("file://")
ends = int(os.environ["ENDS"])
if os.environ.get("TOLD", "yes") == "yes":
    os.makedirs(output, exist_ok=True)
    told = {"exit_code": ends if ends >= 0 else None, "started": time.time()}
    json.dump(told, open(output + "/status.json", "w"))
sys.exit(1 if ends else 0)
"""


class Cluster:
    """A folder with a manifest in which scripts run, and the stand-ins that they find."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.folder = folder / "programs", folder
        self.programs.mkdir()
        for name, text in {"srun": SRUN, "scontrol": SCONTROL, "expert-cli": EXPERT_CLI, "torchrun": TORCHRUN}.items():
            self.program(name, text)

    def program(self, name: str, text: str) -> None:
        head = f"""#!{sys.executable}
import json, os, signal, subprocess, sys, time
def note(*words):
    with open({str(self.folder / "calls")!r}, "a") as calls:
        calls.write(json.dumps([{name!r}, *words]) + "\\n")
place = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")
note(*sys.argv[1:], {{key: os.environ[key] for key in place if key in os.environ}})
"""
        (self.programs / name).write_text(head + text, encoding="utf-8")
        (self.programs / name).chmod(0o755)

    def start(self, script: str, **variables: str) -> subprocess.Popen[str]:
        env = {"PATH": f"{self.programs}:{os.environ['PATH']}", "HOME": str(self.folder), **variables}
        return subprocess.Popen(
            [BASH, "-c", script], cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, script: str, **variables: str) -> int:
        process = self.start(script, **variables)
        self.told = "".join(process.communicate(timeout=120))
        return process.returncode

    def sbatch(self, script: str, **variables: str) -> int:
        """Run a script as sbatch does, and return its exit code."""
        job = {"SLURM_JOB_ID": "9471", "SLURM_JOB_NAME": "x", "SLURM_SUBMIT_DIR": str(self.folder)}
        given = {"SLURM_NTASKS": "4", "SLURM_CPUS_PER_TASK": "8", "SLURM_JOB_NODELIST": "[head,other]"}
        return self.run(script, **job | given | variables)

    def calls(self, program: str) -> list[list[Any]]:
        """Return how a program was called since this was asked last."""
        file = self.folder / "calls"
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        notes = [json.loads(line) for line in lines]
        return [words for name, *words in notes if name == program]

    def requeued(self) -> int:
        """Return how often the job was put back into the queue."""
        return len([words for words in self.calls("scontrol") if words[:2] == ["requeue", "9471"]])


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.chdir(tmp_path)
    return Cluster(tmp_path)


def test_slurm_puts_a_job_back_as_often_as_its_exit_codes_say(cluster: Cluster) -> None:
    script = written("slurm")
    ends = [143, 3, 3, 143, 3, 3, 0, 5, 3]
    again = []
    for code in ends:
        before = cluster.requeued()
        assert cluster.sbatch(script, ENDS=str(code), SLURM_NTASKS="1") == code
        again.append(cluster.requeued() - before)
    # The fourth 3 ends the job. What is started after that is another one.
    assert again == [1, 1, 1, 1, 1, 0, 0, 0, 1]


def test_slurm_starts_a_process_a_gpu_that_knows_its_place(cluster: Cluster) -> None:
    assert cluster.sbatch(written("slurm", 2, 2), ENDS="0,0,0,0") == 0
    calls = cluster.calls("expert-cli")
    parts = [["pretokenize", "--manifest", "manifest.json", "--part", f"{n}/2"] for n in (1, 2)]
    assert sorted(words[:-1] for words in calls[:2]) == parts
    assert calls[2][:-1] == ["pretokenize", "--manifest", "manifest.json", "--seal"]
    calls = calls[2:]
    assert [words[0] for words in calls] == ["pretokenize"] + 4 * ["train"]
    assert sorted((words[-1]["RANK"], words[-1]["LOCAL_RANK"]) for words in calls[1:]) == [
        ("0", "0"),
        ("1", "1"),
        ("2", "0"),
        ("3", "1"),
    ]
    assert {(words[-1]["WORLD_SIZE"], words[-1]["MASTER_ADDR"]) for words in calls[1:]} == {("4", "head")}
    assert "RANK" not in calls[0][-1]
    assert [words[:-1] for words in calls[1:]] == 4 * [
        ["train", "--manifest", "manifest.json", "--output", "weights/qwen3-0-6b", "--resume", "auto"]
    ]


@pytest.mark.parametrize(
    ("ends", "code", "again"), [("143,143,143,143", 143, 1), ("3,1,1,1", 3, 1), ("1,1,4,1", 4, 0), ("1,1,1,1", 1, 0)]
)
def test_slurm_goes_by_the_highest_exit_code(cluster: Cluster, ends: str, code: int, again: int) -> None:
    assert (cluster.sbatch(written("slurm", 2, 2), ENDS=ends), cluster.requeued()) == (code, again)


@pytest.mark.parametrize(("code", "again"), [(143, 1), (3, 1), (2, 0)])
def test_what_preparing_ends_with_counts_too_and_nothing_is_trained(cluster: Cluster, code: int, again: int) -> None:
    assert (cluster.sbatch(written("slurm"), PREPARED=str(code)), cluster.requeued()) == (code, again)
    assert [words[0] for words in cluster.calls("expert-cli")] == ["pretokenize"]


@pytest.mark.parametrize("target", ["slurm", "kubernetes", "skypilot"])
def test_a_manifest_that_is_not_there_is_told_and_not_tried_again(cluster: Cluster, target: TargetName) -> None:
    script = scripts(target, written(target))[-1]
    Path("manifest.json").unlink()
    assert cluster.sbatch(script, SKYPILOT_NODE_RANK="0") == 2
    assert "manifest.json " in cluster.told
    assert cluster.calls("expert-cli") == []
    assert cluster.requeued() == 0


def test_an_expert_cli_that_is_not_there_is_told(cluster: Cluster) -> None:
    (cluster.programs / "expert-cli").unlink()
    assert cluster.sbatch(written("slurm"), PATH=f"{cluster.programs}:/usr/bin:/bin") == 2
    assert "not on the PATH" in cluster.told


@pytest.mark.parametrize("code", [0, 2, 3, 4, 5, 6, 143])
@pytest.mark.parametrize("gpus", [1, 2])
def test_a_pod_ends_as_the_run_did(cluster: Cluster, gpus: int, code: int) -> None:
    (script,) = scripts("kubernetes", written("kubernetes", 1, gpus))
    assert cluster.run(script, ENDS=str(code), JOB_COMPLETION_INDEX="0") == code
    assert len(cluster.calls("torchrun")) == gpus - 1


@pytest.mark.parametrize(("ends", "told", "code"), [(-1, "yes", 1), (3, "no", 1), (0, "no", 0)])
def test_a_run_that_said_nothing_is_not_tried_again(cluster: Cluster, ends: int, told: str, code: int) -> None:
    """-1: it was killed. Not told: it was refused before it began, and what lies there is of an earlier run."""
    (script,) = scripts("kubernetes", written("kubernetes", 1, 2))
    status = Path("weights/qwen3-0-6b/status.json")
    status.parent.mkdir(parents=True)
    status.write_text('{"exit_code": 143}', encoding="utf-8")
    assert cluster.run(script, ENDS=str(ends), TOLD=told, JOB_COMPLETION_INDEX="0") == code


@pytest.mark.parametrize("code", [0, 143, 5])
def test_the_exit_code_of_a_run_at_a_url_is_that_of_its_status_there(cluster: Cluster, code: int) -> None:
    (script,) = scripts("kubernetes", written("kubernetes", 1, 2))
    at_url = script.replace("OUTPUT=weights/qwen3-0-6b", f"OUTPUT=file://{cluster.folder}/runs")
    for _ in range(2):
        assert cluster.run(at_url, ENDS=str(code), JOB_COMPLETION_INDEX="0", PYTHONPATH=":".join(sys.path)) == code


@pytest.mark.parametrize(("node", "code", "ends"), [("0", 4, 4), ("1", 4, 143), ("1", 0, 0)])
def test_of_several_pods_the_first_says_what_becomes_of_the_job(
    cluster: Cluster, node: str, code: int, ends: int
) -> None:
    (script,) = scripts("kubernetes", written("kubernetes", 2, 2))
    assert cluster.run(script, ENDS=str(code), JOB_COMPLETION_INDEX=node) == ends
    ((*words, _),) = cluster.calls("torchrun")
    place = f"--nnodes 2 --nproc-per-node 2 --node-rank {node} --master-addr expert-small-0.expert-small"
    assert words[: words.index("-m")] == f"{place} --master-port 29500 --rdzv-conf timeout=3600".split()
    assert words[words.index("-m") :][:3] == ["-m", "expert_cli", "train"]


def test_a_pod_hands_the_signal_on_and_waits_for_what_is_saved(cluster: Cluster) -> None:
    cluster.program("expert-cli", WAITING)
    (script,) = scripts("kubernetes", written("kubernetes"))
    process = cluster.start(script, JOB_COMPLETION_INDEX="0")
    while ["waits"] not in cluster.calls("expert-cli"):
        assert process.poll() is None
        time.sleep(0.05)
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert time.monotonic() - sent > 1.4


def test_skypilot_starts_again_as_often_as_its_exit_codes_say(cluster: Cluster) -> None:
    run = scripts("skypilot", written("skypilot"))[1].replace("/runs/", f"{cluster.folder}/")
    ends = [143, 3, 3, 143, 3, 3, 0, 5]
    codes = [cluster.run(run, ENDS=str(code), SKYPILOT_NODE_RANK="0", SKYPILOT_TASK_ID="sky-1") for code in ends]
    assert codes == [143, 143, 143, 143, 143, 3, 0, 5]  # recover_on_exit_codes: [143]
