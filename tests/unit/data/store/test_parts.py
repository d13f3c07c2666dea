"""A token store built in parts: byte for byte the one that a single process builds, whoever does what, and in what order."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

import expert_cli
from expert_cli.data.store import part_build
from expert_cli.data.store.parts import Part
from expert_cli.errors import InputError, IntegrityError
from expert_cli.utils.reporter import NullReporter, Said
from tests.store_rows import (
    WAYS,
    contents,
    cut_small,
    lines,
    pairs,
    project,
    write_lines,
    write_validation,
    write_weights,
)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)


def noted(patch: pytest.MonkeyPatch, name: str, dies_at: int = 0) -> list[Any]:
    """The second arguments of all calls of a function from now on; the call of that number ends its process."""
    seen: list[Any] = []
    real = getattr(part_build, name)

    def noting(*args: Any, **options: Any) -> Any:
        seen.append(args[1])
        if len(seen) == dies_at:
            raise KeyboardInterrupt
        return real(*args, **options)

    patch.setattr(part_build, name, noting)
    return seen


def built_whole(manifest: Path, store: Path) -> dict[str, bytes]:
    expert_cli.pretokenize(manifest, output=store)
    return contents(store)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_parts_make_the_store_of_one_process(way: str, count: int, tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, WAYS[way](tmp_path))
    expected = built_whole(manifest, tmp_path / "one")
    assert sum(name.endswith(".arrow") for name in expected) > 5
    for number in range(count, 0, -1):
        expert_cli.build_part(manifest, f"{number}/{count}", output=tmp_path / "many")
    assert not list((tmp_path / "many").glob("[0-9a-f]*"))
    expert_cli.seal_store(manifest, output=tmp_path / "many")
    assert contents(tmp_path / "many") == expected


def test_rows_that_a_late_column_makes_bad_are_bad_in_every_part(tmp_path: Path, model: Path) -> None:
    rows = [{"question": row["instruction"], "output": row["output"]} for row in pairs(200)]
    rows[120:] = [{**row, "instruction": "Say it."} for row in rows[120:]]
    lines(tmp_path / "train.jsonl", rows)
    manifest = project(tmp_path, model, {"path": "train.jsonl"})
    told = []
    for build in (
        lambda: expert_cli.pretokenize(manifest, output=tmp_path / "one"),
        lambda: expert_cli.build_part(manifest, "2/3", output=tmp_path / "many"),
    ):
        with pytest.raises(InputError, match="120 of 200 rows are bad") as raised:
            build()
        told.append(raised.value.as_json())
    assert told[0] == told[1]


def test_parts_that_run_at_once_do_everything_once(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = project(tmp_path, model, write_weights(tmp_path))
    expected = built_whole(manifest, tmp_path / "one")
    looked = noted(monkeypatch, "scan_pieces")
    written = noted(monkeypatch, "write_shard")
    failed: list[BaseException] = []

    def run(part: str) -> None:
        try:
            expert_cli.build_part(manifest, part, output=tmp_path / "many")
        except BaseException as error:  # noqa: BLE001  told by the assertion below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(part,)) for part in ("1/2", "2/2", "2/2", "1/3")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(looked) == len(set(looked)) > 5
    assert len(written) == len(set(written)) > 5
    expert_cli.seal_store(manifest, output=tmp_path / "many")
    assert contents(tmp_path / "many") == expected


def test_a_part_that_died_goes_on_where_it_was(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = project(tmp_path, model, write_validation(tmp_path))
    expected = built_whole(manifest, tmp_path / "one")
    with monkeypatch.context() as patch:
        before = noted(patch, "write_shard", dies_at=12)
        with pytest.raises(KeyboardInterrupt):
            expert_cli.build_part(manifest, "1/1", output=tmp_path / "many")
    after = noted(monkeypatch, "write_shard")
    expert_cli.build_part(manifest, "1/1", output=tmp_path / "many")
    written = before + after
    twice = {name.rpartition("-")[0] for name in written if written.count(name) > 1}
    assert len(twice) <= 1  # the piece in which it died
    expert_cli.seal_store(manifest, output=tmp_path / "many")
    assert contents(tmp_path / "many") == expected


def test_many_small_sources_and_rounds_make_few_shards(tmp_path: Path, model: Path) -> None:
    tasks = {}
    for task in range(12):
        lines(tmp_path / f"{task}.jsonl", pairs(2, start=2 * task))
        tasks[f"t{task}"] = {"train": f"{task}.jsonl", "weight": 3.0}
    (tmp_path / "0.jsonl").write_text("\n", encoding="utf-8")
    lines(tmp_path / "1.jsonl", pairs(2))
    del tasks["t0"]
    manifest = project(tmp_path, model, {"type": "multi_task", "tasks": tasks})
    expected = built_whole(manifest, tmp_path / "one")
    assert sum(name.endswith(".arrow") for name in expected) < 12
    for part in ("1/2", "2/2"):
        expert_cli.build_part(manifest, part, output=tmp_path / "many")
    expert_cli.seal_store(manifest, output=tmp_path / "many")
    assert contents(tmp_path / "many") == expected


def test_an_empty_file_before_others_is_no_piece(tmp_path: Path, model: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "0.jsonl").touch()
    lines(tmp_path / "rows" / "1.jsonl", pairs(40))
    manifest = project(tmp_path, model, {"path": "rows"})
    expected = built_whole(manifest, tmp_path / "one")
    expert_cli.build_part(manifest, "1/1", output=tmp_path / "many")
    expert_cli.seal_store(manifest, output=tmp_path / "many")
    assert contents(tmp_path / "many") == expected


def test_a_bad_row_of_a_slice_is_told_by_its_line(tmp_path: Path, model: Path) -> None:
    text = [json.dumps(row) for row in pairs(400)]
    text[300] = "{half"
    (tmp_path / "train.jsonl").write_text("\n".join(text) + "\n", encoding="utf-8")
    manifest = project(tmp_path, model, {"path": "train.jsonl::train[50%:]"})
    for seal in (False, True):
        said = Said(NullReporter())
        if seal:
            expert_cli.build_part(manifest, "1/1", output=tmp_path / "many")
            expert_cli.seal_store(manifest, output=tmp_path / "many", reporter=said)
        else:
            expert_cli.pretokenize(manifest, output=tmp_path / "one", reporter=said)
        warned = " ".join(text for how, text in said.lines if how == "warning")
        assert f"1 of 200 rows are bad and left out: {tmp_path}/train.jsonl:301: not valid JSON" in warned


def test_what_looks_like_a_secret_changes_no_part(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "site_key=DE"
    folder.mkdir()
    rows = [*pairs(300), *pairs(3)]
    rows[100:102] = [{**rows[100], "train": "a_key=x1"}, {**rows[101], "train": "a_key=x2"}]
    lines(folder / "train.jsonl", rows)
    manifest = project(tmp_path, model, {"path": "site_key=DE/train.jsonl", "filters": {"deduplicate": "row"}})
    expected = built_whole(manifest, tmp_path / "one")
    expert_cli.build_part(manifest, "1/1", output=tmp_path / "many")
    expert_cli.seal_store(manifest, output=tmp_path / "many")
    assert contents(tmp_path / "many") == expected


def test_a_missing_part_is_named(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, write_lines(tmp_path))
    with pytest.raises(IntegrityError, match="there are no parts of this token store"):
        expert_cli.seal_store(manifest, output=tmp_path / "many")
    for part in ("1/3", "3/3"):
        expert_cli.build_part(manifest, part, output=tmp_path / "many")
    with pytest.raises(
        IntegrityError,
        match=r"part 2/3 of the token store is not whole: \d of \d pieces of the rows that train are not encoded",
    ) as raised:
        expert_cli.seal_store(manifest, output=tmp_path / "many")
    assert "--part 2/3" in raised.value.hint
    expert_cli.build_part(manifest, "2/3", output=tmp_path / "many")
    expert_cli.seal_store(manifest, output=tmp_path / "many")


def test_parts_of_other_data_are_named(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, write_lines(tmp_path))
    expert_cli.build_part(manifest, "1/1", output=tmp_path / "many")
    (parts_then,) = (tmp_path / "many").glob(".parts-*")
    lines(tmp_path / "train.jsonl", pairs(150)[::-1])  # of the same size
    with pytest.raises(IntegrityError, match=rf"the parts in {parts_then} are of another: train data: "):
        expert_cli.seal_store(manifest, output=tmp_path / "many")


@pytest.mark.parametrize("damage", ["record", "foreign record", "shard", "arrays"])
def test_what_is_not_as_it_was_written_is_named_or_built_again(damage: str, tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, write_validation(tmp_path))
    expected = built_whole(manifest, tmp_path / "one")
    expert_cli.build_part(manifest, "1/1", output=tmp_path / "many")
    (folder,) = (tmp_path / "many").glob(".parts-*")
    record = folder / "train-000001.json"
    if damage == "record":
        record.write_text(record.read_text(encoding="utf-8").replace('"sha256": "', '"sha256": "0'), encoding="utf-8")
    elif damage == "foreign record":
        shutil.copy(folder / "train-000002.json", record)
    elif damage == "shard":
        (folder / "train" / "000001-000.arrow").write_bytes(b"half")
    else:
        (folder / "validation-000001.npz").write_bytes(b"half")
    lacks = {"shard": "000001-000.arrow: is not", "arrays": "validation-000001.npz: is not"}
    told = lacks.get(damage, "part 1/1 of the token store is not whole: 1 of")
    with pytest.raises(IntegrityError, match=told):
        expert_cli.seal_store(manifest, output=tmp_path / "many")
    if damage in ("shard", "arrays"):  # the error says that the record is to be deleted
        (folder / f"{'train' if damage == 'shard' else 'validation'}-000001.json").unlink()
    expert_cli.build_part(manifest, "1/1", output=tmp_path / "many")
    expert_cli.seal_store(manifest, output=tmp_path / "many")
    assert contents(tmp_path / "many") == expected


def test_a_part_that_comes_after_the_seal_finds_the_store(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, write_lines(tmp_path))
    expert_cli.build_part(manifest, "1/1", output=tmp_path / "many")
    sealed = expert_cli.seal_store(manifest, output=tmp_path / "many")
    late = expert_cli.build_part(manifest, "2/3", output=tmp_path / "many")
    assert (late.status, late.path) == ("hit", str(sealed.store.home))
    assert expert_cli.seal_store(manifest, output=tmp_path / "many").store.status == "hit"
    shutil.rmtree(sealed.store.home)
    assert expert_cli.build_part(manifest, "1/1", output=tmp_path / "many").status == "built"
    assert expert_cli.seal_store(manifest, output=tmp_path / "many").store.status == "built"


def test_a_store_that_one_process_built_needs_no_parts(tmp_path: Path, model: Path) -> None:
    manifest = project(tmp_path, model, write_lines(tmp_path))
    whole = expert_cli.pretokenize(manifest, output=tmp_path / "one").store
    part = expert_cli.build_part(manifest, "1/2", output=tmp_path / "one")
    assert (part.status, part.path) == ("hit", str(whole.home))
    assert expert_cli.seal_store(manifest, output=tmp_path / "one").store.status == "hit"
    lines(tmp_path / "train.jsonl", pairs(151))
    assert expert_cli.build_part(manifest, "1/2", output=tmp_path / "one").status == "built"


def test_pruning_deletes_parts_of_other_data_that_nobody_builds(tmp_path: Path, model: Path) -> None:
    out = tmp_path / "many"
    manifest = project(tmp_path, model, write_lines(tmp_path))
    expert_cli.build_part(manifest, "1/2", output=out)
    (abandoned,) = out.glob(".parts-*")
    lines(tmp_path / "train.jsonl", pairs(151))
    expert_cli.build_part(manifest, "1/1", output=out)
    expert_cli.seal_store(manifest, output=out)
    (sealed,) = set(out.glob(".parts-*")) - {abandoned}
    with FileLock(abandoned / ".lock-train-000003"):
        expert_cli.pretokenize(manifest, output=out, prune=True)
        assert abandoned.is_dir()
    expert_cli.pretokenize(manifest, output=out, prune=True)
    assert (abandoned.exists(), sealed.is_dir()) == (False, True)


@pytest.mark.parametrize("pieces", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_every_piece_is_one_parts(pieces: int, count: int) -> None:
    own = [Part(number, count).own(pieces) for number in range(1, count + 1)]
    assert [piece for part in own for piece in part] == list(range(pieces))
    assert max(map(len, own)) - min(map(len, own)) <= 1


@pytest.mark.parametrize("written", ["", "3", "0/4", "5/4", "1/0", "-1/2", "1/2/3", "a/b", "1.5/2"])
def test_what_is_no_part_is_refused(written: str) -> None:
    with pytest.raises(InputError, match="is no part"):
        Part.parse(written)
