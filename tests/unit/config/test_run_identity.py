"""What a run must have in common with one that it goes on with, or is locked to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from expert_cli.config.plan import make_plan
from expert_cli.config.resolve import Overrides
from expert_cli.config.run_config import RunConfig
from expert_cli.config.run_identity import begun_as, identity, require_goes_on, require_same
from expert_cli.data.sources import Located, LocatedData
from expert_cli.data.store.lookup import store_key
from expert_cli.errors import InputError, IntegrityError
from expert_cli.hardware import machine
from expert_cli.pipeline.run_directory import finished
from expert_cli.runs.run_paths import RunPaths
from expert_cli.utils.files import FileHashCache, write_json
from tests import manifests
from tests.words import Words

PARTS = {
    "rule": "1",
    "train data": "a" * 64,
    "train rows": '[["train", 1.0, null]]',
    "validation data": "b" * 64,
    "validation rows": "[]",
    "split": "none",
    "filters": '{"deduplicate": "off", "min_chars": 0, "max_chars": null}',
    "tokenizer": "c" * 64,
    "template": "d" * 64,
    "mapping": "{}",
    "trained turns": "answers",
}


@pytest.fixture
def run(tmp_path: Path) -> RunConfig:
    return make_plan(manifests.write(tmp_path, manifests.small()), machine.inspect(), Overrides()).run


def of(run: RunConfig, trusted: str = "", **parts: str) -> dict[str, Any]:
    store = {**PARTS, **{name.replace("_", " "): value for name, value in parts.items()}}
    hashes = {"data": ["f" * 64], "base model": "e" * 64, "template": PARTS["template"]}
    versions = (("torch", "2.13.0"), ("peft", "0.21.2"))
    return identity(run, store, trusted, {**hashes, "processes": 1, "versions": versions})


@pytest.mark.parametrize("name", ["filters", "tokenizer", "masking"])
def test_every_part_of_a_stores_key_belongs_to_the_run(tmp_path: Path, run: RunConfig, name: str) -> None:
    before, now = of(run), of(run, **{name.replace(" ", "_"): "changed"})
    key = name if name == "tokenizer" else f"store.{name}"
    with pytest.raises(IntegrityError, match=rf"{key}: .* -> changed") as caught:
        require_goes_on(tmp_path, before, now, (), Words())
    assert f'--allow-drift "{key}"' in caught.value.hint
    require_goes_on(tmp_path, before, now, (key,), Words())
    with pytest.raises(InputError, match=r"--locked .*no\.json: no such file"):
        require_same(tmp_path / "no.json", now, Words())
    with pytest.raises(IntegrityError, match=rf"{key}: .* -> changed"):
        require_same(written(tmp_path, before), now, Words())


def test_a_complete_run_is_the_same_by_whatever_rule_its_store_was_built(run: RunConfig) -> None:
    located = LocatedData(tuple(Located(spec, ()) for spec in run.data.train), ())
    made_by = {"tokenizer": "c" * 64, "template": PARTS["template"]}
    key = store_key(run.data, located, FileHashCache(run.output / ".none"), **made_by)
    paths = RunPaths(run.output)
    paths.adapter.mkdir(parents=True)
    (paths.adapter / "adapter_model.safetensors").write_bytes(b"weights")
    paths.complete.touch()
    write_json(paths.report_json, {"adapter_sha256": hashlib.sha256(b"weights").hexdigest()})
    recorded = of(run, **{name.replace(" ", "_"): value for name, value in key.parts} | {"rule": "another"})
    write_json(paths.run_json, {"identity": recorded})
    assert finished(run, (), Words()) is not None


def test_other_processes_go_on_with_a_run_and_do_not_pass_for_it(tmp_path: Path, run: RunConfig) -> None:
    before, now = of(run) | {"processes": 4}, of(run) | {"processes": 2}
    require_goes_on(tmp_path, before, now, (), Words())
    begun = begun_as(before, now, ())
    assert begun["processes"] == 4
    require_same(written(tmp_path, before), begun, Words())
    with pytest.raises(IntegrityError, match="processes: 4 -> 2"):
        require_same(written(tmp_path, before), now, Words())


@pytest.mark.parametrize(("before", "now"), [("", "1" * 64), ("1" * 64, "2" * 64)])
def test_rows_that_another_program_saved_belong_to_the_run(
    tmp_path: Path, run: RunConfig, before: str, now: str
) -> None:
    with pytest.raises(IntegrityError, match=r"store\.trusted: "):
        require_goes_on(tmp_path, of(run, before), of(run, now), (), Words())
    require_goes_on(tmp_path, of(run, before), of(run, before), (), Words())


PROGRAMS: dict[str, tuple[dict[str, Any], str]] = {
    "code": ({"code": "0" * 64}, "expert-cli itself"),
    "both": ({"code": "0" * 64, "versions": [["torch", "2.13.0"]]}, "expert-cli itself, peft (none -> 0.21.2)"),
}


@pytest.mark.parametrize(("changed", "words"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_other_programs_are_told_in_one_line(
    tmp_path: Path, run: RunConfig, changed: dict[str, Any], words: str
) -> None:
    now, report = of(run), Words()
    require_goes_on(tmp_path, {**now, **changed}, now, (), report)
    assert report.lines == [f"warning: changed since {tmp_path}: {words}; the run may not be bit for bit the same"]
    require_goes_on(tmp_path, now, now, (), report)
    assert len(report.lines) == 1


WATCHED: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "best": ({}, {"load_best_model_at_end": True}, True),
    "patience": ({"early_stopping_patience": 2}, {"early_stopping_patience": 3}, True),
    "logged and saved": ({"load_best_model_at_end": True}, {"load_best_model_at_end": True, "save_steps": 7}, False),
}


@pytest.mark.parametrize(("before", "now", "differs"), WATCHED.values(), ids=WATCHED.keys())
def test_which_adapter_is_kept_belongs_to_the_run(
    tmp_path: Path, run: RunConfig, before: dict[str, Any], now: dict[str, Any], differs: bool
) -> None:
    one, two = (of(replace(run, watch=replace(run.watch, **changes))) for changes in (before, now))
    if differs:
        with pytest.raises(IntegrityError, match="best model: "):
            require_same(written(tmp_path, one), two, Words())
    else:
        require_same(written(tmp_path, one), two, Words())


def test_every_setting_is_in_it(run: RunConfig) -> None:
    blocks = {name: getattr(run, name) for name in ("model", "adapter", "optim", "loader", "compute")}
    assert {f"{name}.{one.name}" for name, block in blocks.items() for one in fields(block)} < set(of(run))


def test_what_was_decided_can_be_changed_nowhere(run: RunConfig) -> None:
    hash(run)  # raises where it, or a part of it, is not frozen


@pytest.mark.parametrize("content", ["", '{"identity": 1}'])
def test_what_is_no_run_json_is_named(tmp_path: Path, run: RunConfig, content: str) -> None:
    (tmp_path / "run.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"is not a run\.json of expert-cli"):
        require_same(tmp_path / "run.json", of(run), Words())


def written(folder: Path, value: dict[str, Any]) -> Path:
    path = folder / "run.json"
    path.write_text(json.dumps({"identity": value}), encoding="utf-8")
    return path
