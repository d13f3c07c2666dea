"""The parts of a token store on machines that share nothing but an S3 server: the store that one process puts there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import expert_cli
from expert_cli.data.store import part_build, stored_parts
from expert_cli.errors import EnvironmentProblem, IntegrityError
from expert_cli.utils.object_storage import StoredFolder
from tests.object_storage import S3Server, objects
from tests.store_rows import (
    cut_small,
    lines,
    pairs,
    project,
    write_lines,
    write_validation,
    write_weights,
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Go on as on the machine of a name, which has nothing of what others have; the pieces of the rows are small."""
    cut_small(monkeypatch)
    monkeypatch.setattr(stored_parts, "LOOK_S", 0.0)

    def on(name: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "machines" / name))

    on("first")
    return on


def parts_at(url: str) -> list[str]:
    return [name.partition("/")[2] for name in StoredFolder(url).list() if name.startswith(".parts-")]


Way = Callable[[Path], dict[str, Any]]
PUT: dict[Path, dict[str, bytes]] = {}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Callable[[Way], Path]:
    """Give the manifest of rows that no test changes, which each lie in one place: a store knows where its rows are from."""

    @cache
    def manifest_of(way: Way) -> Path:
        folder = tmp_path_factory.mktemp("rows")
        return project(folder, model, way(folder))

    return manifest_of


def put_by_one(manifest: Path, url: str) -> dict[str, bytes]:
    """Return what one process puts, which is asked once of each manifest."""
    if manifest not in PUT:
        expert_cli.pretokenize(manifest, output=url)
        PUT[manifest] = objects(url)
    return PUT[manifest]


def asked(server: S3Server, what: str, name: str) -> list[str]:
    lines_ = [line.split(" ")[:2] for line in server.door.requests if "/.put/" not in line]
    return [path.partition("?")[0] for method, path in lines_ if method == what and re.search(name, path)]


@pytest.mark.parametrize(("way", "count"), [(write_weights, 3), (write_validation, 1)])
def test_parts_make_the_store_that_one_process_puts(
    way: Way,
    count: int,
    tmp_path: Path,
    bucket: str,
    made: Callable[[Way], Path],
    machine: Callable[[str], None],
    s3_server: S3Server,
) -> None:
    manifest = made(way)
    expected = put_by_one(manifest, f"{bucket}/one")
    assert sum(name.endswith(".arrow") for name in expected) > 5
    for number in range(count, 0, -1):
        machine(f"of part {number}")
        built = expert_cli.build_part(manifest, f"{number}/{count}", output=f"{bucket}/many")
        assert built.path.startswith(f"{bucket}/many/.parts-")
        assert not list((tmp_path / "machines" / f"of part {number}").rglob("*.arrow")), (
            "what is put needs no place here"
        )
    assert objects(f"{bucket}/many") == {}
    machine("that seals")
    s3_server.door.requests.clear()
    sealed = expert_cli.seal_store(manifest, output=f"{bucket}/many")
    assert asked(s3_server, "GET", r"many/.*\.arrow") == [], "no shard goes through the machine that seals"
    assert asked(s3_server, "PUT", "many")[-2].endswith("/fingerprint.json"), "and of the store that comes last"
    assert (sealed.store.status, objects(f"{bucket}/many")) == ("built", expected)
    assert parts_at(f"{bucket}/many") == ["parts.json"]
    machine("that trains")
    assert expert_cli.pretokenize(manifest, output=f"{bucket}/many").store.status == "hit"


def test_what_one_machine_has_done_no_other_does(
    tmp_path: Path,
    bucket: str,
    made: Callable[[Way], Path],
    machine: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = made(write_validation)
    expected = put_by_one(manifest, f"{bucket}/one")
    written: list[str] = []
    write_shard = part_build.write_shard
    with monkeypatch.context() as patch:

        def dying(folder: Path, name: str, encoded: Any) -> Any:
            written.append(name)
            if len(written) == 12:
                raise KeyboardInterrupt
            return write_shard(folder, name, encoded)

        patch.setattr(part_build, "write_shard", dying)
        with pytest.raises(KeyboardInterrupt):
            expert_cli.build_part(manifest, "1/1", output=f"{bucket}/many")
        machine("that goes on")
        expert_cli.build_part(manifest, "1/1", output=f"{bucket}/many")
    twice = {name.rpartition("-")[0] for name in written if written.count(name) > 1}
    assert len(twice) == 1, "the piece in which it died"
    expert_cli.seal_store(manifest, output=f"{bucket}/many")
    assert objects(f"{bucket}/many") == expected


def test_machines_that_do_one_part_at_once_make_one_store(
    tmp_path: Path,
    bucket: str,
    made: Callable[[Way], Path],
    machine: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = made(write_weights)
    expected = put_by_one(manifest, f"{bucket}/one")
    write_shard = part_build.write_shard
    names: list[str] = []

    def overtaken(folder: Path, name: str, encoded: Any) -> Any:
        names.append(name)
        if len(names) == 3:
            machine("another")
            expert_cli.build_part(manifest, "1/1", output=f"{bucket}/many")
            machine("first")
        return write_shard(folder, name, encoded)

    monkeypatch.setattr(part_build, "write_shard", overtaken)
    expert_cli.build_part(manifest, "1/1", output=f"{bucket}/many")
    assert max(map(names.count, names)) == 2, "both did a task"
    machine("that seals")
    expert_cli.seal_store(manifest, output=f"{bucket}/many")
    assert objects(f"{bucket}/many") == expected


def test_a_part_that_is_missing_or_of_other_data_is_named(
    tmp_path: Path, bucket: str, model: Path, machine: Callable[[str], None]
) -> None:
    manifest = project(tmp_path, model, write_lines(tmp_path))
    with pytest.raises(IntegrityError, match=f"{bucket}/many: there are no parts of this token store"):
        expert_cli.seal_store(manifest, output=f"{bucket}/many")
    for part in ("1/3", "3/3"):
        expert_cli.build_part(manifest, part, output=f"{bucket}/many")
    machine("that seals")
    with pytest.raises(
        IntegrityError, match=rf"{bucket}/many/.parts-\w+: part 2/3 of the token store is not whole: "
    ) as raised:
        expert_cli.seal_store(manifest, output=f"{bucket}/many")
    assert "--part 2/3" in raised.value.hint
    lines(tmp_path / "train.jsonl", pairs(150)[::-1])  # of the same size
    with pytest.raises(IntegrityError, match=rf"the parts in {bucket}/many/.parts-\w+ are of another: train data: "):
        expert_cli.seal_store(manifest, output=f"{bucket}/many")


@pytest.mark.parametrize(
    ("damage", "gone"),
    [
        (r"train/000001-000\.arrow", True),
        (r"train/000001-000\.arrow", False),
        (r"validation-000001\.\w{12}\.npz", False),
        (r"train-000001\.\w{12}\.npz", True),
    ],
)
def test_an_object_that_is_not_as_it_was_put_is_named(
    damage: str, gone: bool, tmp_path: Path, bucket: str, made: Callable[[Way], Path], machine: Callable[[str], None]
) -> None:
    manifest = made(write_validation)
    expected = put_by_one(manifest, f"{bucket}/one")
    expert_cli.build_part(manifest, "1/1", output=f"{bucket}/many")
    there = StoredFolder(f"{bucket}/many")
    (name,) = [name for name in there.list() if re.search(f"/{damage}$", name)]
    there.remove([name]) if gone else there.write(name, b"half")
    machine("that seals")
    with pytest.raises(IntegrityError, match=f"^{re.escape(there.url_of(name))}: is not what was written") as raised:
        expert_cli.seal_store(manifest, output=f"{bucket}/many")
    assert objects(f"{bucket}/many") == {}
    (record,) = re.findall(rf"Delete {bucket}/many/(\S+\.json);", raised.value.hint)
    there.remove([record])
    machine("that builds again")
    expert_cli.build_part(manifest, "1/1", output=f"{bucket}/many")
    expert_cli.seal_store(manifest, output=f"{bucket}/many")
    assert objects(f"{bucket}/many") == expected


def test_a_part_that_comes_after_the_seal_finds_the_store(
    tmp_path: Path, bucket: str, model: Path, machine: Callable[[str], None]
) -> None:
    manifest = project(tmp_path, model, write_lines(tmp_path))
    expert_cli.build_part(manifest, "1/1", output=f"{bucket}/many")
    sealed = expert_cli.seal_store(manifest, output=f"{bucket}/many")
    machine("late")
    late = expert_cli.build_part(manifest, "2/3", output=f"{bucket}/many")
    assert (late.status, late.path) == ("hit", sealed.store.place)
    assert expert_cli.seal_store(manifest, output=f"{bucket}/many").store.status == "hit"
    there = StoredFolder(sealed.store.place)
    there.remove(there.list())
    machine("later")
    assert expert_cli.build_part(manifest, "1/1", output=f"{bucket}/many").status == "built"
    assert expert_cli.seal_store(manifest, output=f"{bucket}/many").store.status == "built"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("at", ["part", "seal"])
def test_a_server_that_goes_away_costs_a_task(
    at: str,
    tmp_path: Path,
    bucket: str,
    made: Callable[[Way], Path],
    machine: Callable[[str], None],
    s3_server: S3Server,
) -> None:
    manifest = made(write_lines)
    expected = put_by_one(manifest, f"{bucket}/one")
    seen: list[str] = []

    def away(line: str) -> None:
        if re.match(r"PUT /rows/many/\S*\.arrow ", line) and "/.put/" not in line:
            seen.append(line)
            if len(seen) == 9:
                s3_server.door.close()

    if at == "seal":
        expert_cli.build_part(manifest, "1/1", output=f"{bucket}/many")
    s3_server.door.before = away
    act = expert_cli.build_part if at == "part" else expert_cli.seal_store
    more = ("1/1",) if at == "part" else ()
    with pytest.raises(EnvironmentProblem, match=f"^{bucket}/many/.*: cannot "):
        act(manifest, *more, output=f"{bucket}/many")
    assert len(seen) >= 9
    s3_server.door.open()
    before = len(asked(s3_server, "PUT", r"many/.*\.arrow"))
    act(manifest, *more, output=f"{bucket}/many")
    count = sum(name.endswith(".arrow") for name in expected)
    assert len(asked(s3_server, "PUT", r"many/.*\.arrow")) - before < count, "what was put before is not put again"
    if at == "part":
        expert_cli.seal_store(manifest, output=f"{bucket}/many")
    assert objects(f"{bucket}/many") == expected
