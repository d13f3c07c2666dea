"""docs/ARCHITECTURE.md is the map of the code as it is, and words are those that we agreed on."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "expert_cli"
TEXT = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGES = {
    path.parent.relative_to(SOURCE).as_posix(): path
    for path in sorted(SOURCE.rglob("__init__.py"))
    if path.parent != SOURCE
}


def section(heading: str) -> str:
    return TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def table(heading: str) -> dict[str, str]:
    """Return the rows of a section's table: the name in the first column -> the words in the second."""
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", section(heading), re.MULTILINE))


def first_paragraph(path: Path) -> str:
    text = re.match(r'"""(.*?)(?:\n\n|""")', path.read_text(encoding="utf-8"), re.DOTALL)
    return " ".join(text[1].split()) if text else ""


def test_every_package_is_on_the_map_in_its_own_words() -> None:
    assert table("Packages") == {name: first_paragraph(path) for name, path in PACKAGES.items()}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_names_files_of_its_own(name: str) -> None:
    named = re.findall(r"`([\w/]+\.py)`", first_paragraph(PACKAGES[name]))
    assert [file for file in named if not (SOURCE / name / file).is_file()] == []


def test_every_module_by_itself_is_on_the_map() -> None:
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py"}
    named = set(table("Modules by themselves"))
    assert named == modules


def test_every_folder_beside_the_package_is_there() -> None:
    named = table("Beside the package")
    assert len(named) > 8
    assert [folder for folder in named if not (ROOT / folder).is_dir()] == []
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert ours <= {folder.rstrip("/") for folder in named}


def test_the_layers_are_those_that_are_held() -> None:
    held = re.search(r"^layers = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    assert held is not None
    layers = re.findall(r'^  "(.+)",$', held[1], re.MULTILINE)
    assert len(layers) > 8
    assert re.findall(r"^    (\S.*)$", section("Layers"), re.MULTILINE) == layers


def test_the_main_path_can_be_read_from_file_to_file() -> None:
    """Eight files, each of which one before it imports."""
    files = re.findall(r"^\d\. `(\S+)`: ", section("The main path"), re.MULTILINE)
    assert len(files) == 8
    read = ""
    for number, file in enumerate(files):
        module = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
        assert importlib.util.find_spec(module) is not None, file
        package, _, name = module.rpartition(".")
        imported = rf"from {re.escape(module)} import |from {re.escape(package)} import (?:.*\b)?{name}\b"
        assert number == 0 or re.search(imported, read), f"no file before {file} imports it"
        read += (ROOT / file).read_text(encoding="utf-8")


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports for types alone count, too, and those inside functions."""
    root = SOURCE.parent
    files = {".".join(p.relative_to(root).with_suffix("").parts): p for p in root.rglob("*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    wanted: dict[str, set[str]] = {}
    for name, path in files.items():
        found = [
            node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
        ]
        asked = {(node.module or "", alias.name) for node in found for alias in node.names}
        wanted[name] = {
            whole if (whole := f"{module}.{one}") in files else module for module, one in asked
        } & files.keys()
    while free := [name for name, others in wanted.items() if not others & wanted.keys()]:
        for name in free:
            del wanted[name]
    assert sorted(wanted) == [], "these import each other, or what does"


def test_no_two_files_or_classes_have_one_name() -> None:
    """But for packages, and the files of commands, which are called as the commands are."""
    files = [path for path in SOURCE.rglob("*.py") if path.name != "__init__.py" and path.parent.name != "commands"]
    nodes = (node for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = Counter([*(path.name for path in files), *(node.name for node in nodes if isinstance(node, ast.ClassDef))])
    assert [name for name, count in names.items() if count > 1] == []


FOLDERS = ["src", "tests", "benchmarks", "datagen", "scripts", "docs", "examples", "experts"]
SUFFIXES = {".py", ".md", ".cjs", ".css", ".j2"}
GONE = re.compile(
    r"--(?:part|seal|stage-limit|measure-disk|free-memory|for-base)\b|expert-cli job\b|benchmark --compare|--against trl"
    r"|(?:validate|audit) (?:\S+ )*--fix|GBNF|DuckDB|bench_gpu"
)
"""Options and parts of earlier versions."""
BRITISH = re.compile(
    r"(?:tokeni|quanti|normali|recogni|optimi|initiali|materiali|seriali|summari|organi|capitali|categori|randomi|generali|"
    r"speciali|emphasi|utili|synchroni|customi|minimi|maximi|authori|reali)s(?:e[ds]?|er|ing|ation|ations)(?![a-z])"
    r"|colour|behaviour|favour|honour|neighbour|labelled|modelled|licence|judgement|learnt|artefact|catalogue|whilst",
    re.IGNORECASE,
)
STAYS = re.compile(r"\b(?:dequantised_copy|uncategorised)\b")
"""Keys of documents, which programs read."""
DATA = ("datagen/cases/case_worlds.py", "datagen/typescript/word_steps.py")
"""Files whose words are those of the experts' rows and cases, which are kept as they were made."""


def test_nothing_that_is_gone_is_named_and_words_are_american() -> None:
    left = []
    for path in (*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in SUFFIXES or path == Path(__file__) or name in ("CHANGELOG.md", *DATA):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            left += [f"{name}:{number}: {word[0]} is gone" for word in GONE.finditer(line)]
            left += [f"{name}:{number}: {word[0]}: American spelling" for word in BRITISH.finditer(STAYS.sub("", line))]
    assert left == []
