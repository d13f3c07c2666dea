"""Runs that are kept in object storage (`--output URL`), on a real S3 server."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.adapter_origin import find_adapter
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.errors import EnvironmentProblem, InputError, RunLocked
from expert_cli.pipeline import mirror
from expert_cli.pipeline.mirror import files_of
from expert_cli.pipeline.stored_run import stored_run
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs import claim
from expert_cli.runs.claim import WRITER, Claim
from expert_cli.runs.metrics import require_run
from expert_cli.runs.paths import RunPaths
from expert_cli.training.checkpointing import checkpoint
from expert_cli.utils import paths
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import Reporter
from tests import tiny
from tests.forked_cli import Forked
from tests.object_storage import S3Server
from tests.process_groups import variables_of
from tests.train.projects import here, project
from tests.train.projects import train as train_here
from tests.train.test_distributed import ends
from tests.train.test_resume import Crash, CrashingAt

SETTINGS: dict[str, Any] = {"save_steps": 1, "logging_steps": 1, "report_to": "none"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture
def url(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where runs are kept in storage, with a cache of this test's, and little patience with other writers."""
    monkeypatch.setattr(paths, "cache_folder", lambda: tmp_path / "cache" / "expert-cli")
    monkeypatch.setattr(claim, "LOOK_S", 0.3)
    return f"{bucket}/runs/one"


def train(
    manifest: Path, url: str, report: Reporter | None = None, *, resume: str = "", overwrite: bool = False
) -> Any:
    options = RunOptions(stored_at=url, resume=resume, overwrite=overwrite)
    return train_here(manifest, options, report or CrashingAt(-1), output=url)


def crash(manifest: Path, url: str, step: int) -> Path:
    """Train to the end of a step that is not saved; return the local folder."""
    with pytest.raises(Crash):
        train(manifest, url, CrashingAt(step))
    return paths.local_run(url)


def stored(url: str) -> set[str]:
    return set(StoredFolder(url).list()) - {WRITER}


@pytest.mark.skipif(sys.platform != "linux", reason="forks and kills processes")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_whose_machine_is_gone_ends_as_an_unbroken_one(
    tmp_path: Path, model: Path, url: str, how: signal.Signals
) -> None:
    manifest = project(tmp_path, model, max_steps=40, **{**SETTINGS, "save_steps": 5}, dropout=0.1)
    straight = train_here(manifest, output=tmp_path / "straight")
    words = ["train", "--manifest", str(manifest), "--output", url, "--offline", "--resume", "auto"]
    process = Forked(words, tmp_path, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "NO_COLOR": "1"})
    while process.poll() is None and "checkpoints/checkpoint-10/checkpoint.json" not in stored(url):
        time.sleep(0.02)
    process.send_signal(how)
    _, told = process.communicate()
    assert process.poll() == (-9 if how == signal.SIGKILL else 143), told
    shutil.rmtree(tmp_path / "cache")  # the disk of the machine
    report = CrashingAt(-1)
    done = train(manifest, url, report, resume="auto")
    assert any(line.startswith("looking whether process") for line in report.said) == (how == signal.SIGKILL)
    assert int(done.document["resumed_from"].rpartition("-")[2]) >= 10
    assert done.document["adapter_sha256"] == straight.document["adapter_sha256"]
    steps = [line.partition('"step": ')[2].partition(",")[0] for line in read(url, "metrics.jsonl").splitlines()]
    assert steps == [str(step) for step in range(1, 41)]
    names = set(files_of(done.output))
    older = {name for name in stored(url) if name.startswith("checkpoints/")}
    assert stored(url) == names | older
    for name in names - older - {"log.txt"}:  # which tells that it was put
        assert StoredFolder(url).read(name) == (done.output / name).read_bytes(), name
    assert any(line.startswith(f"stored    checkpoint-40 at {url}: ") for line in report.said)
    assert report.said[-1].startswith(f"stored    the complete run at {url}: ")


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_of_several_processes_the_first_alone_keeps_the_run(tmp_path: Path, model: Path, url: str) -> None:
    """As on two nodes that share no disk."""
    manifest = project(tmp_path, model, batch_size=1, max_steps=60, **{**SETTINGS, "save_steps": 5})
    words = ["train", "--manifest", str(manifest), "--output", url, "--offline", "--resume", "auto"]
    caches = [tmp_path / "first", tmp_path / "second"]

    def start() -> list[Forked]:
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1"}
        pairs = zip(caches, variables_of(2), strict=True)
        return [Forked(words, tmp_path, env=env | its | {"XDG_CACHE_HOME": str(cache)}) for cache, its in pairs]

    def end(processes: list[Forked], code: int) -> None:
        told = [process.communicate(timeout=240)[1] for process in processes]
        assert [process.returncode for process in processes] == [code, code], ends(told)

    processes = start()
    while processes[0].poll() is None and "checkpoints/checkpoint-5/checkpoint.json" not in stored(url):
        time.sleep(0.02)
    processes[1].send_signal(signal.SIGTERM)
    end(processes, 143)
    shutil.rmtree(caches[0])
    end(start(), 0)
    assert not (caches[1] / "expert-cli" / "runs").exists()
    (folder,) = (caches[0] / "expert-cli" / "runs").glob("[!.]*")
    assert set(files_of(folder)) - stored(url) == set()
    assert json.loads(read(url, "report.json"))["resumed_from"].startswith(f"{folder}/checkpoints/checkpoint-")


def read(url: str, name: str) -> str:
    return StoredFolder(url).read(name).decode()


def flip(url: str, name: str) -> None:
    raw = bytearray(StoredFolder(url).read(name))
    raw[len(raw) // 2] ^= 1
    StoredFolder(url).write(name, bytes(raw))


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_fetched(tmp_path: Path, model: Path, url: str) -> None:
    manifest = project(tmp_path, model, **SETTINGS)
    straight = train_here(manifest, output=tmp_path / "straight")
    folder = crash(manifest, url, 5)
    shutil.rmtree(folder)
    flip(url, "checkpoints/checkpoint-4/optimizer.safetensors")
    report = CrashingAt(-1)
    done = train(manifest, url, report, resume="auto")
    damage = f"{folder}/checkpoints/checkpoint-4 is damaged: optimizer.safetensors does not match its hash"
    assert f"{damage}; the one before it is used" in report.said
    assert done.document["resumed_from"] == f"{folder}/checkpoints/checkpoint-3"
    assert done.document["adapter_sha256"] == straight.document["adapter_sha256"]
    assert not (folder / "checkpoints" / "checkpoint-2").exists(), "what is not needed is not fetched"
    assert {f"checkpoints/checkpoint-{step}/checkpoint.json" for step in range(1, 7)} <= stored(url)


def test_a_checkpoint_without_its_marker_is_none(tmp_path: Path, model: Path, url: str) -> None:
    manifest = project(tmp_path, model, **SETTINGS)
    folder = crash(manifest, url, 5)
    shutil.rmtree(folder)
    StoredFolder(url).remove(["checkpoints/checkpoint-4/checkpoint.json"])
    report = CrashingAt(-1)
    done = train(manifest, url, report, resume="auto")
    assert done.document["resumed_from"] == f"{folder}/checkpoints/checkpoint-3"
    assert not [line for line in report.said if "damaged" in line]


def test_the_newest_is_the_one_that_was_written_last(
    tmp_path: Path, model: Path, url: str, s3_server: S3Server
) -> None:
    manifest = project(tmp_path, model, **SETTINGS)
    folder = crash(manifest, url, 5)
    options = RunOptions(stored_at=url, resume=str(folder / "checkpoints" / "checkpoint-1"))
    s3_server.door.requests.clear()
    with pytest.raises(Crash):
        train_here(manifest, options, CrashingAt(3), output=url)
    of_second = [line.split(" ")[:2] for line in s3_server.door.requests if "checkpoint-2/" in line]
    written = [(method, place.rpartition("/")[2]) for method, place in of_second if method in ("PUT", "DELETE")]
    assert written[0] == ("DELETE", "checkpoint.json"), "which would seal what is written anew"
    assert written[-1] == ("PUT", "checkpoint.json")
    shutil.rmtree(folder)
    done = train(manifest, url, resume="auto")
    assert done.document["resumed_from"] == f"{folder}/checkpoints/checkpoint-2"


def test_what_rotation_removes_is_removed_there_too(tmp_path: Path, model: Path, url: str) -> None:
    settings = {
        **SETTINGS,
        "save_total_limit": 2,
        "load_best_model_at_end": True,
        "eval_steps": 1,
        "learning_rate": 0.3,
    }
    manifest = project(tmp_path, model, **settings)
    straight = train_here(manifest, output=tmp_path / "straight")
    folder = crash(manifest, url, 4)
    assert stored(url) == set(files_of(folder))
    shutil.rmtree(folder)
    StoredFolder(url).write("checkpoints/checkpoint-9/state.json", b"of a writer that was killed")
    done = train(manifest, url, resume="auto")
    assert done.document["adapter_sha256"] == straight.document["adapter_sha256"]
    assert stored(url) == set(files_of(folder))
    kept = {path.name for path in RunPaths(folder).checkpoints.iterdir()}
    assert kept == {path.name for path in RunPaths(tmp_path / "straight").checkpoints.iterdir()}
    shutil.rmtree(folder)
    before = stored(url)
    assert train(manifest, url, resume="auto").document == done.document
    assert not RunPaths(folder).checkpoints.exists(), "a complete run needs none"
    assert stored(url) == before


class ClosingAt(CrashingAt):
    """A reporter under which something happens at the end of a step."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        super().__init__(step)
        self.act = act

    def update(self, done: float, note: str = "") -> None:
        if done == self.step:
            self.step = -1
            self.act()


@pytest.mark.usefixtures("impatient")
def test_training_goes_on_without_its_storage_and_nothing_is_lost(
    tmp_path: Path, model: Path, url: str, s3_server: S3Server
) -> None:
    manifest = project(tmp_path, model, **{**SETTINGS, "save_steps": 2})
    straight = train_here(manifest, output=tmp_path / "straight")
    folder, report = paths.local_run(url), ClosingAt(3, s3_server.door.close)
    with pytest.raises(EnvironmentProblem, match="the run is done, and all of it is in ") as raised:
        train(manifest, url, report)
    assert str(folder) in raised.value.message
    assert "--resume auto" in raised.value.hint
    warned = [line for line in report.said if line.startswith(f"not all of it is at {url}: {url}/")]
    assert warned
    assert warned[0].endswith("; the next checkpoint tries again")
    assert RunPaths(folder).complete.is_file()
    s3_server.door.open()
    assert "COMPLETE" not in stored(url)
    again = CrashingAt(-1)
    done = train(manifest, url, again, resume="auto")
    assert f"the run in {folder} is complete: nothing is left to do" in again.said
    assert done.document["adapter_sha256"] == straight.document["adapter_sha256"]
    assert stored(url) == set(files_of(folder))


@pytest.mark.usefixtures("impatient")
def test_what_was_fetched_in_part_is_not_gone_on_with(
    tmp_path: Path, model: Path, url: str, s3_server: S3Server
) -> None:
    manifest = project(tmp_path, model, **{**SETTINGS, "save_total_limit": 4})
    straight = train_here(manifest, output=tmp_path / "straight")
    folder = crash(manifest, url, 5)
    shutil.rmtree(folder)
    s3_server.door.requests.clear()

    def close() -> None:
        while not any(line.startswith("GET") and "checkpoint-4/" in line for line in s3_server.door.requests):
            time.sleep(0.001)
        s3_server.door.close()

    threading.Thread(target=close).start()
    with pytest.raises(EnvironmentProblem, match=f"{url}/.*: cannot read"):
        train(manifest, url, resume="auto")
    assert list(folder.parent.glob("[!.]*")) == []
    s3_server.door.open()
    done = train(manifest, url, resume="auto")
    assert done.document["resumed_from"] == f"{folder}/checkpoints/checkpoint-4"
    assert done.document["adapter_sha256"] == straight.document["adapter_sha256"]


def test_a_storage_that_is_slower_than_training_does_not_hold_it(
    tmp_path: Path, model: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "PATIENCE_S", 0.0)
    report = CrashingAt(-1)
    done = train(project(tmp_path, model, **SETTINGS), url, report)
    assert f"{url} takes longer than training: the next checkpoint tries again" in report.said
    assert stored(url) == set(files_of(done.output))


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_run_in_a_folder_loads_no_client_of_a_storage(tmp_path: Path, model: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from expert_cli.cli import main\n"
        "try:\n    main()\n"
        'finally:\n    print("loaded", sorted({"s3fs", "gcsfs", "aiobotocore"} & set(sys.modules)))\n',
        encoding="utf-8",
    )
    words = ["train", "--manifest", str(project(tmp_path, model)), "--output", str(tmp_path / "run"), "--offline"]
    process = Forked(words, tmp_path, program=program, env={**os.environ, "NO_COLOR": "1"})
    out, told = process.communicate()
    assert process.poll() == 0, told
    assert out.splitlines()[-1] == "loaded []"


def test_a_key_that_may_not_write_ends_the_run_before_it_trains(
    tmp_path: Path, model: Path, url: str, s3_server: S3Server
) -> None:
    manifest = project(tmp_path, model, **SETTINGS)
    s3_server.deny()
    report = CrashingAt(-1)
    with pytest.raises(EnvironmentProblem, match=f"{url}: cannot list") as raised:
        train(manifest, url, report)
    assert "AWS_ACCESS_KEY_ID" in raised.value.hint
    assert not paths.local_run(url).exists()


def test_a_run_that_is_there_is_not_written_over(tmp_path: Path, model: Path, url: str) -> None:
    manifest = project(tmp_path, model, **SETTINGS)
    folder = crash(manifest, url, 3)
    before = stored(url)
    with pytest.raises(RunLocked, match=f"{url} holds a run already"):
        train(manifest, url)
    with pytest.raises(RunLocked, match="nothing in object storage can be moved aside"):
        train(manifest, url, overwrite=True)
    assert stored(url) == before
    StoredFolder(url).remove(before | {WRITER})
    with pytest.raises(RunLocked, match=f"{url} holds nothing, but {folder} a run"):
        train(manifest, url)
    done = train(manifest, url, resume="auto")
    assert done.document["resumed_from"] == f"{folder}/checkpoints/checkpoint-2"
    assert stored(url) == set(files_of(folder))


def test_what_is_no_run_is_not_fetched(tmp_path: Path, model: Path, url: str) -> None:
    StoredFolder(url).write("rows/train.jsonl", b"{}")
    with pytest.raises(InputError, match=f"{url} holds something else than a run: rows/train.jsonl"):
        train(project(tmp_path, model), url, resume="auto")


def test_what_another_machine_left_is_newer_than_the_local_folder(tmp_path: Path, model: Path, url: str) -> None:
    manifest = project(tmp_path, model, **SETTINGS)
    folder = crash(manifest, url, 3)
    folder.rename(tmp_path / "kept")
    shutil.rmtree(folder.parent)
    with pytest.raises(Crash):
        train(manifest, url, CrashingAt(5), resume="auto")
    shutil.rmtree(folder)
    (tmp_path / "kept").rename(folder)
    folder.with_name(f".{folder.name}.token").write_text("of the first machine", encoding="utf-8")
    done = train(manifest, url, resume="auto")
    assert done.document["resumed_from"] == f"{folder}/checkpoints/checkpoint-4"


def test_of_trainings_within_a_run_the_one_that_is_not_over_is_fetched_with_its_newest(
    tmp_path: Path, model: Path, url: str
) -> None:
    """As of a run in rounds: sft/ is complete, round-1/run/ is not."""
    manifest = project(tmp_path, model, **SETTINGS)
    whole = train_here(manifest, output=tmp_path / "whole").output
    storage = StoredFolder(url)
    for name in files_of(whole):
        raw = (whole / name).read_bytes()
        storage.write(f"sft/{name}", raw)
        if name != "COMPLETE":
            storage.write(f"round-1/run/{name}", raw)
    storage.write("run.json", b"{}")
    storage.write("round-1/rows.jsonl", b"{}")
    run = make_plan(manifest, here(), Overrides(output=url)).run
    options = RunOptions(stored_at=url, resume="auto")
    with stored_run(run, options, CrashingAt(-1), is_first=True) as written:
        here_now = set(files_of(run.output))
        (run.output / "round-1" / "rows.jsonl").unlink()
        (run.output / "STOP").touch()
        written()
    plain = {name for name in files_of(whole) if not name.startswith("checkpoints/")}
    newest = {name for name in files_of(whole) if name.startswith("checkpoints/checkpoint-6/")}
    nested = {f"round-1/run/{name}" for name in (plain | newest) - {"COMPLETE"}}
    assert here_now == {"run.json", "round-1/rows.jsonl"} | {f"sft/{name}" for name in plain} | nested
    everything = {f"{of}/{name}" for of in ("sft", "round-1/run") for name in files_of(whole)}
    assert stored(url) == (everything | {"run.json"}) - {"round-1/run/COMPLETE"}


def test_a_run_at_a_url_is_fetched_before_it_is_read(tmp_path: Path, model: Path, url: str) -> None:
    storage = StoredFolder(url)
    storage.write("adapter/adapter_config.json", b"{}")
    storage.write("run.json", b"{}")
    for reads in (find_adapter, require_run):
        with pytest.raises(InputError, match=f"{url}: is read from a folder only") as raised:
            reads(Path(url))
    with pytest.raises(InputError, match=f"{url}/checkpoint-2: is read from a folder only"):
        train_here(project(tmp_path, model), RunOptions(resume=f"{url}/checkpoint-2"))
    command = shlex.split(raised.value.hint.removeprefix("fetch it first: "))
    subprocess.run([sys.executable, *command[1:]], cwd=tmp_path, check=True, timeout=120)
    assert set(files_of(tmp_path / "one")) == {"run.json", "adapter/adapter_config.json"}


def test_a_run_that_another_machine_writes_is_refused(
    tmp_path: Path, model: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in {"BEAT_S": 0.1, "LOOK_S": 60.0, "WAIT_S": 0.1}.items():
        monkeypatch.setattr(claim, name, seconds)
    manifest = project(tmp_path, model, **SETTINGS)
    crash(manifest, url, 3)
    report = CrashingAt(-1)
    before = stored(url)
    with Claim(StoredFolder(url), "another one's").held(report):
        with pytest.raises(RunLocked, match=rf"{url} is written by process {os.getpid()} on ") as raised:
            train(manifest, url, report, resume="auto")
        assert "wait for that run" in raised.value.hint
    assert any("waiting for its end" in line for line in report.said)
    assert stored(url) == before
    assert train(manifest, url, resume="auto").document["steps"] == 6


def test_a_run_that_another_machine_takes_ends(tmp_path: Path, model: Path, url: str) -> None:
    manifest = project(tmp_path, model, **SETTINGS)
    other = Claim(StoredFolder(url), "another one's")
    with pytest.raises(RunLocked, match="which took this run for one that had vanished"):
        train(manifest, url, ClosingAt(3, lambda: other._write(ended=False)))
    assert '"token": "another one\'s"' in read(url, WRITER)
    assert "checkpoints/checkpoint-5/checkpoint.json" not in stored(url)


def test_what_seals_is_put_behind_what_it_seals(tmp_path: Path, model: Path, url: str, s3_server: S3Server) -> None:
    manifest = project(tmp_path, model, **{**SETTINGS, "save_steps": 3})
    s3_server.door.requests.clear()
    train(manifest, url)
    lines = [line.split(" ")[1] for line in s3_server.door.requests if line.startswith("PUT")]
    put = [line.partition("/runs/one/")[2] for line in lines if WRITER not in line]
    for step in (3, 6):
        of_one = [name for name in put if name.startswith(f"checkpoints/checkpoint-{step}/")]
        assert len(of_one) == 6
        assert of_one[-1].endswith("/checkpoint.json")
        assert put.index("metrics.jsonl") < put.index(of_one[-1])
    assert put[-1] == "COMPLETE"
    assert put.index("adapter/adapter_model.safetensors") > put.index("checkpoints/checkpoint-6/checkpoint.json")
    assert checkpoint.latest_valid(RunPaths(paths.local_run(url)).checkpoints).path is not None
