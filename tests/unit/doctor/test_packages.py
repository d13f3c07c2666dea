"""Installed packages against what is asked for, tested, and known to be bad."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from expert_cli.doctor import facts
from expert_cli.hardware.machine import installed

NEEDS = [
    Requirement(line)
    for line in ("torch>=2.6", "transformers<6,>=5.23", 'pytest>=8.3; extra == "test"', 'x>1; sys_platform == "none"')
]
PINS = {"torch": "2.13.0", "transformers": "5.23.0"}


@pytest.mark.parametrize(
    ("version", "state", "found", "fix"),
    [
        ("5.23.0", "ok", "torch 2.13.0, transformers 5.23.0", ""),
        ("5.30.1", "ok", "torch 2.13.0, transformers 5.30.1 (tested: 5.23.0)", ""),
        ("5.24.0.dev0", "ok", "torch 2.13.0, transformers 5.24.0.dev0 (tested: 5.23.0)", ""),
        ("5.22.9", "fail", "5.22.9 is older than <6,>=5.23", 'pip install "transformers==5.23.0"'),
        ("6.0.0", "warn", "6.0.0 is newer than <6,>=5.23, and was never tried", 'pip install "transformers==5.23.0"'),
        (None, "fail", "not installed; needed: <6,>=5.23", 'pip install "transformers==5.23.0"'),
    ],
    ids=["as tested", "newer", "development", "too old", "too new", "missing"],
)
def test_versions(version: str | None, state: str, found: str, fix: str) -> None:
    versions = {"torch": "2.13.0", "transformers": version}
    line = facts.versions(NEEDS, PINS, versions.get)[0]
    assert (line.state, line.found, line.fix) == (state, found, fix)


def test_a_local_build_of_the_tested_version_is_the_tested_version() -> None:
    (line,) = facts.versions([Requirement("torch>=2.6")], PINS, lambda _: "2.13.0+cu130")
    assert line.found == "torch 2.13.0+cu130"


@pytest.mark.parametrize(("name", "version"), [known.split() for known in facts.KNOWN_BAD])
def test_a_bad_version_within_the_bounds_says_why(name: str, version: str) -> None:
    (need,) = [need for need in facts.asked_for()[0] if need.name == name]
    assert need.specifier.contains(version)
    (line,) = facts.versions([need], {}, lambda _: f"{version}+local")
    assert line.state == "warn"
    assert facts.KNOWN_BAD[f"{name} {version}"] in line.found


def test_the_metadata_of_this_installation_is_read() -> None:
    names = {need.name for need in facts.asked_for()[0]}
    assert {"torch", "transformers", "peft", "pytest"} <= names
    assert [line.state for line in facts.versions(facts.asked_for()[0], facts.tested())] == ["ok"]


def test_without_metadata_the_line_says_so() -> None:
    (line,) = facts.versions([], {})
    assert line.state == "warn"


def test_the_tested_versions_are_those_that_constraints_txt_pins_for_this_python() -> None:
    pins = facts.tested()
    assert pins["torch"] == "2.13.0"
    assert pins["nvidia-ml-py"]
    lines = (Path(__file__).parents[3] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert len(pins) == sum("==" in line for line in lines)
    assert "transformers" in pins


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert installed("no-such-distribution") is None
    assert installed("torch") == importlib.metadata.version("torch")


def test_what_typescript_answers_are_judged_with() -> None:
    there, missing = facts.typescript("2.9.8"), facts.typescript(None)
    assert (there.state, there.found, there.fix) == ("ok", "deno 2.9.8: type-checked and run with their tests", "")
    assert (missing.state, missing.found) == ("ok", "no deno: they cannot be judged")
    assert missing.fix == 'pip install "expert-cli[evaluate]"'


@pytest.mark.parametrize(
    ("standing", "state", "lacking"),
    [
        (("namespaces", "limits", "files", "syscalls"), "ok", ""),
        (("limits", "files", "syscalls"), "ok", ""),
        (("namespaces", "limits", "files"), "ok", ""),
        (("limits", "syscalls"), "warn", "from files:"),
        (("limits", "files"), "warn", "from the network:"),
        (("limits",), "warn", "from the network and files:"),
        ((), "warn", "from the network and files:"),
    ],
)
def test_which_walls_are_lacking_is_told(standing: tuple[str, ...], state: str, lacking: str) -> None:
    line = facts.walls(standing)
    assert (line.state, bool(line.fix)) == (state, bool(lacking))
    assert lacking in line.fix
    assert ("--without-walls" in line.fix) == ("network" in lacking)
    assert all(name in line.found for name in standing)
