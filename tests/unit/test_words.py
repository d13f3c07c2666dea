"""Words that were given up are gone: names of this project's own where the field has one, and British spellings.

docs/GLOSSARY.md has the words in use. CHANGELOG.md and what was recorded (tests/golden) keep what was written then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ["src", "tests", "benchmarks", "datagen", "scripts", "docs"]
SUFFIXES = {".py", ".md", ".cjs", ".css", ".j2"}
SELF = Path(__file__).resolve()

RETIRED = {
    "Speaker": "PromptRenderer",
    "Carver": "TemplateCompiler",
    "Skeleton": "CompiledTemplate",
    "read_document": "find_assistant_spans",
    "look_at": "scan_source",
    "survey_data": "select_rows",
    "held_out_ranks": "validation_split",
    "append_row": "validate_row",
    "torture": "stress_texts",
    "Tokenised": "TokenStore",
    "Memo": "FileHashCache",
    "fit_lengths": "apply_overflow",
    "document_starts": "cu_seqlens",
    "longest_document": "max_seqlen",
    "target_rows": "target_positions",
    "PackBatches": "PackedBatchSampler",
    "EpochOrder": "EpochPermutation",
    "foresee": "predict_kernels",
    "why_not": "refuses",
    "Watcher": "MetricsCallback",
    "PhaseClock": "StepTimer",
    "Continuity": "ResumeContext",
    "of_first": "broadcast_rank0",
    "try_step": "dry_run_step",
    "forget_after": "truncate_metrics",
    "require_room": "check_disk_space",
    "newest_good": "latest_valid",
    "HARMLESS": "IGNORED_ON_RESUME",
    "WatchConfig": "LogSaveEvalConfig",
    "Outlook": "RunEstimate",
    "foretell": "estimate_run",
    "Pace": "Throughput",
    "as_people_start": "baseline_config",
    "Judged": "GradedAnswer",
    "try_out": "check_gradable",
    "give_up_files_and_memory": "set_rlimits",
    "find_inputs": "resolve_inputs",
    "GateMissed": "ThresholdNotMet",
    "SilentBar": "NullBar",
    "Holder": "GpuProcess",
    "statetree": "serialization",
    "runlock": "lock",
    "runconfig": "run_config",
    "basemodel": "base_model",
    "jsontext": "json_parser",
    "storestate": "inspect",
    "house": "architecture",
    "walked one way": "layers",
}
"""What is no longer said -> what is said."""
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
DATA = {
    "datagen/cases/case_worlds.py": "words of the experts' cases, which are kept as they were made",
    "datagen/neo4j/small_domains.py": "words of the experts' rows: one of them is about speakers",
    "datagen/typescript/word_steps.py": "words of the experts' rows, which are kept as they were made",
}
"""Files that may speak as the data that they make, and why."""
OLD_NAMES = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, RETIRED))})(?!\w)")


def files() -> Iterator[Path]:
    for path in (*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))):
        if path.suffix in SUFFIXES and path.name != "CHANGELOG.md" and path.resolve() != SELF:
            yield path


def faults(text: str) -> list[tuple[int, str]]:
    """Return the words of a text that were given up, each with its line and what is said instead."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        found += [(number, f"{old[0]}: say {RETIRED[old[0]]}") for old in OLD_NAMES.finditer(line)]
        kept = line if not STAYS else re.sub("|".join(rf"\b{word}\b" for word in STAYS), "", line)
        found += [(number, f"{word[0]}: American spelling") for word in BRITISH.finditer(kept)]
    return found


def test_no_word_that_was_given_up_is_left() -> None:
    left = []
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        if name not in DATA:
            left += [f"{name}:{line}: {fault}" for line, fault in faults(path.read_text(encoding="utf-8"))]
    assert left == []


@pytest.mark.parametrize("name", DATA)
def test_an_exception_is_needed(name: str) -> None:
    assert faults((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("word", STAYS)
def test_a_word_that_stays_is_in_use(word: str) -> None:
    assert any(word in path.read_text(encoding="utf-8") for path in files())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a Speaker\nof the house", [(1, "Speaker: say PromptRenderer"), (2, "house: say architecture")]),
        ("warehouse, Spaces, foreseen", []),
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
