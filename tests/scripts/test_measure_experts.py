"""The commands of the benchmark of experts are commands of the tool."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import measure_experts as measured
from expert_cli import cli


def options(out: Path, limit: int | None = None, max_steps: int | None = None) -> argparse.Namespace:
    return argparse.Namespace(out=out, data=None, experts=list(measured.EXPERTS), limit=limit, max_steps=max_steps)


@pytest.mark.parametrize("more", [{}, {"limit": 2, "max_steps": 5}], ids=["all", "little"])
def test_every_command_is_one(tmp_path: Path, more: dict[str, int]) -> None:
    asked = options(tmp_path, **more)
    for name in measured.EXPERTS:
        train = measured.train_command(name, asked)
        files = measured.case_files(name, asked)
        assert set(files) == {"cases", "unseen"}
        for command in (train, *(measured.evaluate_command(name, key, path, asked) for key, path in files.items())):
            read = cli.command(command[0]).make_context(command[0], command[1:]).params
            for part in ("manifest", "dataset", "cases"):
                assert not read.get(part) or (measured.HERE / read[part]).is_file()
        assert measured.printed(train, tmp_path).count("OUT") == 1
    assert measured.limit_of("real", asked) == more.get("limit", 300)
