"""Conversations through the published templates of model families; `benchmarks/compare_templates.py` compares many more."""

from __future__ import annotations

import pytest

from benchmarks.compare_templates import SANITIZES, compared
from benchmarks.lib.conversations import FAMILIES, Family

THINKS_ITSELF = () if SANITIZES else ("gpt-oss",)
"""Its template calls reasoning "thinking"; older versions of transformers leave a row's reasoning_content out there."""
HERE = [family for family in FAMILIES if family.jinja() and family.name not in THINKS_ITSELF]


def test_these_families_are_compared() -> None:
    assert {"Qwen2.5", "Qwen3", "Llama 3.1", "Gemma 3", "Phi 3.5", "SmolLM2", "DeepSeek V3", "GLM 4.5", "ChatML"} <= {
        family.name for family in HERE
    }


@pytest.mark.parametrize("family", HERE, ids=lambda family: family.name)
def test_text_ids_and_masks_are_those_of_transformers(family: Family) -> None:
    tally = compared(family, 12, None)
    assert tally
    assert tally.counts["text compared"] > 2
    assert tally.examples == {}


@pytest.mark.parametrize(
    "family", [family for family in HERE if "enable_thinking" in family.jinja()], ids=lambda family: family.name
)
def test_they_are_with_thinking_too(family: Family) -> None:
    tally = compared(family, 12, None, thinking=True)
    assert tally
    assert tally.counts["text compared"] > 2
    assert tally.examples == {}


def test_some_families_are_compared_with_thinking() -> None:
    assert {"Qwen3", "GLM 4.5"} <= {family.name for family in HERE if "enable_thinking" in family.jinja()}
