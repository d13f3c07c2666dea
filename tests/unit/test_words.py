"""What is gone is named nowhere, and words are spelled as Americans spell them.

CHANGELOG.md and what was recorded (tests/golden) keep what was written then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ["src", "tests", "benchmarks", "datagen", "scripts", "docs", "examples", "experts"]
SUFFIXES = {".py", ".md", ".cjs", ".css", ".j2"}
SELF = Path(__file__).resolve()

GONE = {
    r"--part\b": "a token store is put whole",
    r"--seal\b": "a token store is put whole",
    r"--stage-limit": "a token store is fetched whole",
    r"stage_limit": "a token store is fetched whole",
    r"--measure-disk": "",
    r"--free-memory": "",
    r"--for-base": "",
    r"expert-cli job\b": "examples/jobs",
    r"benchmark --compare": "",
    r"validate (?:\S+ )?--fix": "",
    r"audit (?:\S+ )*--fix": "",
    r"GBNF|gbnf": "schema.json",
    r"Neo4jEngine|DuckDB|import duckdb": "",
    r"max_loss_spike": "",
    r"(?i:feistel)": "",
    r"cpu_trials|cpu_attention": "",
    r"malloc_trim": "",
    r"used_keys": "",
    r"FlowCallback\b(?<!DefaultFlowCallback)|TrainingLoop\b": "transformers' Trainer",
    r"--against trl": "",
    r"merged_words|adjust_to_memory": "training/memory.py",
    r"bench_gpu": "gpu_check",
    r"capture_rng|restore_rng": "every step seeds itself",
}
"""Pattern of what went -> what takes its place, "" where nothing does."""
BRITISH = re.compile(
    r"(?:tokeni|quanti|normali|recogni|optimi|initiali|materiali|seriali|summari|organi|capitali|categori|randomi|generali|"
    r"speciali|emphasi|utili|synchroni|customi|minimi|maximi|authori|reali)s(?:e[ds]?|er|ing|ation|ations)(?![a-z])"
    r"|colour|behaviour|favour|honour|neighbour|labelled|modelled|licence|judgement|learnt|artefact|catalogue|whilst",
    re.IGNORECASE,
)
STAYS = {
    "dequantised_copy": "a key of `train --plan --json`, which programs read",
    "uncategorised": "a category in evaluation.json, which programs read",
}
"""Whole words that keep their spelling, and why."""
DATA = ("datagen/cases/case_worlds.py", "datagen/typescript/word_steps.py")
"""Files whose words are those of the experts' rows and cases, which are kept as they were made."""


def files() -> Iterator[Path]:
    for path in (*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))):
        if path.suffix in SUFFIXES and path.name != "CHANGELOG.md" and path.resolve() != SELF:
            yield path


def faults(text: str) -> list[tuple[int, str]]:
    """Return what a text should not say, each with its line."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        found += [(number, f"{word[0]} is gone") for pattern in GONE for word in re.finditer(pattern, line)]
        kept = re.sub("|".join(rf"\b{word}\b" for word in STAYS), "", line)
        found += [(number, f"{word[0]}: American spelling") for word in BRITISH.finditer(kept)]
    return found


def test_nothing_that_is_gone_is_named_and_words_are_american() -> None:
    left = []
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        if name in DATA:
            continue
        left += [f"{name}:{line}: {fault}" for line, fault in faults(path.read_text(encoding="utf-8"))]
    assert left == []


@pytest.mark.parametrize("word", STAYS)
def test_a_word_that_stays_is_in_use(word: str) -> None:
    assert any(word in path.read_text(encoding="utf-8") for path in files())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run expert-cli\nexpert-cli job, --parts", [(2, "expert-cli job is gone")]),
        ("Tokenising and COLOURS", [(1, "Tokenising: American spelling"), (1, "COLOUR: American spelling")]),
        ("otherwise, a promise, uncategorised, realistic, optimistic", []),
    ],
)
def test_what_a_fault_is(text: str, found: list[tuple[int, str]]) -> None:
    assert faults(text) == found


def test_the_glossary_is_short_and_in_order() -> None:
    text = (ROOT / "docs" / "GLOSSARY.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| \*\*(.+?)\*\* \| ", text, re.MULTILINE)
    assert 15 < len(terms) <= 25
    assert terms == sorted(set(terms), key=str.lower)
