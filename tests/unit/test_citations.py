"""What docstrings, comments and documents cite is there: documents in docs/ or beside README.md, files, modules to run."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CITED = re.compile(r"(?P<folder>\bdocs/)?(?<!\w)(?P<name>[A-Z][A-Z_]+)\.md\b")
BARE = re.compile(r"\b(?P<name>[A-Z][A-Z_]{4,}) (?:describes|says|asks|promises|demands|has)\b|\bINTERFACE\b(?!\.md)")
"""A document by its bare name: nobody can look it up."""
FILE = re.compile(r"(?<![\w./*<-])(?P<file>(?:[\w.-]+/)*\w[\w.-]*\.(?:py|cjs))\b(?!:\w)")
MODULE = re.compile(
    r"python -m (?P<module>(?:expert_cli|benchmarks|datagen|docs|scripts|tests)(?:\.[a-z_0-9]+)*)\b(?!\.)"
)
FOLDERS = ["src", "scripts", "benchmarks", "datagen", "docs/_generate", "tests"]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in (*FOLDERS, "experts", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".cjs")
]
THIRD_PARTIES = ROOT / "src" / "expert_cli" / "_compat.py"
"""Cites files of installed packages, in the version that it names."""


def words(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments and docstrings of a file with their lines."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            is_text = token.type == tokenize.STRING and token.string.lstrip("rR").startswith('"""')
            if is_text or token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def faults(text: str) -> list[str]:
    """Return what a text cites that is not there."""
    bare = [found[0] for found in BARE.finditer(text)]
    for found in CITED.finditer(text):
        places = [ROOT / "docs"] if found["folder"] else [ROOT / "docs", ROOT]
        if not any((place / f"{found['name']}.md").is_file() for place in places):
            bare.append(found[0])
    return bare


def missing(text: str, beside: Path | None = None) -> list[str]:
    """Return which files and modules a text names that are not there; a bare name is that of a file in the folder `beside`."""
    gone = []
    for found in FILE.finditer(text):
        name = found["file"]
        is_beside = beside is not None and (beside / name).is_file()
        is_named = ("/" in name or beside is None) and any(f"/{file}".endswith(f"/{name}") for file in FILES)
        if not (is_beside or is_named):
            gone.append(name)
    for found in MODULE.finditer(text):
        path = ROOT.joinpath("src" if found["module"].startswith("expert_cli") else "", *found["module"].split("."))
        if not (path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()):
            gone.append(found[0])
    return gone


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_that_is_cited_is_there(folder: str) -> None:
    cited = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != THIRD_PARTIES
        for line, text in words(path)
        for fault in missing(text, path.parent)
    ]
    assert cited == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_of_a_document_is_there(document: Path) -> None:
    assert missing(document.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("as `store/nowhere.py` says", ["store/nowhere.py"]),
        ("as `prune.py` says, which is elsewhere", ["prune.py"]),
        ("as store/lookup.py says, and test_citations.py", []),
        ("src/expert_cli/data/store/lookup.py and datagen/typescript/check.py", []),
        ("typescript_runner.cjs, which is elsewhere", ["typescript_runner.cjs"]),
        ("python -m benchmarks.bench_nothing", ["python -m benchmarks.bench_nothing"]),
        ("python -m expert_cli, python -m benchmarks.kill_test, python -m datagen.NAME.make", []),
    ],
)
def test_what_a_missing_file_is(text: str, found: list[str]) -> None:
    assert missing(text, Path(__file__).parent) == found


@pytest.mark.parametrize("folder", ["src", "scripts", "benchmarks", "datagen", "docs/_generate"])
def test_every_document_that_is_cited_is_there(folder: str) -> None:
    cited = [
        f"{path}:{line}: {fault}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in words(path)
        for fault in faults(text)
    ]
    assert cited == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the exit code of INTERFACE", ["INTERFACE"]),
        ("as docs/TRAPS.md has it", ["docs/TRAPS.md"]),
        ("as TRAPS says", ["TRAPS says"]),
        ("see MANIFEST.md", ["MANIFEST.md"]),
        ("docs/README.md", ["docs/README.md"]),
        ("the table of README.md, the exit codes of docs/INTERFACE.md", []),
    ],
)
def test_what_a_fault_is(text: str, found: list[str]) -> None:
    assert faults(text) == found


def test_the_documents_of_the_site_are_those_of_the_folder() -> None:
    listed = set(re.findall(r"^  - [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")}


def test_every_test_that_the_oldest_versions_must_pass_is_there() -> None:
    named = re.findall(r"(tests/\S+\.py)::(\w+)", (ROOT / ".ci" / "oldest").read_text(encoding="utf-8"))
    assert len(named) > 3
    assert [name for path, name in named if f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")] == []
