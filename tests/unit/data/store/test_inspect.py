"""Token stores and what lies among them: fresh, stale, damaged, foreign."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from expert_cli.config.plan import Plan, make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.store.files import read_fingerprint
from expert_cli.errors import InputError
from expert_cli.hardware.machine import inspect
from expert_cli.utils.files import write_sealed
from expert_cli.utils.paths import cache_folder, stores_of_url
from tests.words import KEY, OTHER, expert, listed, made, store


@pytest.fixture
def world(tmp_path: Path) -> Path:
    (tmp_path / "project" / "experts").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "written", "place"),
    [
        ("Expert-SQL", None, "datasets_optimized/expert-sql/tokenized"),
        ("an_expert 2.0", None, "datasets_optimized/an-expert-2-0/tokenized"),
        ("专家一", None, "datasets_optimized/model-4f7aa777/tokenized"),
        ("one", "cache\\mine", "cache/mine"),
        ("one", "./cache/../cache/mine/", "cache/mine"),
    ],
)
def test_a_store_is_found_where_training_puts_it(world: Path, name: str, written: str | None, place: str) -> None:
    path = expert(world, "folder", {"path": "org/rows"}, pretokenized_cache=written)
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"name": name}), encoding="utf-8")
    run = make_plan(path, inspect(), Overrides()).run
    assert run.store == world / "project" / place
    home = store(run.store)
    (row,) = [row for row in listed(world, lambda _: KEY).values() if row.path == home]
    assert (row.status, row.experts) == ("fresh", (name,))


def test_stores_at_a_url_have_a_folder_of_this_machine(world: Path) -> None:
    path = expert(world, "one", {"path": "org/rows"}, pretokenized_cache="s3://bucket/stores/")
    run = make_plan(path, inspect(), Overrides()).run
    assert run.store_url == "s3://bucket/stores/"
    assert run.store == stores_of_url("s3://bucket/stores") != stores_of_url("s3://other/stores")
    assert run.store.is_relative_to(cache_folder())
    path = expert(world, "one", {"path": "org/rows"}, pretokenized_cache=(world / "project" / "here").as_uri())
    run = make_plan(path, inspect(), Overrides()).run
    assert (run.store, run.store_url) == (world / "project" / "here", "")
    for written, error in (("none://host/a", "none:// is not read"), ("file:///etc/x", "outside the project root")):
        path = expert(world, "one", {"path": "org/rows"}, pretokenized_cache=written)
        with pytest.raises(InputError, match=error):
            make_plan(path, inspect(), Overrides())


def test_a_base_model_may_have_a_folder_of_its_own(world: Path) -> None:
    path = expert(world, "one", {"path": "org/rows"})
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["base_models"].append({"name": "org/second", "config": {"pretokenized_cache": "second"}})
    path.write_text(json.dumps(manifest), encoding="utf-8")
    homes = [store(world / "project" / place) for place in ("second", "datasets_optimized/one/tokenized")]
    rows = {row.path: row.experts for row in listed(world).values()}
    assert [rows[home] for home in homes] == [("one",), ("one",)]


@pytest.mark.parametrize(
    ("now", "owner", "status"),
    [
        (lambda _: KEY, "one", "fresh"),
        (lambda _: OTHER, "one", "stale"),
        (lambda _: None, "one", "used"),
        (lambda _: KEY, "two", "unused"),
        (lambda plan: OTHER if plan.run.model.name == "org/second" else None, "one", "used"),
    ],
    ids=["same", "other", "not told", "nobody's", "one of two not told"],
)
def test_a_store_is_fresh_only_if_its_key_is_one_of_now(
    world: Path, now: Callable[[Plan], str | None] | None, owner: str, status: str
) -> None:
    path = expert(world, owner, {"path": "org/rows"})
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["base_models"].append({"name": "org/second", "quantization": "none"})
    path.write_text(json.dumps(manifest), encoding="utf-8")
    store(world / "project" / "datasets_optimized" / "one" / "tokenized")
    assert listed(world, now)["one/tokenized/0123456789ab"].status == status


@pytest.mark.parametrize(
    ("fingerprint", "note"),
    [
        ({"files": {"train/gone.arrow": {"bytes": 1}}}, "train/gone.arrow is missing"),
        ({"files": {"dataset_dict.json": {"bytes": 5}}}, "dataset_dict.json has 21 bytes, not 5"),
        ({"files": {"../x": {"bytes": 5}}}, "fingerprint.json names a file outside the store, ../x"),
        ({"files": ["a"]}, "fingerprint.json is not of its form"),
        ({"key": OTHER}, "fingerprint.json belongs to another folder, fedcba987654"),
    ],
)
def test_a_damaged_store_is_named(world: Path, fingerprint: dict[str, Any], note: str) -> None:
    expert(world, "one", {"path": "org/rows"})
    home = store(world / "project" / "datasets_optimized" / "one" / "tokenized")
    path = home / "fingerprint.json"
    body = read_fingerprint(home)
    write_sealed(path, {**body, **fingerprint})
    row = listed(world, lambda _: KEY)["one/tokenized/0123456789ab"]
    assert (row.status, row.note) == ("damaged", note)


def test_folders_among_the_stores_that_are_none(world: Path) -> None:
    stores = world / "project" / "datasets_optimized"
    expert(world, "one", {"path": "org/rows"})
    expert(world, "old", {"path": "org/rows"}, pretokenized_cache="datasets_optimized/old")
    expert(world, "mine", {"path": "../../datasets_optimized/mine"})
    for name in ("old", "mine", "broken"):
        Dataset.from_dict({"a": [1, 2, 3]}).save_to_disk(stores / name)
    next((stores / "broken").glob("*.arrow")).unlink()
    (store(stores / "one" / "tokenized") / "fingerprint.json").unlink()
    (stores / "one" / "tokenized" / OTHER[:12]).mkdir()
    made(stores / "one" / "tokenized" / f".building-{OTHER[:12]}" / "train" / "data-00000.arrow", b"")
    made(stores / "loose.parquet", b"")
    rows = listed(world, lambda _: KEY)
    assert {name: (row.kind, row.status, row.experts, row.rows) for name, row in rows.items() if row.kind != "hub"} == {
        "old": ("saved", "foreign", ("old",), 3),
        "mine": ("saved", "used", ("mine",), 3),
        "broken": ("saved", "damaged", (), None),
        "one/tokenized/0123456789ab": ("saved", "foreign", ("one",), 2),
        "one/tokenized/fedcba987654": ("token_store", "damaged", ("one",), None),
        "one/tokenized/.building-fedcba987654": ("token_store", "used", ("one",), None),
        "loose.parquet": ("file", "damaged", (), None),
    }
    assert rows["one/tokenized/fedcba987654"].note == "no fingerprint.json: an interrupted or foreign build"
    assert rows["broken"].note == "data-00000-of-00001.arrow is missing"
