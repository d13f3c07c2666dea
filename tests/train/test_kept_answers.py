"""An evaluation that was stopped goes on with the answers that it had made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import expert_cli
from expert_cli.utils.reporter import NullReporter


class Counting(NullReporter):  # it is its own bar
    """Notes how many answers are asked for; stops once `stop_at` are whole."""

    def __init__(self, stop_at: int = 1_000) -> None:
        self.stop_at, self.asked = stop_at, 0.0

    @contextmanager
    def progress(self, title: str, total: float | None, unit: str = "") -> Iterator[Counting]:
        self.asked = (total or 0) if title == "answering" else self.asked
        yield self

    def update(self, done: float, note: str = "") -> None:
        if done >= self.stop_at:
            raise KeyboardInterrupt


def test_it_goes_on_where_it_was_stopped(expert: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(expert, run)
    asked = {"batch_size": 2, "max_new_tokens": 8, "output": tmp_path / "found.json"}
    kept = tmp_path / "found.answers.jsonl"
    whole, first, second, other = Counting(), Counting(4), Counting(), Counting()
    expected = expert_cli.evaluate(run, reporter=whole, **asked)
    assert not kept.exists()
    with pytest.raises(KeyboardInterrupt):
        expert_cli.evaluate(run, reporter=first, **asked)
    lines = kept.read_text(encoding="utf-8").splitlines()
    made = len(lines) - 1
    assert 2 <= made < whole.asked
    kept.write_text("\n".join([*lines, lines[-1][:20]]), encoding="utf-8")  # killed while it wrote
    assert expert_cli.evaluate(run, reporter=second, **asked).evaluation.answers == expected.evaluation.answers
    assert second.asked == whole.asked - made
    assert not kept.exists()
    kept.write_text("\n".join([json.dumps({"another": 1}), *lines[1:], ""]), encoding="utf-8")
    assert expert_cli.evaluate(run, reporter=other, **asked).evaluation.answers == expected.evaluation.answers
    assert other.asked == whole.asked
