"""What docstrings, comments, documents and examples cite is there: documents, files, links, modules to run."""

from __future__ import annotations

import re
import shutil
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from expert_cli.errors import EnvironmentProblem

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"(?<![\w./*<-])(?P<file>(?:[\w.-]+/)*(?:\w[\w.-]*\.(?:py|cjs)|[A-Z][A-Z_]+\.md))\b(?!:\w)")
MODULE = re.compile(
    r"python -m (?P<module>(?:expert_cli|benchmarks|datagen|docs|scripts|tests)(?:\.[a-z_0-9]+)*)\b(?!\.)"
)
FOLDERS = ["src", "scripts", "benchmarks", "datagen", "docs/_generate", "tests"]
CODE = [*FOLDERS, "experts", "examples"]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FILES = [
    path.relative_to(ROOT).as_posix()
    for path in (*DOCUMENTS, *ROOT.glob("*.md"), *(one for folder in CODE for one in (ROOT / folder).rglob("*.*")))
    if path.suffix in (".py", ".cjs", ".md")
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


def missing(text: str, beside: Path | None = None) -> list[str]:
    """Return which files and modules a text names that are not there; a bare name is that of a file in the folder `beside`."""
    gone = []
    for found in FILE.finditer(text):
        name = found["file"]
        is_beside = beside is not None and (beside / name).is_file()
        is_named = ("/" in name or beside is None or name.endswith(".md")) and any(
            f"/{file}".endswith(f"/{name}") for file in FILES
        )
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


def test_the_documents_of_the_site_are_those_of_the_folder() -> None:
    listed = set(re.findall(r"^  - [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")}


def test_every_test_that_the_oldest_versions_must_pass_is_there() -> None:
    named = re.findall(r"(tests/\S+\.py)::(\w+)", (ROOT / ".ci" / "oldest").read_text(encoding="utf-8"))
    assert len(named) > 3
    assert [name for path, name in named if f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")] == []


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


JOBS = Path(__file__).parents[2] / "examples" / "jobs"


def test_the_job_files_are_read_and_try_again_what_may_end_otherwise() -> None:
    job = yaml.safe_load((JOBS / "train.k8s.yaml").read_text(encoding="utf-8"))
    rules = {
        rule["action"]: rule.get("onExitCodes", {}).get("values") for rule in job["spec"]["podFailurePolicy"]["rules"]
    }
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (job["kind"], rules["Count"], rules["Ignore"]) == ("Job", [EnvironmentProblem.exit_code], [143])
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"  # without it there is no podFailurePolicy
    sky = yaml.safe_load((JOBS / "train.sky.yaml").read_text(encoding="utf-8"))
    assert sky["resources"]["job_recovery"]["recover_on_exit_codes"] == [143]
    slurm = (JOBS / "train.slurm").read_text(encoding="utf-8")
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(.+)$", slurm, re.MULTILINE))
    assert (options["signal"], "#SBATCH --requeue\n" in slurm) == ("TERM@120", True)
    if bash := shutil.which("bash"):
        for script in (slurm, *container["args"], sky["setup"], sky["run"]):
            done = subprocess.run([bash, "-n"], input=script, capture_output=True, encoding="utf-8", check=False)
            assert (done.returncode, done.stderr) == (0, "")
    else:
        pytest.skip("no bash")
