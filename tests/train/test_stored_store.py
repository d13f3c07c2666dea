"""A token store in object storage, on a real S3 server: put there whole, trained from while its shards arrive."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from expert_cli import api
from expert_cli.data.store.copies import Copies
from expert_cli.data.tokenize import stream
from expert_cli.errors import EnvironmentProblem, InputError, IntegrityError, RunLocked
from expert_cli.pipeline.train import RunOptions
from expert_cli.utils.filesystem import facts_of
from expert_cli.utils.object_storage import StoredFolder
from tests import tiny
from tests.object_storage import S3Server
from tests.train.projects import Told, project, train
from tests.train.test_distributed import together

SMALL_STEPS: dict[str, Any] = {"batch_size": 2, "max_steps": 20, "dataloader_num_workers": 0}
"""Two packs a step: a step reads a few of the shards."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_model_folder(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """64 rows make some twenty shards; this machine's cache is the test's own."""
    monkeypatch.setattr(stream, "CHUNK_CHARACTERS", 45)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def stores(bucket: str) -> str:
    return f"{bucket}/stores"


def two_projects(folder: Path, model: Path, stores: str, **config: Any) -> tuple[Path, Path]:
    """The same expert with its stores on a disk, and in object storage."""
    settings = {**SMALL_STEPS, **config}
    return project(folder / "disk", model, **settings), project(
        folder / "far", model, pretokenized_cache=stores, **settings
    )


def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Go on as on another machine, which has nothing of the store."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


def asked(server: S3Server, what: str, name: str = "") -> list[str]:
    """The paths of the requests of a kind, of objects with this in their names; with its query."""
    lines = [line.split(" ")[:2] for line in server.door.requests]
    return [path for method, path in lines if method == what and name in path]


class CopiesSeen(TrainerCallback):
    """Notes after every step how many bytes of shards lie in a folder, and which shards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes: list[int] = []
        self.shards: list[int] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        found = facts_of(self.folder.glob("*/train/*.arrow"))  # other threads fetch and remove them
        self.bytes.append(sum(facts.st_size for facts in found.values()))
        self.shards.append(len(found))


def test_a_store_is_put_as_it_is_on_a_disk_and_found_by_one_small_read(
    tmp_path: Path, model: Path, stores: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = project(tmp_path, model, **SMALL_STEPS)
    whole = api.pretokenize(manifest, output=tmp_path / "disk")
    home = whole.store.home
    put = api.pretokenize(manifest, output=stores)
    url = f"{stores}/{put.store.key.sha256[:12]}"
    assert (put.store.status, put.as_json()["path"]) == ("built", url)
    there = StoredFolder(url).list()
    files = {path.relative_to(home).as_posix(): path for path in home.rglob("*") if path.is_file()}
    assert set(there) == {*files, "lengths.json", "train/lengths.npy"}, "and no notes of what was put"
    assert len([name for name in files if name.startswith("train/data-")]) > 12
    assert all(StoredFolder(url).read(name) == path.read_bytes() for name, path in files.items())
    puts = asked(s3_server, "PUT", url.removeprefix("s3://"))
    assert puts[-1].endswith("/fingerprint.json"), "what makes it a store is written last"
    elsewhere(monkeypatch, tmp_path / "other machine")
    s3_server.door.requests.clear()
    again = api.pretokenize(manifest, output=stores)
    assert (again.store.status, again.store.stats) == ("hit", whole.store.stats)
    assert again.as_json()["right_size"] == whole.as_json()["right_size"]
    assert asked(s3_server, "PUT") == asked(s3_server, "GET", ".arrow") == []


@pytest.mark.parametrize(
    ("config", "share"),
    [({}, 0.0), ({}, 0.4), ({"dataloader_num_workers": 2}, 0.4), ({"packing": False, "overflow": "split"}, 0.4)],
    ids=["all shards", "limit", "limit, two workers", "limit, one document a pack"],
)
def test_training_from_it_gives_the_same_adapter(
    tmp_path: Path, model: Path, stores: str, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], share: float
) -> None:
    disk, far = two_projects(tmp_path, model, stores, **config)
    straight = train(disk, output=tmp_path / "a").document
    built = api.pretokenize(far, output=stores).store
    total = sum(path.stat().st_size for path in built.home.glob("train/*.arrow"))
    elsewhere(monkeypatch, tmp_path / "other machine")
    limit = int(total * share)
    seen, told = CopiesSeen(tmp_path / "fast"), Told()
    options = RunOptions(stage=tmp_path / "fast", stage_limit=f"{limit}B" if limit else "", callbacks=(seen,))
    found = train(far, options, told, output=tmp_path / "b").document
    assert found["adapter_sha256"] == straight["adapter_sha256"]
    assert found["store"]["status"] == "hit"
    assert found["store"]["path"] == built.url
    if limit:
        assert max(seen.bytes) <= limit
        assert any("an epoch fetches about" in text for text in told.warnings)
    else:
        assert seen.bytes[-1] == total


@pytest.mark.usefixtures("impatient")
def test_the_first_step_comes_before_the_last_shard(
    tmp_path: Path, model: Path, stores: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, far = two_projects(tmp_path, model, stores, packing=False, batch_size=1, max_steps=64)
    api.pretokenize(far, output=stores)
    elsewhere(monkeypatch, tmp_path / "other machine")
    shards = 12
    first_step, fetched = threading.Event(), []

    def hold(line: str) -> None:
        if line.startswith("GET") and "/train/data-" in line:
            fetched.append(line)
            if len(fetched) > shards:
                assert first_step.wait(50)

    class Released(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            first_step.set()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            s3_server.door.close()  # what is told of the store afterwards is at hand

    s3_server.door.before = hold
    train(far, RunOptions(callbacks=(Released(),)), output=tmp_path / "a")
    assert len(fetched) > shards + 3
    assert first_step.is_set()


@pytest.mark.usefixtures("impatient")
def test_a_build_goes_on_where_the_server_went_and_sends_nothing_twice(
    tmp_path: Path, model: Path, stores: str, s3_server: S3Server
) -> None:
    manifest = project(tmp_path, model, **SMALL_STEPS)
    whole = api.pretokenize(manifest, output=tmp_path / "disk").store
    put: list[str] = []

    def close(line: str) -> None:
        if line.startswith("PUT") and ".put/" in line:
            put.append(line.split(" ")[1].split(".put/")[1].rpartition(".")[0])
            if len(put) == 5:
                s3_server.door.close()

    s3_server.door.before = close
    with pytest.raises(EnvironmentProblem, match=r"s3://rows/stores/\w{12}/\S+: cannot write") as raised:
        api.pretokenize(manifest, output=stores)
    assert "try again" in raised.value.hint
    url = f"{stores}/{whole.key.sha256[:12]}"
    s3_server.door.open()
    s3_server.door.requests.clear()
    s3_server.door.before = lambda _: None
    assert api.explain_store(manifest, output=stores).state.state == "missing", "without its marker it is no store"
    assert api.pretokenize(manifest, output=stores).store.status == "built"
    sent = asked(s3_server, "PUT", "/train/data-")
    noted = set(put[:4])  # the door closed before the fifth note came
    assert noted
    assert not [
        path for path in sent if ".put/" not in path and any(path.split("?")[0].endswith(name) for name in noted)
    ]
    assert all(StoredFolder(url).read(f"train/{path.name}") == path.read_bytes() for path in whole.home.glob("train/*"))


@pytest.mark.usefixtures("impatient")
def test_training_goes_on_where_the_server_went_with_the_shards_that_are_here(
    tmp_path: Path, model: Path, stores: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, far = two_projects(tmp_path, model, stores, packing=False, batch_size=1, max_steps=64)
    straight = train(disk, output=tmp_path / "a").document
    api.pretokenize(far, output=stores)
    elsewhere(monkeypatch, tmp_path / "other machine")
    fetched: list[str] = []

    def close(line: str) -> None:
        if line.startswith("GET") and "/train/data-" in line:
            fetched.append(line)
            if len(fetched) == 10:
                s3_server.door.close()

    s3_server.door.before = close
    with pytest.raises(EnvironmentProblem, match=r"s3://rows/stores/\w{12}/train/data-\d+.arrow: cannot read"):
        train(far, output=tmp_path / "b")
    s3_server.door.open()
    s3_server.door.requests.clear()
    s3_server.door.before = lambda _: None
    here = {path.name for path in (tmp_path / "other machine").rglob("train/data-*.arrow")}
    assert here
    done = train(far, RunOptions(resume="auto"), output=tmp_path / "b").document
    assert done["adapter_sha256"] == straight["adapter_sha256"]
    assert not [path for path in asked(s3_server, "GET", "/train/data-") if Path(path).name in here]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_object_is_named(
    tmp_path: Path, model: Path, stores: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    _, far = two_projects(tmp_path, model, stores, dataloader_num_workers=workers)
    built = api.pretokenize(far, output=stores).store
    name = f"{built.url}/train/data-00003.arrow".removeprefix("s3://")
    raw = bytearray(s3_server.files.cat_file(name))
    raw[-100] ^= 1
    s3_server.files.pipe_file(name, bytes(raw))
    elsewhere(monkeypatch, tmp_path / "other machine")
    with pytest.raises(IntegrityError, match=rf"^s3://{name} is damaged: SHA-256 \w{{64}}, not \w{{64}}") as raised:
        train(far, output=tmp_path / "a")
    assert raised.value.hint
    assert not list((tmp_path / "other machine").rglob("data-00003.arrow"))
    s3_server.files.rm_file(name)
    with pytest.raises(IntegrityError, match=r"data-00003.arrow: .*though it belongs to the store"):
        train(far, RunOptions(overwrite=True), output=tmp_path / "a")


def test_without_its_marker_there_is_no_store_and_training_builds_one_here(
    tmp_path: Path, model: Path, stores: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, far = two_projects(tmp_path, model, stores)
    built = api.pretokenize(far, output=stores).store
    s3_server.files.rm_file(f"{built.url}/fingerprint.json".removeprefix("s3://"))
    elsewhere(monkeypatch, tmp_path / "other machine")
    s3_server.door.requests.clear()
    told = Told()
    found = train(far, RunOptions(), told, output=tmp_path / "b").document
    assert found["adapter_sha256"] == train(disk, output=tmp_path / "a").document["adapter_sha256"]
    assert any(f"pretokenize --output {stores} puts it there" in text for text in told.warnings)
    assert asked(s3_server, "PUT") == [], "a manifest alone writes nothing elsewhere"
    s3_server.door.requests.clear()
    assert api.pretokenize(far).store.status == "hit", "the one of this machine"
    assert s3_server.door.requests == []
    elsewhere(monkeypatch, tmp_path / "a third machine")
    assert api.pretokenize(far).store.status == "built"
    assert asked(s3_server, "PUT") == []


def test_a_store_without_lengths_is_fetched_first(
    tmp_path: Path, model: Path, stores: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, far = two_projects(tmp_path, model, stores)
    built = api.pretokenize(far, output=stores).store
    for name in ("lengths.json", "train/lengths.npy"):
        s3_server.files.rm_file(f"{built.url}/{name}".removeprefix("s3://"))
    elsewhere(monkeypatch, tmp_path / "other machine")
    with pytest.raises(InputError, match=r"has no lengths.json, so all its .* are needed at once; the limit is 9.0 kB"):
        train(far, RunOptions(stage_limit="9kB"), output=tmp_path / "b")
    found = train(far, RunOptions(overwrite=True), output=tmp_path / "b").document
    assert found["adapter_sha256"] == train(disk, output=tmp_path / "a").document["adapter_sha256"]


def test_limits_that_cannot_hold_are_refused(
    tmp_path: Path, model: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, far = two_projects(tmp_path, model, stores, batch_size=16)
    built = api.pretokenize(far, output=stores).store
    with pytest.raises(InputError, match=r'--stage-limit "9 apples" is no size'):
        api.train(far, stage_limit="9 apples")
    with pytest.raises(InputError, match=r"--stage-limit 1.0 kB: the token store in \S+ has "):
        train(disk, RunOptions(stage=tmp_path / "fast", stage_limit="1kB"), output=tmp_path / "a")
    elsewhere(monkeypatch, tmp_path / "other machine")
    largest = max(path.stat().st_size for path in built.home.glob("train/*.arrow"))
    with pytest.raises(
        InputError, match=r"--stage-limit leaves .* one step reads shards of .* the store has .* of them"
    ):
        train(far, RunOptions(stage_limit=f"{largest}B"), output=tmp_path / "b")


PROGRAM = """
import json, os, sys
from pathlib import Path
import expert_cli

folder, rank = Path(sys.argv[1]), os.environ["RANK"]
asked = json.loads((folder / "asked.json").read_text())
done = expert_cli.train(device="cpu", **asked)
(folder / rank).write_text(json.dumps(done.document.get("adapter_sha256")))
"""


def test_two_processes_share_the_copies(
    tmp_path: Path, model: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, far = two_projects(tmp_path, model, stores, gradient_accumulation_steps=1, packing=False, max_steps=8)
    total = sum(path.stat().st_size for path in api.pretokenize(far, output=stores).store.home.glob("train/*.arrow"))
    elsewhere(monkeypatch, tmp_path / "other machine")
    found = []
    for manifest, more in ((disk, {}), (far, {"stage": str(tmp_path / "fast"), "stage_limit": f"{total // 2}B"})):
        words = {"manifest": str(manifest), "output": str(manifest.parent / "run"), **more}
        (tmp_path / "asked.json").write_text(json.dumps(words), encoding="utf-8")
        found.append(together(tmp_path, PROGRAM))
    assert found[0] == found[1]
    assert isinstance(found[0][0], str)


def test_copies_with_a_limit_are_one_run_s(
    tmp_path: Path, model: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, far = two_projects(tmp_path, model, stores)
    built = api.pretokenize(far, output=stores).store
    elsewhere(monkeypatch, tmp_path / "other machine")
    folder = tmp_path / "fast" / f".limited-{built.key.sha256[:12]}"
    folder.mkdir(parents=True)
    total = sum(path.stat().st_size for path in built.home.glob("train/*.arrow"))
    with (
        Copies(StoredFolder(built.url), folder, (), {}, 1).ahead(),
        pytest.raises(RunLocked, match="another run trains from these copies"),
    ):
        train(far, RunOptions(stage=tmp_path / "fast", stage_limit=f"{total // 2}B"), output=tmp_path / "a")


def test_a_denied_key_is_told_before_anything_is_tokenized(
    tmp_path: Path, model: Path, stores: str, s3_server: S3Server
) -> None:
    manifest = project(tmp_path, model, **SMALL_STEPS)
    s3_server.deny()
    with pytest.raises(EnvironmentProblem, match=r"s3://rows/stores/\w{12}/fingerprint.json: cannot read") as raised:
        api.pretokenize(manifest, output=stores)
    assert "give a key" in raised.value.hint
    assert not list((tmp_path / "cache").rglob("*.arrow"))
    s3_server.door.requests.clear()
    with pytest.raises(EnvironmentProblem, match=r"s3://rows/stores/\w{12}: is not looked at: --offline"):
        api.pretokenize(manifest, output=stores, offline=True)
    assert s3_server.door.requests == []


def test_what_asks_for_a_disk_is_refused(tmp_path: Path, model: Path, stores: str) -> None:
    manifest = project(tmp_path, model, **SMALL_STEPS)
    for ask in (
        lambda: api.pretokenize(manifest, output=stores, prune=True),
        lambda: api.pretokenize(manifest, output=stores, verify=True),
    ):
        with pytest.raises(InputError, match=r"^--\w+ does not go with token stores at s3://rows/stores"):
            ask()
