"""What the commands answer on fixed inputs is what is kept in `commands/`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import make_golden

REMEDY = "if that is meant, make them anew: python -m scripts.make_golden"


@pytest.mark.skipif(sys.platform != "linux", reason="paths are written as Linux writes them")
def test_the_commands_answer_what_is_kept() -> None:
    assert make_golden.check(make_golden.record()) == [], REMEDY


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, "a.b: 1 -> 2", id="a value"),
        pytest.param({"a": [1]}, {"a": [1, 2]}, "a.1: nothing -> 2", id="one more"),
        pytest.param({"a": {}}, {"a": {"b": 1}}, "a: {} -> nothing", id="an empty object"),
        pytest.param({"a": 1}, {}, "a: 1 -> nothing", id="a key that is gone"),
        pytest.param({"a": 1}, {"a": True}, "a: 1 -> True", id="a type"),
        pytest.param({"a": 1}, {"a": 1.0}, "a: 1 -> 1.0", id="a number's form"),
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, "the same values, their keys in another order", id="an order"),
    ],
)
def test_every_difference_is_told(old: Any, new: Any, line: str) -> None:
    assert line in make_golden.differences(old, new)
    assert make_golden.differences(old, old) == []


def test_what_varies_is_left_out_by_its_place() -> None:
    value = {"document": {"loss": {"first": 2.0}, "kernels": {"loss": {"reason": "on 2 CPU cores"}}, "at": "/w/x"}}
    assert make_golden.stable(value, "train", {"/w": "<work>"}) == {
        "document": {
            "loss": {"first": "<varies>"},
            "kernels": {"loss": {"reason": "on <n> CPU cores"}},
            "at": "<work>/x",
        }
    }


def test_recordings_are_compared(tmp_path: Path) -> None:
    for name, loss in (("a", 1.0), ("b", 1.0), ("c", 1.5)):
        make_golden.write_json(tmp_path / name / "runs.json", {"run": {"losses": [loss]}})
    assert make_golden.compare(tmp_path / "a", tmp_path / "b") == []
    assert make_golden.compare(tmp_path / "a", tmp_path / "c") == ["run.losses.0: 1.0 -> 1.5"]
