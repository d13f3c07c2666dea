"""Patterns fit the names they should, and cost little whatever they are."""

from __future__ import annotations

import time

import pytest

from expert_cli.data.sources import globs
from expert_cli.data.sources.globs import fitting
from expert_cli.errors import InputError

NAMES = ["a.jsonl", "data/a.jsonl", "data/b1.jsonl", "data/deep/c.jsonl", "x/data/[d].jsonl"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.jsonl", ["a.jsonl"]),
        ("./data/a.jsonl", ["data/a.jsonl"]),
        ("gone.jsonl", []),
        ("*", ["a.jsonl"]),
        ("data/*.jsonl", ["data/a.jsonl", "data/b1.jsonl"]),
        ("data/?.jsonl", ["data/a.jsonl"]),
        ("data/[ab]*.jsonl", ["data/a.jsonl", "data/b1.jsonl"]),
        ("data/[!a]*", ["data/b1.jsonl"]),
        ("data/[^a]*", ["data/b1.jsonl"]),
        ("data/[z-a]*", []),
        ("data/**", ["data/a.jsonl", "data/b1.jsonl", "data/deep/c.jsonl"]),
        ("**/c.jsonl", ["data/deep/c.jsonl"]),
        ("**/data/**/*.jsonl", NAMES[1:]),
        ("**", NAMES),
        ("x/data/[[]d].jsonl", ["x/data/[d].jsonl"]),
        ("", []),
        ("/a.jsonl", []),
        ("../*.jsonl", []),
    ],
)
def test_a_pattern_fits(pattern: str, expected: list[str]) -> None:
    assert fitting(NAMES, [pattern], "here") == {pattern: expected}


@pytest.mark.parametrize(
    "pattern",
    ["**/" * 60 + "x", "*a" * 60 + "b", "**/*a*a*a*a*a*/" * 12 + "b", "?*" * 100, "[a-z]*" * 60 + "!"],
    ids=lambda pattern: pattern[:12],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    names = ["a" * 200 + ".jsonl", "/".join(["a" * 20] * 40) + "/b.jsonl"]
    started = time.monotonic()
    fitting(names, [pattern], "here")
    assert time.monotonic() - started < 1


def test_more_patterns_than_any_data_set_needs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(globs, "MOST_STEPS", 1000)
    names = [f"{number}.jsonl" for number in range(100)]
    assert len(fitting(names, [f"{number}*" for number in range(10)], "here")) == 10
    with pytest.raises(InputError, match="too many or too long for 100 files"):
        fitting(names, [f"{number}*" for number in range(11)], "here")
    with pytest.raises(InputError, match="too many or too long for 100 files"):
        fitting(names, ["*/" * 10 + "x"], "here")
