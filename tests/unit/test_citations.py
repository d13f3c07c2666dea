"""What docstrings and comments cite can be read by whoever reads the code: it is in docs/, or beside README.md."""

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
