"""Where the stores of an expert lie, and what is wrong with one, by its fingerprint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import Plan, make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.data.store.files import FINGERPRINT, read_fingerprint
from expert_cli.data.store.lookup import recorded_key
from expert_cli.errors import InputError
from expert_cli.hardware.machine import inspect
from expert_cli.utils.files import write_sealed
from expert_cli.utils.paths import cache_folder, stores_of_url
from tests import manifests
from tests.unit.data.store.test_build import KEY, make


def planned(folder: Path, name: str, written: str | None) -> Plan:
    home = folder / "project" / "experts" / "one"
    home.mkdir(parents=True, exist_ok=True)
    manifest = manifests.small(**({"pretokenized_cache": written} if written else {}))
    return make_plan(manifests.write(home, {**manifest, "name": name}), inspect(), Overrides())


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
def test_where_the_stores_of_an_expert_lie(tmp_path: Path, name: str, written: str | None, place: str) -> None:
    assert planned(tmp_path, name, written).run.store == tmp_path / "project" / place


def test_stores_at_a_url_have_a_folder_of_this_machine(tmp_path: Path) -> None:
    run = planned(tmp_path, "one", "s3://bucket/stores/").run
    assert run.store_url == "s3://bucket/stores/"
    assert run.store == stores_of_url("s3://bucket/stores") != stores_of_url("s3://other/stores")
    assert run.store.is_relative_to(cache_folder())
    run = planned(tmp_path, "one", (tmp_path / "project" / "here").as_uri()).run
    assert (run.store, run.store_url) == (tmp_path / "project" / "here", "")
    for written, error in (("none://host/a", "none:// is not read"), ("file:///etc/x", "outside the project root")):
        with pytest.raises(InputError, match=error):
            planned(tmp_path, "one", written)


@pytest.mark.parametrize(
    ("fingerprint", "note"),
    [
        ({"files": {"train/gone.arrow": {"bytes": 1}}}, "train/gone.arrow is missing"),
        ({"files": {"dataset_dict.json": {"bytes": 5}}}, "dataset_dict.json has 52 bytes, not 5"),
        ({"files": {"../x": {"bytes": 5}}}, "fingerprint.json names a file outside the store, ../x"),
        ({"files": ["a"]}, "fingerprint.json is not of its form"),
        ({"key": "fedcba987654"}, "fingerprint.json belongs to another folder, fedcba987654"),
    ],
)
def test_what_is_wrong_with_a_store_is_named(tmp_path: Path, fingerprint: dict[str, Any], note: str) -> None:
    home = make(tmp_path)
    assert recorded_key(home) == (KEY.sha256, "")
    write_sealed(home / FINGERPRINT, {**read_fingerprint(home), **fingerprint})
    assert recorded_key(home) == ("", note)


def test_a_fingerprint_that_is_cut_is_told(tmp_path: Path) -> None:
    path = make(tmp_path) / FINGERPRINT
    whole = path.read_text(encoding="utf-8")
    path.write_text(json.dumps({**json.loads(whole), "expert": "another"}), encoding="utf-8")
    assert recorded_key(path.parent)[0] == ""
    path.unlink()
    assert recorded_key(path.parent) == ("", "no fingerprint.json: an interrupted or foreign build")
