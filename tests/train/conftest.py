"""Experts that a worker's tests share: nobody changes one; who wants another copies it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.train.projects import expert_of_seven


@pytest.fixture(scope="session")
def trained_expert(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return `expert_of_seven` without its folder: an expert of given settings is trained once."""

    @cache
    def trained(*words: str, **config: Any) -> Path:
        return expert_of_seven(tmp_path_factory.mktemp("expert"), *words, **config)

    return trained


@pytest.fixture(scope="session")
def expert(trained_expert: Callable[..., Path]) -> Path:
    """The run directory of an expert that answers 7."""
    return trained_expert()
