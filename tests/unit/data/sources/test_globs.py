"""Patterns fit the names they should, and cost little whatever they are."""

from __future__ import annotations

import time

import pytest

from expert_cli.data.sources.globs import fitting

NAMES = ["a.jsonl", "data/a.jsonl", "data/b1.jsonl", "data/deep/c.jsonl", "x/data/[d].jsonl"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("./data/a.jsonl", ["data/a.jsonl"]),
        ("data/*.jsonl", ["data/a.jsonl", "data/b1.jsonl"]),
        ("data/[ab]*.jsonl", ["data/a.jsonl", "data/b1.jsonl"]),
        ("data/[!a]*", ["data/b1.jsonl"]),
        ("data/**", ["data/a.jsonl", "data/b1.jsonl", "data/deep/c.jsonl"]),
        ("**/data/**/*.jsonl", NAMES[1:]),
        ("x/data/[[]d].jsonl", ["x/data/[d].jsonl"]),
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
