"""Holds documents to the JSON Schemas of docs/schemas. It imports nothing of the package, for `scripts/make_golden.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs

SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"


def valid(document: Mapping[str, Any], schema: str) -> None:
    """Raise ValueError if a document is not as its schema in docs/schemas says."""
    text = (SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8")
    jsonschema_rs.validator_for(json.loads(text)).validate(document)
