"""Room on disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from expert_cli.doctor import facts


@pytest.mark.parametrize(("free", "state"), [(5_000_000_000, "ok"), (4_999_999_999, "warn"), (499_999_999, "fail")])
def test_a_place(free: int, state: str) -> None:
    line = facts.check_disk(("disk", Path("/x"), 5_000_000_000), free)
    assert (line.state, bool(line.fix)) == (state, state != "ok")


def test_a_disk_is_left_as_it_was(tmp_path: Path) -> None:
    lines = facts.disks([("one", tmp_path, 1), ("two", tmp_path / "not" / "there", 1)])
    assert [(line.name, line.state) for line in lines] == [("one", "ok"), ("two", "ok")]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    (line,) = facts.disks([("one", tmp_path, 1)])
    assert (line.state, line.found) == ("fail", f"{tmp_path}: Permission denied")
