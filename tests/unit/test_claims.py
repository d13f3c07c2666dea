"""What README and the documents say of the repository itself is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_there_is_one_license() -> None:
    manifests = [*ROOT.glob("experts/*/manifest.json"), *ROOT.glob("examples/*/manifest.json")]
    assert len(manifests) == 11
    assert {json.loads(path.read_text(encoding="utf-8"))["license"] for path in manifests} == {"MIT"}
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")
    assert re.search(r'^license = "MIT"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)


LINK = re.compile(r"\]\((?!https?:)(?P<file>[^)#]*)(?:#(?P<anchor>[^)]*))?\)")


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and mkdocs make them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in LINK.finditer(document.read_text(encoding="utf-8")):
        target = document.parent / link["file"] if link["file"] else document
        assert target.exists(), link[0]
        if link["anchor"]:
            assert link["anchor"] in anchors(target), link[0]
