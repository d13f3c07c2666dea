"""Folders of the cache: made once, verified, whole or absent."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from expert_cli.errors import EnvironmentProblem
from expert_cli.model.loading.cache import fault, materialize
from expert_cli.utils.reporter import NullReporter
from tests.reporters import Heard

SHA_OF_GOOD = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c"


def build(target: Path) -> None:
    (target / "weights").write_text("good", encoding="utf-8")


def test_built_once(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "entry"
    assert materialize(folder, build, NullReporter()) == {"weights": SHA_OF_GOOD}
    assert materialize(folder, lambda _: pytest.fail("built again"), NullReporter()) == {"weights": SHA_OF_GOOD}
    assert sorted(path.name for path in folder.parent.iterdir()) == ["entry"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "weights").write_text("bad!"), "does not match its hash"),
        (lambda folder: (folder / "unpacked.json").write_text("{"), "JSONDecodeError"),
    ],
    ids=["changed", "record torn"],
)
def test_damage_is_named_and_repaired(tmp_path: Path, damage: object, words: str) -> None:
    folder = tmp_path / "entry"
    materialize(folder, build, NullReporter())
    damage(folder)  # type: ignore[operator]
    report = Heard()
    assert materialize(folder, build, report) == {"weights": SHA_OF_GOOD}
    assert words in report.warned[0]
    assert fault(folder) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entry"]


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), OSError("there is no such model")],
    ids=["of the system", "of a loader"],
)
def test_a_failed_build_leaves_nothing(tmp_path: Path, error: OSError) -> None:
    """transformers says as an error of the system that it cannot load a model."""

    def fail(target: Path) -> None:
        build(target)
        raise error

    with pytest.raises(EnvironmentProblem, match=error.strerror or str(error)):
        materialize(tmp_path / "entry", fail, NullReporter())
    assert list(tmp_path.iterdir()) == []


def test_only_old_remains_of_killed_builds_are_removed(tmp_path: Path) -> None:
    for name, age_s in ((".entry.old", 2 * 86400), (".entry.new", 60)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    materialize(tmp_path / "entry", build, NullReporter())
    assert sorted(path.name for path in tmp_path.iterdir()) == [".entry.new", "entry"]


def test_where_another_process_was_first_its_folder_stays(tmp_path: Path) -> None:
    def slower(target: Path) -> None:
        assert materialize(tmp_path / "entry", build, NullReporter()) == {"weights": SHA_OF_GOOD}
        (target / "weights").write_text("mine", encoding="utf-8")

    assert materialize(tmp_path / "entry", slower, NullReporter()) == {"weights": SHA_OF_GOOD}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entry"]
