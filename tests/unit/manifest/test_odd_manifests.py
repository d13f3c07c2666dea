"""Manifests with odd values in odd places, a hundred kept ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.odd_manifests import broken_laws, odd_manifest, sources

KNOWN = sources()


@pytest.mark.parametrize("seed", range(100))
def test_an_odd_manifest_is_told_as_it_is_or_refused_with_places(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    assert broken_laws(tmp_path / "manifest.json", odd_manifest(random, KNOWN), random) == []
