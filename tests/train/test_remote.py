"""Token stores and runs at URLs, on a real S3 server: put whole, fetched whole, and what happens while the storage is away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli import api
from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.errors import EnvironmentProblem, IntegrityError, RunLocked
from expert_cli.hardware.machine import inspect
from expert_cli.pipeline.remote_run import remote_run
from expert_cli.pipeline.train import RunOptions
from expert_cli.runs.metrics import read_json
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils import paths
from expert_cli.utils.files import write_text
from expert_cli.utils.object_storage import StoredFolder
from expert_cli.utils.reporter import NullReporter
from tests.forked_cli import Forked
from tests.object_storage import S3Server, write
from tests.train.projects import ROWS, project
from tests.train.projects import train as train_here
from tests.train.test_resume import Crash, CrashingAt

SETTINGS: dict[str, Any] = {"save_steps": 1, "logging_steps": 1, "report_to": "none"}


@pytest.fixture(autouse=True)
def first_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another_machine(monkeypatch, tmp_path / "cache")


def another_machine(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Go on as on a machine that has nothing of what is at the URL."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


def asked(server: S3Server, what: str, name: str = "") -> list[str]:
    """The paths of the requests of a kind, of objects with this in their names."""
    lines = [line.split(" ")[:2] for line in server.door.requests]
    return [path for method, path in lines if method == what and name in path]


def test_a_store_is_put_as_it_is_on_a_disk_and_trained_from_elsewhere(
    tmp_path: Path, bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = project(tmp_path / "disk")
    far = project(tmp_path / "far", pretokenized_cache=f"{bucket}/stores")
    straight = train_here(disk, output=tmp_path / "a").document
    home = api.pretokenize(disk).store.home
    put = api.pretokenize(far, output=f"{bucket}/stores")
    url = f"{bucket}/stores/{home.name}"
    assert (put.store.status, put.as_json()["path"]) == ("built", url)
    files = {path.relative_to(home).as_posix(): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    there = StoredFolder(url)
    assert {name: there.read(name) for name in there.list()} == files
    assert asked(s3_server, "PUT", home.name)[-1].endswith("/fingerprint.json")
    another_machine(monkeypatch, tmp_path / "second")
    s3_server.door.requests.clear()
    assert api.explain_store(far)["status"] == "hit"
    assert asked(s3_server, "GET", ".arrow") == []
    found = train_here(far, output=tmp_path / "b").document
    assert (found["adapter_sha256"], found["store"]["path"]) == (straight["adapter_sha256"], url)
    assert asked(s3_server, "PUT") == []


def test_a_store_that_is_damaged_there_or_has_no_fingerprint_is_built_here(
    tmp_path: Path, bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = project(tmp_path, pretokenized_cache=f"{bucket}/stores")
    url = api.pretokenize(far, output=f"{bucket}/stores").store.url
    write(f"{url}/train/data-00000.arrow", StoredFolder(url).read("train/data-00000.arrow")[::-1])
    another_machine(monkeypatch, tmp_path / "second")
    told = CrashingAt()
    s3_server.door.requests.clear()
    assert api.pretokenize(far, reporter=told).store.status == "built"
    assert any("train/data-00000.arrow does not match its hash" in line for line in told.lines)
    assert any(f"pretokenize --output {bucket}/stores puts it there" in line for line in told.lines)
    another_machine(monkeypatch, tmp_path / "third")
    StoredFolder(url).remove("fingerprint.json")
    assert api.explain_store(far)["status"] == "missing"
    assert api.pretokenize(far).store.status == "built"
    assert asked(s3_server, "PUT") == [], "a manifest alone writes nothing elsewhere"
    assert api.pretokenize(far, output=f"{bucket}/stores").store.url == url
    assert api.explain_store(far)["status"] == "hit"


def test_rows_at_a_url_make_the_store_of_local_ones(tmp_path: Path, bucket: str) -> None:
    local = project(tmp_path)
    here = api.pretokenize(local, output=tmp_path / "one").store
    write(f"{bucket}/rows/train.jsonl", (tmp_path / "train.jsonl").read_bytes())
    there = api.pretokenize(local, dataset=f"{bucket}/rows", output=tmp_path / "two").store
    shard = "train/data-00000.arrow"
    assert (there.home / shard).read_bytes() == (here.home / shard).read_bytes()
    trained = train_here(local, output=tmp_path / "run", dataset=f"{bucket}/rows")
    record = read_json(RunPaths(trained.output).run_json)["data"]["files"]
    (found,) = StoredFolder(f"{bucket}/rows").list().values()
    assert record == {f"{bucket}/rows/train.jsonl": f"{found.version} {found.size}"}
    write(f"{bucket}/rows/train.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in ROWS[:9]))
    with pytest.raises(IntegrityError, match="belongs to another run: store"):
        train_here(local, RunOptions(resume="auto"), output=tmp_path / "run", dataset=f"{bucket}/rows")


def train(
    manifest: Path, url: str, report: CrashingAt | None = None, *, resume: str = "", overwrite: bool = False
) -> Any:
    options = RunOptions(stored_at=url, resume=resume, overwrite=overwrite)
    return train_here(manifest, options, report or CrashingAt(), output=url)


def crash(manifest: Path, url: str, step: int) -> Path:
    """Train to the end of a step that is not saved; return the local folder."""
    with pytest.raises(Crash):
        train(manifest, url, CrashingAt(step))
    return paths.folder_of_url("runs", url)


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_run_whose_machine_is_gone_ends_as_an_unbroken_one(tmp_path: Path, bucket: str, s3_server: S3Server) -> None:
    url = f"{bucket}/run"
    manifest = project(tmp_path, **{**SETTINGS, "max_steps": 20, "save_steps": 2}, dropout=0.1)
    straight = train_here(manifest, output=tmp_path / "straight")
    words = ["train", "--manifest", str(manifest), "--output", url, "--offline", "--resume", "auto"]
    process = Forked(words, tmp_path, env={**os.environ, "NO_COLOR": "1"})
    while process.poll() is None and len(asked(s3_server, "PUT", "/checkpoint.json")) < 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    shutil.rmtree(tmp_path / "cache")  # the disk of the machine
    done = train(manifest, url, resume="auto")
    assert int(done.document["resumed_from"].rpartition("-")[2]) >= 2
    assert done.document["adapter_sha256"] == straight.document["adapter_sha256"]
    names = files_of(done.output)
    assert names <= set(StoredFolder(url).list())
    assert all(StoredFolder(url).read(name) == (done.output / name).read_bytes() for name in names - {"log.txt"})
    assert train(manifest, url, resume="auto").document == done.document


def test_what_marks_a_whole_folder_is_put_last(tmp_path: Path, bucket: str, s3_server: S3Server) -> None:
    settings = {**SETTINGS, "save_steps": 2, "save_total_limit": 2}
    done = train(project(tmp_path, **settings), f"{bucket}/run")
    put = [path.partition("/run/")[2] for path in asked(s3_server, "PUT")]
    there = set(StoredFolder(f"{bucket}/run").list())
    for step in (2, 4, 6):
        of_one = [name for name in put if name.startswith(f"checkpoints/checkpoint-{step}/")]
        # one that rotation removes while it is put is not put whole, and not there
        assert of_one[-1:] == [f"checkpoints/checkpoint-{step}/checkpoint.json"] or there.isdisjoint(of_one)
    assert put[-1] == "COMPLETE"
    assert there == files_of(done.output), "what rotation removed is not there"


def test_complete_is_put_behind_the_last_line_of_the_log(tmp_path: Path, bucket: str, s3_server: S3Server) -> None:
    run = replace(make_plan(project(tmp_path), inspect(), Overrides()).run, output=tmp_path / "run")
    with remote_run(run, RunOptions(stored_at=f"{bucket}/run"), NullReporter()) as put:
        for number, name in enumerate(("log.txt", "COMPLETE", "log.txt")):
            write_text(run.output / name, str(number))
            put().result()
        write_text(run.output / "log.txt", "its last line")
    assert [Path(path).name for path in asked(s3_server, "PUT")] == [*["log.txt"] * 3, "COMPLETE"]


class ClosingAt(CrashingAt):
    """A reporter under which the storage goes away at the end of a step."""

    def __init__(self, step: int, server: S3Server) -> None:
        super().__init__(step)
        self.server = server

    def update(self, done: float, note: str = "") -> None:
        if done == self.step:
            self.step = -1
            self.server.door.close()


@pytest.mark.usefixtures("impatient")
def test_training_goes_on_without_its_storage(tmp_path: Path, bucket: str, s3_server: S3Server) -> None:
    url, manifest = f"{bucket}/run", project(tmp_path, **{**SETTINGS, "save_steps": 2})
    report = ClosingAt(3, s3_server)
    with pytest.raises(EnvironmentProblem, match=f"the run is done, but not all of it is at {url}: ") as raised:
        train(manifest, url, report)
    assert "--resume auto uploads the rest" in raised.value.hint
    folder = paths.folder_of_url("runs", url)
    assert any(f"it is in {folder}" in line for line in report.lines)
    assert RunPaths(folder).complete.is_file()
    s3_server.door.open()
    assert "COMPLETE" not in StoredFolder(url).list()
    done = train(manifest, url, resume="auto")
    assert done.document["steps"] == 6
    assert set(StoredFolder(url).list()) == files_of(folder)


def test_what_is_there_stands_and_no_other_folder_is_fetched(tmp_path: Path, bucket: str, s3_server: S3Server) -> None:
    url, manifest = f"{bucket}/run", project(tmp_path)
    write(f"{url}/rows/train.jsonl", b"{}")
    for more in ({}, {"overwrite": True}, {"resume": "auto"}):
        with pytest.raises(RunLocked, match=f"{url} is not empty"):
            train(manifest, url, **more)
    assert not paths.folder_of_url("runs", url).exists()


def test_the_folder_or_url_that_is_further_counts(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url, manifest = f"{bucket}/run", project(tmp_path, **SETTINGS)
    crash(manifest, url, 3)
    another_machine(monkeypatch, tmp_path / "second")
    with pytest.raises(Crash):
        train(manifest, url, CrashingAt(5), resume="auto")
    another_machine(monkeypatch, tmp_path / "cache")
    StoredFolder(url).remove("checkpoints/checkpoint-4/checkpoint.json")
    write(f"{url}/checkpoints/checkpoint-4/checkpoint.json", b"{}")  # further, and damaged
    done = train(manifest, url, resume="auto")
    assert done.document["resumed_from"] == f"{paths.folder_of_url('runs', url)}/checkpoints/checkpoint-3"
